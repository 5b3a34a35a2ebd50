"""Patches of plans: applied strictly, refused where they keep what they invalidate."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import msgspec

from service.core.errors import Fault, FaultCode, InvalidInput, Path
from service.core.moe.settings import LayerCostsInclude
from service.core.plans.check import check_plan
from service.core.plans.plan import Plan
from service.core.plans.workload import given_lists
from service.formats.documents import plan as plans
from service.formats.documents.plan import PlanDocument
from service.formats.merge_patch import merge_patch

__all__ = ["apply_patch", "locate", "located", "touches"]

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

    Raises what `decode` raises when the result is no plan, and `InvalidInput` when lists with a
    number for each microbatch are kept though their number changes, and when inline stage times are
    kept though the patch changes what they were stated for: the microbatch size (also
    through the number of microbatches at a fixed global batch), the sequence length, the tensor
    or context degree, that of experts which the times contain, sequence parallelism, or what is
    computed again.
    """
    patched = decode(merge_patch(msgspec.to_builtins(document), dict(patch)))
    short = _short_lists(plans.to_core(document), plans.to_core(patched), patch)
    if short:
        raise InvalidInput(fault.under("patch") for fault in short)
    if isinstance(patched.costs.stages, list) and not touches(patch, ("costs", "stages")):
        faults = _stale_times(plans.to_core(document), plans.to_core(patched), patch)
        if faults:
            raise InvalidInput(fault.under("patch") for fault in faults)
    return patched


def _short_lists(before: Plan, after: Plan, patch: Mapping[str, Any]) -> list[Fault]:
    """Lists by microbatch that fitted, and stay as they are at another number of microbatches."""
    had, has = before.workload.microbatches, after.workload.microbatches
    if had == has:
        return []
    kept = [
        ".".join(str(name) for name in path[:2])
        for path, numbers in given_lists(after)
        if len(numbers) == had and not touches(patch, path[:2])
    ]
    if not kept:
        return []
    detail = (
        f"{' and '.join(dict.fromkeys(kept))} hold lists with a number for each of {had} "
        f"microbatches: give them in the same patch, with {has} numbers or one for all"
    )
    return [Fault(FaultCode.INCONSISTENT, ("workload", "microbatches"), detail)]


def _stale_times(before: Plan, after: Plan, patch: Mapping[str, Any]) -> list[Fault]:
    if before.stages is None:
        return []
    faults = []
    sizes = _microbatch_size(before), _microbatch_size(after)
    if None not in sizes and sizes[0] != sizes[1]:
        path = next(path for path in _SIZE_FIELDS if touches(patch, path))
        faults.append(_stale(path, f"the microbatch size from {sizes[0]} to {sizes[1]}"))
    lengths = _sequence_lengths(before), _sequence_lengths(after)
    if None not in lengths and lengths[0] != lengths[1]:
        change = f"the sequence length from {_listed(lengths[0])} to {_listed(lengths[1])}"
        faults.append(_stale(_length_path(patch), change))
    for dimension in ("tensor", "context"):
        degrees = getattr(before.degrees, dimension), getattr(after.degrees, dimension)
        if degrees[0] != degrees[1]:
            change = f"the {dimension} degree from {degrees[0]} to {degrees[1]}"
            faults.append(_stale(("parallelism", dimension), change))
    if _contains_experts(before) and _contains_experts(after):
        for dimension in ("expert", "expert_tensor"):
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


def _contains_experts(plan: Plan) -> bool:
    """Whether the plan says that its stage times have the work of their experts in them."""
    stated = None if plan.moe is None else plan.moe.layer_costs_include
    return stated not in (None, LayerCostsInclude.NOTHING)


def _sequence_lengths(plan: Plan) -> tuple[int, ...] | None:
    """Of every microbatch, or the one that all have."""
    length, lengths = plan.workload.sequence_length, plan.workload.microbatch_sequence_lengths
    if lengths is not None:
        return lengths[:1] if len(set(lengths)) == 1 else lengths
    return None if length is None else (length,)


def _listed(lengths: tuple[int, ...] | None) -> str:
    several = lengths is not None and len(lengths) > 1
    return "a list" if several else str(*lengths or ())


def _length_path(patch: Mapping[str, Any]) -> Path:
    names = ("sequence_length", "microbatch_sequence_lengths")
    touched = [("workload", name) for name in names if touches(patch, ("workload", name))]
    return touched[-1] if touched else ("workload",)


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


def touches(patch: Any, path: Path) -> bool:
    """Whether the patch says anything at (or replaces what holds) the path."""
    for name in path:
        if not isinstance(patch, dict):
            return True
        if name not in patch:
            return False
        patch = patch[name]
    return True


@contextmanager
def locate(
    plan: str | PlanDocument, patch: Mapping[str, Any] | None, patched: Plan | None = None
) -> Iterator[None]:
    """Turn fault paths inside the plan into pointers into the request as it was sent.

    A fault points into the patch where the patch speaks of it, else into the plan where it was
    sent, and to the reference where the plan is a stored one (the detail then names the place).
    `patched` is for `located`.
    """
    try:
        yield
    except InvalidInput as error:
        raise located(error, plan, patch, patched) from error


def located(
    error: InvalidInput,
    plan: str | PlanDocument,
    patch: Mapping[str, Any] | None,
    patched: Plan | None = None,
) -> InvalidInput:
    """The error with its faults' paths turned into pointers into the request, as `locate` does.

    A stored plan has no faults that can be told from itself alone. So where the `patched` one has
    such a fault, elsewhere than the patch speaks, it is the patch that made it, and the pointer
    goes to what all of the patch lies in.
    """
    made: frozenset[Fault] = frozenset()
    if isinstance(plan, str) and patch is not None and patched is not None:
        made = frozenset(check_plan(patched))
    return type(error)(
        _located(fault, plan, patch, by_patch=fault in made) for fault in error.faults
    )


def _located(
    fault: Fault, plan: str | PlanDocument, patch: Mapping[str, Any] | None, *, by_patch: bool
) -> Fault:
    if patch is not None and fault.path and touches(dict(patch), fault.path):
        return fault.under("patch")
    if not isinstance(plan, str):
        return fault.under("plan")
    place = "/".join(str(part) for part in fault.path)
    detail = f"{place}: {fault.detail}" if place else fault.detail
    path = ("patch", *_spoken_of(patch)) if by_patch and patch is not None else ("plan",)
    return Fault(fault.code, path, detail)


def _spoken_of(patch: Mapping[str, Any]) -> Path:
    """The deepest place in a patch that holds all it says."""
    path: list[str | int] = []
    inner: Any = patch
    while isinstance(inner, dict) and len(inner) == 1:
        ((name, inner),) = inner.items()
        path.append(name)
    return tuple(path)
