"""What one microbatch keeps of each stage of a plan, where every stage says so."""

import numpy as np
import numpy.typing as npt

from service.core.amounts import Amount, combine, total
from service.core.memory.live import ActivationDeltas
from service.core.plans.plan import ActivationChange, ResolvedPlan
from service.core.plans.relays import relayed_bytes
from service.core.plans.schedule import plan_shape
from service.core.schedules.explicit import has_recompute

__all__ = ["activation_deltas", "known_activation_deltas", "recomputing_stages"]

Int64Array = npt.NDArray[np.int64]


def activation_deltas(resolved: ResolvedPlan) -> ActivationDeltas | None:
    """By how many bytes its operations change that; None where some stage's are not known."""
    deltas, missing = known_activation_deltas(resolved)
    return None if missing else deltas


def known_activation_deltas(
    resolved: ResolvedPlan,
) -> tuple[ActivationDeltas, tuple[int, ...]]:
    """The same with 0 for stages whose bytes are not known, and which these are.

    What is stated as one size is kept from the forward to the end of the last backward operation,
    and what its recomputation makes from there to the same end. A recomputation of unknown bytes
    adds none: the plan lists it as not represented. What a stage relays it holds beside that.
    """
    changes: list[ActivationChange] = []
    missing = []
    for stage in resolved.stages:
        kept, change = stage.activation_bytes, stage.activation_deltas
        again = stage.recomputed_bytes or 0
        if change is None and kept is not None:
            freed = combine(lambda size: -size, total(kept, again))
            change = ActivationChange(kept, 0, freed, again)
        elif change is None:
            missing.append(stage.stage)
        changes.append(change or ActivationChange(0, 0, 0))
    deltas = ActivationDeltas(
        resolved.sizes.table([change.forward_bytes for change in changes]),
        resolved.sizes.table([change.backward_input_bytes for change in changes]),
        resolved.sizes.table([change.backward_weight_bytes for change in changes]),
        resolved.sizes.table([change.recompute_bytes or 0 for change in changes]),
        _passed_on(resolved),
    )
    return deltas, tuple(missing)


def _passed_on(resolved: ResolvedPlan) -> tuple[Int64Array, Int64Array] | None:
    """Bytes of each stage by microbatch, in its forward and in its backward; None of no stage."""
    relayed = {one.stage: one for one in relayed_bytes(resolved.boundaries)}
    if not relayed:
        return None
    ways: tuple[list[Amount], list[Amount]] = ([], [])
    for stage in resolved.stages:
        one = relayed.get(stage.stage)
        ways[0].append(0 if one is None else one.forward_bytes)
        ways[1].append(0 if one is None else one.backward_bytes)
    return resolved.sizes.table(ways[0]), resolved.sizes.table(ways[1])


def recomputing_stages(resolved: ResolvedPlan) -> frozenset[int]:
    """The stages that recompute: all that take time for it, or all of an order that writes it."""
    written = has_recompute(plan_shape(resolved.plan))
    return frozenset(s.stage for s in resolved.stages if written or s.recompute_picoseconds)
