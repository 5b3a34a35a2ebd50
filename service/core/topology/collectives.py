"""What collectives among groups of devices put on the links of their pinned paths.

A ring: each device sends to the next, in the order given, a share at a time. A double binary tree
(Sanders, Speck and Träff, 2009, as NCCL runs it): two trees, each for half of the message, in a
chain within each host and as a binary tree over hosts; the second tree is the first one in reverse
order, so that who passes on much in one passes on little in the other. Both are predictions at
effective rates: an otherwise idle network, messages cut so fine that all hops work at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from itertools import chain, pairwise

from service.core.topology.cluster import Link
from service.core.topology.paths import PathFinder, PhysicalPath, SearchBudget

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
    where nothing is sent. `latency_seconds` is what comes once. `hops` is how many messages there
    are, and the next two on how many of their paths a nominal rate or a latency floor stood in.
    """

    seconds_per_byte: Mapping[str, Fraction]
    binding: Link | None
    latency_seconds: float
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
    hosts: Mapping[str, str | None],
    budget: SearchBudget | None = None,
) -> CollectiveTraffic | NoPath:
    """The traffic of `algorithm` in each of the groups (names of devices, in order) at once.

    `hosts` says in which host a device is. A group of one sends nothing. Links of one shared
    capacity are one. A ring waits for its slowest hop at each step, a tree for its deepest chain
    there and back. Raises what `budget` does.
    """
    users: dict[tuple[str, float, Fraction], int] = {}
    links: dict[str, Link] = {}
    latency = 0.0
    hops = without_effective = without_latency = 0
    for group in groups:
        paths: dict[tuple[str, str], PhysicalPath] = {}
        trees = _trees(group, algorithm, hosts)
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
    for (resource, rate, share), count in users.items():
        taken[resource] = taken.get(resource, Fraction(0)) + count * share / Fraction(rate)
    binding = max(taken, key=lambda resource: taken[resource], default=None)
    return CollectiveTraffic(
        seconds_per_byte=taken,
        binding=None if binding is None else links[binding],
        latency_seconds=latency,
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
    of_host: dict[str, list[str]] = {}
    for device in devices:
        # What is in no host is one by itself.
        of_host.setdefault(hosts.get(device) or f"\0{device}", []).append(device)
    chains = list(of_host.values())
    within = [(child, parent) for one in chains for parent, child in pairwise(one)]
    across = [(chains[i][0], chains[(i - 1) // 2][0]) for i in range(1, len(chains))]
    return tuple(within + across)


def _trees(
    group: Sequence[str], algorithm: Algorithm, hosts: Mapping[str, str | None]
) -> list[list[Hop]]:
    """The hops of the ring, or of each of the two trees."""
    if len(group) < 2:
        return []
    if algorithm is Algorithm.ALL_REDUCE_TREE:
        half = Fraction(1, 2)
        return [
            [hop for c, p in tree for hop in (Hop(c, p, half), Hop(p, c, half))]
            for tree in double_tree(group, hosts)
        ]
    share = Fraction(_steps(len(group), algorithm), len(group))
    return [[Hop(*pair, share) for pair in pairwise([*group, group[0]])]]


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
