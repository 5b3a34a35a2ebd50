"""What an answer says of memory: of activations kept and made again, and of what is not counted."""

from service.core.plans.plan import Statement
from service.core.plans.statements import counted

__all__ = [
    "ACTIVATION_BUFFERS",
    "MEMORY",
    "RECOMPUTE_IGNORED",
    "WEIGHT_STASHES",
    "activation_bytes_unknown",
    "live_above_memory",
    "recompute_transient",
    "recomputed_at_once",
]

RECOMPUTE_IGNORED = Statement("recompute_ignored", "without a backward nothing is computed again")
ACTIVATION_BUFFERS = Statement(
    "activation_buffers",
    "beside live activations: buffers of values received early or not yet sent, and the working "
    "memory inside an operation",
)
MEMORY = Statement("memory", "no check that weights, optimizer state and activations fit")
WEIGHT_STASHES = Statement(
    "weight_stashes", "the time and memory of keeping several versions of the weights"
)


def activation_bytes_unknown(stages: int) -> Statement:
    """Not represented: bytes of live activations where sizes are missing."""
    of = counted(stages, "stage", "stages")
    return Statement("activation_bytes", f"the bytes of live activations of {of}: not given")


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
