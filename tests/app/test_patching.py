"""Patches that keep stage times they invalidate are refused; faults point into the request."""

from typing import Any

import pytest

from service.app.patching import apply_patch, locate
from service.core.errors import Fault, FaultCode, InvalidInput
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
