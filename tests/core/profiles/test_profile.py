"""Exact points of measured costs, and what is said where there is none."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.errors import FaultCode
from service.core.profiles import profile as profile_module
from service.core.profiles.profile import Measurement, Point, Profile, Recompute, build_profile
from tests.core.refusals import refusal_text, refusals


def measured(layer: str, point: Point | None = None, **fields: float) -> Measurement:
    given: dict[str, float] = {"forward_seconds": 1e-3, "backward_seconds": 2e-3, **fields}
    return replace(Measurement(layer, point or Point(1), 0.0), **given)  # type: ignore[arg-type]


def profile(*measurements: Measurement) -> Profile:
    return build_profile("gpu", "bf16", measurements)


def test_a_point_is_found_as_it_was_measured() -> None:
    point = Point(2, 128, 4, Recompute.FULL)
    found = profile(
        measured("a"),
        measured("a", point, recompute_seconds=1e-3, saved_activation_bytes=7),
    ).lookup("a", 2, 128, 4, Recompute.FULL)
    assert found.forward_picoseconds == 10**9
    assert found.backward_picoseconds == 2 * 10**9
    assert found.recompute_picoseconds == 10**9
    assert found.saved_activation_bytes == 7
    assert not found.communication_known


def test_a_split_backward_is_summed() -> None:
    halves = Measurement(
        "a", Point(1), 1e-3, backward_input_seconds=1e-3, backward_weight_seconds=2e-3
    )
    assert profile(halves).lookup("a", 1).backward_picoseconds == 3 * 10**9


def test_patterns_that_fit_no_layer_are_found() -> None:
    found = profile(*(Measurement(name, Point(1), 1e-3) for name in ("a", "b*", "?", "cc*", "dd")))
    assert found.unfitting(["b1", "x", "d"]) == ("cc*",)
    assert found.unfitting(["xx"]) == ("b*", "?", "cc*")
    assert found.unfitting(["b", "ccc"]) == ()


def test_an_unmeasured_backward_is_unknown_and_not_zero() -> None:
    assert profile(Measurement("a", Point(1), 1e-3)).lookup("a", 1).backward_picoseconds is None


def test_communication_is_paid_in_each_pass() -> None:
    point = Point(1, None, 2, Recompute.SELECTIVE)
    cost = profile(
        measured("a", point, recompute_seconds=3e-3, tensor_parallel_communication_seconds=0.5e-3)
    ).lookup("a", 1, None, 2, Recompute.SELECTIVE)
    assert cost.forward_picoseconds == 1_500_000_000
    assert cost.backward_picoseconds == 2_500_000_000
    assert cost.recompute_picoseconds == 3_500_000_000
    assert cost.communication_known


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((4, None, 1, Recompute.NONE), "microbatch_size 4"),
        ((1, 64, 1, Recompute.NONE), "sequence_length 64"),
        ((1, None, 2, Recompute.NONE), "tensor_parallel 2"),
        ((1, None, 1, Recompute.FULL), "recompute full"),
    ],
)
def test_nothing_is_scaled_to_another_point(
    shape: tuple[int, int | None, int, Recompute], said: str
) -> None:
    costs = profile(measured("a"), measured("a", Point(2)))
    call = lambda: costs.lookup("a", *shape)  # noqa: E731
    assert refusals(call) == [(FaultCode.MISSING_PROFILE_POINT, ())]
    text = refusal_text(call)
    assert said in text
    assert "measured: microbatch_size 1, no sequence_length" in text
    assert "; microbatch_size 2," in text


def test_an_unknown_layer_has_no_points() -> None:
    assert "measured: nothing" in refusal_text(lambda: profile(measured("a")).lookup("b", 1))


def test_a_name_goes_before_a_pattern() -> None:
    costs = profile(measured("block.*"), measured("block.7", forward_seconds=5e-3))
    assert costs.lookup("block.7", 1).forward_picoseconds == 5 * 10**9
    assert costs.lookup("block.8", 1).forward_picoseconds == 10**9
    assert costs.lookup("block.", 1).forward_picoseconds == 10**9
    assert costs.points("head") == ()


def test_a_pattern_fills_the_points_that_a_name_lacks() -> None:
    costs = profile(measured("b*", Point(2)), measured("b7", Point(1)))
    assert costs.points("b7") == (Point(1), Point(2))
    assert costs.lookup("b7", 2).forward_picoseconds == 10**9


def test_two_patterns_may_not_claim_one_point() -> None:
    costs = profile(measured("block.*"), measured("*.7"), measured("*.8", Point(2)))
    assert refusals(lambda: costs.lookup("block.7", 1)) == [(FaultCode.INCONSISTENT, ())]
    assert costs.lookup("block.8", 1).forward_picoseconds == 10**9


def test_brackets_in_a_pattern_are_no_wildcards() -> None:
    costs = profile(measured("a[12]*"))
    assert costs.points("a1") == ()
    assert costs.points("a[12]x") == (Point(1),)


def test_a_hostile_pattern_is_matched_quickly() -> None:
    costs = profile(measured("a*" * 60 + "b"))
    assert costs.points("a" * 127) == ()


def test_every_fault_of_the_measurements_is_told() -> None:
    found = refusals(
        lambda: profile(
            measured("a"),
            measured("a"),
            measured("b", backward_input_seconds=1.0),
            Measurement("c", Point(1), 1.0, backward_weight_seconds=1.0),
            measured("d", forward_seconds=-1.0),
            measured("e", forward_seconds=1e-13),
            measured("f", Point(1, recompute=Recompute.FULL)),
            measured("g", recompute_seconds=1.0),
            measured("h", tensor_parallel_communication_seconds=1.0),
            measured("i", forward_seconds=float("nan")),
        )
    )
    assert found == [
        (FaultCode.DUPLICATE_NAME, ("measurements", 1)),
        (FaultCode.EXCLUSIVE_FIELDS, ("measurements", 2, "backward_seconds")),
        (FaultCode.MISSING_FIELD, ("measurements", 3, "backward_input_seconds")),
        (FaultCode.OUT_OF_RANGE, ("measurements", 4, "forward_seconds")),
        (FaultCode.TOO_SMALL_TO_REPRESENT, ("measurements", 5, "forward_seconds")),
        (FaultCode.MISSING_FIELD, ("measurements", 6, "recompute_seconds")),
        (FaultCode.INCONSISTENT, ("measurements", 7, "recompute_seconds")),
        (FaultCode.INCONSISTENT, ("measurements", 8, "tensor_parallel_communication_seconds")),
        (FaultCode.OUT_OF_RANGE, ("measurements", 9, "forward_seconds")),
    ]


def test_the_number_of_patterns_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_module, "MAX_PATTERNS", 2)
    patterns = [measured("a*"), measured("b*"), measured("c*")]
    assert refusals(lambda: profile(*patterns)) == [(FaultCode.WORK_BUDGET, ("measurements",))]


@given(
    points=st.lists(
        st.builds(
            Point,
            st.integers(1, 3),
            st.none() | st.integers(1, 3),
            st.integers(1, 3),
        ),
        unique=True,
        max_size=12,
    )
)
def test_exactly_the_measured_points_are_found(points: list[Point]) -> None:
    costs = profile(
        *(
            measured("a", point, forward_seconds=(1 + number) * 1e-3)
            for number, point in enumerate(points)
        )
    )
    assert set(costs.points("a")) == set(points)
    for microbatch in range(1, 4):
        for sequence in (None, 1, 2, 3):
            for tensor in range(1, 4):
                point = Point(microbatch, sequence, tensor)
                found = costs.find("a", point)
                if point in points:
                    expected = (1 + points.index(point)) * 10**9
                    assert getattr(found, "forward_picoseconds", None) == expected
                else:
                    assert found is None
