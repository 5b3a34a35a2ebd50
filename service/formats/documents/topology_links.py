"""The links of a topology document, which say of each direction what is known of it."""

import datetime
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from service.core.topology import spec
from service.core.topology.cluster import LinkKind, RateOrigin
from service.formats.documents.fields import or_none
from service.formats.documents.topology_fields import (
    BytesPerSecond,
    LatencySeconds,
    LinkEnd,
    Text,
    TopologyPart,
)

__all__ = [
    "EffectiveRate",
    "LatencyFloor",
    "LinkDocument",
    "MeasuredRateDocument",
    "Observation",
    "ReverseDocument",
    "TypicalLatency",
    "link_to_core",
    "measured_to_core",
]


class MeasuredRateDocument(TopologyPart, frozen=True, kw_only=True):
    """An observed rate, by whom or what, and when."""

    value: BytesPerSecond
    source: Annotated[Text, Meta(description="The tool or person.", examples=["nccl-tests"])]
    date: Annotated[datetime.date, Meta(description="The day it was observed.")]


# What an exception to a link can say, of the other direction or since an edit.
EffectiveRate = (
    Annotated[BytesPerSecond, Meta(description="At most nominal: predictions.")] | UnsetType
)
Observation = (
    Annotated[MeasuredRateDocument, Meta(description="An observation, at most nominal.")]
    | UnsetType
)
LatencyFloor = (
    Annotated[LatencySeconds, Meta(description="Guaranteed latency in seconds: lower bounds.")]
    | UnsetType
)
TypicalLatency = (
    Annotated[LatencySeconds, Meta(description="Typical latency in seconds: predictions.")]
    | UnsetType
)


class ReverseDocument(TopologyPart, frozen=True, kw_only=True):
    """What differs from target to source. What is absent is as from source to target.

    Where something is known of one direction only, two simplex links say so.
    """

    bandwidth_bytes_per_second: (
        Annotated[
            BytesPerSecond, Meta(description="Nominal; not for half-duplex links, which have one.")
        ]
        | UnsetType
    ) = UNSET
    bandwidth_origin: (
        Annotated[RateOrigin, Meta(description="How the nominal rate came to be known.")]
        | UnsetType
    ) = UNSET
    bandwidth_source: (
        Annotated[Text, Meta(description="Where the nominal rate comes from, in words.")]
        | UnsetType
    ) = UNSET
    effective_bytes_per_second: EffectiveRate = UNSET
    measured_bytes_per_second: Observation = UNSET
    latency_floor_seconds: LatencyFloor = UNSET
    latency_seconds: TypicalLatency = UNSET


class LinkDocument(TopologyPart, frozen=True, kw_only=True):
    """A link between two ends. Parallel cables of one pair are one link with `lanes`."""

    source: LinkEnd
    target: LinkEnd
    kind: Annotated[LinkKind, Meta(description="What the link is; it decides how near it is.")]
    bandwidth_bytes_per_second: Annotated[
        BytesPerSecond,
        Meta(
            description="Nominal rate of all lanes together in one direction, bytes per second:"
            " the capacity that lower bounds use."
        ),
    ]
    bandwidth_origin: Annotated[
        RateOrigin,
        Meta(
            description="How the nominal rate came to be known: `stated` here, `read` from a file,"
            " following from a `product`, or `assumed`. Bounds over assumed rates are said to hold"
            " under the assumption only."
        ),
    ] = RateOrigin.STATED
    bandwidth_source: (
        Annotated[
            Text,
            Meta(
                description="Where the nominal rate comes from, in words; needed unless it is"
                " simply stated.",
                examples=["ibnetdiscover: 4x NDR"],
            ),
        ]
        | UnsetType
    ) = UNSET
    effective_bytes_per_second: (
        Annotated[
            BytesPerSecond,
            Meta(description="What the link carries in practice, at most nominal: predictions."),
        ]
        | UnsetType
    ) = UNSET
    measured_bytes_per_second: (
        Annotated[
            MeasuredRateDocument,
            Meta(description="An observation, at most nominal; kept beside the other two."),
        ]
        | UnsetType
    ) = UNSET
    latency_floor_seconds: Annotated[
        LatencySeconds,
        Meta(description="Guaranteed latency in seconds, which lower bounds count; 0 if unknown."),
    ] = 0.0
    latency_seconds: (
        Annotated[
            LatencySeconds,
            Meta(description="Typical latency in seconds, which predictions count."),
        ]
        | UnsetType
    ) = UNSET
    lanes: Annotated[
        int, Meta(ge=1, le=1024, description="How many cables or lanes the link is made of.")
    ] = 1
    duplex: Annotated[
        spec.Duplex,
        Meta(
            description="`full`: both directions at the stated rate each; `half`: both"
            " directions share the stated rate; `simplex`: source to target only."
        ),
    ] = spec.Duplex.FULL
    reverse: (
        Annotated[ReverseDocument, Meta(description="What differs from target to source.")]
        | UnsetType
    ) = UNSET


def link_to_core(link: LinkDocument) -> spec.LinkSpec:
    """The link as the core knows it."""
    reverse = or_none(link.reverse)
    return spec.LinkSpec(
        source=link.source,
        target=link.target,
        kind=link.kind,
        bandwidth_bytes_per_second=link.bandwidth_bytes_per_second,
        effective_bytes_per_second=or_none(link.effective_bytes_per_second),
        measured=measured_to_core(link.measured_bytes_per_second),
        latency_floor_seconds=link.latency_floor_seconds,
        latency_seconds=or_none(link.latency_seconds),
        lanes=link.lanes,
        duplex=link.duplex,
        bandwidth_origin=link.bandwidth_origin,
        bandwidth_source=or_none(link.bandwidth_source),
        reverse=None if reverse is None else _reverse(reverse),
    )


def _reverse(reverse: ReverseDocument) -> spec.ReverseSpec:
    return spec.ReverseSpec(
        bandwidth_bytes_per_second=or_none(reverse.bandwidth_bytes_per_second),
        bandwidth_origin=or_none(reverse.bandwidth_origin),
        bandwidth_source=or_none(reverse.bandwidth_source),
        effective_bytes_per_second=or_none(reverse.effective_bytes_per_second),
        measured=measured_to_core(reverse.measured_bytes_per_second),
        latency_floor_seconds=or_none(reverse.latency_floor_seconds),
        latency_seconds=or_none(reverse.latency_seconds),
    )


def measured_to_core(rate: MeasuredRateDocument | UnsetType) -> spec.MeasuredRate | None:
    """The observation as the core knows it."""
    if isinstance(rate, UnsetType):
        return None
    return spec.MeasuredRate(rate.value, rate.source, rate.date.isoformat())
