"""The links of a cluster as arrays, as the compiled search for paths reads them."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from service.core.topology.cluster import Cluster, LinkKind, VertexKind

__all__ = ["DEVICE_NETWORK", "FABRIC", "ROUTING_DISTANCE", "Arcs", "arcs_of", "hosts_of"]

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Float64Array = npt.NDArray[np.float64]

ROUTING_DISTANCE: Mapping[LinkKind, int] = MappingProxyType(
    {
        LinkKind.NVLINK: 1,
        LinkKind.PCIE: 1,
        LinkKind.HOST_BRIDGE: 16,
        LinkKind.ON_CHIP: 16,
        LinkKind.SOCKET: 64,
        LinkKind.NETWORK: 1,
        LinkKind.FABRIC: 1,
        LinkKind.OTHER: 1,
    }
)

# In place of the number of a host: switches of the fabric, and what outside hosts belongs to the
# accelerators' own network.
FABRIC = -1
DEVICE_NETWORK = -2
_OF_DEVICE_NETWORKS = (VertexKind.NVSWITCH, VertexKind.ROUTER)


@dataclass(frozen=True, slots=True, eq=False)
class Arcs:
    """Links by the vertex at one end; `far` is the number of the vertex at the other.

    Those of vertex v stand from `first[v]` to `first[v + 1]` in the order of the hosts of their far
    ends and then of these: from `fabric[v]` those to the fabric, from `inner[v]` those to hosts.
    """

    first: Int64Array
    fabric: Int64Array
    inner: Int64Array
    far: Int32Array
    far_host: Int32Array
    distance: Int64Array
    bandwidth: Float64Array

    @property
    def of_search(
        self,
    ) -> tuple[Int64Array, Int64Array, Int64Array, Int32Array, Int32Array, Int64Array]:
        """What the loops of a search begin with, in their order."""
        return self.first, self.fabric, self.inner, self.far, self.far_host, self.distance

    @property
    def outside(self) -> Int64Array:
        """How many links of each vertex lead outside hosts."""
        return self.inner - self.first[:-1]

    @property
    def all(self) -> Int64Array:
        """How many links each vertex has."""
        return np.diff(self.first)


def hosts_of(cluster: Cluster, names: list[str]) -> tuple[Int32Array, tuple[list[int], ...]]:
    """The number of each vertex's host, in the order of `names`, and the vertices of each host."""
    numbers: dict[str, int] = {}
    members: list[list[int]] = []
    hosts = np.empty(len(names), dtype=np.int32)
    for number, name in enumerate(names):
        vertex = cluster.vertices[name]
        if vertex.host is None:
            hosts[number] = DEVICE_NETWORK if vertex.kind in _OF_DEVICE_NETWORKS else FABRIC
            continue
        host = numbers.setdefault(vertex.host, len(numbers))
        if host == len(members):
            members.append([])
        hosts[number] = host
        members[host].append(number)
    return hosts, tuple(members)


def arcs_of(cluster: Cluster, number: Mapping[str, int], hosts: Int32Array) -> tuple[Arcs, Arcs]:
    """The links that leave each vertex, and those that enter it."""
    links = cluster.links.values()
    count = len(links)
    source = np.fromiter((number[link.source] for link in links), np.int32, count)
    target = np.fromiter((number[link.target] for link in links), np.int32, count)
    distance = np.fromiter((ROUTING_DISTANCE[link.kind] for link in links), np.int64, count)
    rates = (link.bandwidth_bytes_per_second for link in links)
    bandwidth = np.fromiter(rates, np.float64, count)
    return (
        _arcs(source, target, distance, bandwidth, hosts),
        _arcs(target, source, distance, bandwidth, hosts),
    )


def _arcs(
    near: Int32Array,
    far: Int32Array,
    distance: Int64Array,
    bandwidth: Float64Array,
    hosts: Int32Array,
) -> Arcs:
    far_host = hosts[far]
    order = np.lexsort((far, far_host, near))
    vertices = len(hosts)
    # How many of each vertex's links lead to the own network, and how many outside hosts at all.
    per_vertex = np.bincount(near, minlength=vertices)
    own = np.bincount(near[far_host == DEVICE_NETWORK], minlength=vertices)
    outside = np.bincount(near[far_host < 0], minlength=vertices)
    first = np.concatenate([[0], np.cumsum(per_vertex)]).astype(np.int64)
    return Arcs(
        first=first,
        fabric=first[:-1] + own,
        inner=first[:-1] + outside,
        far=far[order],
        far_host=far_host[order],
        distance=distance[order],
        bandwidth=bandwidth[order],
    )
