"""A cluster in a few counts."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from service.core.topology.cluster import Cluster, LinkKind, VertexKind

__all__ = ["ClusterSummary", "apart", "summarise"]


@dataclass(frozen=True, slots=True)
class ClusterSummary:
    """Counts of a cluster; links are directed (a full-duplex cable counts twice).

    `devices` are accelerators; kinds that do not occur are absent, the others in order of name.
    """

    hosts: int
    devices: int
    links: int
    vertices_by_kind: Mapping[VertexKind, int]
    links_by_kind: Mapping[LinkKind, int]

    @property
    def link_kinds(self) -> tuple[LinkKind, ...]:
        """The kinds of link that occur, in order of name."""
        return tuple(self.links_by_kind)


def summarise(cluster: Cluster) -> ClusterSummary:
    """Count the hosts, devices and links of `cluster`."""
    vertices = Counter(vertex.kind for vertex in cluster.vertices.values())
    links = Counter(link.kind for link in cluster.links.values())
    return ClusterSummary(
        hosts=len(cluster.hosts),
        devices=vertices[VertexKind.GPU],
        links=len(cluster.links),
        vertices_by_kind=dict(sorted(vertices.items())),
        links_by_kind=dict(sorted(links.items())),
    )


def apart(cluster: Cluster) -> tuple[str, ...]:
    """The first accelerator of each part of `cluster` that no links join to the others, in order.

    Links count in both directions. One name (or none) when all accelerators reach each other.
    """
    joined: dict[str, list[str]] = {}
    for source, target in cluster.links:
        joined.setdefault(source, []).append(target)
        joined.setdefault(target, []).append(source)
    seen: set[str] = set()
    first = []
    for device in cluster.devices:
        if device.name in seen:
            continue
        first.append(device.name)
        pending = [device.name]
        while pending:
            name = pending.pop()
            if name not in seen:
                seen.add(name)
                pending += joined.get(name, ())
    return tuple(first)
