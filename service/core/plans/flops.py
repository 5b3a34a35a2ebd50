"""Floating-point operations of one iteration of a plan, over all of its ranks."""

from collections.abc import Sequence

from service.core.amounts import SizeClasses, combine
from service.core.models.flops import CountedFrom, LayerFlops, layer_flops
from service.core.models.graph import Model
from service.core.plans.plan import Plan, PlanFlops
from service.core.plans.schedule import has_backward
from service.core.plans.workload import Batch
from service.core.profiles.measurement import Recompute

__all__ = ["plan_flops"]


def plan_flops(
    plan: Plan, model: Model, policies: Sequence[Recompute], batch: Batch, sizes: SizeClasses
) -> PlanFlops | None:
    """None where the plan does not say how many tokens there are; `policies` has one a layer."""
    if batch.microbatch_size is None or batch.sequence_length is None:
        return None
    replicas = batch.microbatch_size * plan.degrees.data
    tokens = replicas * sizes.spread(batch.sequence_length).total
    squares = combine(lambda length: length**2, batch.sequence_length)
    pairs = replicas * sizes.spread(squares).total
    backward = has_backward(plan)
    needed = again = from_parameters = 0
    for layer, policy in zip(model.layers, policies, strict=True):
        flops = layer_flops(layer, tokens, pairs)
        if flops is None:
            return None
        from_parameters += flops.counted_from is CountedFrom.PARAMETERS
        needed += flops.forward
        if backward:
            needed += flops.backward
            again += _again(flops, policy)
    return PlanFlops(needed, needed + again, from_parameters)


def _again(flops: LayerFlops, policy: Recompute) -> int:
    return {
        Recompute.NONE: 0,
        Recompute.SELECTIVE: flops.attention,
        Recompute.FULL: flops.forward,
    }[policy]
