"""The `costs` of a plan document: stages priced by the plan itself, or a model and a profile."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from service.core.models.dtypes import DType
from service.core.plans.plan import ActivationChange, AssumedCosts, GivenStage
from service.core.profiles.interpolation import UnmeasuredShapes
from service.formats.documents.fields import (
    MAX_INTEGER,
    MAX_LISTED_MICROBATCHES,
    MAX_STAGES,
    ByteCount,
    Count,
    Reference,
    Seconds,
    each_or_none,
    one_or_each,
    or_none,
)

__all__ = [
    "ActivationDeltasDocument",
    "AssumedCostsDocument",
    "CostsDocument",
    "StageDocument",
    "assumed_to_core",
    "stage_to_core",
]

_Listed = Meta(
    min_length=1, max_length=MAX_LISTED_MICROBATCHES, description="One number for each microbatch"
)

SignedBytes = Annotated[
    int, Meta(ge=-MAX_INTEGER, le=MAX_INTEGER, extra_json_schema={"x-unit": "bytes"})
]

Efficiency = Annotated[float, Meta(gt=0, le=1)]
Rate = Annotated[float, Meta(gt=0, le=1e30)]

# One number for all microbatches, or one for each.
SecondsEach = Seconds | Annotated[list[Seconds], _Listed]
BytesEach = ByteCount | Annotated[list[ByteCount], _Listed]
SignedBytesEach = SignedBytes | Annotated[list[SignedBytes], _Listed]


class ActivationDeltasDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """By how much each operation changes what is kept of a microbatch; together they sum to 0.

    A whole backward changes it by its two halves together.
    """

    forward_bytes: Annotated[BytesEach, Meta(description="Added by the forward", examples=[100])]
    backward_input_bytes: Annotated[
        SignedBytesEach,
        Meta(description="By the gradient of the inputs; negative when it frees", examples=[-40]),
    ]
    backward_weight_bytes: Annotated[
        SignedBytesEach, Meta(description="By the gradient of the weights", examples=[-60])
    ]
    recompute_bytes: (
        Annotated[
            BytesEach,
            Meta(
                description="Added anew by the recomputation, on a stage with recompute_seconds; "
                "where it has these and says no bytes they are listed as not represented"
            ),
        ]
        | UnsetType
    ) = UNSET


class StageDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """The cost of one microbatch on one stage, stated by the plan itself.

    Times and bytes are one number for all microbatches, or a list with one for each.
    """

    forward_seconds: Annotated[SecondsEach, Meta(description="The forward", examples=[0.006])]
    backward_seconds: (
        Annotated[
            SecondsEach,
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
            SecondsEach,
            Meta(
                description="The gradient of the inputs; with backward_weight_seconds, in place of "
                "backward_seconds. Schedules that split the backward need both",
                examples=[0.006],
            ),
        ]
        | UnsetType
    ) = UNSET
    backward_weight_seconds: (
        Annotated[SecondsEach, Meta(description="The gradient of the weights", examples=[0.006])]
        | UnsetType
    ) = UNSET
    recompute_seconds: (
        Annotated[
            SecondsEach,
            Meta(description="Computing dropped activations again, before the backward"),
        ]
        | UnsetType
    ) = UNSET
    pair_seconds: (
        Annotated[
            SecondsEach,
            Meta(
                description="This forward fused with the backward of the other stage on its rank "
                "(dualpipe, dualpipe_v): at least the longer of the two. Both together when "
                "absent. In a list by the microbatch of the forward",
                examples=[0.015],
            ),
        ]
        | UnsetType
    ) = UNSET
    activation_bytes: (
        Annotated[
            BytesEach,
            Meta(
                description="Kept on one rank from the forward for the backward, until its end "
                "or, when it is split, that of its weight half. On a stage that recomputes, what "
                "it keeps to do so"
            ),
        ]
        | UnsetType
    ) = UNSET
    recomputed_activation_bytes: (
        Annotated[
            BytesEach,
            Meta(
                description="What the recomputation makes beside activation_bytes: alive anew from "
                "its start until the backward frees both. Not represented when absent"
            ),
        ]
        | UnsetType
    ) = UNSET
    activation_deltas: (
        Annotated[
            ActivationDeltasDocument,
            Meta(
                description="In place of activation_bytes and recomputed_activation_bytes, where "
                "halves of a backward free parts"
            ),
        ]
        | UnsetType
    ) = UNSET
    boundary_bytes: (
        Annotated[
            BytesEach,
            Meta(
                description="What one rank sends to its peer on the next stage; not on the last",
                examples=[67108864],
            ),
        ]
        | UnsetType
    ) = UNSET
    backward_boundary_bytes: (
        Annotated[
            BytesEach,
            Meta(description="What comes back from the next stage; boundary_bytes when absent"),
        ]
        | UnsetType
    ) = UNSET
    transfer_seconds: (
        Annotated[
            SecondsEach,
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
            SecondsEach,
            Meta(description="From the next stage back; transfer_seconds when absent"),
        ]
        | UnsetType
    ) = UNSET
    parameter_count: (
        Annotated[
            Count,
            Meta(
                description="Trained elements of the stage, before tensor parallelism splits them; "
                "one number whatever the microbatch",
                examples=[1300000000],
            ),
        ]
        | UnsetType
    ) = UNSET
    expert_parameter_count: (
        Annotated[
            Count,
            Meta(description="How many of them are in experts; none when absent"),
        ]
        | UnsetType
    ) = UNSET


class AssumedCostsDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Costs that nobody measured: FLOPs and bytes of each layer over what its device sustains.

    Each pass of a layer takes the longer of both. Every number of the answer that rests on them is
    marked assumed. An empty object takes all from the topology and the defaults.
    """

    compute_efficiency: (
        Annotated[
            Efficiency,
            Meta(
                description="Part of its peak FLOP/s that a device sustains. 0.5 when absent: an "
                "A100 reached 44 to 52 % over whole iterations (Narayanan et al. 2021, table 1)",
                examples=[0.45],
            ),
        ]
        | UnsetType
    ) = UNSET
    memory_efficiency: (
        Annotated[
            Efficiency,
            Meta(
                description="Part of its memory bandwidth that a device sustains. 0.878 when "
                "absent: copies on a V100 reached 790 of 900 GB/s (Warburton 2018)",
                examples=[0.85],
            ),
        ]
        | UnsetType
    ) = UNSET
    peak_flops: (
        Annotated[
            Rate,
            Meta(
                description="Of each device per second, in place of what the topology says for "
                "compute_dtype",
                examples=[9.895e14],
            ),
        ]
        | UnsetType
    ) = UNSET
    memory_bytes_per_second: (
        Annotated[
            Rate,
            Meta(
                description="Of each device's memory, in place of what the topology says",
                examples=[3.35e12],
            ),
        ]
        | UnsetType
    ) = UNSET
    compute_dtype: (
        Annotated[
            DType,
            Meta(
                description="Whose peak counts; when absent training.weight_dtype, and else the "
                "type of most weights of the model"
            ),
        ]
        | UnsetType
    ) = UNSET


class CostsDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Either `stages`, or `model` with `profile` or `assumed` (the plan's `partition` then cuts the
    model).
    """

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
    assumed: (
        Annotated[
            AssumedCostsDocument,
            Meta(description="In place of a profile, where there is none"),
        ]
        | UnsetType
    ) = UNSET
    unmeasured_shapes: (
        Annotated[
            UnmeasuredShapes,
            Meta(
                description="What is done where the profile does not measure a layer at the shape "
                "of the plan: interpolate between measured ones (when absent), extrapolate beyond "
                "them too, or refuse. The answer marks such costs and says how far off they may be"
            ),
        ]
        | UnsetType
    ) = UNSET


def assumed_to_core(document: AssumedCostsDocument) -> AssumedCosts:
    """The rates that a plan assumes; what it leaves out is None."""
    return AssumedCosts(
        compute_efficiency=or_none(document.compute_efficiency),
        memory_efficiency=or_none(document.memory_efficiency),
        peak_flops=or_none(document.peak_flops),
        memory_bytes_per_second=or_none(document.memory_bytes_per_second),
        compute_dtype=or_none(document.compute_dtype),
    )


def stage_to_core(document: StageDocument) -> GivenStage:
    """The stage as the plan states it, unchecked."""
    deltas = or_none(document.activation_deltas)
    return GivenStage(
        forward_seconds=one_or_each(document.forward_seconds),
        backward_seconds=each_or_none(document.backward_seconds),
        backward_input_seconds=each_or_none(document.backward_input_seconds),
        backward_weight_seconds=each_or_none(document.backward_weight_seconds),
        recompute_seconds=each_or_none(document.recompute_seconds),
        pair_seconds=each_or_none(document.pair_seconds),
        activation_bytes=each_or_none(document.activation_bytes),
        recomputed_activation_bytes=each_or_none(document.recomputed_activation_bytes),
        activation_deltas=None
        if deltas is None
        else ActivationChange(
            one_or_each(deltas.forward_bytes),
            one_or_each(deltas.backward_input_bytes),
            one_or_each(deltas.backward_weight_bytes),
            each_or_none(deltas.recompute_bytes),
        ),
        boundary_bytes=each_or_none(document.boundary_bytes),
        backward_boundary_bytes=each_or_none(document.backward_boundary_bytes),
        transfer_seconds=each_or_none(document.transfer_seconds),
        backward_transfer_seconds=each_or_none(document.backward_transfer_seconds),
        parameter_count=or_none(document.parameter_count),
        expert_parameter_count=or_none(document.expert_parameter_count),
    )
