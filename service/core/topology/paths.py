"""The one physical path that traffic between two devices is pinned to.

Allowed paths: traffic passes through no GPU but its two ends, and enters no host but those of its
ends; between two devices of one host it stays inside the host when it can. Among the allowed paths
the pinned one has

1. the least routing distance, the sum of `ROUTING_DISTANCE` over its links, so that each device
   uses the NICs nearest to it and crosses sockets only when it must;
2. then the widest nominal bottleneck;
3. then the fewest NICs of a rail other than that of the end in the same host;
4. then the smallest sequence of vertex names.

docs/decisions/0003-physical-path.md tells why.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from math import fsum, inf
from types import MappingProxyType

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.topology.cluster import Cluster, Link, LinkKind, Vertex, VertexKind

__all__ = [
    "MAX_COUNTED_PATHS",
    "ROUTING_DISTANCE",
    "PathFinder",
    "PhysicalPath",
]

ROUTING_DISTANCE: Mapping[LinkKind, int] = MappingProxyType(
    {
        LinkKind.NVLINK: 1,
        LinkKind.PCIE: 1,
        LinkKind.HOST_BRIDGE: 16,
        LinkKind.SOCKET: 64,
        LinkKind.NETWORK: 1,
        LinkKind.FABRIC: 1,
        LinkKind.OTHER: 1,
    }
)

MAX_COUNTED_PATHS = 1_000_000

# Pairs that a finder remembers before it starts afresh.
MAX_REMEMBERED_PAIRS = 65_536

_FABRIC = -1


@dataclass(frozen=True, slots=True)
class PhysicalPath:
    """A pinned path and what it offers; one from a device to itself has no links.

    `bottleneck` is the first link of least nominal bandwidth, `bandwidth_bytes_per_second` its
    rate; both are absent without links. `effective_bytes_per_second` is the least of the links'
    effective rates, nominal ones standing in on `links_without_effective` links. In
    `latency_seconds` the guaranteed floor stands in on `links_without_latency` links.
    `equal_cost_alternatives` counts other allowed paths of equal distance and bandwidth, up to
    `MAX_COUNTED_PATHS`.
    """

    source: str
    target: str
    links: tuple[Link, ...]
    distance: int
    bottleneck: Link | None
    bandwidth_bytes_per_second: float | None
    effective_bytes_per_second: float | None
    links_without_effective: int
    latency_floor_seconds: float
    latency_seconds: float
    links_without_latency: int
    equal_cost_alternatives: int

    @property
    def vertices(self) -> tuple[str, ...]:
        """The names along the path, both ends included."""
        return (self.source, *(link.target for link in self.links))

    @property
    def has_assumed_bandwidth(self) -> bool:
        """Whether any nominal rate on the path is an assumption, so that its bound is one too."""
        return any(link.bandwidth_assumed for link in self.links)


@dataclass(frozen=True, slots=True)
class _Arc:
    """A link seen from one of its ends; `far` is the number of the vertex at the other."""

    far: int
    distance: int
    bandwidth: float


_Arcs = Mapping[int, Sequence[_Arc]]


class PathFinder:
    """Finds pinned paths in one cluster; build it once and ask it often.

    Vertices are numbered in the order of their names, so that comparing numbers compares names.
    The links of a vertex are grouped by the host at their far end: a search then sees nothing of
    the hosts it may not enter, however many there are.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._links = cluster.links
        self._names = sorted(cluster.vertices)
        self._number = {name: number for number, name in enumerate(self._names)}
        self._vertices: list[Vertex] = [cluster.vertices[name] for name in self._names]
        hosts = {name: number for number, name in enumerate(cluster.hosts)}
        self._host = [_FABRIC if v.host is None else hosts[v.host] for v in self._vertices]
        self._is_gpu = [vertex.kind is VertexKind.GPU for vertex in self._vertices]
        leaving: list[dict[int, list[_Arc]]] = [{} for _ in self._names]
        entering: list[dict[int, list[_Arc]]] = [{} for _ in self._names]
        for link in cluster.links.values():
            one, other = self._number[link.source], self._number[link.target]
            distance, width = ROUTING_DISTANCE[link.kind], link.bandwidth_bytes_per_second
            leaving[one].setdefault(self._host[other], []).append(_Arc(other, distance, width))
            entering[other].setdefault(self._host[one], []).append(_Arc(one, distance, width))
        self._leaving: Sequence[_Arcs] = leaving
        self._entering: Sequence[_Arcs] = entering
        self._known: dict[tuple[int, int], PhysicalPath | None] = {}

    def path(self, source: str, target: str) -> PhysicalPath | None:
        """The pinned path, or None when no allowed path exists.

        Raises `InvalidInput` for a name that is not in the cluster.
        """
        faults = [
            Fault(FaultCode.UNKNOWN_NAME, (end,), f"{name!r} is no device of this topology")
            for end, name in (("source", source), ("target", target))
            if name not in self._number
        ]
        if faults:
            raise InvalidInput(faults)
        pair = self._number[source], self._number[target]
        if pair not in self._known:
            if len(self._known) >= MAX_REMEMBERED_PAIRS:
                self._known = {}
            self._known[pair] = self._find(*pair)
        return self._known[pair]

    def _find(self, source: int, target: int) -> PhysicalPath | None:
        if source == target:
            return _describe(self._names[source], self._names[target], (), 0, 0)
        ends = self._host[source], self._host[target]
        if ends[0] == ends[1] != _FABRIC:
            inside = self._search(source, target, (ends[0],))
            if inside is not None:
                return inside
        return self._search(source, target, tuple(dict.fromkeys((_FABRIC, *ends))))

    def _search(self, source: int, target: int, hosts: tuple[int, ...]) -> PhysicalPath | None:
        """The pinned path through vertices of `hosts` only."""
        reached = self._distances(source, target, hosts)
        if target not in reached:
            return None
        onward = self._shortest(reached, target, hosts)
        target_first = sorted(onward, key=reached.__getitem__, reverse=True)

        width = {target: inf}
        for vertex in target_first:
            width[vertex] = max(min(arc.bandwidth, width[arc.far]) for arc in onward[vertex])
        widest = width[source]

        foreign, count = {target: 0}, {target: 1}
        for vertex in target_first:
            if width[vertex] < widest:
                continue
            onward[vertex] = [
                arc
                for arc in onward[vertex]
                if arc.bandwidth >= widest and width[arc.far] >= widest
            ]
            least = min(foreign[arc.far] for arc in onward[vertex])
            foreign[vertex] = least + self._foreign(vertex, source, target)
            paths = sum(count[arc.far] for arc in onward[vertex])
            count[vertex] = min(paths, MAX_COUNTED_PATHS + 1)

        names, vertex = [self._names[source]], source
        while vertex != target:
            least = min(foreign[arc.far] for arc in onward[vertex])
            vertex = min(arc.far for arc in onward[vertex] if foreign[arc.far] == least)
            names.append(self._names[vertex])
        links = tuple(self._links[hop] for hop in pairwise(names))
        return _describe(names[0], names[-1], links, reached[target], count[source] - 1)

    def _distances(self, source: int, target: int, hosts: tuple[int, ...]) -> dict[int, int]:
        """Dijkstra's distances from `source`, final for all vertices nearer than `target`."""
        reached = {source: 0}
        queue = [(0, source)]
        while queue:
            distance, vertex = heappop(queue)
            if vertex == target:
                break
            if distance > reached[vertex]:
                continue
            leaving = self._leaving[vertex]
            for host in hosts:
                for arc in leaving.get(host, ()):
                    if self._is_gpu[arc.far] and arc.far != target:
                        continue
                    further = distance + arc.distance
                    if further < reached.get(arc.far, inf):
                        reached[arc.far] = further
                        heappush(queue, (further, arc.far))
        return reached

    def _shortest(
        self, reached: Mapping[int, int], target: int, hosts: tuple[int, ...]
    ) -> dict[int, list[_Arc]]:
        """All shortest paths as a graph: for each vertex on one, the links onward."""
        onward: dict[int, list[_Arc]] = {}
        seen, waiting = {target}, [target]
        while waiting:
            vertex = waiting.pop()
            entering = self._entering[vertex]
            for host in hosts:
                for arc in entering.get(host, ()):
                    if reached.get(arc.far, inf) + arc.distance != reached[vertex]:
                        continue
                    link = _Arc(vertex, arc.distance, arc.bandwidth)
                    onward.setdefault(arc.far, []).append(link)
                    if arc.far not in seen:
                        seen.add(arc.far)
                        waiting.append(arc.far)
        return onward

    def _foreign(self, vertex: int, source: int, target: int) -> int:
        """How many of the ends in a NIC's host are paired with another rail than the NIC's."""
        nic = self._vertices[vertex]
        if nic.kind is not VertexKind.NIC or nic.rail is None:
            return 0
        ends = (self._vertices[source], self._vertices[target])
        return sum(
            end.host == nic.host and end.rail is not None and end.rail != nic.rail for end in ends
        )


def _describe(
    source: str, target: str, links: tuple[Link, ...], distance: int, alternatives: int
) -> PhysicalPath:
    bottleneck = min(links, key=lambda link: link.bandwidth_bytes_per_second, default=None)
    carried = [
        link.bandwidth_bytes_per_second
        if link.effective_bytes_per_second is None
        else link.effective_bytes_per_second
        for link in links
    ]
    waits = [
        link.latency_floor_seconds if link.latency_seconds is None else link.latency_seconds
        for link in links
    ]
    return PhysicalPath(
        source=source,
        target=target,
        links=links,
        distance=distance,
        bottleneck=bottleneck,
        bandwidth_bytes_per_second=(
            None if bottleneck is None else bottleneck.bandwidth_bytes_per_second
        ),
        effective_bytes_per_second=min(carried, default=None),
        links_without_effective=sum(link.effective_bytes_per_second is None for link in links),
        latency_floor_seconds=fsum(link.latency_floor_seconds for link in links),
        latency_seconds=fsum(waits),
        links_without_latency=sum(link.latency_seconds is None for link in links),
        equal_cost_alternatives=alternatives,
    )
