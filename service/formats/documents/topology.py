"""The topology document: what `PUT /v1/topologies/{name}` takes, and its way into the core.

Rates are nominal bytes per second in one direction unless the name says otherwise.
"""

import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from service.core.topology import spec
from service.core.topology.cluster import LinkKind, RateOrigin, VertexKind
from service.formats.documents.fields import or_none
from service.formats.documents.topology_fabrics import (
    LeafSpineDocument,
    RailOptimisedDocument,
    fabric_to_core,
)
from service.formats.documents.topology_fields import (
    BytesPerSecond,
    DeviceName,
    DtypeName,
    LatencySeconds,
    LinkEnd,
    Name,
    Rail,
    Text,
    TopologyPart,
)

__all__ = [
    "DeviceDocument",
    "HostDocument",
    "LinkDocument",
    "MeasuredRateDocument",
    "SwitchDocument",
    "TopologyDocument",
    "to_core",
]


class MeasuredRateDocument(TopologyPart, frozen=True, kw_only=True):
    """An observed rate, by whom or what, and when."""

    value: BytesPerSecond
    source: Annotated[Text, Meta(description="The tool or person.", examples=["nccl-tests"])]
    date: Annotated[datetime.date, Meta(description="The day it was observed.")]


class DeviceDocument(TopologyPart, frozen=True, kw_only=True):
    """A device or a switch inside a host. What is not given is unknown, never zero."""

    name: DeviceName
    kind: Annotated[
        Literal["gpu", "nic", "nvswitch", "pcie_switch", "cpu", "switch"],
        Meta(description="What it is. `gpu` stands for any accelerator that ranks are placed on."),
    ]
    product: Annotated[Text, Meta(description="Product name.")] | UnsetType = UNSET
    rail: (
        Annotated[
            Rail,
            Meta(
                description="The rail of a NIC (its place among the host's NICs when absent), or,"
                " on a GPU, the rail of the NIC it is paired with."
            ),
        ]
        | UnsetType
    ) = UNSET
    port_bytes_per_second: (
        Annotated[BytesPerSecond, Meta(description="Nominal line rate of a NIC, bytes per second.")]
        | UnsetType
    ) = UNSET
    port_effective_bytes_per_second: (
        Annotated[
            BytesPerSecond,
            Meta(description="What a NIC's line carries in practice, at most its line rate."),
        ]
        | UnsetType
    ) = UNSET
    port_origin: Annotated[
        RateOrigin, Meta(description="How the line rate of a NIC came to be known.")
    ] = RateOrigin.STATED
    port_source: (
        Annotated[
            Text,
            Meta(
                description="Where the line rate comes from, in words; needed unless it is simply"
                " stated.",
                examples=["400 Gb/s port"],
            ),
        ]
        | UnsetType
    ) = UNSET
    memory_bytes: (
        Annotated[int, Meta(ge=1, le=2**53 - 1, description="Memory size in bytes.")] | UnsetType
    ) = UNSET
    memory_bytes_per_second: (
        Annotated[BytesPerSecond, Meta(description="Memory bandwidth, bytes per second.")]
        | UnsetType
    ) = UNSET
    peak_flops: Annotated[
        dict[DtypeName, Annotated[float, Meta(gt=0, le=1e21)]],
        Meta(
            max_length=16,
            description="Dense peak rate by dtype, operations per second.",
            examples=[{"bf16": 989.5e12}],
        ),
    ] = msgspec.field(default_factory=dict)


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


class HostDocument(TopologyPart, frozen=True, kw_only=True):
    """One host, or with `count` n of them named name0 to name{n-1}.

    Either `design` names a reference design, or `devices` and `links` list what is inside.
    """

    name: Annotated[Name, Meta(description="Host name, or its prefix.", examples=["host"])]
    count: (
        Annotated[int, Meta(ge=1, le=4096, description="How many like hosts.", examples=[2])]
        | UnsetType
    ) = UNSET
    design: (
        Annotated[
            Name, Meta(description="A reference design by name.", examples=["dgx-h100", "p4d"])
        ]
        | UnsetType
    ) = UNSET
    devices: Annotated[
        tuple[DeviceDocument, ...],
        Meta(max_length=1024, description="Devices and switches inside the host."),
    ] = ()
    links: Annotated[
        tuple[LinkDocument, ...],
        Meta(max_length=8192, description="Links inside the host, by names within it."),
    ] = ()


class SwitchDocument(TopologyPart, frozen=True, kw_only=True):
    """A switch outside any host."""

    name: Annotated[Name, Meta(description="Name of the switch.", examples=["core-a"])]
    kind: Annotated[
        Literal["leaf", "spine", "switch"], Meta(description="Its tier, when it has one.")
    ] = "switch"
    rail: Annotated[Rail, Meta(description="The rail it serves.")] | UnsetType = UNSET


class TopologyDocument(TopologyPart, frozen=True, kw_only=True):
    """A cluster: hosts, switches and links as listed, and a fabric made from a few numbers."""

    hosts: Annotated[
        tuple[HostDocument, ...],
        Meta(
            min_length=1,
            max_length=4096,
            description="Hosts, from reference designs or listed.",
            examples=[[{"name": "host", "count": 2, "design": "dgx-h100"}]],
        ),
    ]
    switches: Annotated[
        tuple[SwitchDocument, ...],
        Meta(max_length=4096, description="Switches outside any host."),
    ] = ()
    links: Annotated[
        tuple[LinkDocument, ...],
        Meta(max_length=65_536, description="Links between any devices and switches."),
    ] = ()
    fabric: (
        Annotated[
            LeafSpineDocument | RailOptimisedDocument,
            Meta(
                description="A network over the NICs of all hosts.",
                examples=[{"kind": "rail_optimised", "spines": 2}],
            ),
        ]
        | UnsetType
    ) = UNSET


def to_core(document: TopologyDocument) -> spec.ClusterSpec:
    """The document as the core knows it, entry by entry in the same places (faults point there)."""
    return spec.ClusterSpec(
        hosts=tuple(_host(host) for host in document.hosts),
        switches=tuple(
            spec.SwitchSpec(switch.name, VertexKind(switch.kind), or_none(switch.rail))
            for switch in document.switches
        ),
        links=tuple(_link(link) for link in document.links),
        fabric=None if document.fabric is UNSET else fabric_to_core(document.fabric),
    )


def _host(host: HostDocument) -> spec.HostSpec:
    return spec.HostSpec(
        name=host.name,
        count=or_none(host.count),
        design=or_none(host.design),
        devices=tuple(_device(device) for device in host.devices),
        links=tuple(_link(link) for link in host.links),
    )


def _device(device: DeviceDocument) -> spec.DeviceSpec:
    return spec.DeviceSpec(
        name=device.name,
        kind=VertexKind(device.kind),
        product=or_none(device.product),
        rail=or_none(device.rail),
        port_bytes_per_second=or_none(device.port_bytes_per_second),
        port_effective_bytes_per_second=or_none(device.port_effective_bytes_per_second),
        port_origin=device.port_origin,
        port_source=or_none(device.port_source),
        memory_bytes=or_none(device.memory_bytes),
        memory_bytes_per_second=or_none(device.memory_bytes_per_second),
        peak_flops=dict(device.peak_flops),
    )


def _link(link: LinkDocument) -> spec.LinkSpec:
    measured = or_none(link.measured_bytes_per_second)
    return spec.LinkSpec(
        source=link.source,
        target=link.target,
        kind=link.kind,
        bandwidth_bytes_per_second=link.bandwidth_bytes_per_second,
        effective_bytes_per_second=or_none(link.effective_bytes_per_second),
        measured=None
        if measured is None
        else spec.MeasuredRate(measured.value, measured.source, measured.date.isoformat()),
        latency_floor_seconds=link.latency_floor_seconds,
        latency_seconds=or_none(link.latency_seconds),
        lanes=link.lanes,
        duplex=link.duplex,
        bandwidth_origin=link.bandwidth_origin,
        bandwidth_source=or_none(link.bandwidth_source),
    )
