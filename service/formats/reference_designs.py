"""Reference designs of hosts, and networks of each kind, with a document that uses each of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec

from service.core.topology.cluster import Cluster
from service.core.topology.designs import DESIGNS
from service.core.topology.expand import expand
from service.formats.documents.topology import TopologyDocument, to_core

__all__ = ["Reference", "ReferenceKind", "references"]


class ReferenceKind(StrEnum):
    """What of a topology document it stands for."""

    HOST = "host"  # the `design` of a host
    FABRIC = "fabric"  # joins the NICs of all hosts
    DEVICE_NETWORK = "device_network"  # joins the accelerators without NICs


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """A design of a host, or a network by example.

    `document` is a whole topology that uses it, `cluster` what it expands to: one host, or the
    hosts of the example and the network between them.
    """

    name: str
    kind: ReferenceKind
    title: str
    document: Mapping[str, Any]
    cluster: Cluster
    assumptions: tuple[str, ...]


def _hosts(count: int, design: str) -> list[dict[str, Any]]:
    return [{"name": "host", "count": count, "design": design}]


_CHIPS = [{"name": f"gpu{number}", "kind": "gpu"} for number in range(4)]
_ONE_OF_EACH = [
    {"name": "gpu0", "kind": "gpu"},
    {"name": "nic0", "kind": "nic", "port_bytes_per_second": 50e9},
]
_SHAPE = {"hosts_per_leaf": 4, "leaves_per_pod": 4, "spines_per_pod": 8, "cores_per_spine": 8}
_TWO_TO_ONE = {"hosts_per_leaf": 4, "spines": 16, "oversubscription_ratio": 2.0}
_NETWORKS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (
        "rail_optimised",
        "a rail switch for each NIC of a host, 8 spines",
        {
            "hosts": _hosts(64, "dgx-h100"),
            "fabric": {"kind": "rail_optimised", "spines": 8},
        },
    ),
    (
        "leaf_spine",
        "4 hosts a leaf, 16 spines, 2:1",
        {
            "hosts": _hosts(64, "dgx-h100"),
            "fabric": {"kind": "leaf_spine", **_TWO_TO_ONE},
        },
    ),
    (
        "fat_tree_by_shape",
        "a `fat_tree` of 4 hosts a leaf, 4 leaves and 8 spines a pod, 8 cores a spine",
        {"hosts": _hosts(64, "dgx-h100"), "fabric": {"kind": "fat_tree", **_SHAPE}},
    ),
    (
        "fat_tree",
        "8 ports a switch, one rate",
        {
            "hosts": [{"name": "host", "count": 128, "devices": _ONE_OF_EACH}],
            "fabric": {"kind": "fat_tree", "ports_per_switch": 8},
        },
    ),
    (
        "nvlink_domain",
        "18 hosts in one NVLink domain, and `rail_optimised`",
        {
            "hosts": _hosts(18, "gb200-nvl72"),
            "fabric": {"kind": "rail_optimised"},
            "device_network": {"kind": "nvlink_domain"},
        },
    ),
    (
        "torus",
        "4 x 8 at 80 GB/s",
        {
            "hosts": [{"name": "host", "count": 8, "devices": _CHIPS}],
            "device_network": {
                "kind": "torus",
                "dimensions": [4, 8],
                "link_bytes_per_second": 80e9,
            },
        },
    ),
)


@lru_cache(maxsize=1)
def references() -> tuple[Reference, ...]:
    """All of them: hosts first, then networks."""
    hosts = [
        _reference(
            design.name,
            ReferenceKind.HOST,
            design.title,
            {"hosts": [{"name": "host", "design": design.name}]},
        )
        for design in DESIGNS.values()
    ]
    networks = [
        _reference(
            name,
            ReferenceKind.DEVICE_NETWORK
            if name in {"nvlink_domain", "torus"}
            else ReferenceKind.FABRIC,
            title,
            document,
        )
        for name, title, document in _NETWORKS
    ]
    return (*hosts, *networks)


def _reference(
    name: str, kind: ReferenceKind, title: str, document: Mapping[str, Any]
) -> Reference:
    expansion = expand(to_core(msgspec.convert(document, TopologyDocument)))
    return Reference(name, kind, title, document, expansion.cluster, expansion.assumptions)
