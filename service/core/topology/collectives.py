"""What collectives among groups of devices put on the links of their pinned paths.

A ring: each device sends to the next, in the order given, a share at a time. Where that is quicker
there is a ring for each NIC, see `service.core.topology.rings`. A double binary tree
(Sanders, Speck and Träff, 2009, as NCCL runs it): two trees, each for half of the message, in a
chain within each host and as a binary tree over hosts; the second tree is the first one in reverse
order, so that who passes on much in one passes on little in the other. Both are predictions at
effective rates: an otherwise idle network, messages cut so fine that all hops work at once.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from itertools import chain, pairwise

from service.core.topology.cluster import Link, Vertex
from service.core.topology.paths import PathFinder, PhysicalPath, SearchBudget
from service.core.topology.rings import by_host, rings_by_nic

__all__ = ["Algorithm", "CollectiveTraffic", "Hop", "NoPath", "collective_traffic", "double_tree"]


class Algorithm(StrEnum):
    """How a collective is carried out."""

    ALL_REDUCE_RING = "all_reduce_ring"
    ALL_REDUCE_TREE = "all_reduce_tree"
    SCATTER_RING = "scatter_ring"  # a reduce-scatter, or an all-gather: half of the former


@dataclass(frozen=True, slots=True)
class Hop:
    """What one device sends another in all, as a share of the message."""

    source: str
    target: str
    share: Fraction


@dataclass(frozen=True, slots=True)
class NoPath:
    """Two devices of a group that no allowed path joins."""

    source: str
    target: str


@dataclass(frozen=True, slots=True, eq=False)
class CollectiveTraffic:
    """What groups that work at once need for each byte of the message that every device holds.

    `seconds_per_byte` says how long each capacity is taken up at its effective rate (the nominal
    one where none is known), exactly; `binding` is the first link of the one taken up longest, None
    where nothing is sent. `share_of` says what part of a message goes through each capacity, once
    for each time that it does. `latency_seconds` is what comes once. `rings` is the most that any
    group has, 0 of trees. `hops` is how many pairs of devices send, and the next two on how many of
    their paths a nominal rate or a latency floor stood in.
    """

    seconds_per_byte: Mapping[str, Fraction]
    share_of: Mapping[str, Fraction]
    binding: Link | None
    latency_seconds: float
    rings: int
    hops: int
    without_effective: int
    without_latency: int

    @property
    def least_seconds_per_byte(self) -> Fraction:
        """What a byte takes where nothing else is on the links; 0 where nothing is sent."""
        return max(self.seconds_per_byte.values(), default=Fraction(0))


def collective_traffic(
    finder: PathFinder,
    groups: Sequence[Sequence[str]],
    algorithm: Algorithm,
    vertices: Mapping[str, Vertex],
    budget: SearchBudget | None = None,
) -> CollectiveTraffic | NoPath:
    """The traffic of `algorithm` in each of the groups (names of devices, in order) at once.

    `vertices` are those of the cluster. A group of one sends nothing. Links of one shared capacity
    are one. A ring waits for its slowest hop at each step, a tree for its deepest chain there and
    back. All groups have one ring each where a ring for each NIC takes them no less for a byte.
    Raises what `budget` does.
    """
    if algorithm is Algorithm.ALL_REDUCE_TREE:
        hosts = {name: vertices[name].host for group in groups for name in group}
        trees = [_tree_hops(group, hosts) for group in groups]
        return _traffic(finder, groups, algorithm, trees, budget)
    one = [(tuple(group),) for group in groups]
    single = _of_rings(finder, groups, algorithm, one, budget)
    if isinstance(single, NoPath):
        return single
    by_nic = [rings_by_nic(finder, group, vertices, budget) for group in groups]
    if all(len(rings) == 1 for rings in by_nic):
        return single
    several = _of_rings(finder, groups, algorithm, by_nic, budget)
    if isinstance(several, NoPath):
        return single
    return min(single, several, key=lambda traffic: traffic.least_seconds_per_byte)


def _of_rings(
    finder: PathFinder,
    groups: Sequence[Sequence[str]],
    algorithm: Algorithm,
    orders: Sequence[tuple[tuple[str, ...], ...]],
    budget: SearchBudget | None,
) -> CollectiveTraffic | NoPath:
    hops = [[_ring_hops(rings, algorithm)] for rings in orders]
    rings = max((len(of_group) for of_group in orders), default=0)
    return _traffic(finder, groups, algorithm, hops, budget, rings)


def _traffic(
    finder: PathFinder,
    groups: Sequence[Sequence[str]],
    algorithm: Algorithm,
    hops_of_groups: Sequence[Sequence[Sequence[Hop]]],
    budget: SearchBudget | None,
    rings: int = 0,
) -> CollectiveTraffic | NoPath:
    """The traffic of the hops of each tree (or of the rings together) of each group."""
    users: dict[tuple[str, float, Fraction], int] = {}
    links: dict[str, Link] = {}
    latency = 0.0
    hops = without_effective = without_latency = 0
    for group, trees in zip(groups, hops_of_groups, strict=True):
        paths: dict[tuple[str, str], PhysicalPath] = {}
        for hop in chain.from_iterable(trees):
            path = finder.path(hop.source, hop.target, budget)
            if path is None:
                return NoPath(hop.source, hop.target)
            paths[hop.source, hop.target] = path
            hops += 1
            without_effective += bool(path.links_without_effective)
            without_latency += bool(path.links_without_latency)
            for link in path.links:
                links.setdefault(link.resource, link)
                rate = link.effective_bytes_per_second or link.bandwidth_bytes_per_second
                key = link.resource, rate, hop.share
                users[key] = users.get(key, 0) + 1
        latency = max(latency, _latency(group, algorithm, trees, paths))
    taken: dict[str, Fraction] = {}
    shares: dict[str, Fraction] = {}
    for (resource, rate, share), count in users.items():
        taken[resource] = taken.get(resource, Fraction(0)) + count * share / Fraction(rate)
        shares[resource] = shares.get(resource, Fraction(0)) + count * share
    binding = max(taken, key=lambda resource: taken[resource], default=None)
    return CollectiveTraffic(
        seconds_per_byte=taken,
        share_of=shares,
        binding=None if binding is None else links[binding],
        latency_seconds=latency,
        rings=rings,
        hops=hops,
        without_effective=without_effective,
        without_latency=without_latency,
    )


def double_tree(
    devices: Sequence[str], hosts: Mapping[str, str | None]
) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Two trees as pairs of child and parent, each child once.

    Devices of one host are a chain to the first of them; the first ones of hosts are a binary tree,
    in which the parent of number i is number (i - 1) // 2.
    """
    return tuple(_tree(order, hosts) for order in (devices, devices[::-1]))


def _tree(devices: Sequence[str], hosts: Mapping[str, str | None]) -> tuple[tuple[str, str], ...]:
    chains = by_host(devices, hosts)
    within = [(child, parent) for one in chains for parent, child in pairwise(one)]
    across = [(chains[i][0], chains[(i - 1) // 2][0]) for i in range(1, len(chains))]
    return tuple(within + across)


def _tree_hops(group: Sequence[str], hosts: Mapping[str, str | None]) -> list[list[Hop]]:
    """The hops of each of the two trees, half of the message up and down."""
    if len(group) < 2:
        return []
    half = Fraction(1, 2)
    return [
        [hop for c, p in tree for hop in (Hop(c, p, half), Hop(p, c, half))]
        for tree in double_tree(group, hosts)
    ]


def _ring_hops(rings: Sequence[tuple[str, ...]], algorithm: Algorithm) -> list[Hop]:
    """What each device sends each next one of its, over all rings, which share the message."""
    count = len(rings[0])
    if count < 2:
        return []
    share = Fraction(_steps(count, algorithm), count * len(rings))
    pairs = Counter(pair for ring in rings for pair in pairwise([*ring, ring[0]]))
    return [Hop(*pair, share * times) for pair, times in pairs.items()]


def _steps(devices: int, algorithm: Algorithm) -> int:
    return (devices - 1) * (2 if algorithm is Algorithm.ALL_REDUCE_RING else 1)


def _latency(
    group: Sequence[str],
    algorithm: Algorithm,
    trees: Sequence[Sequence[Hop]],
    paths: Mapping[tuple[str, str], PhysicalPath],
) -> float:
    if algorithm is not Algorithm.ALL_REDUCE_TREE:
        slowest = max((path.latency_seconds for path in paths.values()), default=0.0)
        return _steps(len(group), algorithm) * slowest if paths else 0.0
    deepest = 0.0
    for tree in trees:
        up = {hop.source: hop.target for hop in tree[::2]}
        there_and_back = {
            child: paths[child, parent].latency_seconds + paths[parent, child].latency_seconds
            for child, parent in up.items()
        }
        known: dict[str, float] = {}
        for device in group:
            _depth(device, up, there_and_back, known)
        deepest = max(deepest, *known.values())
    return deepest


def _depth(
    device: str, up: Mapping[str, str], waits: Mapping[str, float], known: dict[str, float]
) -> None:
    """What the way from a device to the root and back waits, noted for all devices on it."""
    way = [device]
    while way[-1] in up and way[-1] not in known:
        way.append(up[way[-1]])
    known.setdefault(way[-1], 0.0)
    for child in reversed(way[:-1]):
        known[child] = known[up[child]] + waits[child]
