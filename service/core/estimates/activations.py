"""What one microbatch keeps of each stage of a plan, where every stage says so."""

from service.core.amounts import combine
from service.core.memory.live import ActivationDeltas
from service.core.plans.plan import ActivationChange, ResolvedPlan

__all__ = ["activation_deltas"]


def activation_deltas(resolved: ResolvedPlan) -> ActivationDeltas | None:
    """By how many bytes its operations change that; None where some stage's are not known.

    What is stated as one size is kept from the forward to the end of the last backward operation.
    """
    changes = []
    for stage in resolved.stages:
        kept, change = stage.activation_bytes, stage.activation_deltas
        if change is None and kept is not None:
            change = ActivationChange(kept, 0, combine(lambda size: -size, kept))
        changes.append(change)
    known = [change for change in changes if change is not None]
    if len(known) < len(changes):
        return None
    return ActivationDeltas(
        resolved.sizes.table([change.forward_bytes for change in known]),
        resolved.sizes.table([change.backward_input_bytes for change in known]),
        resolved.sizes.table([change.backward_weight_bytes for change in known]),
    )
