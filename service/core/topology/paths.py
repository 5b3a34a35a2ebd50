"""The one physical path that traffic between two devices is pinned to.

Allowed paths: traffic passes through no GPU but its two ends, and enters no host but those of its
ends. It keeps off the fabric when it can: between two devices of one host it stays inside the host
or on the accelerators' own network (NVSwitches and routers outside hosts), between devices of
several hosts on that network if they share one. Among the allowed paths
the pinned one has

1. the least routing distance, the sum of `ROUTING_DISTANCE` over its links, so that each device
   uses the NICs nearest to it and crosses sockets only when it must;
2. then the widest nominal bottleneck;
3. then the fewest NICs of a rail other than that of the end in the same host;
4. then the smallest sequence of the names of its vertices in hosts;
5. then, at each switch with several equal ways on, the one that the destination's number selects,
   as the forwarding tables of a static fat-tree routing do.

docs/decisions/0003-physical-path.md tells why.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, pairwise
from math import fsum

from service.core.errors import Fault, FaultCode, InvalidInput, WorkBudgetExceeded
from service.core.topology.cluster import Cluster, Link
from service.core.topology.routing import Router, Search

__all__ = ["PathFinder", "PhysicalPath", "SearchBudget", "joined", "path_finder"]

# Pairs that a finder remembers before it starts afresh.
_MAX_REMEMBERED_PAIRS = 65_536
_MAX_REMEMBERED_HOPS = 4_000_000
# And those whose alternatives it remembers.
_MAX_REMEMBERED_ALTERNATIVES = 256


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


# A hop of a path that is found costs about as much as looking at so many links.
_HOP_LOOKS = 300


class SearchBudget:
    """What finding paths may take in all, in links that are looked at; 100 million are a second.

    A search ends where its target is reached, so how far it looks is known only once it is done.
    What was found before counts as if it had not been, so that the same question always gets the
    same answer.
    """

    def __init__(self, links: int) -> None:
        self._left = links
        self._searches: set[Hashable] = set()

    def spend(self, search: Search | None, hops: int) -> None:
        """Count a path and its search, unless another path of the same search was counted.

        Raises `WorkBudgetExceeded` (path `topology`) once more is spent than there was.
        """
        self._left -= _HOP_LOOKS * hops
        if search is not None and search.key not in self._searches:
            self._searches.add(search.key)
            self._left -= search.links
        if self._left < 0:
            detail = (
                "finding the physical paths looks at too many links: use fewer ranks, or place "
                "ranks that exchange data nearer to each other"
            )
            raise WorkBudgetExceeded([Fault(FaultCode.WORK_BUDGET, ("topology",), detail)])


class PathFinder:
    """Finds pinned paths in one cluster; build it once and ask it often."""

    def __init__(self, cluster: Cluster) -> None:
        self._links = cluster.links
        self.router = Router(cluster)
        self._known: dict[tuple[str, str], tuple[PhysicalPath | None, Search | None]] = {}
        self._hops = 0
        self._alternatives: dict[tuple[str, str, int], tuple[PhysicalPath, ...]] = {}

    def path(
        self, source: str, target: str, budget: SearchBudget | None = None
    ) -> PhysicalPath | None:
        """The pinned path, or None when no allowed path exists.

        Raises `InvalidInput` for a name that is not in the cluster, and what `budget` does.
        """
        pair = source, target
        known = self._known.get(pair)
        if known is None:
            known = self._find(source, target)
            # Hops are kept, as links are: a path in a ring has thousands.
            self._hops += _hops(known[0]) + 1
            if self._hops > _MAX_REMEMBERED_HOPS or len(self._known) >= _MAX_REMEMBERED_PAIRS:
                self._known, self._hops = {}, 0
            self._known[pair] = known
        path, search = known
        if budget is not None:
            budget.spend(search, _hops(path))
        return path

    def links_searched(self, pairs: Iterable[tuple[str, str]]) -> int:
        """How many links finding these pairs looks at, at most; the names are in the cluster."""
        number = self.router.number
        return self.router.links_searched(
            (number[source], number[target]) for source, target in pairs if source != target
        )

    def equal_cost_paths(self, source: str, target: str, limit: int) -> tuple[PhysicalPath, ...]:
        """Up to `limit` other allowed paths of the pinned path's distance and bandwidth.

        In the order of the names of their vertices. Raises as `path` does.
        """
        question = source, target, limit
        if question not in self._alternatives:
            if len(self._alternatives) >= _MAX_REMEMBERED_ALTERNATIVES:
                self._alternatives = {}
            self._alternatives[question] = self._find_alternatives(source, target, limit)
        return self._alternatives[question]

    def _find_alternatives(self, source: str, target: str, limit: int) -> tuple[PhysicalPath, ...]:
        pinned = self.path(source, target)
        if pinned is None or pinned.equal_cost_alternatives == 0:
            return ()
        numbers, names = self.router.number, self.router.names
        # One more than asked for: the pinned one may be among them.
        every = islice(self.router.equals(numbers[source], numbers[target]), limit + 1)
        listed = (tuple(names[vertex] for vertex in path) for path in every)
        others = [vertices for vertices in listed if vertices != pinned.vertices]
        return tuple(
            _describe(
                source,
                target,
                tuple(self._links[hop] for hop in pairwise(vertices)),
                pinned.distance,
                pinned.equal_cost_alternatives,
            )
            for vertices in others[:limit]
        )

    def _find(self, source: str, target: str) -> tuple[PhysicalPath | None, Search | None]:
        numbers = self.router.number
        faults = [
            Fault(FaultCode.UNKNOWN_NAME, (end,), f"{name!r} is no device of this topology")
            for end, name in (("source", source), ("target", target))
            if name not in numbers
        ]
        if faults:
            raise InvalidInput(faults)
        if source == target:
            return _describe(source, target, (), 0, 0), None
        route, search = self.router.route(numbers[source], numbers[target])
        if route is None:
            return None, search
        names = [self.router.names[vertex] for vertex in route.vertices]
        links = tuple(self._links[hop] for hop in pairwise(names))
        return _describe(source, target, links, route.distance, route.alternatives), search


def _hops(path: PhysicalPath | None) -> int:
    return 0 if path is None else len(path.links)


@lru_cache(maxsize=16)
def path_finder(cluster: Cluster) -> PathFinder:
    """The finder of a cluster, which all who ask for the same object share.

    A cluster compares by identity; whoever keeps one finds the paths that were found before.
    """
    return PathFinder(cluster)


def joined(parts: Sequence[PhysicalPath]) -> PhysicalPath:
    """Paths that follow each other as one; the last one's alternatives are those of the whole."""
    return _describe(
        parts[0].source,
        parts[-1].target,
        tuple(link for part in parts for link in part.links),
        sum(part.distance for part in parts),
        parts[-1].equal_cost_alternatives,
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
