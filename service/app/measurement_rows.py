"""Measurements of profiles as rows that can be compared across them."""

from dataclasses import dataclass

__all__ = ["MeasurementFilter", "MeasurementRow"]


@dataclass(frozen=True, slots=True)
class MeasurementRow:
    """One measured cost of one layer (or pattern of layers) at one point; absent is unknown."""

    profile: str
    profile_revision: int
    position: int
    layer: str
    device: str | None
    precision: str | None
    microbatch_size: int
    sequence_length: int | None
    tensor_parallel: int
    recompute: str
    forward_seconds: float
    backward_seconds: float | None
    backward_input_seconds: float | None
    backward_weight_seconds: float | None
    recompute_seconds: float | None
    tensor_parallel_communication_seconds: float | None
    saved_activation_bytes: int | None
    workspace_bytes: int | None
    samples: int | None
    relative_deviation: float | None
    tensor_parallel_forward_communication_seconds: float | None = None
    tensor_parallel_forward_exposed_seconds: float | None = None
    tensor_parallel_backward_communication_seconds: float | None = None
    tensor_parallel_backward_exposed_seconds: float | None = None
    tensor_parallel_recompute_communication_seconds: float | None = None
    tensor_parallel_recompute_exposed_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class MeasurementFilter:
    """Equality filters; None means any. `profile` is a name, or name@revision."""

    profile: str | None = None
    layer: str | None = None
    device: str | None = None
    precision: str | None = None
    microbatch_size: int | None = None
    sequence_length: int | None = None
    tensor_parallel: int | None = None
    recompute: str | None = None
