"""What a plan document says of its experts' payloads and products."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from service.core.models.dtypes import DType
from service.core.moe.settings import ExpertCompute, Payload, Payloads, RowsSeconds
from service.formats.documents.costs import Efficiency, Rate
from service.formats.documents.fields import PositiveCount, Ratio, Seconds, or_none

__all__ = [
    "ExpertComputeDocument",
    "PayloadDocument",
    "PayloadsDocument",
    "RowsSecondsDocument",
    "compute_to_core",
    "payloads_to_core",
]


class PayloadDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What one copy of a token weighs: its hidden size, scales, and numbers beside it."""

    dtype: (
        Annotated[DType, Meta(description="Of its elements; bf16 when absent", examples=["bf16"])]
        | UnsetType
    ) = UNSET
    scale_block: (
        Annotated[
            PositiveCount,
            Meta(description="Elements that share a scale; no scales when absent", examples=[128]),
        ]
        | UnsetType
    ) = UNSET
    scale_bytes: (
        Annotated[int, Meta(ge=1, le=64, description="Of each scale; 4 when absent")] | UnsetType
    ) = UNSET
    metadata_bytes: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=2**20,
                description="Beside the elements of each copy: numbers of token and experts, "
                "weights; 0 when absent",
                examples=[16],
            ),
        ]
        | UnsetType
    ) = UNSET


class PayloadsDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A payload for each exchange. One that is absent has two bytes for each element (bf16)."""

    forward_dispatch: Annotated[PayloadDocument, Meta(description="To the experts")] | UnsetType = (
        UNSET
    )
    forward_combine: Annotated[PayloadDocument, Meta(description="Back from them")] | UnsetType = (
        UNSET
    )
    backward_dispatch: (
        Annotated[
            PayloadDocument,
            Meta(description="The gradient of what was combined, to the experts"),
        ]
        | UnsetType
    ) = UNSET
    backward_combine: (
        Annotated[
            PayloadDocument,
            Meta(description="The gradient of what was dispatched, back from them"),
        ]
        | UnsetType
    ) = UNSET


class RowsSecondsDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A measured point: the forward products of one expert with so many rows."""

    rows: Annotated[PositiveCount, Meta(description="Tokens of one expert", examples=[512])]
    seconds: Annotated[Seconds, Meta(description="All its products together", examples=[4.1e-5])]


class ExpertComputeDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """The products of experts: by a measured curve, or from FLOPs and bytes over rates.

    Rates that are absent are those of the devices, efficiencies those of assumed costs.
    """

    curve: (
        Annotated[
            list[RowsSecondsDocument],
            Meta(
                min_length=1,
                max_length=1024,
                description="By rows of one expert, ascending; between points a straight line",
            ),
        ]
        | UnsetType
    ) = UNSET
    tile_rows: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=65_536,
                description="An expert's rows are computed in multiples of this; 128 when absent",
            ),
        ]
        | UnsetType
    ) = UNSET
    launch_seconds: (
        Annotated[
            Seconds,
            Meta(
                description="Of starting the products of one layer on a rank, and as much of each "
                "packing before and behind them; 0 when absent"
            ),
        ]
        | UnsetType
    ) = UNSET
    backward_ratio: (
        Annotated[Ratio, Meta(description="Backward products over forward ones; 2 when absent")]
        | UnsetType
    ) = UNSET
    peak_flops: Annotated[Rate, Meta(description="Of each device per second")] | UnsetType = UNSET
    memory_bytes_per_second: (
        Annotated[Rate, Meta(description="Of each device's memory")] | UnsetType
    ) = UNSET
    compute_efficiency: (
        Annotated[Efficiency, Meta(description="Part of the peak that products reach")] | UnsetType
    ) = UNSET
    memory_efficiency: (
        Annotated[Efficiency, Meta(description="Part of the memory bandwidth that is reached")]
        | UnsetType
    ) = UNSET


def payloads_to_core(document: PayloadsDocument) -> Payloads:
    """What is left out has the default payload."""
    return Payloads(
        forward_dispatch=_payload(or_none(document.forward_dispatch)),
        forward_combine=_payload(or_none(document.forward_combine)),
        backward_dispatch=_payload(or_none(document.backward_dispatch)),
        backward_combine=_payload(or_none(document.backward_combine)),
    )


def _payload(document: PayloadDocument | None) -> Payload:
    default = Payload()
    if document is None:
        return default
    return Payload(
        dtype=or_none(document.dtype) or default.dtype,
        scale_block=or_none(document.scale_block),
        scale_bytes=or_none(document.scale_bytes) or default.scale_bytes,
        metadata_bytes=or_none(document.metadata_bytes) or default.metadata_bytes,
    )


def compute_to_core(document: ExpertComputeDocument) -> ExpertCompute:
    """As the plan states it, unchecked."""
    default = ExpertCompute()
    ratio = or_none(document.backward_ratio)
    return ExpertCompute(
        curve=tuple(RowsSeconds(one.rows, one.seconds) for one in or_none(document.curve) or ()),
        tile_rows=or_none(document.tile_rows) or default.tile_rows,
        launch_seconds=or_none(document.launch_seconds) or default.launch_seconds,
        backward_ratio=default.backward_ratio if ratio is None else ratio,
        peak_flops=or_none(document.peak_flops),
        memory_bytes_per_second=or_none(document.memory_bytes_per_second),
        compute_efficiency=or_none(document.compute_efficiency),
        memory_efficiency=or_none(document.memory_efficiency),
    )
