"""What one microbatch keeps of each stage of a plan, where every stage says so."""

from service.core.memory.live import ActivationDeltas
from service.core.plans.plan import ActivationChange, ResolvedPlan

__all__ = ["activation_deltas"]


def activation_deltas(resolved: ResolvedPlan) -> ActivationDeltas | None:
    """By how many bytes its operations change that; None where some stage's are not known.

    What is stated as one size is kept from the forward to the end of the last backward operation.
    """
    changes = [
        stage.activation_deltas
        or (
            None
            if stage.activation_bytes is None
            else ActivationChange(stage.activation_bytes, 0, -stage.activation_bytes)
        )
        for stage in resolved.stages
    ]
    known = [change for change in changes if change is not None]
    if len(known) < len(changes):
        return None
    return ActivationDeltas.of(
        [change.forward_bytes for change in known],
        [change.backward_input_bytes for change in known],
        [change.backward_weight_bytes for change in known],
    )
