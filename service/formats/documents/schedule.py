"""The `schedule` of a plan document: in which order each rank runs its operations."""

from enum import StrEnum
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from service.core.plans.plan import Schedule
from service.core.schedules.catalogue import schedule_family
from service.core.schedules.program import PairMode
from service.core.schedules.transfers import TransferMode
from service.formats.documents.fields import (
    MAX_MICROBATCHES,
    MAX_ORDER_LENGTH,
    MAX_STAGES,
    or_none,
    tuple_or_none,
)

__all__ = ["ScheduleDocument", "ScheduleKind", "schedule_to_core"]


class ScheduleKind(StrEnum):
    """The schedules a plan can ask for."""

    FORWARD_ONLY = "forward_only"
    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED_1F1B = "interleaved_1f1b"
    LOOPED_BFS = "looped_bfs"
    ZB_H1 = "zb_h1"
    ZB_H2 = "zb_h2"
    INTERLEAVED_ZERO_BUBBLE = "interleaved_zero_bubble"
    ZB_V = "zb_v"
    ZB_AUTO = "zb_auto"
    V_HALF = "v_half"
    V_MIN = "v_min"
    DUALPIPE = "dualpipe"
    DUALPIPE_V = "dualpipe_v"
    CHIMERA = "chimera"
    PIPEDREAM = "pipedream"
    PIPEDREAM_2BW = "pipedream_2bw"
    EXPLICIT = "explicit"


class ScheduleDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """In which order each rank runs its operations."""

    kind: Annotated[ScheduleKind, Meta(description="The schedule", examples=["1f1b"])]
    chunks_per_rank: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=MAX_STAGES,
                description="Stages on one pipeline rank. Any number for interleaved_1f1b, "
                "looped_bfs and interleaved_zero_bubble; 2 for zb_v, v_half, v_min and "
                "dualpipe_v, 1 for the others. When absent: 1, or 2 where it must be",
            ),
        ]
        | UnsetType
    ) = UNSET
    group_size: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=MAX_MICROBATCHES,
                description="Microbatches that pass all chunks of a rank before the next ones, for "
                "interleaved_1f1b and interleaved_zero_bubble: at least the ranks, a shorter last "
                "group included, or all of them. When absent, microbatches over the number of "
                "times that the ranks go into them: the ranks themselves where they divide them",
            ),
        ]
        | UnsetType
    ) = UNSET
    pair_mode: (
        Annotated[
            PairMode,
            Meta(
                description="How dualpipe, dualpipe_v and explicit run a pair of a forward and a "
                "backward: one after the other (serial), or as one operation that takes "
                "pair_seconds (fused). When absent, fused where stages give pair_seconds"
            ),
        ]
        | UnsetType
    ) = UNSET
    order: (
        Annotated[
            list[
                Annotated[
                    str,
                    Meta(
                        pattern=r"^[0-9FBIWR& ]*$(?!\n)",
                        max_length=MAX_ORDER_LENGTH,
                        description="Operations separated by spaces: stage, kind, microbatch",
                    ),
                ]
            ],
            Meta(
                min_length=1,
                max_length=MAX_STAGES,
                description="What each pipeline rank runs, for kind explicit: F forward, B whole "
                "backward, I and W its halves (inputs, weights), R recompute, 0F3&7B1 a pair. "
                "Without R, one is put before each backward where stages recompute",
                examples=[["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"]],
            ),
        ]
        | UnsetType
    ) = UNSET
    memory_limit_activations: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=MAX_MICROBATCHES,
                description="For zb_auto: the most that each rank keeps at any moment, in units of "
                "what one microbatch keeps of the rank's stage at the most (by activation_bytes or "
                "activation_deltas; unless every stage gives one, each counts as one until its "
                "weight half has run). When absent, as many as ranks, the memory of 1f1b (ZB-1p); "
                "twice that is ZB-2p",
                examples=[8],
            ),
        ]
        | UnsetType
    ) = UNSET
    transfer_mode: (
        Annotated[
            TransferMode,
            Meta(
                description="How transfers between stages are charged. latency: each takes its own "
                "time and nobody waits but who needs the value. blocking: and holds its sender "
                "until it has arrived. link: it occupies the physical links of all its rank "
                "pairs, on which transfers queue. When absent, link where transfers are priced on "
                "the paths of a topology, and latency where none is"
            ),
        ]
        | UnsetType
    ) = UNSET
    recompute_before_gradient: (
        Annotated[
            bool,
            Meta(description="Recompute while the gradient is still on its way; false when absent"),
        ]
        | UnsetType
    ) = UNSET


def schedule_to_core(document: ScheduleDocument) -> Schedule:
    """The schedule with its defaults, unchecked."""
    kind = document.kind.value
    return Schedule(
        kind=kind,
        chunks_per_rank=or_none(document.chunks_per_rank) or schedule_family(kind).chunks or 1,
        transfer_mode=or_none(document.transfer_mode),
        recompute_before_gradient=or_none(document.recompute_before_gradient) or False,
        group_size=or_none(document.group_size),
        pair_mode=or_none(document.pair_mode),
        order=tuple_or_none(document.order),
        memory_limit_activations=or_none(document.memory_limit_activations),
    )
