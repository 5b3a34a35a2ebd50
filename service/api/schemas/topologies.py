"""Wire types of expanded clusters: every device and every directed link."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from service.core.topology.cluster import Link, LinkKind, RateOrigin, Vertex, VertexKind
from service.formats.documents.fields import or_unset

__all__ = ["DeviceEntry", "LinkEntry", "device_entry", "link_entry"]


class DeviceEntry(Struct, kw_only=True, frozen=True):
    """A device or a switch of the cluster. What is absent is unknown."""

    name: Annotated[str, Meta(description="host/device, or the name of a switch")]
    kind: VertexKind
    host: Annotated[str, Meta(description="Absent for switches of the fabric")] | UnsetType = UNSET
    product: Annotated[str, Meta(description="Product name")] | UnsetType = UNSET
    rail: Annotated[int, Meta(ge=0, description="Number of its rail")] | UnsetType = UNSET
    port: (
        Annotated[str, Meta(description="Its port; functions of one port share the line")]
        | UnsetType
    ) = UNSET
    card: (
        Annotated[str, Meta(description="Its card; devices of one card share its connection")]
        | UnsetType
    ) = UNSET
    slot: Annotated[str, Meta(description="Its slot; devices of one slot share it")] | UnsetType = (
        UNSET
    )
    memory_bytes: Annotated[int, Meta(ge=1, description="Memory in bytes")] | UnsetType = UNSET
    memory_bytes_per_second: (
        Annotated[float, Meta(gt=0, description="Memory bandwidth, bytes per second")] | UnsetType
    ) = UNSET
    peak_flops: (
        Annotated[
            dict[str, float], Meta(description="Dense peak rate by dtype, operations per second")
        ]
        | UnsetType
    ) = UNSET


class LinkEntry(Struct, kw_only=True, frozen=True):
    """One direction of a link. What is absent is unknown."""

    source: Annotated[str, Meta(description="Where it starts: a device or a switch")]
    target: Annotated[str, Meta(description="Where it ends")]
    kind: LinkKind
    bandwidth_bytes_per_second: Annotated[
        float, Meta(gt=0, description="Nominal, of all lanes together, in this direction")
    ]
    bandwidth_origin: Annotated[
        RateOrigin, Meta(description="How the nominal rate came to be known")
    ]
    bandwidth_source: (
        Annotated[str, Meta(description="Where the nominal rate comes from, in words")] | UnsetType
    ) = UNSET
    resource: Annotated[
        str,
        Meta(
            description="The capacity that traffic takes up: source->target, or what several links"
            " share; the directions of a half-duplex link share source<->target"
        ),
    ]
    effective_bytes_per_second: (
        Annotated[float, Meta(gt=0, description="What predictions use")] | UnsetType
    ) = UNSET
    measured_bytes_per_second: (
        Annotated[float, Meta(gt=0, description="What was observed")] | UnsetType
    ) = UNSET
    measured_source: (
        Annotated[str, Meta(description="By whom or what it was observed")] | UnsetType
    ) = UNSET
    measured_date: Annotated[str, Meta(description="When, as YYYY-MM-DD")] | UnsetType = UNSET
    latency_floor_seconds: Annotated[float, Meta(ge=0, description="Guaranteed; 0 when nothing is")]
    latency_seconds: Annotated[float, Meta(ge=0, description="Typical")] | UnsetType = UNSET
    lanes: Annotated[int, Meta(ge=1, description="Cables or lanes the link is made of")]


def device_entry(vertex: Vertex) -> DeviceEntry:
    """A vertex as it goes over the wire."""
    return DeviceEntry(
        name=vertex.name,
        kind=vertex.kind,
        host=or_unset(vertex.host),
        product=or_unset(vertex.product),
        rail=or_unset(vertex.rail),
        port=or_unset(vertex.port),
        card=or_unset(vertex.card),
        slot=or_unset(vertex.slot),
        memory_bytes=or_unset(vertex.memory_bytes),
        memory_bytes_per_second=or_unset(vertex.memory_bytes_per_second),
        peak_flops=dict(vertex.peak_flops) if vertex.peak_flops else UNSET,
    )


def link_entry(link: Link) -> LinkEntry:
    """A directed link as it goes over the wire."""
    return LinkEntry(
        source=link.source,
        target=link.target,
        kind=link.kind,
        bandwidth_bytes_per_second=link.bandwidth_bytes_per_second,
        bandwidth_origin=link.bandwidth_origin,
        bandwidth_source=or_unset(link.bandwidth_source),
        resource=link.resource,
        effective_bytes_per_second=or_unset(link.effective_bytes_per_second),
        measured_bytes_per_second=or_unset(link.measured_bytes_per_second),
        measured_source=or_unset(link.measured_source),
        measured_date=or_unset(link.measured_date),
        latency_floor_seconds=link.latency_floor_seconds,
        latency_seconds=or_unset(link.latency_seconds),
        lanes=link.lanes,
    )
