"""What one microbatch keeps of each stage of a plan, where every stage says so."""

from service.core.amounts import combine, total
from service.core.memory.live import ActivationDeltas
from service.core.plans.plan import ActivationChange, ResolvedPlan
from service.core.plans.schedule import plan_shape
from service.core.schedules.explicit import has_recompute

__all__ = ["activation_deltas", "recomputing_stages"]


def activation_deltas(resolved: ResolvedPlan) -> ActivationDeltas | None:
    """By how many bytes its operations change that; None where some stage's are not known.

    What is stated as one size is kept from the forward to the end of the last backward operation,
    and what its recomputation makes from there to the same end. A recomputation of unknown bytes
    adds none: the plan lists it as not represented.
    """
    changes = []
    for stage in resolved.stages:
        kept, change = stage.activation_bytes, stage.activation_deltas
        again = stage.recomputed_bytes or 0
        if change is None and kept is not None:
            freed = combine(lambda size: -size, total(kept, again))
            change = ActivationChange(kept, 0, freed, again)
        changes.append(change)
    known = [change for change in changes if change is not None]
    if len(known) < len(changes):
        return None
    return ActivationDeltas(
        resolved.sizes.table([change.forward_bytes for change in known]),
        resolved.sizes.table([change.backward_input_bytes for change in known]),
        resolved.sizes.table([change.backward_weight_bytes for change in known]),
        resolved.sizes.table([change.recompute_bytes or 0 for change in known]),
    )


def recomputing_stages(resolved: ResolvedPlan) -> frozenset[int]:
    """The stages that recompute: all that take time for it, or all of an order that writes it."""
    written = has_recompute(plan_shape(resolved.plan))
    return frozenset(s.stage for s in resolved.stages if written or s.recompute_picoseconds)
