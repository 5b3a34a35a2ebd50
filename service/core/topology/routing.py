"""Which vertices traffic between two devices passes: the search behind the pinned paths.

docs/decisions/0003-physical-path.md has the rule and its reasons; `service.core.topology.paths`
says it in short.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from types import MappingProxyType

from service.core.topology.cluster import Cluster, LinkKind, Vertex, VertexKind
from service.core.topology.ways_on import Leg, follow, walk

__all__ = [
    "MAX_COUNTED_PATHS",
    "ROUTING_DISTANCE",
    "Route",
    "Router",
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

# Searches that a router remembers before it starts afresh.
_MAX_REMEMBERED = 65_536

# In place of the number of a host: switches of the fabric, and what outside hosts belongs to the
# accelerators' own network.
_FABRIC = -1
_DEVICE_NETWORK = -2
_OF_DEVICE_NETWORKS = (VertexKind.NVSWITCH, VertexKind.ROUTER)


@dataclass(frozen=True, slots=True)
class Route:
    """The vertices of a pinned path by number, both ends included.

    `alternatives` counts other allowed paths of equal distance and bandwidth, up to
    `MAX_COUNTED_PATHS`.
    """

    vertices: tuple[int, ...]
    distance: int
    alternatives: int


@dataclass(frozen=True, slots=True)
class _Arc:
    """A link seen from one of its ends; `far` is the number of the vertex at the other."""

    far: int
    distance: int
    bandwidth: float


_Arcs = Mapping[int, Sequence[_Arc]]


@dataclass(frozen=True, slots=True)
class _Found:
    """What a search found for one pair; it serves every pair of ends like them."""

    source: int
    target: int
    legs: tuple[Leg, ...]
    distance: int
    alternatives: int


@dataclass(frozen=True, slots=True)
class _Best:
    """The shortest and widest paths: their distance, and where they go on from each vertex.

    `onward` lists the vertices from the target to the source.
    """

    distance: int
    onward: Mapping[int, Sequence[int]]


class Router:
    """Finds the routes of one cluster; build it once and ask it often.

    Vertices are numbered in the order of their names, so that comparing numbers compares names.
    The links of a vertex are grouped by the host at their far end: a search then sees nothing of
    the hosts it may not enter, however many there are. Hosts that are wired alike, inside and to
    the same switches, share what is found for one of them.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.names = sorted(cluster.vertices)
        self.number = {name: number for number, name in enumerate(self.names)}
        self._vertices: list[Vertex] = [cluster.vertices[name] for name in self.names]
        self._is_gpu = [vertex.kind is VertexKind.GPU for vertex in self._vertices]
        # The vertices of each host, and the place of each vertex among those of its host.
        hosts: dict[str, int] = {}
        self._members: list[list[int]] = []
        self._host: list[int] = []
        self._place = list(range(len(self.names)))
        for number, vertex in enumerate(self._vertices):
            if vertex.host is None:
                own = vertex.kind in _OF_DEVICE_NETWORKS
                self._host.append(_DEVICE_NETWORK if own else _FABRIC)
                continue
            host = hosts.setdefault(vertex.host, len(hosts))
            if host == len(self._members):
                self._members.append([])
            self._host.append(host)
            self._place[number] = len(self._members[host])
            self._members[host].append(number)
        leaving: list[dict[int, list[_Arc]]] = [{} for _ in self.names]
        entering: list[dict[int, list[_Arc]]] = [{} for _ in self.names]
        for link in cluster.links.values():
            one, other = self.number[link.source], self.number[link.target]
            distance, width = ROUTING_DISTANCE[link.kind], link.bandwidth_bytes_per_second
            leaving[one].setdefault(self._host[other], []).append(_Arc(other, distance, width))
            entering[other].setdefault(self._host[one], []).append(_Arc(one, distance, width))
        self._leaving: Sequence[_Arcs] = leaving
        self._entering: Sequence[_Arcs] = entering
        self._has_device_network = _DEVICE_NETWORK in self._host
        self._first_alike = self._like_hosts()
        self._destination = self._number_destinations()
        self._links_of_a_search = self._most_links()
        self._known: dict[Hashable, _Found | None] = {}

    def links_searched(self, pairs: Iterable[tuple[int, int]]) -> int:
        """How many links finding these pairs looks at, at most, when none is known yet."""
        return len({self._likeness(*pair) for pair in pairs}) * self._links_of_a_search

    def route(self, source: int, target: int) -> Route | None:
        """The pinned route between two different vertices; None when no allowed path exists."""
        key = self._likeness(source, target)
        if key not in self._known:
            if len(self._known) >= _MAX_REMEMBERED:
                self._known = {}
            self._known[key] = self._find(source, target)
        found = self._known[key]
        return None if found is None else self._follow(found, source, target)

    def _follow(self, found: _Found, source: int, target: int) -> Route:
        """The route of a pair whose ends are like those of what was found.

        Where a leg has a choice, the number of the device it leads to decides: its remainder at
        the first choice, the remainder of the quotient at the next, so that destinations with
        consecutive numbers take all paths in turn.
        """
        moved = {
            self._host[found.source]: self._host[source],
            self._host[found.target]: self._host[target],
        }
        for outside in (_FABRIC, _DEVICE_NETWORK):
            moved.pop(outside, None)

        def here(vertex: int) -> int:
            host = moved.get(self._host[vertex])
            return vertex if host is None else self._members[host][self._place[vertex]]

        vertices, vertex = [source], found.source
        for leg in found.legs:
            number = self._destination.get(here(leg.end), 0)
            while vertex != leg.end:
                choices = leg.choices[vertex]
                number, choice = divmod(number, len(choices))
                vertex = choices[choice]
                vertices.append(here(vertex))
        return Route(tuple(vertices), found.distance, found.alternatives)

    def _likeness(self, source: int, target: int) -> Hashable:
        """Equal for pairs whose searches differ in nothing but the names of their hosts."""
        hosts = self._host[source], self._host[target]
        # A path that enters one host twice chooses between vertices of both by their names.
        order = (hosts[0] > hosts[1]) - (hosts[0] < hosts[1])
        ends = [
            (host if host < 0 else self._first_alike[host], self._place[end])
            for host, end in zip(hosts, (source, target), strict=True)
        ]
        return order, *ends

    def _most_links(self) -> int:
        """The links between switches, and those of two hosts with as many as any has."""
        outside, of_host = 0, [0] * len(self._members)
        for host, leaving, entering in zip(self._host, self._leaving, self._entering, strict=True):
            if host < 0:
                outside += _count(leaving)
                continue
            of_host[host] += sum(map(len, leaving.values())) + _count(entering)
        return outside + 2 * max(of_host, default=0)

    def _like_hosts(self) -> list[int]:
        """For each host the first one that is wired as it is."""
        first: dict[Hashable, int] = {}
        return [first.setdefault(self._wiring(host), host) for host in range(len(self._members))]

    def _wiring(self, host: int) -> Hashable:
        """All that a search can see of a host, without the host's name."""
        wiring: list[Hashable] = []
        for vertex in self._members[host]:
            wiring.append((self._vertices[vertex].kind, self._vertices[vertex].rail))
            for arcs in (self._leaving[vertex], self._entering[vertex]):
                if arcs.keys() - {host, _FABRIC, _DEVICE_NETWORK}:
                    return host  # joined to another host: like no other
                wiring += (
                    tuple(sorted((self._place[a.far], a.distance, a.bandwidth) for a in group))
                    for group in (arcs.get(one, ()) for one in (host, _FABRIC, _DEVICE_NETWORK))
                )
        return tuple(wiring)

    def _number_destinations(self) -> Mapping[int, int]:
        """Consecutive numbers for the devices that switches reach, one switch after the other.

        Two devices at one switch so have numbers with different remainders, as far as that goes.
        """
        reached = {
            vertex: min(arc.far for one, group in arcs.items() if one < 0 for arc in group)
            for vertex, arcs in enumerate(self._entering)
            if self._host[vertex] >= 0 and min(arcs, default=0) < 0
        }
        in_order = sorted(reached, key=lambda vertex: (reached[vertex], vertex))
        return {vertex: number for number, vertex in enumerate(in_order)}

    def equals(self, source: int, target: int) -> Iterator[tuple[int, ...]]:
        """All allowed paths of least distance and widest bottleneck, in the order of their numbers.

        The pinned path is one of them; none when the ends are the same or no path is allowed. What
        is between the ends is found anew at each call.
        """
        for hosts in () if source == target else self._views(source, target):
            found = self._best(source, target, hosts)
            if found is not None:
                onward = {near: sorted(far) for near, far in found.onward.items()}
                yield from walk(onward, source, target)
                return

    def _views(self, source: int, target: int) -> Iterator[tuple[int, ...]]:
        """The hosts whose vertices a path may pass; the first view that has a path is used."""
        ends = self._host[source], self._host[target]
        own = (_DEVICE_NETWORK,) if self._has_device_network else ()
        if ends[0] == ends[1] >= 0 or own:
            yield tuple(dict.fromkeys((*own, *ends)))
        yield tuple(dict.fromkeys((_FABRIC, *own, *ends)))

    def _find(self, source: int, target: int) -> _Found | None:
        for hosts in self._views(source, target):
            found = self._search(source, target, hosts)
            if found is not None:
                return found
        return None

    def _best(self, source: int, target: int, hosts: tuple[int, ...]) -> _Best | None:
        """The shortest and widest paths through vertices of `hosts` only."""
        reached = self._distances(source, target, hosts)
        if target not in reached:
            return None
        shortest = self._shortest(reached, target, hosts)
        target_first = sorted(shortest, key=reached.__getitem__, reverse=True)
        width = {target: inf}
        for vertex in target_first:
            width[vertex] = max(min(arc.bandwidth, width[arc.far]) for arc in shortest[vertex])
        widest = width[source]
        onward = {
            vertex: [
                arc.far
                for arc in shortest[vertex]
                if arc.bandwidth >= widest and width[arc.far] >= widest
            ]
            for vertex in target_first
            if width[vertex] >= widest
        }
        return _Best(reached[target], onward)

    def _search(self, source: int, target: int, hosts: tuple[int, ...]) -> _Found | None:
        """Of the shortest and widest paths through vertices of `hosts` those to be pinned."""
        found = self._best(source, target, hosts)
        if found is None:
            return None
        foreign, count, best = {target: 0}, {target: 1}, {}
        for vertex, wide in found.onward.items():
            least = min(foreign[far] for far in wide)
            foreign[vertex] = least + self._foreign(vertex, source, target)
            count[vertex] = min(sum(count[far] for far in wide), MAX_COUNTED_PATHS + 1)
            best[vertex] = [far for far in wide if foreign[far] == least]
        legs = tuple(follow(best, source, target, lambda vertex: self._host[vertex] >= 0))
        return _Found(source, target, legs, found.distance, count[source] - 1)

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


def _count(arcs: _Arcs) -> int:
    """How many of the arcs lead outside hosts."""
    return sum(len(group) for one, group in arcs.items() if one < 0)
