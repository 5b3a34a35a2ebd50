"""Which vertices traffic between two devices passes: the search behind the pinned paths.

docs/decisions/0003-physical-path.md has the rule and its reasons; `service.core.topology.paths`
says it in short.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.topology.cluster import Cluster, VertexKind
from service.core.topology.leg_kernels import lay_leg
from service.core.topology.route_arrays import (
    DEVICE_NETWORK,
    FABRIC,
    ROUTING_DISTANCE,
    Arcs,
    arcs_of,
    hosts_of,
)
from service.core.topology.route_kernels import FAR, NO_RAIL, mark_ways, settle, weigh_ways
from service.core.topology.ways_on import Leg, walk

__all__ = ["MAX_COUNTED_PATHS", "Found", "Route", "Router", "Search"]

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]

MAX_COUNTED_PATHS = 1_000_000

# What a router remembers of searches before it starts afresh, in ways on.
_MAX_REMEMBERED = 4_000_000

_LONGEST = max(ROUTING_DISTANCE.values())


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
class Search:
    """One search, and how many links it looked at; pairs that share it have an equal `key`."""

    key: Hashable
    links: int


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found for one pair; it serves every pair of ends like them."""

    source: int
    target: int
    legs: tuple[Leg, ...]
    distance: int
    alternatives: int


@dataclass(frozen=True, slots=True, eq=False)
class _Ways:
    """The shortest and widest paths: their distance, and the ways on from each vertex on one.

    Those of vertex v stand in `onward` from `start[v]`; up to `best[v]` those with the fewest NICs
    of a foreign rail ahead, up to `end[v]` the others.
    """

    reached: Int64Array
    distance: int
    alternatives: int
    start: Int64Array
    best: Int64Array
    end: Int64Array
    onward: Int32Array

    def all_from(self, vertex: int) -> list[int]:
        """All ways on from a vertex, in order."""
        return sorted(self.onward[self.start[vertex] : self.end[vertex]].tolist())


class Router:
    """Finds the routes of one cluster; build it once and ask it often.

    Vertices are numbered in the order of their names, so that comparing numbers compares names.
    The links of a vertex are grouped by the host at their far end: a search then sees nothing of
    the hosts it may not enter, however many there are. Hosts that are wired alike, inside and to
    the same switches, share what is found for one of them.

    `hosts` (V,) has the host of each vertex (negative outside hosts), `members` the vertices of
    each host and `place` (V,) where among them each stands. `first_alike` names for each host the
    first one wired like it, and `destination` numbers what switches reach, 0 where it has nothing.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.names = sorted(cluster.vertices)
        self.number = {name: number for number, name in enumerate(self.names)}
        vertices = [cluster.vertices[name] for name in self.names]
        self.hosts, self.members = hosts_of(cluster, self.names)
        # Lists beside the arrays, because single elements of lists are read faster.
        self._host: list[int] = self.hosts.tolist()
        self.place = list(range(len(self.names)))
        for members in self.members:
            for place, member in enumerate(members):
                self.place[member] = place
        self._rail = [NO_RAIL if one.rail is None else one.rail for one in vertices]
        self._kind = [one.kind for one in vertices]
        is_gpu = [kind is VertexKind.GPU for kind in self._kind]
        self._is_gpu = np.array(is_gpu, dtype=np.int8)
        is_nic = (kind is VertexKind.NIC for kind in self._kind)
        nic_rails = [r if nic else NO_RAIL for r, nic in zip(self._rail, is_nic, strict=True)]
        self._nic_rail = np.array(nic_rails, dtype=np.int32)
        self._leaving, self._entering = arcs_of(cluster, self.number, self.hosts)
        self._has_device_network = DEVICE_NETWORK in self._host
        self.first_alike = self._like_hosts()
        self.destination = self._number_destinations()
        self._links_of_a_search = self._most_links()
        self._known: dict[Hashable, tuple[Found | None, int]] = {}
        self._remembered = 0

    def links_searched(self, pairs: Iterable[tuple[int, int]]) -> int:
        """How many links finding these pairs looks at, at most, when none is known yet."""
        return len({self._likeness(*pair) for pair in pairs}) * self._links_of_a_search

    def route(self, source: int, target: int) -> tuple[Route | None, Search]:
        """The pinned route between two different vertices, and the search that it is known by.

        None when no allowed path exists.
        """
        found, search = self.found(source, target)
        route = None if found is None else self._follow(found, source, target)
        return route, search

    def found(self, source: int, target: int) -> tuple[Found | None, Search]:
        """What leads from one vertex to a different one, told of a pair like it.

        None when no allowed path exists.
        """
        key = self._likeness(source, target)
        known = self._known.get(key)
        if known is None:
            known = self._find(source, target)
            found = known[0]
            self._remembered += 1 if found is None else sum(leg.size for leg in found.legs)
            if self._remembered > _MAX_REMEMBERED:
                self._known, self._remembered = {}, 0
            self._known[key] = known
        found, looked = known
        return found, Search(key, looked)

    def _follow(self, found: Found, source: int, target: int) -> Route:
        """The route of a pair whose ends are like those of what was found.

        Where a leg has a choice, the number of the device it leads to decides: its remainder at
        the first choice, the remainder of the quotient at the next, so that destinations with
        consecutive numbers take all paths in turn.
        """
        moved = {
            self._host[found.source]: self._host[source],
            self._host[found.target]: self._host[target],
        }
        for outside in (FABRIC, DEVICE_NETWORK):
            moved.pop(outside, None)

        def here(vertex: int) -> int:
            host = moved.get(self._host[vertex])
            return vertex if host is None else self.members[host][self.place[vertex]]

        vertices = [source]
        for leg in found.legs:
            number = self.destination.get(here(leg.end), 0)
            vertices += map(here, leg.passed(number))
        return Route(tuple(vertices), found.distance, found.alternatives)

    def _likeness(self, source: int, target: int) -> Hashable:
        """Equal for pairs whose searches differ in nothing but the names of their hosts."""
        hosts = self._host[source], self._host[target]
        # A path that enters one host twice chooses between vertices of both by their names.
        order = (hosts[0] > hosts[1]) - (hosts[0] < hosts[1])
        ends = [
            (host if host < 0 else self.first_alike[host], self.place[end])
            for host, end in zip(hosts, (source, target), strict=True)
        ]
        return order, *ends

    def _most_links(self) -> int:
        """The links between switches, and those of two hosts with as many as any has."""
        outside, inside = self.hosts < 0, self.hosts >= 0
        between = int(self._leaving.outside[outside].sum())
        of_vertex = (self._leaving.all + self._entering.outside)[inside]
        of_host = np.bincount(self.hosts[inside], weights=of_vertex)
        return between + 2 * int(of_host.max(initial=0))

    def _like_hosts(self) -> list[int]:
        """For each host the first one that is wired as it is."""
        first: dict[Hashable, int] = {}
        lists = [_Lists.of(arcs) for arcs in (self._leaving, self._entering)]
        return [
            first.setdefault(self._wiring(host, lists), host) for host in range(len(self.members))
        ]

    def _wiring(self, host: int, lists: Sequence["_Lists"]) -> Hashable:
        """All that a search can see of a host, without the host's name."""
        wiring: list[Hashable] = []
        for vertex in self.members[host]:
            wiring.append((self._kind[vertex], self._rail[vertex]))
            for arcs in lists:
                begin, end = arcs.first[vertex], arcs.first[vertex + 1]
                # In the order of their hosts: the last one is the greatest.
                inner = arcs.inner[vertex]
                if inner < end and not arcs.far_host[inner] == host == arcs.far_host[end - 1]:
                    return host  # joined to another host: like no other
                wiring.append(
                    (
                        inner - begin,
                        tuple(self.place[far] for far in arcs.far[begin:end]),
                        tuple(arcs.distance[begin:end]),
                        tuple(arcs.bandwidth[begin:end]),
                    )
                )
        return tuple(wiring)

    def _number_destinations(self) -> dict[int, int]:
        """Consecutive numbers for the devices that switches reach, one switch after the other.

        Two devices at one switch so have numbers with different remainders, as far as that goes.
        """
        arcs = self._entering
        reached = [
            (int(arcs.far[arcs.first[vertex] : arcs.inner[vertex]].min()), vertex)
            for vertex in np.flatnonzero((self.hosts >= 0) & (arcs.outside > 0)).tolist()
        ]
        return {vertex: number for number, (_, vertex) in enumerate(sorted(reached))}

    def equals(self, source: int, target: int) -> Iterator[tuple[int, ...]]:
        """All allowed paths of least distance and widest bottleneck, in the order of their numbers.

        The pinned path is one of them; none when the ends are the same or no path is allowed. What
        is between the ends is found anew at each call.
        """
        if source == target:
            return
        ways, _ = self._ways(source, target)
        if ways is not None:
            yield from walk(ways.all_from, source, target)

    def _views(self, source: int, target: int) -> Iterator[Int64Array]:
        """What a path may pass, as the kernels read it; the first view that has a path is used."""
        ends = [self._host[source], self._host[target]]
        inside = [max(host, -1) for host in dict.fromkeys(ends)]
        hosts = [*inside, -1][:2]
        rails = [self._rail[source], self._rail[target]]
        if ends[0] == ends[1] >= 0 or self._has_device_network:
            yield np.array([FABRIC in ends, True, *hosts, *rails], dtype=np.int64)
        yield np.array([True, True, *hosts, *rails], dtype=np.int64)

    def _ways(self, source: int, target: int) -> tuple[_Ways | None, int]:
        """The ways between two vertices, and how many links were looked at."""
        looked = 0
        for view in self._views(source, target):
            found, more = self._search(source, target, view)
            looked += more
            if found is not None:
                return found, looked
        return None, looked

    def _search(self, source: int, target: int, view: Int64Array) -> tuple[_Ways | None, int]:
        """The shortest and widest paths in what a view lets see."""
        vertices = len(self.names)
        leaving, entering = self._leaving, self._entering
        reached = np.full(vertices, FAR)
        settled = np.empty(vertices, dtype=np.int32)
        count, looked = settle(
            *leaving.of_search,
            self._is_gpu,
            view,
            source,
            target,
            _LONGEST,
            reached,
            settled,
        )
        if not count:
            return None, looked
        known = np.zeros(vertices, dtype=np.int8)
        back = mark_ways(
            *entering.of_search,
            view,
            target,
            reached,
            known,
        )
        start, best, end = (np.empty(vertices, dtype=np.int64) for _ in range(3))
        onward = np.empty(len(leaving.far), dtype=np.int32)
        alternatives, laid, forth = weigh_ways(
            *leaving.of_search,
            leaving.bandwidth,
            view,
            source,
            target,
            self.hosts,
            self._nic_rail,
            MAX_COUNTED_PATHS,
            reached,
            settled,
            count,
            known,
            start,
            best,
            end,
            onward,
        )
        distance = int(reached[target])
        ways = _Ways(reached, distance, alternatives, start, best, end, onward[:laid])
        return ways, looked + back + forth

    def _find(self, source: int, target: int) -> tuple[Found | None, int]:
        ways, looked = self._ways(source, target)
        if ways is None:
            return None, looked
        vertices = len(self.names)
        number = np.full(vertices, -1, dtype=np.int32)
        choices, entries = (np.empty(len(ways.onward), dtype=np.int32) for _ in range(2))
        offsets = np.empty(len(ways.onward) + 1, dtype=np.int64)
        legs, near = [], source
        while near != target:
            anchor, kept, laid = lay_leg(
                ways.start,
                ways.best,
                ways.onward,
                ways.reached,
                self.hosts,
                near,
                target,
                number,
                choices,
                offsets,
                entries,
            )
            legs.append(Leg.of(anchor, choices[:laid], offsets[: kept + 1], entries[:laid]))
            near = anchor
        return Found(source, target, tuple(legs), ways.distance, ways.alternatives), looked


@dataclass(frozen=True, slots=True)
class _Lists:
    """The arrays of `Arcs` as lists, whose single elements are read faster."""

    first: list[int]
    inner: list[int]
    far: list[int]
    far_host: list[int]
    distance: list[int]
    bandwidth: list[float]

    @classmethod
    def of(cls, arcs: Arcs) -> "_Lists":
        """The lists of these arcs."""
        arrays = (arcs.first, arcs.inner, arcs.far, arcs.far_host, arcs.distance, arcs.bandwidth)
        return cls(*(array.tolist() for array in arrays))
