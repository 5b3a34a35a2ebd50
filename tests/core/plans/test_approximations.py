"""Plans at shapes that were not measured: what stands in, how it is marked, and what is refused."""

from dataclasses import replace

import pytest

from service.core.errors import FaultCode
from service.core.plans import approximations
from service.core.plans.plan import Degrees, Partition, Plan, ResolvedPlan, Workload
from service.core.plans.resolve import resolve
from service.core.profiles.interpolation import UnmeasuredShapes
from service.core.profiles.measurement import Measurement, Point, Recompute
from service.core.profiles.profile import build_profile
from service.core.profiles.provenance import Provenance
from tests.core.plans.worlds import chain, profiled_plan
from tests.core.refusals import refusal_text, refusals

MILLISECOND = 10**9


def measured(layer: str, size: int, milliseconds: float, **fields: object) -> Measurement:
    made = Measurement(layer, Point(size), milliseconds / 1000, 2 * milliseconds / 1000)
    return replace(made, **fields)  # type: ignore[arg-type]


# l0 at 2, 4 and 8, bent by 10 %; l1 at 2 (where chain's tensors were recorded) and l2 at 1 and 4.
ROWS = (
    measured("l0", 1, 1),
    measured("l0", 3, 3),
    measured("l0", 5, 4),
    measured("l1", 2, 7),
    measured("l2", 1, 1),
    measured("l2", 4, 4),
)


def plan(**fields: object) -> Plan:
    made = profiled_plan(Partition(cuts=(1, 2)), degrees=Degrees(3))
    return replace(made, **fields)  # type: ignore[arg-type]


def resolved(asked: Plan, *rows: Measurement) -> ResolvedPlan:
    return resolve(asked, model=chain(3), profile=build_profile(None, None, rows or ROWS))


def test_each_stage_says_how_it_got_its_costs() -> None:
    found = resolved(plan())
    assert [stage.forward_picoseconds for stage in found.stages] == [
        2 * MILLISECOND,
        7 * MILLISECOND,
        2 * MILLISECOND,
    ]
    assert [stage.provenance for stage in found.stages] == [
        Provenance.INTERPOLATED,
        Provenance.MEASURED,
        Provenance.INTERPOLATED,
    ]
    errors = [stage.sources.relative_error for stage in found.stages if stage.sources]
    # Without 3 the line from 1 to 5 gives 2.5 in place of 3; l2 has no third point.
    assert errors == [pytest.approx(0.5 / 3), 0.0, pytest.approx(1.0)]


def test_a_stage_is_as_sure_as_its_least_sure_layer_and_counts_each() -> None:
    asked = plan(partition=Partition(cuts=()), degrees=Degrees(1))
    (stage,) = resolved(asked).stages
    assert stage.provenance is Provenance.INTERPOLATED
    assert stage.sources is not None
    assert stage.sources.layers == ((Provenance.MEASURED, 1), (Provenance.INTERPOLATED, 2))
    # 33 ms of work, of which 6 may be off by a sixth and 6 by all of it.
    assert stage.sources.relative_error == pytest.approx((6 / 6 + 6) / 33)


def test_an_answer_says_which_costs_were_not_measured_and_how_far_off_they_are() -> None:
    said = [one for one in resolved(plan()).assumptions if one.code == "interpolated_costs"]
    assert [one.detail for one in said] == [
        (
            "costs of 1 layer (l0) were not measured at microbatch_size 2, no sequence_length, "
            "tensor_parallel 1, recompute none: they are linear in microbatch_size, between the "
            "measured microbatch_size 1 and 3; measured points that are left out in turn are "
            "missed by at most 16.7%"
        ),
        (
            "costs of 1 layer (l2) were not measured at microbatch_size 2, no sequence_length, "
            "tensor_parallel 1, recompute none: they are linear in microbatch_size, between the "
            "measured microbatch_size 1 and 4; no further measured point says how far off they are;"
            " where a layer's work only grows from one end to the other they are at most 100.0% off"
        ),
    ]


def test_many_layers_are_one_statement() -> None:
    rows = [measured("*", 1, 1), measured("*", 3, 3)]
    (said,) = [
        one for one in resolved(plan(), *rows).assumptions if one.code == "interpolated_costs"
    ]
    assert said.detail.startswith("costs of 3 layers (l0; l1; l2) ")


def test_a_plan_may_refuse_what_was_not_measured() -> None:
    asked = plan(unmeasured_shapes=UnmeasuredShapes.REFUSE)
    call = lambda: resolved(asked)  # noqa: E731
    assert refusals(call) == [(FaultCode.MISSING_PROFILE_POINT, ("costs", "profile"))] * 2
    assert "costs.unmeasured_shapes is refuse" in refusal_text(call)


def test_only_a_plan_that_asks_for_it_goes_beyond_what_was_measured() -> None:
    rows = [measured("*", 4, 4), measured("*", 6, 5), measured("*", 8, 6)]
    call = lambda: resolved(plan(), *rows)  # noqa: E731
    assert refusals(call) == [(FaultCode.MISSING_PROFILE_POINT, ("costs", "profile"))]
    assert "none of these lie around it (costs.unmeasured_shapes: extrapolate" in refusal_text(call)
    found = resolved(plan(unmeasured_shapes=UnmeasuredShapes.EXTRAPOLATE), *rows)
    assert {stage.provenance for stage in found.stages} == {Provenance.EXTRAPOLATED}
    assert [stage.forward_picoseconds for stage in found.stages] == [3 * MILLISECOND] * 3
    assert {stage.sources.relative_error for stage in found.stages if stage.sources} == {None}
    (said,) = [one for one in found.assumptions if one.code == "extrapolated_costs"]
    assert "beyond the measured microbatch_size 4 and 6; such a line misses" in said.detail


def test_what_was_measured_once_is_never_scaled() -> None:
    asked = plan(unmeasured_shapes=UnmeasuredShapes.EXTRAPOLATE)
    call = lambda: resolved(asked, measured("*", 4, 4))  # noqa: E731
    assert refusals(call) == [(FaultCode.MISSING_PROFILE_POINT, ("costs", "profile"))]
    assert "no line leads to it" in refusal_text(call)


def test_saved_bytes_and_what_is_made_again_lie_between_too() -> None:
    again = Point(0, recompute=Recompute.FULL)
    rows = [
        row
        for size, whole, kept in ((1, 100, 10), (3, 300, 30))
        for row in (
            measured("*", size, size, saved_activation_bytes=whole),
            measured(
                "*",
                size,
                size,
                point=replace(again, microbatch_size=size),
                recompute_seconds=size / 1000,
                saved_activation_bytes=kept,
            ),
        )
    ]
    found = resolved(plan(recompute="full"), *rows)
    assert [stage.activation_bytes for stage in found.stages] == [20] * 3
    assert [stage.recomputed_bytes for stage in found.stages] == [180] * 3
    assert [stage.recompute_picoseconds for stage in found.stages] == [2 * MILLISECOND] * 3


def test_lengths_that_differ_are_each_looked_up() -> None:
    rows = [replace(measured("*", 2, length / 8), point=Point(2, length)) for length in (8, 16, 32)]
    work = Workload(3, microbatch_size=2, microbatch_sequence_lengths=(8, 24, 12))
    asked = plan(workload=work, partition=Partition(cuts=()), degrees=Degrees(1))
    found = resolve(asked, model=chain(1), profile=build_profile(None, None, rows))
    assert found.stages[0].forward_picoseconds == (
        MILLISECOND,
        3 * MILLISECOND,
        3 * MILLISECOND // 2,
    )
    assert found.stages[0].provenance is Provenance.INTERPOLATED


def test_how_many_costs_are_worked_out_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approximations, "MAX_APPROXIMATIONS", 2)
    rows = [measured("*", 1, 1), measured("*", 3, 3)]
    assert refusals(lambda: resolved(plan(), *rows)) == [
        (FaultCode.WORK_BUDGET, ("costs", "profile"))
    ]


def test_without_a_profile_there_are_no_shapes() -> None:
    asked = plan(profile=None, model=None, unmeasured_shapes=UnmeasuredShapes.REFUSE)
    found = refusals(lambda: resolve(asked))
    assert (FaultCode.EXCLUSIVE_FIELDS, ("costs", "unmeasured_shapes")) in found
