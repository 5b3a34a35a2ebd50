"""A cluster as arrays: numbered vertices, directed links, and the capacities that these take up."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.topology.cluster import Cluster, Link, LinkKind, VertexKind

__all__ = ["NO_HOST", "Network", "network_of"]

BoolArray = npt.NDArray[np.bool_]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]

NO_HOST = -1


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """Vertices V and directed links E in the order of the cluster, capacities R by first use.

    `host` (V,) numbers the hosts and is `NO_HOST` for switches of the fabric. `tail`, `head` and
    `resource` (E,) are the ends of each link and the capacity it takes up; links that share one
    have the same number. `effective` (E,) is what predictions use and `capacity` (R,) what bounds
    do, in bytes per second; `latency_floor` (R,) is guaranteed, in seconds, by every link of each;
    `representative` (R,) is the first of them.
    """

    cluster: Cluster
    names: tuple[str, ...]
    number: Mapping[str, int]
    host_names: tuple[str, ...]
    host: Int32Array
    is_gpu: BoolArray
    links: tuple[Link, ...]
    link_number: Mapping[tuple[str, str], int]
    resource_number: Mapping[str, int]
    tail: Int32Array
    head: Int32Array
    is_nvlink: BoolArray
    resource: Int32Array
    capacity: Float64Array
    effective: Float64Array
    latency_floor: Float64Array
    representative: Int32Array
    # Offsets and links, by tail and by head.
    _leaving: tuple[Int64Array, Int64Array]
    _entering: tuple[Int64Array, Int64Array]

    @property
    def vertex_count(self) -> int:
        """How many vertices there are."""
        return len(self.names)

    @property
    def gpus(self) -> Int32Array:
        """The numbers of all accelerators, in order."""
        return np.flatnonzero(self.is_gpu).astype(np.int32)

    def leaving(self, vertex: int) -> list[int]:
        """The links that start at a vertex, in order."""
        return _row(self._leaving, vertex)

    def entering(self, vertex: int) -> list[int]:
        """The links that end at a vertex, in order."""
        return _row(self._entering, vertex)

    def resource_name(self, resource: int) -> str:
        """The name of a capacity: that of its link, or of what links share."""
        return str(self.links[int(self.representative[resource])].resource)


def network_of(cluster: Cluster) -> Network:
    """The arrays of `cluster`."""
    names = tuple(cluster.vertices)
    number = {name: index for index, name in enumerate(names)}
    vertices = cluster.vertices.values()
    hosts: dict[str, int] = {}
    host = [
        NO_HOST if vertex.host is None else hosts.setdefault(vertex.host, len(hosts))
        for vertex in vertices
    ]
    links = tuple(cluster.links.values())
    resources: dict[str, int] = {}
    resource = [resources.setdefault(link.resource, len(resources)) for link in links]
    representative = np.zeros(len(resources), dtype=np.int32)
    # Backwards, so that the first link of each has the last word.
    for position in range(len(links) - 1, -1, -1):
        representative[resource[position]] = position
    rates = [link.effective_bytes_per_second or link.bandwidth_bytes_per_second for link in links]
    floor = np.full(len(resources), np.inf)
    np.minimum.at(floor, resource, [link.latency_floor_seconds for link in links])
    tail = np.array([number[link.source] for link in links], dtype=np.int32)
    head = np.array([number[link.target] for link in links], dtype=np.int32)
    return Network(
        cluster=cluster,
        names=names,
        number=number,
        host_names=tuple(hosts),
        host=np.array(host, dtype=np.int32),
        is_gpu=np.array([vertex.kind is VertexKind.GPU for vertex in vertices], dtype=np.bool_),
        links=links,
        link_number={ends: position for position, ends in enumerate(cluster.links)},
        resource_number=resources,
        tail=tail,
        head=head,
        is_nvlink=np.array([link.kind is LinkKind.NVLINK for link in links], dtype=np.bool_),
        resource=np.array(resource, dtype=np.int32),
        capacity=np.array([links[first].bandwidth_bytes_per_second for first in representative]),
        effective=np.array(rates),
        latency_floor=floor,
        representative=representative,
        _leaving=_rows(tail, len(names)),
        _entering=_rows(head, len(names)),
    )


def _rows(ends: Int32Array, count: int) -> tuple[Int64Array, Int64Array]:
    """Where the links of each vertex begin in the list of links by vertex, and that list."""
    offsets = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=count))])
    return offsets, np.argsort(ends, kind="stable")


def _row(rows: tuple[Int64Array, Int64Array], vertex: int) -> list[int]:
    offsets, order = rows
    row: list[int] = order[offsets[vertex] : offsets[vertex + 1]].tolist()
    return row
