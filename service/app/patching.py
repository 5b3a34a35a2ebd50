"""Patches of plans: applied strictly, refused where they keep what they invalidate."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import msgspec

from service.core.errors import Fault, FaultCode, InvalidInput, Path
from service.core.plans.plan import Plan
from service.formats.documents import plan as plans
from service.formats.documents.plan import PlanDocument
from service.formats.merge_patch import merge_patch

__all__ = ["apply_patch", "locate"]

_SIZE_FIELDS: tuple[Path, ...] = (
    ("workload", "microbatch_size"),
    ("workload", "global_batch_size"),
    ("workload", "microbatches"),
    ("parallelism", "data"),
)


def apply_patch(
    document: PlanDocument, patch: Mapping[str, Any], decode: Callable[[Any], PlanDocument]
) -> PlanDocument:
    """The patched plan.

    Raises what `decode` raises when the result is no plan, and `InvalidInput` when inline stage
    times are kept though the patch changes what they were stated for: the microbatch size (also
    through the number of microbatches at a fixed global batch), the sequence length, the tensor
    or context degree, sequence parallelism, or what is computed again.
    """
    patched = decode(merge_patch(msgspec.to_builtins(document), dict(patch)))
    if isinstance(patched.costs.stages, list) and not _touches(patch, ("costs", "stages")):
        faults = _stale_times(plans.to_core(document), plans.to_core(patched), patch)
        if faults:
            raise InvalidInput(fault.under("patch") for fault in faults)
    return patched


def _stale_times(before: Plan, after: Plan, patch: Mapping[str, Any]) -> list[Fault]:
    if before.stages is None:
        return []
    faults = []
    sizes = _microbatch_size(before), _microbatch_size(after)
    if None not in sizes and sizes[0] != sizes[1]:
        path = next(path for path in _SIZE_FIELDS if _touches(patch, path))
        faults.append(_stale(path, f"the microbatch size from {sizes[0]} to {sizes[1]}"))
    lengths = before.workload.sequence_length, after.workload.sequence_length
    if None not in lengths and lengths[0] != lengths[1]:
        change = f"the sequence length from {lengths[0]} to {lengths[1]}"
        faults.append(_stale(("workload", "sequence_length"), change))
    for dimension in ("tensor", "context"):
        degrees = getattr(before.degrees, dimension), getattr(after.degrees, dimension)
        if degrees[0] != degrees[1]:
            change = f"the {dimension} degree from {degrees[0]} to {degrees[1]}"
            faults.append(_stale(("parallelism", dimension), change))
    if before.degrees.sequence_parallel != after.degrees.sequence_parallel:
        faults.append(_stale(("parallelism", "sequence_parallel"), "sequence parallelism"))
    if before.recompute != after.recompute:
        change = f"recompute from {before.recompute} to {after.recompute}"
        faults.append(_stale(("recompute", "default"), change))
    return faults


def _stale(path: Path, change: str) -> Fault:
    detail = (
        f"this changes {change}, for which the inline stage costs were not stated: "
        "give costs.stages in the same patch, or price the plan with a profile"
    )
    return Fault(FaultCode.INCONSISTENT, path, detail)


def _microbatch_size(plan: Plan) -> Fraction | None:
    workload = plan.workload
    if workload.microbatch_size is not None:
        return Fraction(workload.microbatch_size)
    if workload.global_batch_size is not None:
        return Fraction(workload.global_batch_size, workload.microbatches * plan.degrees.data)
    return None


def _touches(patch: Any, path: Path) -> bool:
    """Whether the patch says anything at (or replaces what holds) the path."""
    for name in path:
        if not isinstance(patch, dict):
            return True
        if name not in patch:
            return False
        patch = patch[name]
    return True


@contextmanager
def locate(plan: str | PlanDocument, patch: Mapping[str, Any] | None) -> Iterator[None]:
    """Turn fault paths inside the plan into pointers into the request as it was sent.

    A fault points into the patch where the patch speaks of it, else into the plan where it was
    sent, and to the reference where the plan is a stored one (the detail then names the place).
    """
    try:
        yield
    except InvalidInput as error:
        raise type(error)(_located(fault, plan, patch) for fault in error.faults) from error


def _located(fault: Fault, plan: str | PlanDocument, patch: Mapping[str, Any] | None) -> Fault:
    if patch is not None and fault.path and _touches(dict(patch), fault.path):
        return fault.under("patch")
    if not isinstance(plan, str):
        return fault.under("plan")
    place = "/".join(str(part) for part in fault.path)
    detail = f"{place}: {fault.detail}" if place else fault.detail
    return Fault(fault.code, ("plan",), detail)
