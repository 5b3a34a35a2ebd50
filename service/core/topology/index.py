"""What stands in each host and what leaves each vertex, found once for a cluster."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from service.core.topology.cluster import Cluster, Link, Vertex, VertexKind

__all__ = ["ClusterIndex", "index_of"]


@dataclass(frozen=True, slots=True, eq=False)
class ClusterIndex:
    """`members` has the vertices of each host in order, the others the links of each vertex."""

    members: Mapping[str, tuple[Vertex, ...]]
    leaving: Mapping[str, tuple[Link, ...]]
    entering: Mapping[str, tuple[Link, ...]]

    def names(self, host: str | None, kind: VertexKind) -> tuple[str, ...]:
        """The vertices of one kind in a host; none outside hosts."""
        members = () if host is None else self.members.get(host, ())
        return tuple(vertex.name for vertex in members if vertex.kind is kind)


@lru_cache(maxsize=16)
def index_of(cluster: Cluster) -> ClusterIndex:
    """The index of a cluster, which all who ask for the same object share."""
    members: dict[str, list[Vertex]] = {}
    leaving: dict[str, list[Link]] = {name: [] for name in cluster.vertices}
    for vertex in cluster.vertices.values():
        if vertex.host is not None:
            members.setdefault(vertex.host, []).append(vertex)
    entering: dict[str, list[Link]] = {name: [] for name in cluster.vertices}
    for link in cluster.links.values():
        leaving[link.source].append(link)
        entering[link.target].append(link)
    return ClusterIndex(
        {host: tuple(vertices) for host, vertices in members.items()},
        {name: tuple(links) for name, links in leaving.items()},
        {name: tuple(links) for name, links in entering.items()},
    )
