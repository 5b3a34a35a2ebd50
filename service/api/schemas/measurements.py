"""Wire type of one measurement among those of all profiles."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from service.app.ports import MeasurementRow
from service.core.profiles.measurement import COMMUNICATION_FIELDS

__all__ = ["MeasurementEntry", "measurement_entry"]

_OptionalSeconds = Annotated[float, Meta(ge=0, description="Seconds; absent is unknown")]
_OptionalBytes = Annotated[int, Meta(ge=0, description="Bytes; absent is unknown")]


class MeasurementEntry(Struct, kw_only=True, frozen=True):
    """What one layer (or each layer that fits a pattern) was measured to cost at one point."""

    profile: Annotated[str, Meta(description="The profile it is from, as name@revision")]
    position: Annotated[int, Meta(ge=0, description="Place in the profile's measurements")]
    layer: Annotated[str, Meta(description="Name or pattern of the layer")]
    device: str | UnsetType = UNSET
    precision: str | UnsetType = UNSET
    microbatch_size: Annotated[int, Meta(ge=1, description="Samples of one microbatch")]
    sequence_length: Annotated[int, Meta(ge=1, description="Tokens of a sample")] | UnsetType = (
        UNSET
    )
    tensor_parallel: Annotated[int, Meta(ge=1, description="Ranks that share the layer")]
    recompute: Annotated[str, Meta(description="Which activations are recomputed")]
    forward_seconds: Annotated[float, Meta(ge=0, description="Seconds")]
    backward_seconds: _OptionalSeconds | UnsetType = UNSET
    backward_input_seconds: _OptionalSeconds | UnsetType = UNSET
    backward_weight_seconds: _OptionalSeconds | UnsetType = UNSET
    recompute_seconds: _OptionalSeconds | UnsetType = UNSET
    tensor_parallel_communication_seconds: _OptionalSeconds | UnsetType = UNSET
    tensor_parallel_forward_communication_seconds: _OptionalSeconds | UnsetType = UNSET
    tensor_parallel_forward_exposed_seconds: _OptionalSeconds | UnsetType = UNSET
    tensor_parallel_backward_communication_seconds: _OptionalSeconds | UnsetType = UNSET
    tensor_parallel_backward_exposed_seconds: _OptionalSeconds | UnsetType = UNSET
    tensor_parallel_recompute_communication_seconds: _OptionalSeconds | UnsetType = UNSET
    tensor_parallel_recompute_exposed_seconds: _OptionalSeconds | UnsetType = UNSET
    saved_activation_bytes: _OptionalBytes | UnsetType = UNSET
    workspace_bytes: _OptionalBytes | UnsetType = UNSET
    samples: Annotated[int, Meta(ge=1, description="Repetitions behind it")] | UnsetType = UNSET
    relative_deviation: (
        Annotated[float, Meta(ge=0, description="Standard deviation over mean")] | UnsetType
    ) = UNSET


_OPTIONAL = (
    "device",
    "precision",
    "sequence_length",
    "backward_seconds",
    "backward_input_seconds",
    "backward_weight_seconds",
    "recompute_seconds",
    *COMMUNICATION_FIELDS,
    "saved_activation_bytes",
    "workspace_bytes",
    "samples",
    "relative_deviation",
)


def measurement_entry(row: MeasurementRow) -> MeasurementEntry:
    """A stored row as it goes over the wire."""
    known = {name: value for name in _OPTIONAL if (value := getattr(row, name)) is not None}
    return MeasurementEntry(
        profile=f"{row.profile}@{row.profile_revision}",
        position=row.position,
        layer=row.layer,
        microbatch_size=row.microbatch_size,
        tensor_parallel=row.tensor_parallel,
        recompute=row.recompute,
        forward_seconds=row.forward_seconds,
        **known,
    )
