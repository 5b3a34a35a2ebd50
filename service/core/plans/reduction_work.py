"""How much the reduction of gradients of a plan is to price, from its degrees and counts alone."""

from service.core.plans.gradient_reduction import ReductionAlgorithm
from service.core.plans.plan import Plan
from service.core.plans.schedule import has_backward, plan_family

__all__ = ["MAX_UNASKED_PATHS", "has_replicas", "is_priced", "reduction_paths"]

# Of a plan that says nothing of training: what it asks for is answered as before, however large.
MAX_UNASKED_PATHS = 3_072

# To bound the collectives of a stage is as much as finding so many paths, and more in a large
# cluster: one more for so many ranks.
_STAGE_PATHS, _RANKS_OF_A_PATH = 4, 64

# A device of a ring has a way to the next one, and where there is a ring for each NIC one to the
# next host and one within its own. One of a tree has a way to its parent and back in each of two.
_RING_PATHS, _TREE_PATHS = 3, 4


def has_replicas(plan: Plan) -> bool:
    """Whether any ranks hold the same weights, so that they add up their gradients."""
    degrees = plan.degrees
    copies = max(degrees.weight_replicas, degrees.expert_replicas)
    return has_backward(plan) and copies * plan_family(plan).directions > 1


def is_priced(plan: Plan) -> bool:
    """Whether the paths of its reductions are looked for, if there are any."""
    return plan.training is not None or _paths(plan) <= MAX_UNASKED_PATHS


def reduction_paths(plan: Plan) -> int:
    """The paths that are looked for, and what bounding takes beside, in paths too."""
    if plan.topology is None or not has_replicas(plan) or not is_priced(plan):
        return 0
    return _paths(plan)


def _paths(plan: Plan) -> int:
    degrees = plan.degrees
    stages = degrees.pipeline * plan.schedule.chunks_per_rank
    if plan.stages is not None:
        stages = max(stages, len(plan.stages))
    reduction = None if plan.training is None else plan.training.gradient_reduction
    hops = _RING_PATHS
    if reduction is not None and reduction.algorithm is ReductionAlgorithm.TREE:
        hops = _TREE_PATHS
    of_experts = any(stage.expert_parameter_count for stage in plan.stages or ())
    kinds = 2 if of_experts or degrees.expert * degrees.expert_tensor > 1 else 1
    ranks = plan_family(plan).directions * degrees.world_size // degrees.pipeline
    bounding = _STAGE_PATHS + degrees.world_size // _RANKS_OF_A_PATH
    return stages * kinds * (hops * ranks + bounding)
