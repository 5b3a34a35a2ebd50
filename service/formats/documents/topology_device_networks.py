"""The accelerators' own network of a topology document, without NICs."""

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from service.core.topology import spec
from service.formats.documents.fields import or_none
from service.formats.documents.topology_fields import BytesPerSecond, LatencySeconds, TopologyPart

__all__ = ["NvlinkDomainDocument", "TorusDocument", "device_network_to_core"]


class _DeviceNetworkDocument(TopologyPart, frozen=True, kw_only=True, tag_field="kind"):
    """What all networks of accelerators take."""

    link_effective_bytes_per_second: (
        Annotated[BytesPerSecond, Meta(description="What such a link carries in practice.")]
        | UnsetType
    ) = UNSET
    latency_seconds: (
        Annotated[LatencySeconds, Meta(description="Typical latency in seconds of each link.")]
        | UnsetType
    ) = UNSET


class NvlinkDomainDocument(_DeviceNetworkDocument, frozen=True, kw_only=True, tag="nvlink_domain"):
    """The accelerators of consecutive hosts share NVSwitches, `nvlink0`, `nvlink1`, ..."""

    hosts_per_domain: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=4096,
                description="Consecutive hosts of one domain; all hosts if absent.",
                examples=[18],
            ),
        ]
        | UnsetType
    ) = UNSET
    link_bytes_per_second: (
        Annotated[
            BytesPerSecond,
            Meta(
                description="Nominal rate of each accelerator to its NVSwitches, by all its links"
                " together; that of its port if absent."
            ),
        ]
        | UnsetType
    ) = UNSET
    lanes: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=1024,
                description="How many links each accelerator has; those of its port if absent.",
            ),
        ]
        | UnsetType
    ) = UNSET


class TorusDocument(_DeviceNetworkDocument, frozen=True, kw_only=True, tag="torus"):
    """Accelerators in a ring, a torus or a mesh; a router beside each one forwards for others."""

    dimensions: Annotated[
        tuple[Annotated[int, Meta(ge=1, le=4096)], ...],
        Meta(
            min_length=1,
            max_length=3,
            description="How many accelerators each dimension has; they take their coordinates in"
            " order, the last dimension first.",
            examples=[[4, 8]],
        ),
    ]
    link_bytes_per_second: Annotated[
        BytesPerSecond, Meta(description="Nominal rate of one link to a neighbour.")
    ]
    wraparound: Annotated[bool, Meta(description="Whether the last of a row meets the first.")] = (
        True
    )


def device_network_to_core(
    network: NvlinkDomainDocument | TorusDocument,
) -> spec.DeviceNetworkSpec:
    """The network as the core knows it."""
    effective = or_none(network.link_effective_bytes_per_second)
    latency = or_none(network.latency_seconds)
    if isinstance(network, TorusDocument):
        return spec.Torus(
            dimensions=network.dimensions,
            link_bytes_per_second=network.link_bytes_per_second,
            link_effective_bytes_per_second=effective,
            latency_seconds=latency,
            wraparound=network.wraparound,
        )
    return spec.NvlinkDomain(
        hosts_per_domain=or_none(network.hosts_per_domain),
        link_bytes_per_second=or_none(network.link_bytes_per_second),
        link_effective_bytes_per_second=effective,
        latency_seconds=latency,
        lanes=or_none(network.lanes),
    )
