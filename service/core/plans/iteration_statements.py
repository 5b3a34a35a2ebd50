"""What an answer says of what follows the schedule in an iteration: reductions and the step."""

from collections.abc import Sequence

from service.core.plans.gradient_reduction import ReductionAlgorithm, ReductionOverlap
from service.core.plans.plan import Statement
from service.core.plans.statements import counted

__all__ = [
    "ABOVE_PEAK",
    "ASYNCHRONOUS_UPDATES",
    "EQUAL_SHARES",
    "GRADIENT_NORM",
    "NO_REPLICAS",
    "REDUCTION_LINKS",
    "STEP_AT_MEMORY_BANDWIDTH",
    "STEP_GIVEN",
    "TIED_COPIES_FOLLOW",
    "flops_from_parameters",
    "given_reductions",
    "reduction_algorithm",
    "reduction_begins",
    "reduction_partly_unknown",
    "reduction_paths",
    "reduction_rings",
    "reduction_unknown",
    "sharded_each_microbatch",
    "step_unknown",
    "utilisation_unknown",
]

# Assumptions.
ABOVE_PEAK = Statement(
    "above_peak",
    "more operations a second than the devices do at their peak, so it can't be: the times of the "
    "stages, what their layers are made of, or the peak and its type are not of the same run",
)
EQUAL_SHARES = Statement(
    "equal_shares",
    "ranks that share a weight hold an equal part of it, rounded up; weights whose split nobody "
    "states are spread over the tensor-parallel ranks",
)
NO_REPLICAS = Statement(
    "no_replicas",
    "no two ranks hold the same weights, so no gradients are reduced and a given time for it does "
    "not count",
)
REDUCTION_LINKS = Statement(
    "reduction_links",
    "all groups of a stage reduce at once; stages whose reductions share links share them fairly, "
    "those of the same groups follow one another; reductions and gathers of weights do not slow "
    "transfers between stages or exchanges of experts, and are not slowed by them",
)
STEP_AT_MEMORY_BANDWIDTH = Statement(
    "optimizer_step_bytes",
    "the optimizer's step reads and writes each number it needs once, at the nominal memory "
    "bandwidth of the slowest device of its rank: at least that",
)
STEP_GIVEN = Statement("optimizer_step_given", "the time of the optimizer's step is the plan's own")
TIED_COPIES_FOLLOW = Statement(
    "tied_copies_follow",
    "gradients of copies of tied weights are exchanged after those of all their stages are reduced",
)

# What is not represented.
ASYNCHRONOUS_UPDATES = Statement(
    "asynchronous_updates",
    "reductions and optimizer's steps among the operations of a pipeline that is never drained: "
    "their times are told, and iteration_seconds has no part of them",
)
GRADIENT_NORM = Statement(
    "gradient_norm",
    "the norm of all gradients and the check of loss scaling, for which all ranks would wait "
    "before the optimizer's step",
)


def flops_from_parameters(parts: int, name: str) -> Statement:
    """Assumption: what is not known in its dimensions multiplies each weight with each token."""
    of = counted(parts, name, f"{name}s")
    return Statement(
        "flops_from_parameters",
        f"the floating-point operations of {of} are two for each parameter and token in a forward, "
        "and twice that in a backward; attention beyond its weights is not counted there",
    )


def given_reductions(stages: int) -> Statement:
    """Assumption: the plan's own times of reductions."""
    of = counted(stages, "stage", "stages")
    return Statement(
        "given_reductions",
        f"the times of the gradient reductions of {of} are the plan's own and stand in bounds too",
    )


def reduction_algorithm(algorithm: ReductionAlgorithm, *, gathers: bool, chosen: bool) -> Statement:
    """Assumption: what the ranks of a group do."""
    how = {
        ReductionAlgorithm.RING: "an all-reduce as a ring in the order of the ranks",
        ReductionAlgorithm.TREE: "an all-reduce along two trees, each for half of the bytes: "
        "chains within hosts, binary trees over hosts",
        ReductionAlgorithm.SHARDED: "a reduce-scatter as a ring in the order of the ranks",
    }[algorithm]
    after = ", then after the optimizer's step an all-gather of weights likewise" if gathers else ""
    why = "; the plan names no algorithm" if chosen else ""
    return Statement(
        "reduction_algorithm",
        f"gradients are reduced once an iteration by {how}{after}, cut so fine that all hops work "
        f"at once{why}",
    )


def reduction_begins(overlap: ReductionOverlap) -> Statement:
    """Assumption: from when on gradients are reduced."""
    when = {
        ReductionOverlap.NONE: "after the last operation of its ranks",
        ReductionOverlap.STAGES: "when its gradients are complete, beside other operations of its "
        "ranks and without slowing them",
        ReductionOverlap.BUCKETS: "bucket by bucket as its gradients become complete along the "
        "backward of its last microbatch, by the times of its layers or else evenly, and without "
        "slowing it",
    }[overlap]
    return Statement("reduction_begins", f"the reduction of a stage begins {when}")


def reduction_paths(hops: int, without_effective: int, without_latency: int) -> Statement:
    """Assumption: what stood in for unknown rates and latencies."""
    return Statement(
        "reduction_paths",
        f"of {counted(hops, 'hop', 'hops')} between ranks that reduce gradients, "
        f"{without_effective} have links of unknown effective bandwidth, whose nominal one stands "
        f"in, and {without_latency} links of unknown latency, whose floor does",
    )


def reduction_rings(most: int) -> Statement:
    """Assumption: ranks of a host leave it by several NICs."""
    return Statement(
        "reduction_rings",
        f"groups with several ranks on each host have up to {most} rings, one for each NIC by "
        "which the pinned paths of their ranks leave a host, each for an equal share of the bytes; "
        "the order is turned within hosts, so that each ring has its own NIC",
    )


def reduction_unknown(why: str) -> Statement:
    """Not represented: any reduction of gradients."""
    return Statement(
        "data_parallel_reduction",
        f"the reduction of gradients among the ranks that hold the same weights: {why}",
    )


def reduction_partly_unknown(stages: int) -> Statement:
    """Not represented: the reduction of some stages."""
    of = counted(stages, "stage", "stages")
    return reduction_unknown(f"the parameters of {of} are not given")


def sharded_each_microbatch(*, weights: bool) -> Statement:
    """Not represented: what sharded gradients or weights move in every microbatch."""
    what = "reduce-scatters of gradients after all but the last microbatch of a stage"
    if weights:
        what += ", and all-gathers of weights before each forward and backward"
    return Statement("sharded_each_microbatch", what)


def step_unknown(why: str) -> Statement:
    """Not represented: the optimizer's step."""
    return Statement("optimizer_step", f"the time of the optimizer step: {why}")


def utilisation_unknown(missing: Sequence[str]) -> Statement:
    """Not represented: how much of their peak the devices are used."""
    return Statement(
        "model_flops_utilisation", f"model FLOPs utilisation: without {' and '.join(missing)}"
    )
