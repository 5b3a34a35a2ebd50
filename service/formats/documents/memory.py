"""The `memory` of a plan document: how layers keep activations, and what else a device holds."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from service.core.plans.memory_settings import (
    COMMUNICATOR_BYTES,
    CONTEXT_BYTES,
    CROSS_ENTROPY_CHUNK_TOKENS,
    GATHERED_UNITS,
    PAIR_COMMUNICATOR_BYTES,
    RESERVE_FRACTION,
    USABLE_FRACTION,
    WORKSPACE_BYTES,
    CrossEntropy,
    MemorySettings,
)
from service.formats.documents.fields import MAX_INTEGER, ByteCount, or_none

__all__ = ["MemoryDocument", "memory_to_core"]


class MemoryDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What a device holds beside weights and gradients, and how layers keep activations."""

    flash_attention: (
        Annotated[
            bool,
            Meta(
                description="Whether attention never writes down the product of queries and keys. "
                "For layers that nobody measured; true when absent"
            ),
        ]
        | UnsetType
    ) = UNSET
    dropout: (
        Annotated[
            bool,
            Meta(
                description="Whether layers keep masks of dropout. For layers that nobody "
                "measured; false when absent"
            ),
        ]
        | UnsetType
    ) = UNSET
    cross_entropy: (
        Annotated[
            CrossEntropy,
            Meta(
                description="full (when absent) makes all logits of a microbatch at once, fused "
                "some tokens at a time"
            ),
        ]
        | UnsetType
    ) = UNSET
    cross_entropy_chunk_tokens: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=MAX_INTEGER,
                description="Tokens at a time of a fused cross entropy; "
                f"{CROSS_ENTROPY_CHUNK_TOKENS} when absent",
            ),
        ]
        | UnsetType
    ) = UNSET
    reserve_fraction: (
        Annotated[
            float,
            Meta(
                ge=0,
                le=10,
                description="Lost to fragmentation, as a share of what is allocated; "
                f"{RESERVE_FRACTION} when absent",
                examples=[0.08],
            ),
        ]
        | UnsetType
    ) = UNSET
    usable_fraction: (
        Annotated[
            float,
            Meta(
                gt=0,
                le=1,
                description="What of a device's memory may be filled; "
                f"{USABLE_FRACTION} when absent",
                examples=[0.94],
            ),
        ]
        | UnsetType
    ) = UNSET
    context_bytes: (
        Annotated[
            ByteCount,
            Meta(description=f"The device's context and driver; {CONTEXT_BYTES} when absent"),
        ]
        | UnsetType
    ) = UNSET
    communicators: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=4096,
                description="Groups of ranks for which a rank holds communication buffers. When "
                "absent one for each dimension in which ranks differ, and for data with context "
                "and for experts where they have groups of their own",
            ),
        ]
        | UnsetType
    ) = UNSET
    communicator_bytes: (
        Annotated[
            ByteCount,
            Meta(
                description="Buffers of each of them; when absent "
                f"{PAIR_COMMUNICATOR_BYTES} for groups of two ranks and {COMMUNICATOR_BYTES} for "
                "larger ones"
            ),
        ]
        | UnsetType
    ) = UNSET
    workspace_bytes: (
        Annotated[
            ByteCount,
            Meta(
                description="What an operation needs while it runs; when absent what the profile "
                f"says of its layers, and else {WORKSPACE_BYTES}"
            ),
        ]
        | UnsetType
    ) = UNSET
    gradient_bucket_bytes: (
        Annotated[
            ByteCount,
            Meta(
                description="Buffers of gradients beside the gradients themselves. When absent "
                "none where gradients are whole (they are reduced where they lie), and else the "
                "largest layer's"
            ),
        ]
        | UnsetType
    ) = UNSET
    gathered_layers: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=1024,
                description="Layers whose sharded weights are whole at once; "
                f"{GATHERED_UNITS} when absent: one that computes and one fetched ahead",
            ),
        ]
        | UnsetType
    ) = UNSET
    device_memory_bytes: (
        Annotated[
            ByteCount,
            Meta(
                description="Of each device, in place of what the topology says; for plans "
                "without one too",
                examples=[80000000000],
            ),
        ]
        | UnsetType
    ) = UNSET


def memory_to_core(document: MemoryDocument) -> MemorySettings:
    """As the plan states it, unchecked; what is left out stays open."""
    return MemorySettings(
        flash_attention=or_none(document.flash_attention),
        dropout=or_none(document.dropout),
        cross_entropy=or_none(document.cross_entropy),
        cross_entropy_chunk_tokens=or_none(document.cross_entropy_chunk_tokens),
        reserve_fraction=or_none(document.reserve_fraction),
        usable_fraction=or_none(document.usable_fraction),
        context_bytes=or_none(document.context_bytes),
        communicators=or_none(document.communicators),
        communicator_bytes=or_none(document.communicator_bytes),
        workspace_bytes=or_none(document.workspace_bytes),
        gradient_bucket_bytes=or_none(document.gradient_bucket_bytes),
        gathered_layers=or_none(document.gathered_layers),
        device_memory_bytes=or_none(document.device_memory_bytes),
    )
