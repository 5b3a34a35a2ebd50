"""What an answer says of memory: of activations kept and made again, and of what is not counted."""

from collections.abc import Sequence

from service.core.moe.settings import MoeSettings
from service.core.plans.plan import Statement
from service.core.plans.statements import counted
from service.core.plans.training import Training

__all__ = [
    "ACTIVATION_BUFFERS",
    "LOGITS_CONTAINED",
    "MEMORY",
    "MEMORY_RULES",
    "MEMORY_TERMS",
    "RECOMPUTE_IGNORED",
    "WEIGHT_STASHES",
    "activation_bytes_unknown",
    "assumed_activations",
    "assumed_split",
    "expert_rows",
    "live_above_memory",
    "logits",
    "measured_expert_activations",
    "memory_defaults",
    "recompute_transient",
    "recomputed_at_once",
    "recomputed_by_layer",
    "training_defaults",
    "unknown_term",
]

RECOMPUTE_IGNORED = Statement("recompute_ignored", "without a backward nothing is computed again")
ACTIVATION_BUFFERS = Statement(
    "activation_buffers",
    "in the bytes of live activations: buffers of values received early or not yet sent, and the "
    "working memory inside an operation, for which the memory of a rank has terms of its own",
)
LOGITS_CONTAINED = Statement(
    "logits_contained",
    "activation bytes that are given or measured contain what is kept of logits; no gradient of "
    "them is counted",
)
MEMORY_RULES = Statement(
    "memory_rules",
    "every device of a pipeline rank holds the same; an operation's memory is there from its start "
    "and what it frees until its end; the optimizer's step comes after the last operation of a "
    "rank, when no activation is left; what the framework allocates takes the reserve with it",
)
MEMORY_TERMS = Statement(
    "memory",
    "what each rank holds at its fullest instant, term by term, against the memory of its device",
)
MEMORY = Statement("memory", "no check that weights, optimizer state and activations fit")
WEIGHT_STASHES = Statement(
    "weight_stashes", "the time and memory of keeping several versions of the weights"
)


def activation_bytes_unknown(stages: int) -> Statement:
    """Not represented: bytes of live activations where sizes are missing."""
    of = counted(stages, "stage", "stages")
    return Statement("activation_bytes", f"the bytes of live activations of {of}: not given")


def assumed_activations(
    layers: int, *, flash_attention: bool, dropout: bool, experts: bool, routed: bool = False
) -> Statement:
    """Assumption: what layers keep follows from their dimensions where nobody measured it."""
    of = counted(layers, "layer", "layers")
    parts = [
        "FlashAttention" if flash_attention else "attention that writes its scores down",
        "dropout" if dropout else "no dropout",
    ]
    if experts:
        parts.append(
            "the rows that come to the busiest rank of an expert group"
            if routed
            else "tokens spread evenly over experts"
        )
    return Statement(
        "assumed_activations",
        f"the activations that {of} keep were not measured: they follow from dimensions, with "
        f"{', '.join(parts)} (memory in the plan)",
    )


def expert_rows(settings: MoeSettings) -> Statement:
    """Assumption: for which rank of an expert group memory is counted, and what it keeps."""
    share = settings.rows_percentile
    of = "the most rows that a microbatch brings to it"
    if share < 1:
        of += f", up to the {share:.6g} quantile over its layers and microbatches"
    outputs = (
        "what experts give, which routing weights multiply (moe.weights_after_experts)"
        if settings.weights_after_experts
        else "nothing of what experts give, as routing weights multiply what is inside them"
    )
    return Statement(
        "expert_rows",
        f"each layer with experts has memory for {of}, on the rank of an expert group that keeps "
        f"most: their inputs as they travel where that is narrower, and {outputs}; the rank that "
        "holds most experts is counted as if it were the same",
    )


def measured_expert_activations(stages: int) -> Statement:
    """Assumption: activation bytes that are measured or given say nothing of the routing."""
    of = counted(stages, "stage", "stages")
    return Statement(
        "measured_expert_activations",
        f"the activation bytes of {of} with experts that were given or measured stand as they are, "
        "whatever rows the routing brings",
    )


def logits(chunk_tokens: int | None) -> Statement:
    """Assumption: how the loss is made from logits."""
    how = (
        "all of a microbatch at once, kept in their own precision and in full until the backward"
        if chunk_tokens is None
        else f"{chunk_tokens} tokens at a time by a fused cross entropy, as the plan claims"
    )
    return Statement("logits", f"logits are made {how}")


def live_above_memory(rank: int, peak_bytes: int, memory_bytes: int, ranks: int) -> Statement:
    """Assumption: the ranks run though what they keep is more than their device has."""
    more = f", and so on {counted(ranks - 1, 'other rank', 'other ranks')}" if ranks > 1 else ""
    return Statement(
        "live_above_memory",
        f"live activations alone exceed the memory of the device on pipeline rank {rank} "
        f"({peak_bytes} bytes at the peak, the device has {memory_bytes}){more}; the times are "
        "as if they fitted",
    )


def recompute_transient(stages: int) -> Statement:
    """Left out: the bytes of what a recomputation makes, where the plan does not say them."""
    of = counted(stages, "stage recomputes", "stages recompute")
    return Statement(
        "recompute_transient",
        f"the bytes that {of} and hold until the backward: not given; such activations are "
        "counted, in peak_recomputed_activations alone",
    )


def recomputed_at_once(stages: int) -> Statement:
    """Assumption: all that a stage recomputes is alive from the start of its recomputation."""
    of = counted(stages, "stage recomputes", "stages recompute")
    return Statement(
        "recomputed_at_once",
        f"all that {of} is alive from the start of a recomputation; where layers are computed "
        "again one by one, less is",
    )


def recomputed_by_layer(stages: int) -> Statement:
    """Assumption: a recomputation is done with one layer before it makes the next."""
    of = counted(stages, "stage computes", "stages compute")
    return Statement(
        "recomputed_by_layer",
        f"{of} layer by layer again, each freed by its backward before the next: of what a "
        "recomputation makes, the largest layer's is alive",
    )


def assumed_split(elements: int) -> Statement:
    """Assumption: weights of which nobody says so are spread over the tensor-parallel ranks."""
    return Statement(
        "assumed_split",
        f"{elements} elements of weights, of which nobody says over which ranks they are spread, "
        "are spread over the tensor-parallel ranks",
    )


def memory_defaults(terms: Sequence[str]) -> Statement:
    """Assumption: sizes that the plan does not say."""
    return Statement(
        "memory_defaults",
        f"defaults stand for {', '.join(terms)}: the plan can say them (memory)",
    )


def training_defaults(training: Training) -> list[Statement]:
    """Assumption: types that the plan leaves open."""
    rules = {
        "weight_dtype": "weights are of the types of the model",
        "gradient_dtype": "gradients of the types of the weights",
        "master_dtype": "a copy in fp32 is kept of weights of fewer than four bytes",
    }
    told = [rule for field, rule in rules.items() if getattr(training, field) is None]
    both = training.optimizer_state_dtype is None and training.moment_dtypes is None
    if both and training.optimizer.moments:
        told.append("the optimizer keeps numbers of the type of the weights that it changes")
    if not told:
        return []
    return [Statement("training_defaults", f"training leaves types open: {', '.join(told)}")]


def unknown_term(term: str, reason: str) -> Statement:
    """Not represented: a term of memory."""
    return Statement(f"memory_{term}", f"{term.replace('_', ' ')} in memory: {reason}")
