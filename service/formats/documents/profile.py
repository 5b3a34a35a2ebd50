"""The profile document: what layers were measured to cost on one kind of device."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from service.core.profiles.measurement import TIME_FIELDS, Measurement, Point, Recompute
from service.core.profiles.profile import Profile, build_profile
from service.formats.documents.fields import (
    MAX_LAYERS,
    ByteCount,
    DeviceText,
    LayerPattern,
    PositiveCount,
    Ratio,
    Seconds,
    Text,
    or_none,
)
from service.formats.documents.profile_transfers import (
    MAX_TRANSFERS,
    TransferDocument,
    with_transfers,
)

__all__ = ["MeasurementDocument", "ProfileDocument", "to_core"]

# Named alike here and in `Measurement`, where None is unknown.
_OPTIONAL = (
    *(field for field in TIME_FIELDS if field != "forward_seconds"),
    "saved_activation_bytes",
    "workspace_bytes",
    "samples",
    "relative_deviation",
)


class MeasurementDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """One microbatch through one layer, on one rank. Waiting is never part of a cost."""

    layer: Annotated[
        LayerPattern,
        Meta(description="The layer, or a pattern of names: each layer that fits costs this"),
    ]
    microbatch_size: Annotated[
        PositiveCount, Meta(description="Samples in the microbatch", examples=[2])
    ]
    sequence_length: (
        Annotated[
            PositiveCount,
            Meta(
                description="Tokens per sample that the rank computed on. A measurement without "
                "it prices plans without it",
                examples=[4096],
            ),
        ]
        | UnsetType
    ) = UNSET
    tensor_parallel: (
        Annotated[
            PositiveCount,
            Meta(description="Ranks the layer was split over; 1 when absent", examples=[2]),
        ]
        | UnsetType
    ) = UNSET
    recompute: (
        Annotated[
            Recompute,
            Meta(
                description="Which activations were dropped after the forward and computed again; "
                "none when absent",
                examples=["full"],
            ),
        ]
        | UnsetType
    ) = UNSET
    forward_seconds: Annotated[Seconds, Meta(description="The forward", examples=[0.0031])]
    backward_seconds: (
        Annotated[
            Seconds,
            Meta(description="The whole backward, without recompute", examples=[0.0062]),
        ]
        | UnsetType
    ) = UNSET
    backward_input_seconds: (
        Annotated[
            Seconds,
            Meta(
                description="The gradient of the inputs; with backward_weight_seconds, in place of "
                "backward_seconds",
                examples=[0.0031],
            ),
        ]
        | UnsetType
    ) = UNSET
    backward_weight_seconds: (
        Annotated[Seconds, Meta(description="The gradient of the weights", examples=[0.0031])]
        | UnsetType
    ) = UNSET
    recompute_seconds: (
        Annotated[
            Seconds,
            Meta(
                description="Computing the dropped activations again; where recompute is not none",
                examples=[0.0031],
            ),
        ]
        | UnsetType
    ) = UNSET
    tensor_parallel_communication_seconds: (
        Annotated[
            Seconds,
            Meta(
                description="What collectives among the tensor-parallel ranks add to each pass "
                "(forward, backward, recompute); not contained in the other times",
                examples=[0.0004],
            ),
        ]
        | UnsetType
    ) = UNSET
    tensor_parallel_forward_communication_seconds: (
        Annotated[
            Seconds,
            Meta(
                description="How long collectives among the tensor-parallel ranks take in the "
                "forward; in place of "
                "tensor_parallel_communication_seconds",
                examples=[0.0006],
            ),
        ]
        | UnsetType
    ) = UNSET
    tensor_parallel_forward_exposed_seconds: (
        Annotated[
            Seconds,
            Meta(
                description="What of that adds to the forward: all when absent. The rest is "
                "hidden under its work and added nowhere",
                examples=[0.0004],
            ),
        ]
        | UnsetType
    ) = UNSET
    tensor_parallel_backward_communication_seconds: (
        Annotated[
            Seconds,
            Meta(
                description="How long collectives among the tensor-parallel ranks take in the "
                "backward (the half of the inputs, where it is split); in place of "
                "tensor_parallel_communication_seconds",
                examples=[0.0006],
            ),
        ]
        | UnsetType
    ) = UNSET
    tensor_parallel_backward_exposed_seconds: (
        Annotated[
            Seconds,
            Meta(
                description="What of that adds to the backward: all when absent. The rest is "
                "hidden under its work and added nowhere",
                examples=[0.0004],
            ),
        ]
        | UnsetType
    ) = UNSET
    tensor_parallel_recompute_communication_seconds: (
        Annotated[
            Seconds,
            Meta(
                description="How long collectives among the tensor-parallel ranks take in the "
                "recomputation; in place of "
                "tensor_parallel_communication_seconds",
                examples=[0.0006],
            ),
        ]
        | UnsetType
    ) = UNSET
    tensor_parallel_recompute_exposed_seconds: (
        Annotated[
            Seconds,
            Meta(
                description="What of that adds to the recompute: all when absent. The rest is "
                "hidden under its work and added nowhere",
                examples=[0.0004],
            ),
        ]
        | UnsetType
    ) = UNSET
    saved_activation_bytes: (
        Annotated[
            ByteCount,
            Meta(description="Kept from the forward for the backward", examples=[268435456]),
        ]
        | UnsetType
    ) = UNSET
    workspace_bytes: (
        Annotated[ByteCount, Meta(description="Needed while it runs", examples=[33554432])]
        | UnsetType
    ) = UNSET
    samples: (
        Annotated[PositiveCount, Meta(description="Runs the times are means of", examples=[100])]
        | UnsetType
    ) = UNSET
    relative_deviation: (
        Annotated[
            Ratio,
            Meta(description="Standard deviation of a run over the mean", examples=[0.02]),
        ]
        | UnsetType
    ) = UNSET


class ProfileDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Measurements on one kind of device."""

    description: Text | UnsetType = UNSET
    device: Annotated[DeviceText, Meta(description="What it was measured on")] | UnsetType = UNSET
    precision: (
        Annotated[
            DeviceText,
            Meta(description="Number formats it was measured with", examples=["bf16"]),
        ]
        | UnsetType
    ) = UNSET
    measurements: Annotated[
        list[MeasurementDocument],
        Meta(
            min_length=1,
            max_length=MAX_LAYERS,
            description="At most one for each layer and shape. What is not here is unknown",
        ),
    ]
    transfers: (
        Annotated[
            list[TransferDocument],
            Meta(
                max_length=MAX_TRANSFERS,
                description="Recorded times of handing tensors on, for load rules",
            ),
        ]
        | UnsetType
    ) = UNSET


def to_core(document: ProfileDocument) -> Profile:
    """The indexed profile. Raises `InvalidInput` with every fault, paths into the document."""
    profile = build_profile(
        device=or_none(document.device),
        precision=or_none(document.precision),
        measurements=[_measurement(measurement) for measurement in document.measurements],
        description=or_none(document.description) or "",
    )
    return with_transfers(profile, or_none(document.transfers) or ())


def _measurement(document: MeasurementDocument) -> Measurement:
    return Measurement(
        layer=document.layer,
        point=Point(
            microbatch_size=document.microbatch_size,
            sequence_length=or_none(document.sequence_length),
            tensor_parallel=or_none(document.tensor_parallel) or 1,
            recompute=or_none(document.recompute) or Recompute.NONE,
        ),
        forward_seconds=document.forward_seconds,
        **{name: or_none(getattr(document, name)) for name in _OPTIONAL},
    )
