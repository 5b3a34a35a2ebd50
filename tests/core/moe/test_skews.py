"""Named skews: what each says of the experts, and the two limits that all of them keep."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.errors import Fault
from service.core.moe.assignments import RoutingLevel
from service.core.moe.skews import Skew, SkewKind, check_skew, skewed, uniform

TOKENS = np.array([120, 120])


def loads(skew: Skew, *, top_k: int = 2, experts: int = 8, step: int = 0) -> list[int]:
    """Of each expert from one source of two, with two experts on each of four ranks."""
    asked = skewed(skew, TOKENS, top_k, experts, ranks=4, step=step)
    assert asked.level is RoutingLevel.SKEW
    assert np.abs(asked.counts[0] - asked.counts[1]).max() <= 1
    return [int(count) for count in asked.counts[0]]


def test_evenly_choosing_tokens_ask_for_all_alike() -> None:
    assert uniform(np.array([4, 2]), 2, 4).counts.tolist() == [[2, 2, 2, 2], [1, 1, 1, 1]]


def test_evenly_choosing_tokens_that_do_not_divide_leave_no_expert_behind() -> None:
    counts = uniform(np.full(5, 3), 2, 4).counts
    assert counts.sum(axis=1).tolist() == [6] * 5
    assert sorted(counts.sum(axis=0).tolist()) == [7, 7, 8, 8]


def test_zipf_is_capped_where_a_token_would_ask_twice_for_an_expert() -> None:
    # 1, 1/2, 1/4, ... x 240 / sum would give expert 0 more than 120; the rest has what is left.
    asked = loads(Skew(SkewKind.ZIPF, exponent=2.0), experts=3)
    assert asked == [120, 83, 37]  # 120 x 1/4 / (1/4 + 1/9) = 83.08
    assert loads(Skew(SkewKind.ZIPF, exponent=0.0)) == [30] * 8


def test_zipf_under_a_seed_is_another_order_of_the_same_loads() -> None:
    plain = loads(Skew(SkewKind.ZIPF, exponent=1.0))
    shuffled = loads(Skew(SkewKind.ZIPF, exponent=1.0, seed=3))
    assert plain == sorted(plain, reverse=True)
    assert shuffled != plain
    assert np.abs(np.sort(shuffled) - np.sort(plain)).max() <= 1


def test_a_hot_expert_has_its_fraction_and_the_others_share_the_rest() -> None:
    asked = loads(Skew(SkewKind.HOT_EXPERT, fraction=0.5, expert=3), experts=4)
    assert asked == [60, 60, 60, 60]  # half of 120, and (240 - 60) / 3: as under uniform
    asked = loads(Skew(SkewKind.HOT_EXPERT, fraction=1.0, expert=3), experts=5)
    assert asked == [30, 30, 30, 120, 30]
    asked = loads(Skew(SkewKind.HOT_EXPERT, fraction=0.0), experts=5)
    assert asked == [0, 60, 60, 60, 60]


def test_a_hot_rank_has_its_fraction_of_both_choices() -> None:
    asked = loads(Skew(SkewKind.HOT_RANK, fraction=0.75, rank=1))
    assert asked == [10, 10, 90, 90, 10, 10, 10, 10]


def test_nobody_asks_for_the_experts_of_an_empty_rank() -> None:
    assert loads(Skew(SkewKind.EMPTY_RANK, rank=3)) == [40, 40, 40, 40, 40, 40, 0, 0]


def test_ranks_that_experts_do_not_divide_into_hold_one_more_first() -> None:
    asked = skewed(Skew(SkewKind.EMPTY_RANK), np.array([7]), 1, 9, ranks=4, step=0)
    assert asked.counts[0].tolist() == [0, 0, 0, 2, 1, 1, 1, 1, 1]


def test_a_rotating_hot_expert_moves_on_with_each_step_and_comes_back() -> None:
    skew = Skew(SkewKind.ROTATING, fraction=1.0, expert=7, steps=3)
    hottest = [int(np.argmax(loads(skew, step=step))) for step in range(4)]
    assert hottest == [7, 0, 1, 7]


def test_a_burst_comes_with_the_last_step_of_each_period() -> None:
    skew = Skew(SkewKind.BURST, fraction=1.0, expert=2, period=3, steps=6)
    hot = [loads(skew, step=step)[2] == 120 for step in range(7)]
    assert hot == [False, False, True, False, False, True, False]
    assert loads(skew, step=0) == [30] * 8


@pytest.mark.parametrize("exponent", [0.6, 1.0, 1.2])
def test_a_power_law_is_drawn_by_the_inverse_of_its_distribution(exponent: float) -> None:
    # The median of the density x ** -a on [1, 8], worked out without the code: F(x) = 1/2.
    if exponent == 1.0:
        median = math.sqrt(8.0)
    else:
        power = 1 - exponent
        median = ((1 + 8**power) / 2) ** (1 / power)
    experts = 4096
    skew = Skew(SkewKind.POWER_LAW, exponent=exponent, least=1.0, most=8.0, seed=1)
    tokens = np.array([10**9])
    counts = skewed(skew, tokens, 8, experts, ranks=1, step=0).counts[0]
    # Loads are in proportion; the least of so many draws is very near to 1.
    assert float(np.median(counts) / counts.min()) == pytest.approx(median, rel=0.05)
    assert float(counts.max() / counts.min()) == pytest.approx(8.0, rel=0.02)


SKEWS = st.one_of(
    st.just(Skew(SkewKind.UNIFORM)),
    st.builds(Skew, st.just(SkewKind.ZIPF), exponent=st.floats(0, 6)),
    st.builds(
        Skew,
        st.just(SkewKind.POWER_LAW),
        exponent=st.floats(0, 6),
        least=st.floats(0.1, 1),
        most=st.floats(1, 1e6),
        seed=st.integers(0, 99),
    ),
    st.builds(Skew, st.just(SkewKind.HOT_EXPERT), fraction=st.floats(0, 1)),
    st.builds(Skew, st.just(SkewKind.HOT_RANK), fraction=st.floats(0, 1)),
    st.just(Skew(SkewKind.EMPTY_RANK)),
    st.builds(Skew, st.just(SkewKind.ROTATING), fraction=st.floats(0, 1), steps=st.just(5)),
    st.builds(
        Skew, st.just(SkewKind.BURST), fraction=st.floats(0, 1), period=st.just(2), steps=st.just(4)
    ),
)


@settings(max_examples=100)
@given(SKEWS, st.integers(1, 20), st.data())
def test_all_keep_both_limits(skew: Skew, experts: int, data: st.DataObject) -> None:
    top_k = data.draw(st.integers(1, experts))
    ranks = data.draw(st.integers(1, 24))
    tokens = np.array(data.draw(st.lists(st.integers(0, 50), min_size=1, max_size=6)))
    step = data.draw(st.integers(0, 9))
    counts = skewed(skew, tokens, top_k, experts, ranks=ranks, step=step).counts
    assert counts.sum(axis=1).tolist() == (top_k * tokens).tolist()
    assert (counts >= 0).all()
    assert (counts <= tokens[:, np.newaxis]).all()


def details(faults: list[Fault]) -> dict[str, str]:
    """Faults by the field they point to."""
    return {str(fault.path[-1]): fault.detail for fault in faults}


def test_each_number_that_is_missing_or_too_many_is_named() -> None:
    faults = check_skew(Skew(SkewKind.BURST, exponent=1.0, steps=2), path=("skew",))
    assert [fault.path for fault in faults] == [
        ("skew", "exponent"),
        ("skew", "fraction"),
        ("skew", "period"),
    ]
    assert "fraction and period and expert" in details(faults)["exponent"]


def test_numbers_are_held_against_where_the_skew_is_used() -> None:
    hot = Skew(SkewKind.HOT_RANK, fraction=0.5, rank=4)
    assert "at most 3" in details(check_skew(hot, ranks=4))["rank"]
    assert not check_skew(hot, ranks=5)
    empty = Skew(SkewKind.EMPTY_RANK)
    assert "other ranks hold 2" in details(check_skew(empty, experts=4, top_k=3, ranks=2))["kind"]
    assert not check_skew(empty, experts=4, top_k=2, ranks=2)
    burst = Skew(SkewKind.BURST, fraction=1.0, period=3, steps=2)
    assert "fewer than 3 steps" in details(check_skew(burst))["steps"]
    law = Skew(SkewKind.POWER_LAW, exponent=1.0, least=2.0, most=1.0, seed=0)
    assert "must not be below least" in details(check_skew(law))["most"]
    steps = Skew(SkewKind.UNIFORM, steps=2)
    assert "leave steps out" in details(check_skew(steps))["steps"]
