"""The topology document: what `PUT /v1/topologies/{name}` takes, and its way into the core.

Rates are nominal bytes per second in one direction unless the name says otherwise.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from service.core.topology import spec
from service.core.topology.cluster import RateOrigin, VertexKind
from service.formats.documents.fields import or_none
from service.formats.documents.topology_device_networks import (
    NvlinkDomainDocument,
    TorusDocument,
    device_network_to_core,
)
from service.formats.documents.topology_edits import EditDocument, edit_to_core
from service.formats.documents.topology_fabrics import (
    FatTreeDocument,
    LeafSpineDocument,
    RailOptimisedDocument,
    fabric_to_core,
)
from service.formats.documents.topology_fields import (
    MAX_ASSUMPTIONS,
    BytesPerSecond,
    DeviceName,
    DtypeName,
    Name,
    Rail,
    Sentence,
    Text,
    TopologyPart,
)
from service.formats.documents.topology_links import LinkDocument, link_to_core

__all__ = [
    "DeviceDocument",
    "HostDocument",
    "SwitchDocument",
    "TopologyDocument",
    "to_core",
]


class DeviceDocument(TopologyPart, frozen=True, kw_only=True):
    """A device or a switch inside a host. What is not given is unknown, never zero."""

    name: DeviceName
    kind: Annotated[
        Literal["gpu", "nic", "nvswitch", "pcie_switch", "host_bridge", "cpu", "switch"],
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
        Annotated[
            BytesPerSecond,
            Meta(
                description="Nominal line rate of a NIC, bytes per second; of an accelerator, what"
                " it has to the NVSwitches of a domain."
            ),
        ]
        | UnsetType
    ) = UNSET
    port_effective_bytes_per_second: (
        Annotated[
            BytesPerSecond,
            Meta(description="What the port carries in practice, at most its line rate."),
        ]
        | UnsetType
    ) = UNSET
    port_origin: Annotated[
        RateOrigin, Meta(description="How the line rate of the port came to be known.")
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
    port_lanes: Annotated[
        int, Meta(ge=1, le=1024, description="How many links the port is made of.")
    ] = 1
    port: (
        Annotated[
            DeviceName,
            Meta(
                description="The port of a NIC, for functions that share one (VF and PF): they"
                " share its line, and its connection to the host.",
                examples=["port0"],
            ),
        ]
        | UnsetType
    ) = UNSET
    card: (
        Annotated[
            DeviceName,
            Meta(
                description="The card that the device is on: the devices of one card share its"
                " connection to the host.",
                examples=["card0"],
            ),
        ]
        | UnsetType
    ) = UNSET
    slot: (
        Annotated[
            DeviceName,
            Meta(
                description="The slot that connects the device, where a card has several or"
                " several cards have one: the devices of one slot share it.",
                examples=["slot0"],
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


class HostDocument(TopologyPart, frozen=True, kw_only=True):
    """One host, or with `count` n of them named name0 to name{n-1}, or those named in `alike` too.

    Either `design` names a reference design, or `devices` and `links` list what is inside.
    """

    name: Annotated[Name, Meta(description="Host name, or its prefix.", examples=["host"])]
    count: (
        Annotated[int, Meta(ge=1, le=4096, description="How many like hosts.", examples=[2])]
        | UnsetType
    ) = UNSET
    alike: Annotated[
        tuple[Name, ...],
        Meta(
            max_length=4095,
            description="Further hosts that are inside as this one, by name; in place of a count.",
        ),
    ] = ()
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
        Literal["leaf", "spine", "core", "router", "nvswitch", "switch"],
        Meta(description="Its tier, when it has one."),
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
            LeafSpineDocument | RailOptimisedDocument | FatTreeDocument,
            Meta(
                description="A network over the NICs of all hosts.",
                examples=[{"kind": "rail_optimised", "spines": 2}],
            ),
        ]
        | UnsetType
    ) = UNSET
    device_network: (
        Annotated[
            NvlinkDomainDocument | TorusDocument,
            Meta(
                description="A network of the accelerators' own, without NICs.",
                examples=[{"kind": "nvlink_domain", "hosts_per_domain": 18}],
            ),
        ]
        | UnsetType
    ) = UNSET
    edits: Annotated[
        tuple[EditDocument, ...],
        Meta(
            max_length=65_536,
            description="Exceptions to all of it: what has failed, and links that are not as made.",
            examples=[
                [
                    {"kind": "failed_device", "name": "host0/gpu3"},
                    {
                        "kind": "changed_link",
                        "source": "host1/gpu0",
                        "target": "host1/nvswitch0",
                        "lanes": 16,
                    },
                ]
            ],
        ),
    ] = ()
    assumptions: Annotated[
        tuple[Sentence, ...],
        Meta(
            max_length=MAX_ASSUMPTIONS,
            description="What was taken for granted when this was written, in words. An import "
            "fills it; every answer about the topology repeats it.",
            examples=[["all hosts are inside as host0 is"]],
        ),
    ] = ()


def to_core(document: TopologyDocument) -> spec.ClusterSpec:
    """The document as the core knows it, entry by entry in the same places (faults point there)."""
    return spec.ClusterSpec(
        hosts=tuple(_host(host) for host in document.hosts),
        switches=tuple(
            spec.SwitchSpec(switch.name, VertexKind(switch.kind), or_none(switch.rail))
            for switch in document.switches
        ),
        links=tuple(link_to_core(link) for link in document.links),
        fabric=None if document.fabric is UNSET else fabric_to_core(document.fabric),
        device_network=None
        if document.device_network is UNSET
        else device_network_to_core(document.device_network),
        edits=tuple(edit_to_core(edit) for edit in document.edits),
        assumptions=document.assumptions,
    )


def _host(host: HostDocument) -> spec.HostSpec:
    return spec.HostSpec(
        name=host.name,
        count=or_none(host.count),
        alike=host.alike,
        design=or_none(host.design),
        devices=tuple(_device(device) for device in host.devices),
        links=tuple(link_to_core(link) for link in host.links),
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
        port_lanes=device.port_lanes,
        port=or_none(device.port),
        card=or_none(device.card),
        slot=or_none(device.slot),
        memory_bytes=or_none(device.memory_bytes),
        memory_bytes_per_second=or_none(device.memory_bytes_per_second),
        peak_flops=dict(device.peak_flops),
    )
