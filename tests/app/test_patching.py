"""Patches that keep stage times they invalidate are refused; faults point into the request."""

from dataclasses import replace
from typing import Any

import pytest

from service.app.patching import apply_patch, locate
from service.app.patching import located as all_located
from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.plans.check import check_plan
from service.formats.documents import plan as plans
from service.formats.documents.plan import PlanDocument
from tests.app.plan_documents import INLINE_PLAN, decode_plan, inline_plan

SIZED = {"microbatches": 8, "microbatch_size": 2, "sequence_length": 1024}
FIXED_BATCH = {"microbatches": 8, "global_batch_size": 32}


def patched_faults(workload: dict[str, Any], patch: dict[str, Any]) -> list[Fault]:
    with pytest.raises(InvalidInput) as refused:
        apply_patch(inline_plan(workload=workload), patch, decode_plan)
    return list(refused.value.faults)


@pytest.mark.parametrize(
    ("workload", "patch", "path"),
    [
        (SIZED, {"workload": {"microbatch_size": 4}}, ("patch", "workload", "microbatch_size")),
        (FIXED_BATCH, {"workload": {"microbatches": 16}}, ("patch", "workload", "microbatches")),
        (
            FIXED_BATCH,
            {"workload": {"global_batch_size": 64}},
            ("patch", "workload", "global_batch_size"),
        ),
        (FIXED_BATCH, {"parallelism": {"data": 2}}, ("patch", "parallelism", "data")),
        (SIZED, {"workload": {"sequence_length": 8}}, ("patch", "workload", "sequence_length")),
        (SIZED, {"parallelism": {"tensor": 2}}, ("patch", "parallelism", "tensor")),
        (SIZED, {"parallelism": {"context": 2}}, ("patch", "parallelism", "context")),
        (
            SIZED,
            {"parallelism": {"sequence_parallel": True}},
            ("patch", "parallelism", "sequence_parallel"),
        ),
        (SIZED, {"recompute": {"default": "full"}}, ("patch", "recompute", "default")),
    ],
)
def test_inline_times_do_not_outlive_what_they_were_stated_for(
    workload: dict[str, Any], patch: dict[str, Any], path: tuple[str, ...]
) -> None:
    (fault,) = patched_faults(workload, patch)
    assert (fault.code, fault.path) == (FaultCode.INCONSISTENT, path)


@pytest.mark.parametrize(("includes", "stale"), [("experts", True), ("nothing", False)])
def test_times_with_experts_in_them_are_those_of_an_expert_degree(
    includes: str, stale: bool
) -> None:
    asked = inline_plan(workload=SIZED, moe={"layer_costs_include": includes})
    patch = {"parallelism": {"expert": 2}}
    if not stale:
        assert apply_patch(asked, patch, decode_plan)
        return
    with pytest.raises(InvalidInput) as refused:
        apply_patch(asked, patch, decode_plan)
    assert [one.path for one in refused.value.faults] == [("patch", "parallelism", "expert")]


def test_every_stale_reason_is_named() -> None:
    patch = {"workload": {"microbatch_size": 4, "sequence_length": 8}}
    assert len(patched_faults(SIZED, patch)) == 2


@pytest.mark.parametrize(
    ("workload", "patch"),
    [
        (SIZED, {"workload": {"microbatches": 32}}),  # the size is held fixed, the batch grows
        ({"microbatches": 8}, {"workload": {"microbatches": 32}}),
        ({"microbatches": 8}, {"workload": {"microbatch_size": 2}}),  # says what was unsaid
        (FIXED_BATCH, {"workload": {"microbatches": 16, "global_batch_size": 64}}),
        (
            SIZED,
            {"workload": {"microbatch_size": 4}, "costs": {"stages": [{"forward_seconds": 1.0}]}},
        ),
    ],
)
def test_patches_that_invalidate_nothing_are_applied(
    workload: dict[str, Any], patch: dict[str, Any]
) -> None:
    apply_patch(inline_plan(workload=workload), patch, decode_plan)


def test_a_null_removes_a_field() -> None:
    plan = apply_patch(
        inline_plan(workload=SIZED), {"workload": {"sequence_length": None}}, decode_plan
    )
    assert plan == inline_plan(workload={"microbatches": 8, "microbatch_size": 2})


def located(plan: Any, patch: dict[str, Any] | None, fault: Fault) -> Fault:
    with pytest.raises(InvalidInput) as refused, locate(plan, patch):
        raise InvalidInput([fault])
    return refused.value.faults[0]


def test_faults_point_into_the_request_as_sent() -> None:
    fault = Fault(FaultCode.OUT_OF_RANGE, ("workload", "microbatches"), "too many")
    inline = decode_plan(INLINE_PLAN)
    patch = {"workload": {"microbatches": 9}}
    assert located(inline, None, fault).path == ("plan", "workload", "microbatches")
    assert located(inline, patch, fault).path == ("patch", "workload", "microbatches")
    assert located("name@1", patch, fault).path == ("patch", "workload", "microbatches")
    unpatched = located("name@1", {"schedule": {"kind": "gpipe"}}, fault)
    assert unpatched.path == ("plan",)
    assert unpatched.detail == "workload/microbatches: too many"


def test_what_a_patch_makes_of_a_stored_plan_points_to_the_patch() -> None:
    plan = plans.to_core(decode_plan(INLINE_PLAN))
    wide = replace(plan, degrees=replace(plan.degrees, pipeline=7))
    of_form = check_plan(wide)
    assert [fault.path for fault in of_form] == [("costs", "stages")]
    other = Fault(FaultCode.UNREACHABLE, ("placement",), "no path")
    error = InvalidInput([*of_form, other])
    for patch, place in (
        ({"parallelism": {"pipeline": 7}}, ("patch", "parallelism", "pipeline")),
        ({"parallelism": {"pipeline": 7, "data": 1}}, ("patch", "parallelism")),
        ({"parallelism": {"pipeline": 7}, "workload": {"microbatches": 9}}, ("patch",)),
    ):
        by_patch, by_itself = all_located(error, "name", patch, wide).faults
        assert by_patch.path == place
        assert by_patch.detail.startswith("costs/stages: pipeline 7 x")
        # What hangs on other documents may have been so before.
        assert by_itself.path == ("plan",)
        inline = all_located(error, decode_plan(INLINE_PLAN), patch, wide).faults
        assert inline[0].path == ("plan", "costs", "stages")


LISTED = {
    "microbatches": 2,
    "microbatch_size": 1,
    "microbatch_sequence_lengths": [1024, 512],
}
LISTED_STAGE = {"forward_seconds": [0.002, 0.001], "backward_seconds": [0.004, 0.002]}


def listed_plan(workload: dict[str, Any]) -> PlanDocument:
    return apply_patch(
        inline_plan(workload={"microbatches": 2}),
        {"workload": workload, "costs": {"stages": [LISTED_STAGE]}},
        decode_plan,
    )


def test_lists_do_not_outlive_their_number_of_microbatches() -> None:
    with pytest.raises(InvalidInput) as refused:
        apply_patch(listed_plan(LISTED), {"workload": {"microbatches": 3}}, decode_plan)
    (fault,) = refused.value.faults
    assert fault.path == ("patch", "workload", "microbatches")
    assert "workload.microbatch_sequence_lengths and costs.stages hold lists" in fault.detail
    assert "with 3 numbers or one for all" in fault.detail

    longer = {"workload": {"microbatches": 3, "microbatch_sequence_lengths": [1024, 512, 512]}}
    with pytest.raises(InvalidInput, match=r"costs\.stages hold lists"):
        apply_patch(listed_plan(LISTED), longer, decode_plan)


def test_lists_may_change_together_with_their_number() -> None:
    patch = {
        "workload": {"microbatches": 3, "microbatch_sequence_lengths": [1024, 512, 512]},
        "costs": {"stages": [{"forward_seconds": [0.002, 0.001, 0.001], "backward_seconds": 1}]},
    }
    patched = apply_patch(listed_plan(LISTED), patch, decode_plan)
    assert patched.workload.microbatches == 3


def test_stage_times_do_not_outlive_the_lengths_they_were_stated_for() -> None:
    for lengths in ([512, 1024], [512, 512]):
        patch = {"workload": {"microbatch_sequence_lengths": lengths}}
        with pytest.raises(InvalidInput) as refused:
            apply_patch(listed_plan(LISTED), patch, decode_plan)
        (fault,) = refused.value.faults
        assert fault.path == ("patch", "workload", "microbatch_sequence_lengths")
    plain = inline_plan(workload={"microbatches": 2, "sequence_length": 512})
    # The same length, written out.
    same = {"workload": {"sequence_length": None, "microbatch_sequence_lengths": [512, 512]}}
    apply_patch(plain, same, decode_plan)
