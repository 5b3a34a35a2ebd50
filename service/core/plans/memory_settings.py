"""What a plan says of memory: how layers keep activations, and what else a device holds.

Defaults are ours and an answer names each that it used. The reserve for fragmentation is above all
but the worst of nineteen published measurements (1.007 to 1.093 of what is allocated, median about
1.04), and what a device can be filled to is what SimuMax takes. A context takes half to one GiB,
and a communicator of NCCL 544 MiB for two ranks and 688 MiB for more on devices like A100 (issues
864 and 964 of NVIDIA/nccl): the greater ends stand here.
"""

from dataclasses import dataclass
from enum import StrEnum

__all__ = [
    "COMMUNICATOR_BYTES",
    "CONTEXT_BYTES",
    "CROSS_ENTROPY_CHUNK_TOKENS",
    "GATHERED_UNITS",
    "PAIR_COMMUNICATOR_BYTES",
    "RESERVE_FRACTION",
    "USABLE_FRACTION",
    "WORKSPACE_BYTES",
    "CrossEntropy",
    "MemorySettings",
]

_MIB = 2**20

RESERVE_FRACTION = 0.08
USABLE_FRACTION = 0.94
CONTEXT_BYTES = 1024 * _MIB
PAIR_COMMUNICATOR_BYTES = 544 * _MIB
COMMUNICATOR_BYTES = 688 * _MIB
# Of matrix libraries, for one stream.
WORKSPACE_BYTES = 100 * _MIB
# Layers whose sharded weights are whole at once: the one that computes and the one fetched ahead.
GATHERED_UNITS = 2
CROSS_ENTROPY_CHUNK_TOKENS = 1024


class CrossEntropy(StrEnum):
    """How the loss is computed from logits."""

    FULL = "full"  # all logits of a microbatch at once
    FUSED = "fused"  # some tokens at a time, none kept: to be claimed, as it may be off silently


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """As a plan states it; None stands for a default.

    The reserve is a share of what the framework allocates, the usable part one of the device's
    memory. `communicators` counts groups of ranks with buffers of their own, each of
    `communicator_bytes`. `gradient_bucket_bytes` are buffers of gradients beside the gradients.
    """

    flash_attention: bool | None = None
    dropout: bool | None = None
    cross_entropy: CrossEntropy | None = None
    cross_entropy_chunk_tokens: int | None = None
    reserve_fraction: float | None = None
    usable_fraction: float | None = None
    context_bytes: int | None = None
    communicators: int | None = None
    communicator_bytes: int | None = None
    workspace_bytes: int | None = None
    gradient_bucket_bytes: int | None = None
    gathered_layers: int | None = None
    device_memory_bytes: int | None = None  # in place of what the topology says of its devices

    @property
    def writes_scores(self) -> bool:
        """Whether attention keeps the product of queries and keys."""
        return self.flash_attention is False

    @property
    def chunk_tokens(self) -> int | None:
        """Tokens whose logits are there at once; None for all of a microbatch."""
        if self.cross_entropy is not CrossEntropy.FUSED:
            return None
        return self.cross_entropy_chunk_tokens or CROSS_ENTROPY_CHUNK_TOKENS
