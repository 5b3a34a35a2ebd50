"""The fluid backlog."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.errors import InvalidInput
from service.core.queues import MAX_STEPS, NOT_REPRESENTED, fluid_backlog


@pytest.mark.parametrize(
    ("arrivals", "service", "levels"),
    [(4, 3, (4.5, 5.0)), (4, 5, (3.5, 3.0)), (2, 3, (3.5, 3.0))],
)
def test_two_steps_of_half_a_second(
    arrivals: float, service: float, levels: tuple[float, ...]
) -> None:
    assert fluid_backlog(4, arrivals, service, 0.5, 2).levels == levels


def test_never_below_zero_and_fills_again_from_there() -> None:
    assert fluid_backlog(1, 0, 3, 0.5, 3).levels == (0.0, 0.0, 0.0)


def test_says_what_it_leaves_out() -> None:
    assert fluid_backlog(0, 1, 1, 1, 1).not_represented == NOT_REPRESENTED
    assert "randomness" in dict(NOT_REPRESENTED)


def test_sums_are_exact() -> None:
    levels = fluid_backlog(0, 0.1, 0, 1, 10).levels
    assert levels[9] == 1.0
    assert levels[2] == float(3 * Fraction(0.1))


amounts = st.floats(min_value=0, max_value=1e6)


@given(amounts, amounts, amounts, st.floats(min_value=1e-6, max_value=1e3), st.integers(1, 50))
def test_is_the_straight_line_cut_at_zero(
    backlog: float, arrivals: float, service: float, step: float, steps: int
) -> None:
    change = (Fraction(arrivals) - Fraction(service)) * Fraction(step)
    levels = fluid_backlog(backlog, arrivals, service, step, steps).levels
    assert levels == tuple(
        float(max(Fraction(0), Fraction(backlog) + k * change)) for k in range(1, steps + 1)
    )


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(InvalidInput) as refused:
        fluid_backlog(-1, float("nan"), float("inf"), 0, MAX_STEPS + 1)
    assert [fault.path for fault in refused.value.faults] == [
        ("initial_backlog",),
        ("arrival_rate",),
        ("service_rate",),
        ("step_seconds",),
        ("steps",),
    ]
