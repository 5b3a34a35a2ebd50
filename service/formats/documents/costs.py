"""The `costs` of a plan document: stages priced by the plan itself, or a model and a profile."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from service.core.plans.plan import ActivationChange, GivenStage
from service.formats.documents.fields import (
    MAX_INTEGER,
    MAX_STAGES,
    ByteCount,
    Reference,
    Seconds,
    or_none,
)

__all__ = ["ActivationDeltasDocument", "CostsDocument", "StageDocument", "stage_to_core"]


SignedBytes = Annotated[
    int, Meta(ge=-MAX_INTEGER, le=MAX_INTEGER, extra_json_schema={"x-unit": "bytes"})
]


class ActivationDeltasDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """By how much each operation changes what is kept of a microbatch; the three sum to 0.

    A whole backward changes it by the last two together.
    """

    forward_bytes: Annotated[ByteCount, Meta(description="Added by the forward", examples=[100])]
    backward_input_bytes: Annotated[
        SignedBytes,
        Meta(description="By the gradient of the inputs; negative when it frees", examples=[-40]),
    ]
    backward_weight_bytes: Annotated[
        SignedBytes, Meta(description="By the gradient of the weights", examples=[-60])
    ]


class StageDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """The cost of one microbatch on one stage, stated by the plan itself."""

    forward_seconds: Annotated[Seconds, Meta(description="The forward", examples=[0.006])]
    backward_seconds: (
        Annotated[
            Seconds,
            Meta(
                description="The whole backward, without recompute; needed by schedules with one "
                "that do not split it",
                examples=[0.012],
            ),
        ]
        | UnsetType
    ) = UNSET
    backward_input_seconds: (
        Annotated[
            Seconds,
            Meta(
                description="The gradient of the inputs; with backward_weight_seconds, in place of "
                "backward_seconds. Schedules that split the backward need both",
                examples=[0.006],
            ),
        ]
        | UnsetType
    ) = UNSET
    backward_weight_seconds: (
        Annotated[Seconds, Meta(description="The gradient of the weights", examples=[0.006])]
        | UnsetType
    ) = UNSET
    recompute_seconds: (
        Annotated[
            Seconds,
            Meta(description="Computing dropped activations again, before the backward"),
        ]
        | UnsetType
    ) = UNSET
    pair_seconds: (
        Annotated[
            Seconds,
            Meta(
                description="This forward fused with the backward of the other stage on its rank "
                "(dualpipe, dualpipe_v): at least the longer of the two. Both together when absent",
                examples=[0.015],
            ),
        ]
        | UnsetType
    ) = UNSET
    activation_bytes: (
        Annotated[
            ByteCount,
            Meta(
                description="Kept on one rank from the forward for the backward, until its end "
                "or, when it is split, that of its weight half"
            ),
        ]
        | UnsetType
    ) = UNSET
    activation_deltas: (
        Annotated[
            ActivationDeltasDocument,
            Meta(description="In place of activation_bytes, where halves of a backward free parts"),
        ]
        | UnsetType
    ) = UNSET
    boundary_bytes: (
        Annotated[
            ByteCount,
            Meta(
                description="What one rank sends to its peer on the next stage; not on the last",
                examples=[67108864],
            ),
        ]
        | UnsetType
    ) = UNSET
    backward_boundary_bytes: (
        Annotated[
            ByteCount,
            Meta(description="What comes back from the next stage; boundary_bytes when absent"),
        ]
        | UnsetType
    ) = UNSET
    transfer_seconds: (
        Annotated[
            Seconds,
            Meta(
                description="From this stage to the next; from the bytes and the path when absent, "
                "and else zero, which the answer then says",
                examples=[0.0002],
            ),
        ]
        | UnsetType
    ) = UNSET
    backward_transfer_seconds: (
        Annotated[
            Seconds,
            Meta(description="From the next stage back; transfer_seconds when absent"),
        ]
        | UnsetType
    ) = UNSET


class CostsDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Either `stages`, or `model` with `profile` (the plan's `partition` then cuts the model)."""

    stages: (
        Annotated[
            list[StageDocument],
            Meta(
                min_length=1,
                max_length=MAX_STAGES,
                description="One entry a stage in execution order: pipeline x chunks_per_rank, "
                "or as many as an explicit order has",
            ),
        ]
        | UnsetType
    ) = UNSET
    model: Annotated[Reference, Meta(examples=["gpt-48@1"])] | UnsetType = UNSET
    profile: Annotated[Reference, Meta(examples=["gpt-48-h100@3"])] | UnsetType = UNSET


def stage_to_core(document: StageDocument) -> GivenStage:
    """The stage as the plan states it, unchecked."""
    deltas = or_none(document.activation_deltas)
    return GivenStage(
        forward_seconds=document.forward_seconds,
        backward_seconds=or_none(document.backward_seconds),
        backward_input_seconds=or_none(document.backward_input_seconds),
        backward_weight_seconds=or_none(document.backward_weight_seconds),
        recompute_seconds=or_none(document.recompute_seconds),
        pair_seconds=or_none(document.pair_seconds),
        activation_bytes=or_none(document.activation_bytes),
        activation_deltas=None
        if deltas is None
        else ActivationChange(
            deltas.forward_bytes, deltas.backward_input_bytes, deltas.backward_weight_bytes
        ),
        boundary_bytes=or_none(document.boundary_bytes),
        backward_boundary_bytes=or_none(document.backward_boundary_bytes),
        transfer_seconds=or_none(document.transfer_seconds),
        backward_transfer_seconds=or_none(document.backward_transfer_seconds),
    )
