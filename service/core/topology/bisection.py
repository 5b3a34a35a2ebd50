"""How much can cross the middle of an allocation: bytes per second over its worst balanced cut.

The hosts of an allocation are parted into two halves (of odd numbers one is larger by one), and all
routes are used at once by which traffic gets from the GPUs of one half to those of the other: over
every switch, but through no host that is not the sender's or the receiver's, and no other GPU. The
least of what crosses, over all such partings and both directions, is the bisection of hosts; that
of devices parts GPUs.

There are too many partings to try all of large allocations. Hosts that are wired alike to the same
switches stand for each other, which loses nothing; where there are still too many, likely ones are
tried, and the bisection is at most what is told. Capacities are nominal. Links that share a
capacity at one end share it here too; a half-duplex link carries one direction at a time, which one
flow never needs twice.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from math import comb, fsum

from service.core.topology.cluster import Cluster, Link, VertexKind
from service.core.topology.index import index_of
from service.core.topology.max_flow import Arc, min_cut

__all__ = ["Bisection", "device_bisection", "host_bisection"]

# Partings that are tried when they are all there are, and links looked at in all of them.
_MAX_PARTINGS = 64
_MAX_LINKS = 400_000


@dataclass(frozen=True, slots=True)
class Bisection:
    """The worst balanced cut that was found.

    `bytes_per_second` crosses from `side` to the others at most; `crossing` are the capacities that
    bind, whose rates add up to it. `is_exact` says that all partings were tried, or stood for.
    """

    bytes_per_second: float
    side: tuple[str, ...]
    others: int
    crossing: tuple[str, ...]
    partings: int
    is_exact: bool


def host_bisection(cluster: Cluster, devices: Sequence[str]) -> Bisection | None:
    """The worst cut between halves of the hosts of `devices`; None for fewer than two hosts.

    None as well where the allocation and the fabric have too many links to try any parting.
    """
    gpus: dict[str, list[str]] = {}
    for name in devices:
        host = cluster.vertices[name].host
        if host is not None:
            gpus.setdefault(host, []).append(name)
    if len(gpus) < 2:
        return None
    classes = _alike(cluster, gpus)
    network = _Network(cluster, devices, _closed(cluster, classes, gpus))
    count = _counted(classes, len(gpus) // 2)
    exact = count <= _MAX_PARTINGS and count * network.size <= _MAX_LINKS
    partings = _partings(classes, len(gpus) // 2) if exact else _likely(classes, len(gpus) // 2)
    sides = ([name for host in half for name in gpus[host]] for half in partings)
    return network.worst(sides, exact=exact, shown=lambda name: cluster.vertices[name].host)


def device_bisection(cluster: Cluster, devices: Sequence[str]) -> Bisection | None:
    """The worst cut between halves of `devices`; None for fewer than two.

    None as well where there are too many links to try any parting.
    """
    if len(devices) < 2:
        return None
    network = _Network(cluster, devices)
    half = len(devices) // 2
    count = comb(len(devices), half) // (2 - len(devices) % 2)
    exact = count <= _MAX_PARTINGS and count * network.size <= _MAX_LINKS
    sides: Iterator[Sequence[str]]
    if exact:
        # Of an even number each parting comes up twice; the first device is on one side of it.
        every = combinations(devices, half)
        sides = (one for one in every if len(devices) % 2 or one[0] == devices[0])
    else:
        sides = iter(_likely_devices(cluster, devices, half))
    return network.worst(sides, exact=exact, shown=lambda name: name)


def _alike(cluster: Cluster, gpus: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """The hosts that stand for each other, class by class: one wiring to the same switches."""
    index = index_of(cluster)
    classes: dict[Hashable, list[str]] = {}
    for host, mine in gpus.items():
        prefix = f"{host}/"
        wiring = {
            (
                link.source.removeprefix(prefix),
                link.target.removeprefix(prefix),
                link.kind,
                link.bandwidth_bytes_per_second,
                link.shared_capacity is not None,
            )
            for vertex in index.members[host]
            for link in (*index.leaving[vertex.name], *index.entering[vertex.name])
        }
        own = frozenset(name.removeprefix(prefix) for name in mine)
        classes.setdefault((frozenset(wiring), own), []).append(host)
    return list(classes.values())


def _counted(classes: Sequence[Sequence[str]], half: int) -> int:
    """In how many ways so many hosts can be taken from the classes."""
    ways = Counter({0: 1})
    for alike in classes:
        more: Counter[int] = Counter()
        for taken, number in ways.items():
            for some in range(min(len(alike), half - taken) + 1):
                more[taken + some] += number
        ways = more
    return ways[half]


def _partings(classes: Sequence[Sequence[str]], half: int) -> Iterator[list[str]]:
    """Every parting, by how many hosts of each class are taken; none by its other half again."""
    after = [sum(map(len, classes[number + 1 :])) for number in range(len(classes))]
    is_even = 2 * half == sum(map(len, classes))

    def choose(number: int, missing: int) -> Iterator[tuple[int, ...]]:
        if number == len(classes):
            yield ()
            return
        least, most = max(0, missing - after[number]), min(len(classes[number]), missing)
        for some in range(least, most + 1):
            for rest in choose(number + 1, missing - some):
                yield (some, *rest)

    for taken in choose(0, half):
        left = tuple(len(alike) - some for alike, some in zip(classes, taken, strict=True))
        if not is_even or taken >= left:
            counted = zip(classes, taken, strict=True)
            yield [host for alike, some in counted for host in alike[:some]]


def _likely(classes: Sequence[Sequence[str]], half: int) -> Iterator[list[str]]:
    """Class after class, the same part of each class, every other class first."""
    yield [host for alike in classes for host in alike][:half]
    parts = [(alike[: len(alike) // 2], alike[len(alike) // 2 :]) for alike in classes]
    firsts = [host for first, _ in parts for host in first]
    yield [*firsts, *(host for _, last in parts for host in last)][:half]
    yield [host for alike in (*classes[::2], *classes[1::2]) for host in alike][:half]


def _likely_devices(cluster: Cluster, devices: Sequence[str], half: int) -> Iterator[list[str]]:
    """The first half, the first ones of each host, and every other one."""
    yield list(devices[:half])
    places: dict[str | None, int] = {}
    counts = Counter(cluster.vertices[name].host for name in devices)
    first: list[str] = []
    last: list[str] = []
    for name in devices:
        host = cluster.vertices[name].host
        place = places[host] = places.get(host, -1) + 1
        (first if 2 * place < counts[host] else last).append(name)
    yield [*first, *last][:half]
    yield [*devices[::2], *devices[1::2]][:half]


class _Network:
    """The arcs that an allocation may use: in its hosts, over its GPUs only, and all switches."""

    def __init__(
        self, cluster: Cluster, devices: Sequence[str], closed: Collection[str] = ()
    ) -> None:
        """`closed` hosts are one vertex each: what is inside them binds nothing."""
        self._cluster, self._devices = cluster, devices
        index, chosen = index_of(cluster), set(devices)
        self._number: dict[str, int] = {}
        count = 0
        for host in dict.fromkeys(cluster.vertices[name].host for name in devices):
            for vertex in () if host is None else index.members[host]:
                if vertex.kind is not VertexKind.GPU or vertex.name in chosen:
                    self._number[vertex.name] = count
                    count += host not in closed
            count += host in closed
        for name, vertex in cluster.vertices.items():
            if vertex.host is None:
                self._number[name] = count
                count += 1
        links = [
            link
            for name, number in self._number.items()
            for link in index.leaving[name]
            if self._number.get(link.target, number) != number
        ]
        self._arcs, self._count = _with_joints(links, self._number, count)

    @property
    def size(self) -> int:
        """How many arcs there are."""
        return len(self._arcs)

    def worst(
        self, sides: Iterator[Sequence[str]], *, exact: bool, shown: Callable[[str], str | None]
    ) -> Bisection | None:
        """The least cut of these partings, either way."""
        most = None if exact else max(_MAX_LINKS // max(2 * self.size, 1), 0)
        best: tuple[float, list[str], list[str], list[Link]] | None = None
        tried = 0
        for side in islice(sides, most):
            tried += 1
            chosen = set(side)
            one, other = list(side), [name for name in self._devices if name not in chosen]
            for sources, targets in ((one, other), (other, one)):
                links = self._cut(sources, targets)
                rate = fsum(link.bandwidth_bytes_per_second for link in links)
                if best is None or rate < best[0]:
                    best = rate, sources, targets, links
        if best is None:
            return None
        rate, sources, targets, links = best
        names = dict.fromkeys(shown(name) for name in sources)
        return Bisection(
            bytes_per_second=rate,
            side=tuple(name for name in names if name is not None),
            others=len(dict.fromkeys(shown(name) for name in targets)),
            crossing=tuple(link.resource for link in links),
            partings=tried,
            is_exact=exact,
        )

    def _cut(self, sources: Sequence[str], targets: Sequence[str]) -> list[Link]:
        vertices = self._cluster.vertices
        ours = {vertices[name].host for name in sources}
        theirs = {vertices[name].host for name in targets}
        # Nothing passes a host that none of its ends is in.
        only_ours, only_theirs = ours - theirs, theirs - ours
        usable = [
            (arc, link)
            for arc, link in self._arcs
            if not (
                _enters(vertices[link.source].host, vertices[link.target].host, only_ours)
                or _enters(vertices[link.target].host, vertices[link.source].host, only_theirs)
            )
        ]
        number = self._number
        found = min_cut(
            self._count,
            [arc for arc, _ in usable],
            list(dict.fromkeys(number[name] for name in sources)),
            list(dict.fromkeys(number[name] for name in targets)),
        )
        return [usable[position][1] for position in found.arcs]


def _enters(source: str | None, target: str | None, hosts: set[str | None]) -> bool:
    return target is not None and target in hosts and source != target


def _with_joints(
    links: Iterable[Link], number: Mapping[str, int], count: int
) -> tuple[list[tuple[Arc, Link]], int]:
    """The arcs of links, and how many vertices there are with the joints.

    A joint stands where links with one end in common share a capacity.
    """
    groups: dict[str, list[Link]] = {}
    for link in links:
        groups.setdefault(link.resource, []).append(link)
    arcs: list[tuple[Arc, Link]] = []
    for alike in groups.values():
        rate = alike[0].bandwidth_bytes_per_second
        sources, targets = {one.source for one in alike}, {one.target for one in alike}
        joint = len(alike) > 1 and (len(sources) == 1 or len(targets) == 1)
        for link in alike:
            tail, head = number[link.source], number[link.target]
            if joint and len(targets) == 1:
                head = count
            elif joint:
                tail = count
            arcs.append(((tail, head, rate), link))
        if joint:
            ends = (count, number[alike[0].target]), (number[alike[0].source], count)
            arcs.append(((*ends[len(targets) != 1], rate), alike[0]))
            count += 1
    return arcs, count


def _closed(
    cluster: Cluster, classes: Sequence[Sequence[str]], gpus: Mapping[str, Sequence[str]]
) -> frozenset[str]:
    """Hosts whose inside binds nothing.

    Their GPUs together fill all links that leave the host at once, and take what all that enter it
    bring; then they do so for any part of them as well.
    """
    return frozenset(
        host
        for alike in classes
        if all(_fills(cluster, alike[0], gpus[alike[0]], outwards=way) for way in (True, False))
        for host in alike
    )


def _fills(cluster: Cluster, host: str, gpus: Sequence[str], *, outwards: bool) -> bool:
    index, chosen = index_of(cluster), set(gpus)
    number = {
        vertex.name: place
        for place, vertex in enumerate(index.members[host])
        if vertex.kind is not VertexKind.GPU or vertex.name in chosen
    }
    beyond = len(index.members[host])
    inside, border = [], []
    for name in list(number):
        for link in index.leaving[name] if outwards else index.entering[name]:
            far = link.target if outwards else link.source
            if cluster.vertices[far].host == host:
                if far in number:
                    inside.append(link)
            else:
                border.append(link)
    number |= {
        end: beyond for link in border for end in (link.source, link.target) if end not in number
    }
    arcs, count = _with_joints((*inside, *border), number, beyond + 1)
    ends = [number[gpu] for gpu in gpus], [beyond]
    cut = min_cut(count, [arc for arc, _ in arcs], *(ends if outwards else ends[::-1]))
    rates = {link.resource: link.bandwidth_bytes_per_second for link in border}
    return fsum(arcs[arc][0][2] for arc in cut.arcs) >= fsum(rates.values()) * (1 - 1e-12)
