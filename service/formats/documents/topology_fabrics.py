"""The fabric of a topology document: a network over the NICs of all hosts from a few numbers."""

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from service.core.topology import spec
from service.formats.documents.fields import or_none
from service.formats.documents.topology_fields import (
    BytesPerSecond,
    LatencySeconds,
    TopologyPart,
)

__all__ = [
    "FabricDocument",
    "FatTreeDocument",
    "LeafSpineDocument",
    "RailOptimisedDocument",
    "fabric_to_core",
]


class _FabricDocument(TopologyPart, frozen=True, kw_only=True, tag_field="kind"):
    """What all fabrics take."""

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


class FatTreeDocument(_FabricDocument, frozen=True, kw_only=True, tag="fat_tree"):
    """Pods of leaves and spines joined by cores: `ports_per_switch`, or the four other numbers."""

    ports_per_switch: (
        Annotated[
            int,
            Meta(
                ge=2,
                le=1024,
                description="k of a k-ary tree: k pods of k/2 leaves and k/2 spines, (k/2)^2 cores,"
                " k/2 ports for NICs on a leaf, all links of one rate.",
                examples=[16],
            ),
        ]
        | UnsetType
    ) = UNSET
    hosts_per_leaf: (
        Annotated[int, Meta(ge=1, le=4096, description="Consecutive hosts under one leaf.")]
        | UnsetType
    ) = UNSET
    leaves_per_pod: (
        Annotated[int, Meta(ge=1, le=4096, description="Consecutive leaves of one pod.")]
        | UnsetType
    ) = UNSET
    spines_per_pod: (
        Annotated[
            int, Meta(ge=1, le=4096, description="Spines of a pod; each leaf of it meets each.")
        ]
        | UnsetType
    ) = UNSET
    cores_per_spine: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=4096,
                description="Cores that a spine meets: spine j of every pod meets the same ones.",
            ),
        ]
        | UnsetType
    ) = UNSET
    core_oversubscription_ratio: (
        Annotated[
            float,
            Meta(
                ge=1e-3,
                le=1e6,
                description="What a spine takes from the leaves of a full pod over what it gives to"
                " its cores; 1 if absent.",
            ),
        ]
        | UnsetType
    ) = UNSET


FabricDocument = LeafSpineDocument | RailOptimisedDocument | FatTreeDocument


def fabric_to_core(fabric: FabricDocument) -> spec.FabricSpec:
    """The fabric as the core knows it."""
    rates = spec.FabricRates(
        oversubscription_ratio=or_none(fabric.oversubscription_ratio),
        uplink_bytes_per_second=or_none(fabric.uplink_bytes_per_second),
        link_bytes_per_second=or_none(fabric.link_bytes_per_second),
        link_effective_bytes_per_second=or_none(fabric.link_effective_bytes_per_second),
        latency_seconds=or_none(fabric.latency_seconds),
    )
    if isinstance(fabric, FatTreeDocument):
        return spec.FatTree(
            ports_per_switch=or_none(fabric.ports_per_switch),
            hosts_per_leaf=or_none(fabric.hosts_per_leaf),
            leaves_per_pod=or_none(fabric.leaves_per_pod),
            spines_per_pod=or_none(fabric.spines_per_pod),
            cores_per_spine=or_none(fabric.cores_per_spine),
            core_oversubscription_ratio=or_none(fabric.core_oversubscription_ratio),
            rates=rates,
        )
    if isinstance(fabric, LeafSpineDocument):
        return spec.LeafSpine(
            hosts_per_leaf=fabric.hosts_per_leaf, spines=fabric.spines, rates=rates
        )
    return spec.RailOptimised(
        hosts_per_leaf=or_none(fabric.hosts_per_leaf), spines=fabric.spines, rates=rates
    )
