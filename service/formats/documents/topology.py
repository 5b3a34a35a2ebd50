"""The topology document: what `PUT /v1/topologies/{name}` takes, and its way into the core.

Rates are nominal bytes per second in one direction unless the name says otherwise.
"""

import datetime
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from service.core.topology import spec
from service.core.topology.cluster import LinkKind, VertexKind

__all__ = [
    "DeviceDocument",
    "HostDocument",
    "LeafSpineDocument",
    "LinkDocument",
    "MeasuredRateDocument",
    "RailOptimisedDocument",
    "SwitchDocument",
    "TopologyDocument",
    "to_core",
]

T = TypeVar("T")

# `$` alone would let a final newline through in Python.
_NAME = r"^[a-z][a-z0-9.-]{0,62}$(?!\n)"
_DEVICE = r"^[a-z][a-z0-9_.-]{0,62}$(?!\n)"
_END = r"^[a-z][a-z0-9.-]{0,66}(/[a-z][a-z0-9_.-]{0,62})?$(?!\n)"
_TEXT = r"^[^\x00-\x1f\x7f]{1,200}$(?!\n)"

Name = Annotated[str, Meta(pattern=_NAME, max_length=63)]
DeviceName = Annotated[
    str,
    Meta(
        pattern=_DEVICE,
        max_length=63,
        description="Name within the host; elsewhere the device is host/name.",
        examples=["gpu0", "nic3"],
    ),
]
LinkEnd = Annotated[
    str,
    Meta(
        pattern=_END,
        max_length=131,
        description="A device as host/device, or a switch by name; in the links of a host, a"
        " device by its name within the host.",
        examples=["host0/nic3", "leaf0"],
    ),
]
Text = Annotated[str, Meta(pattern=_TEXT, max_length=200)]
BytesPerSecond = Annotated[
    float,
    Meta(ge=1, le=1e15, description="Bytes per second in one direction.", examples=[5e10]),
]
LatencySeconds = Annotated[float, Meta(ge=0, le=1, description="Seconds.", examples=[5e-7])]
Rail = Annotated[int, Meta(ge=0, le=1023, description="Number of the rail.", examples=[0])]
DtypeName = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]{0,15}$(?!\n)", max_length=16)]


class _Document(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What all parts of the document share; `kw_only` alone is not inherited."""


class MeasuredRateDocument(_Document, frozen=True, kw_only=True):
    """An observed rate, by whom or what, and when."""

    value: BytesPerSecond
    source: Annotated[Text, Meta(description="The tool or person.", examples=["nccl-tests"])]
    date: Annotated[datetime.date, Meta(description="The day it was observed.")]


class DeviceDocument(_Document, frozen=True, kw_only=True):
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


class LinkDocument(_Document, frozen=True, kw_only=True):
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
            description="`full`: both directions at the stated rate each; `simplex`: source to"
            " target only."
        ),
    ] = spec.Duplex.FULL


class HostDocument(_Document, frozen=True, kw_only=True):
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


class SwitchDocument(_Document, frozen=True, kw_only=True):
    """A switch outside any host."""

    name: Annotated[Name, Meta(description="Name of the switch.", examples=["core-a"])]
    kind: Annotated[
        Literal["leaf", "spine", "switch"], Meta(description="Its tier, when it has one.")
    ] = "switch"
    rail: Annotated[Rail, Meta(description="The rail it serves.")] | UnsetType = UNSET


class _FabricDocument(_Document, frozen=True, kw_only=True, tag_field="kind"):
    """What both fabrics take."""

    oversubscription_ratio: (
        Annotated[
            float,
            Meta(
                ge=1e-3,
                le=1e6,
                description="What the fullest leaf takes from its hosts over what it gives to its"
                " spines; 1 when neither this nor the uplink rate is given.",
                examples=[2.0],
            ),
        ]
        | UnsetType
    ) = UNSET
    uplink_bytes_per_second: (
        Annotated[
            BytesPerSecond,
            Meta(description="Nominal rate of one leaf to one spine, bytes per second."),
        ]
        | UnsetType
    ) = UNSET
    link_bytes_per_second: (
        Annotated[
            BytesPerSecond,
            Meta(description="Nominal rate of a NIC to its leaf; the NIC's line rate if absent."),
        ]
        | UnsetType
    ) = UNSET
    link_effective_bytes_per_second: (
        Annotated[BytesPerSecond, Meta(description="What a NIC to its leaf carries in practice.")]
        | UnsetType
    ) = UNSET
    latency_seconds: (
        Annotated[
            LatencySeconds,
            Meta(description="Typical latency in seconds of each link of the fabric."),
        ]
        | UnsetType
    ) = UNSET


class LeafSpineDocument(_FabricDocument, frozen=True, kw_only=True, tag="leaf_spine"):
    """All NICs of consecutive hosts share leaf0, leaf1, ...; each leaf meets each spine."""

    hosts_per_leaf: Annotated[
        int, Meta(ge=1, le=4096, description="Consecutive hosts under one leaf.", examples=[4])
    ]
    spines: Annotated[
        int,
        Meta(ge=0, le=1024, description="Number of spines; 0 for a single leaf.", examples=[2]),
    ]


class RailOptimisedDocument(_FabricDocument, frozen=True, kw_only=True, tag="rail_optimised"):
    """NIC i of every host goes to switch rail{i}; spines, when there are any, join the rails."""

    hosts_per_leaf: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=4096,
                description="Consecutive hosts that share rail switches (rail0-0, rail0-1, ...);"
                " all hosts if absent.",
            ),
        ]
        | UnsetType
    ) = UNSET
    spines: Annotated[int, Meta(ge=0, le=1024, description="Number of spines.")] = 0


class TopologyDocument(_Document, frozen=True, kw_only=True):
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
            spec.SwitchSpec(switch.name, VertexKind(switch.kind), _known(switch.rail))
            for switch in document.switches
        ),
        links=tuple(_link(link) for link in document.links),
        fabric=None if document.fabric is UNSET else _fabric(document.fabric),
    )


def _host(host: HostDocument) -> spec.HostSpec:
    return spec.HostSpec(
        name=host.name,
        count=_known(host.count),
        design=_known(host.design),
        devices=tuple(_device(device) for device in host.devices),
        links=tuple(_link(link) for link in host.links),
    )


def _device(device: DeviceDocument) -> spec.DeviceSpec:
    return spec.DeviceSpec(
        name=device.name,
        kind=VertexKind(device.kind),
        product=_known(device.product),
        rail=_known(device.rail),
        port_bytes_per_second=_known(device.port_bytes_per_second),
        port_effective_bytes_per_second=_known(device.port_effective_bytes_per_second),
        memory_bytes=_known(device.memory_bytes),
        memory_bytes_per_second=_known(device.memory_bytes_per_second),
        peak_flops=dict(device.peak_flops),
    )


def _link(link: LinkDocument) -> spec.LinkSpec:
    measured = _known(link.measured_bytes_per_second)
    return spec.LinkSpec(
        source=link.source,
        target=link.target,
        kind=link.kind,
        bandwidth_bytes_per_second=link.bandwidth_bytes_per_second,
        effective_bytes_per_second=_known(link.effective_bytes_per_second),
        measured=None
        if measured is None
        else spec.MeasuredRate(measured.value, measured.source, measured.date.isoformat()),
        latency_floor_seconds=link.latency_floor_seconds,
        latency_seconds=_known(link.latency_seconds),
        lanes=link.lanes,
        duplex=link.duplex,
    )


def _fabric(fabric: LeafSpineDocument | RailOptimisedDocument) -> spec.FabricSpec:
    rates = spec.FabricRates(
        oversubscription_ratio=_known(fabric.oversubscription_ratio),
        uplink_bytes_per_second=_known(fabric.uplink_bytes_per_second),
        link_bytes_per_second=_known(fabric.link_bytes_per_second),
        link_effective_bytes_per_second=_known(fabric.link_effective_bytes_per_second),
        latency_seconds=_known(fabric.latency_seconds),
    )
    if isinstance(fabric, LeafSpineDocument):
        return spec.LeafSpine(
            hosts_per_leaf=fabric.hosts_per_leaf, spines=fabric.spines, rates=rates
        )
    return spec.RailOptimised(
        hosts_per_leaf=_known(fabric.hosts_per_leaf), spines=fabric.spines, rates=rates
    )


def _known(value: T | UnsetType) -> T | None:
    return None if value is UNSET else value
