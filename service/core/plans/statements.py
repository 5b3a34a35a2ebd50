"""What an answer says of itself: each assumption and each thing left out, in one place.

Codes are stable; sentences may be reworded. Constants are sentences that always read the same.
"""

from collections.abc import Sequence

from service.core.amounts import Amount, largest, smallest
from service.core.errors import some_of
from service.core.plans.plan import Statement
from service.core.schedules.transfers import TransferMode

__all__ = [
    "BACKWARD_IGNORED",
    "BLOCKING_SENDS",
    "COLLECTIVES_ON_LINKS",
    "CONTENTION",
    "CONTEXT_COMMUNICATION",
    "DATA_PARALLEL_REDUCTION",
    "DRAINED_RUN",
    "EXPERT_COMMUNICATION",
    "EXPERT_ROUTING",
    "FUSED_PAIRS_SUMMED",
    "ITERATION",
    "LINK_QUEUES",
    "LOADER_TIME",
    "LOADS_AT_EACH_STAGE",
    "OPTIMIZER_STEP",
    "PARAMETER_COUNTS",
    "PATH_LINKS",
    "PHYSICAL_PATHS",
    "PINNED_PATHS",
    "SENSITIVITY",
    "SLACK_KEEPS_QUEUES",
    "SPAN_GAINS",
    "TENSOR_COMMUNICATION",
    "TRAINING",
    "TWO_COPIES",
    "TWO_COPIES_REDUCTION",
    "UNIFORM_RANKS",
    "assumed_bandwidth",
    "backward_bytes_defaulted",
    "batch_follows",
    "boundary_bytes_unknown",
    "chunks_on_rank",
    "context_costs",
    "counted",
    "given_below_assumed_bound",
    "given_transfers",
    "idle_devices",
    "latency_unknown",
    "local_boundaries",
    "microbatches_differ",
    "no_gradient",
    "nominal_bandwidth",
    "one_chunk",
    "one_for_all_lengths",
    "order_for_times",
    "tokens_unknown",
    "transfers_without_links",
    "unfitting_patterns",
    "zero_transfers",
]

# Assumptions.
BACKWARD_IGNORED = Statement(
    "backward_ignored", "the schedule runs forwards only; no backward is counted"
)
BLOCKING_SENDS = Statement(
    "blocking_sends",
    "a rank goes on only when the last of what its operation sends has arrived (blocking mode)",
)
DRAINED_RUN = Statement(
    "drained_run",
    "the pipeline is never drained: the iteration takes its microbatches times the pace of the "
    "steady state; timeline, bubble and critical path are of a run that starts empty and is "
    "drained, so their makespan is longer",
)
FUSED_PAIRS_SUMMED = Statement(
    "fused_pairs_summed",
    "a fused pair takes as long as its forward and its backward together: no stage says otherwise",
)
ITERATION = Statement(
    "iteration",
    "the time of an iteration: the pipeline is never drained, so it takes its microbatches times "
    "the pace of the steady state; the timeline and all that is read off it are of a drained run",
)
LINK_QUEUES = Statement(
    "link_queues",
    "a transfer is what all rank pairs of its boundary send for one microbatch, all at once: it "
    "queues on each link by itself, first in, first out, at the link's effective bandwidth, and "
    "arrives the greatest latency of its pairs after the last of them is free; the two directions "
    "of a link are apart unless it is half-duplex",
)
LOADS_AT_EACH_STAGE = Statement(
    "loads_at_each_stage",
    "inputs from outside are loaded at each stage that consumes them, and cross no boundary",
)
PINNED_PATHS = Statement(
    "pinned_paths",
    "each rank pair keeps to one path, on which no other GPU forwards; among paths of equal cost "
    "its destination decides, as in static routing, and never the load",
)
SLACK_KEEPS_QUEUES = Statement(
    "slack_keeps_queues", "slack holds what each link serves in the sequence in which it did"
)
SPAN_GAINS = Statement(
    "span_gains",
    "the longer warm-up shortens span_seconds, which counts where the next iteration follows "
    "without a barrier; makespan_seconds, from the first operation to the last of all ranks, has "
    "the fill in full, so iteration_seconds does not show that gain",
)
TWO_COPIES = Statement(
    "two_copies",
    "each stage lives on two ranks, one a direction, and serves every other microbatch on each",
)
UNIFORM_RANKS = Statement(
    "uniform_ranks",
    "the ranks of a stage (tensor, context, data) take the same time and send together",
)

# What is not represented.
COLLECTIVES_ON_LINKS = Statement(
    "collectives_on_links",
    "what the tensor, context and data ranks of a stage send one another occupies no link, so "
    "transfers between stages do not wait for it",
)
CONTENTION = Statement(
    "contention", "transfers that share a link do not slow each other: link mode queues them"
)
CONTEXT_COMMUNICATION = Statement(
    "context_communication",
    "communication among context-parallel ranks beyond what the given times contain",
)
DATA_PARALLEL_REDUCTION = Statement(
    "data_parallel_reduction", "the reduction of gradients among data-parallel replicas"
)
EXPERT_COMMUNICATION = Statement(
    "expert_communication",
    "the exchange of tokens among expert-parallel ranks beyond what the given times contain",
)
EXPERT_ROUTING = Statement(
    "expert_routing",
    "how tokens are routed to experts, and which are dropped: the contract states it and plans are "
    "compared by it, but it changes no number",
)
LOADER_TIME = Statement("loader_time", "the time to load and prepare samples")
OPTIMIZER_STEP = Statement("optimizer_step", "the time of the optimizer step")
PARAMETER_COUNTS = Statement(
    "parameter_counts", "the parameters that stages state: no number here depends on them"
)
PHYSICAL_PATHS = Statement(
    "physical_paths", "physical paths and their bounds: the plan has no topology"
)
SENSITIVITY = Statement(
    "sensitivity",
    "derivatives of the makespan: where transfers queue on links, less work may lengthen it, so a "
    "slope bounds nothing; /v1/sensitivities gives exact gains",
)
PATH_LINKS = Statement(
    "critical_path_links",
    "shares of the critical path by link: in this mode transfers occupy none; link mode, on a "
    "topology, has them",
)
TENSOR_COMMUNICATION = Statement(
    "tensor_communication",
    "communication among tensor-parallel ranks beyond what the given times contain",
)
TRAINING = Statement(
    "training",
    "what the plan says of the optimizer, its types and its sharding: no number here depends on it",
)
TWO_COPIES_REDUCTION = Statement(
    "two_copies_reduction", "the reduction of gradients between the two copies of each stage"
)


def assumed_bandwidth(pairs: int) -> Statement:
    """Assumption: a nominal rate on a path is itself an assumption of the topology."""
    of = counted(pairs, "rank pair", "rank pairs")
    return Statement(
        "assumed_bandwidth",
        f"the paths of {of} have links whose nominal bandwidth is an assumption; their lower "
        "bounds hold under it only",
    )


def backward_bytes_defaulted(boundaries: int) -> Statement:
    """Assumption: a gradient is as large as its tensor."""
    over = counted(boundaries, "boundary", "boundaries")
    return Statement(
        "backward_bytes_defaulted", f"as many bytes go backward as forward over {over}"
    )


def batch_follows(held: str, follows: str, value: int) -> Statement:
    """Assumption: which batch size is held fixed, and what follows from it."""
    return Statement("batch_follows", f"{held} is held fixed; {follows} = {value} follows from it")


def boundary_bytes_unknown(boundaries: int) -> Statement:
    """Not represented: the payload of boundaries."""
    over = counted(boundaries, "boundary", "boundaries")
    return Statement("boundary_bytes", f"the bytes over {over}: not given")


def chunks_on_rank(family: str, chunks: int, stages: int, ranks: int) -> Statement:
    """Assumption: a schedule has a number of chunks of its own, so there are fewer ranks."""
    lie = counted(stages, "stage lies", "stages lie")
    return Statement(
        "chunks_on_rank",
        f"{family} has {chunks} chunks a rank: these {lie} on {counted(ranks, 'rank', 'ranks')}",
    )


def context_costs(length: Amount) -> Statement:
    """Assumption: layers of a context rank are priced as if it had its tokens alone."""
    tokens = str(length)
    if not isinstance(length, int):
        tokens = f"{smallest(length)} to {largest(length)}"
    return Statement(
        "context_costs",
        f"a context rank is priced at its own {tokens} tokens of each sequence; its attention to "
        "the tokens of other ranks costs more than that",
    )


def given_below_assumed_bound(times: int) -> Statement:
    """Assumption: a given time contradicts a bound that rests on an assumed rate."""
    given = counted(times, "given transfer time lies", "given transfer times lie")
    return Statement(
        "given_below_assumed_bound",
        f"{given} below what the path allows under an assumed nominal bandwidth, and still counts",
    )


def given_transfers(boundaries: int) -> Statement:
    """Assumption: a time the plan states is taken as it stands."""
    over = counted(boundaries, "boundary", "boundaries")
    return Statement(
        "given_transfers",
        f"transfer times over {over} are the plan's own; where no physical path bounds them they "
        "stand in bounds too",
    )


def idle_devices(idle: int) -> Statement:
    """Assumption: the allocation is larger than the plan."""
    detail = f"{counted(idle, 'device', 'devices')} at the end of the allocation: idle"
    return Statement("idle_devices", detail)


def latency_unknown(pairs: int) -> Statement:
    """Assumption: a path has a link of unknown latency."""
    of = counted(pairs, "rank pair", "rank pairs")
    return Statement(
        "latency_unknown",
        f"the paths of {of} have links of unknown latency; their guaranteed floor stands in, "
        "which may be 0",
    )


def local_boundaries(boundaries: int) -> Statement:
    """Assumption: what stays on a rank takes no time, whatever is stated."""
    join = "boundary joins" if boundaries == 1 else "boundaries join"
    return Statement(
        "local_boundaries",
        f"{boundaries} {join} stages of one rank: nothing is sent, and a given time does not count",
    )


def microbatches_differ(classes: int, *, routed: bool = False) -> Statement:
    """Assumption: the sizes stand in the order in which microbatches enter the pipeline.

    `routed` says that steps of a routing are told apart too.
    """
    apart = "sizes or steps of the routing" if routed else "sizes"
    return Statement(
        "microbatches_differ",
        f"the microbatches have {classes} different {apart} and run in the order given; what is "
        "said of one is a mean over all, with the least and the most beside it; a fused pair takes "
        "the time of its forward's microbatch",
    )


def no_gradient(boundaries: int) -> Statement:
    """Assumption: backwards before layers that are not trained wait for nothing."""
    over = counted(boundaries, "boundary", "boundaries")
    return Statement(
        "no_gradient",
        f"no tensor over {over} needs a gradient, so none goes back: the backwards before it wait "
        "for none, and take the time that the profile gives them",
    )


def nominal_bandwidth(pairs: int) -> Statement:
    """Assumption: a path has a link whose effective rate is unknown."""
    of = counted(pairs, "rank pair", "rank pairs")
    return Statement(
        "nominal_bandwidth",
        f"the paths of {of} have links of unknown effective bandwidth; predictions use the "
        "nominal one there",
    )


def one_chunk(*, more_than_1f1b: bool) -> Statement:
    """Assumption: a schedule of several chunks a rank was given one."""
    warm_up = (
        "; its warm-up is longer than that of 1f1b and keeps more activations, up to "
        "2 (P - 1 - r) + 1 on rank r of P, in the same time where stages are equal and transfers "
        "take none"
    )
    return Statement(
        "one_chunk",
        "schedule.chunks_per_rank is 1, so each rank holds one stage and nothing is interleaved"
        f"{warm_up if more_than_1f1b else ''}: give 2 or more, and pipeline x chunks_per_rank "
        "stages",
    )


def one_for_all_lengths(fields: Sequence[str]) -> Statement:
    """Assumption: what a plan states once holds for microbatches of every length."""
    return Statement(
        "one_for_all_lengths",
        f"{', '.join(fields)} of stages, where they are one number, are the same for every "
        "sequence length",
    )


def order_for_times(limit: int, *, bytes_known: bool, alike: bool, mode: TransferMode) -> Statement:
    """Assumption: the order was made for the plan's own numbers, within a limit of memory."""
    what = "the most bytes that one microbatch keeps there" if bytes_known else "counted one by one"
    most = counted(limit, "activation", "activations")
    made_for = "these stage times, transfers and activations"
    if not alike:
        made_for = (
            "the means of stage times and transfers over the microbatches and for the largest "
            "activations, so another order may be quicker for these microbatches"
        )
    transfers_taken = {
        TransferMode.LATENCY: "",
        TransferMode.BLOCKING: ", as if no transfer held its sender, and held against zb_h1, zb_h2 "
        "and 1f1b with senders held; other numbers of microbatches keep what was chosen",
        TransferMode.LINK: ", as if no transfer queued on links, so one by hand may be quicker",
    }[mode]
    return Statement(
        "order_for_times",
        f"the order was chosen for {made_for}{transfers_taken}; a rank keeps at most {most} of its "
        f"stage ({what}). "
        "Replays, sensitivities and gains keep this order",
    )


def tokens_unknown(missing: Sequence[str]) -> Statement:
    """Not represented: tokens per second."""
    return Statement("tokens_per_second", f"tokens per second: without {' and '.join(missing)}")


def transfers_without_links(boundaries: int) -> Statement:
    """Assumption: a transfer whose time is given, or that has no path, occupies no link."""
    over = counted(boundaries, "boundary", "boundaries")
    return Statement(
        "transfers_without_links",
        f"transfers over {over} take the time that is given for them, or none, and occupy no link",
    )


def unfitting_patterns(patterns: Sequence[str]) -> Statement:
    """Assumption: measurements under patterns that fit nothing were not meant for this model."""
    fit = counted(len(patterns), "pattern fits", "patterns fit")
    shown = some_of([repr(pattern) for pattern in patterns])
    return Statement(
        "unfitting_patterns",
        f"{fit} no layer of the model, so what was measured under them prices nothing: {shown}",
    )


def zero_transfers(boundaries: int, *, bytes_known: bool) -> Statement:
    """Assumption: without a time, a path or bytes a transfer counts nothing."""
    over = counted(boundaries, "boundary", "boundaries")
    why = "the plan has no topology" if bytes_known else "neither times nor bytes are given"
    return Statement("zero_transfers", f"transfers over {over} count as 0 s: {why}")


def counted(number: int, one: str, many: str) -> str:
    """`1 stage`, `2 stages`."""
    return f"{number} {one if number == 1 else many}"
