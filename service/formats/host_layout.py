"""Where the parts of a host stand in its picture.

From the top: CPUs, host bridges, PCIe switches tier by tier, devices, then NVLink and the switches
outside. A box above others spans all that hangs below it, so that the links between are upright
lines.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise

from service.core.topology.cluster import Cluster, Link, LinkKind, Vertex, VertexKind
from service.core.topology.index import index_of
from service.formats.svg_parts import MARGIN

__all__ = ["HostLayout", "Place", "Wire", "lay_out_host"]

_TOP = 104.0
_LEAST_WIDTH, _GREATEST_WIDTH = 720.0, 2400.0
_WIDEST_SLOT, _NARROWEST_LABELLED = 92.0, 44.0
_BOX, _GAP, _TALL_BOX = 34.0, 44.0, 76.0
# Between what hangs under one CPU and under the next.
_APART = 22.0
_INNER = {VertexKind.CPU, VertexKind.HOST_BRIDGE, VertexKind.PCIE_SWITCH}
_TREE = {LinkKind.PCIE, LinkKind.HOST_BRIDGE, LinkKind.ON_CHIP}


@dataclass(frozen=True, slots=True)
class Place:
    """A box of a vertex, in pixels."""

    vertex: Vertex
    left: float
    top: float
    width: float
    height: float

    @property
    def centre(self) -> float:
        """Where its middle is, from the left."""
        return self.left + self.width / 2

    @property
    def bottom(self) -> float:
        """Where it ends."""
        return self.top + self.height


@dataclass(frozen=True, slots=True)
class Wire:
    """A link in both directions (or the one it has) as a line; `middle` is where a mark can be.

    `in_front` wires pass boxes that have nothing to do with them.
    """

    links: tuple[Link, ...]
    d: str
    middle: tuple[float, float]
    in_front: bool = False
    is_odd: bool = False


@dataclass(slots=True)
class HostLayout:
    """Boxes and wires of one host, and the size of the page up to their end."""

    width: float
    bottom: float
    places: list[Place] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)


def lay_out_host(cluster: Cluster, host: str) -> HostLayout:
    """Place everything in `host` and what it is plugged into."""
    return _Layout(cluster, host).build()


class _Layout:
    def __init__(self, cluster: Cluster, host: str) -> None:
        self._cluster = cluster
        self._members = index_of(cluster).members[host]
        self._host = host
        self._pairs = _pairs(cluster, self._members)
        self._joined: dict[str, list[str]] = {}
        for one, other in self._pairs:
            self._joined.setdefault(one, []).append(other)
            self._joined.setdefault(other, []).append(one)
        self._at: dict[str, Place] = {}
        self._drawn: set[tuple[str, str]] = set()

    def build(self) -> HostLayout:
        parents, depths = self._tree()
        children: dict[str | None, list[str]] = {}
        for vertex in self._members:
            children.setdefault(parents.get(vertex.name), []).append(vertex.name)
        order = list(self._in_order(None, children))
        slots = [name for name in order if not children.get(name)]
        roots = [_root(name, parents) for name in slots]
        gaps = [_APART * (one != other) for one, other in pairwise(roots)]
        room = _GREATEST_WIDTH - 2 * MARGIN - sum(gaps)
        pitch = min(max(room, 0.0) / max(len(slots), 1), _WIDEST_SLOT)
        needed = pitch * len(slots) + sum(gaps)
        layout = HostLayout(max(needed + 2 * MARGIN, _LEAST_WIDTH), 0.0)
        left, spans = (layout.width - needed) / 2, {}
        for name, gap in zip(slots, [*gaps, 0.0], strict=False):
            spans[name] = left, left + pitch
            left += pitch + gap
        for name in reversed(order):
            below = [spans[child] for child in children.get(name, ())]
            if below:
                spans[name] = min(one for one, _ in below), max(other for _, other in below)
        tall = _BOX if pitch >= _NARROWEST_LABELLED else _TALL_BOX
        tiers = 1 + max((depths[name] for name in depths), default=-1)
        bottom = _TOP
        for name in order:
            is_inner = name in depths
            row = depths[name] if is_inner else tiers
            self._put(name, spans[name], _TOP + row * (_BOX + _GAP), _BOX if is_inner else tall)
            bottom = max(bottom, self._at[name].bottom)
        layout.wires += self._tree_wires(parents)
        layout.wires += self._sockets()
        arcs, bottom = self._arcs(bottom)
        layout.wires += arcs
        wires, bottom = self._nvswitches(bottom)
        layout.wires += wires
        wires, places, bottom = self._outside(bottom, pitch)
        layout.wires += wires
        layout.wires += self._odd_wires()
        layout.places = [*self._at.values(), *places]
        layout.bottom = bottom
        return layout

    def _put(self, name: str, span: tuple[float, float], top: float, height: float) -> None:
        left, right = span
        gap = min((right - left) * 0.1, 5.0)
        vertex = self._cluster.vertices[name]
        self._at[name] = Place(vertex, left + gap, top, right - left - 2 * gap, height)

    def _tree(self) -> tuple[dict[str, str], dict[str, int]]:
        """The parent of each vertex over PCIe, and the tier of each CPU and PCIe switch."""
        kinds = {vertex.name: vertex.kind for vertex in self._members}
        parents: dict[str, str] = {}
        depths: dict[str, int] = {}

        def grow(roots: Iterable[str], depth: int, over: Collection[LinkKind]) -> None:
            found = [name for name in roots if name not in depths]
            depths.update(dict.fromkeys(found, depth))
            while found:
                depth += 1
                further = []
                for near in found:
                    for far in self._below(near, over):
                        if far in parents or far in depths:
                            continue
                        parents[far] = near
                        if kinds[far] in _INNER:
                            depths[far] = depth
                            further.append(far)
                found = further

        cpus = [name for name, kind in kinds.items() if kind is VertexKind.CPU]
        grow(cpus, 0, _TREE)
        for name, kind in kinds.items():
            if kind is VertexKind.PCIE_SWITCH and name not in depths:
                grow([name], 1 if cpus else 0, _TREE)
        # GPUs that nothing but a link of its own kind joins to their CPU hang below that.
        for cpu in cpus:
            for far in self._below(cpu, {LinkKind.OTHER}):
                if kinds[far] not in _INNER:
                    parents.setdefault(far, cpu)
        return parents, depths

    def _below(self, near: str, over: Collection[LinkKind]) -> Iterator[str]:
        """What is joined to a vertex of the host by links of these kinds and can hang below it."""
        for far in self._joined.get(near, ()):
            vertex = self._cluster.vertices[far]
            is_hanging = vertex.host == self._host and vertex.kind is not VertexKind.NVSWITCH
            if is_hanging and self._kind(near, far) in over:
                yield far

    def _in_order(self, parent: str | None, children: dict[str | None, list[str]]) -> Iterator[str]:
        """Depth first; NVSwitches stand elsewhere."""
        pending = list(reversed(children.get(parent, ())))
        while pending:
            name = pending.pop()
            if self._cluster.vertices[name].kind is VertexKind.NVSWITCH:
                continue
            yield name
            pending += reversed(children.get(name, ()))

    def _kind(self, one: str, other: str) -> LinkKind:
        return self._pairs[_key(one, other)][0].kind

    def _wire(
        self,
        one: str,
        other: str,
        d: str,
        middle: tuple[float, float],
        *,
        in_front: bool = False,
        is_odd: bool = False,
    ) -> Wire:
        self._drawn.add(_key(one, other))
        return Wire(self._pairs[_key(one, other)], d, middle, in_front, is_odd)

    def _tree_wires(self, parents: dict[str, str]) -> Iterator[Wire]:
        for child, parent in parents.items():
            if child not in self._at:
                continue
            below, above = self._at[child], self._at[parent]
            x = below.centre
            d = f"M{x:.1f} {above.bottom:.1f}V{below.top:.1f}"
            yield self._wire(child, parent, d, (x, (above.bottom + below.top) / 2))

    def _sockets(self) -> Iterator[Wire]:
        cpus = [p for p in self._at.values() if p.vertex.kind is VertexKind.CPU]
        cpus.sort(key=lambda place: place.left)
        for number, one in enumerate(cpus):
            for distance, other in enumerate(cpus[number + 1 :], start=1):
                if _key(one.vertex.name, other.vertex.name) not in self._pairs:
                    continue
                start, end = one.left + one.width, other.left
                y = one.top + one.height / 2
                if distance == 1:
                    d, middle = f"M{start:.1f} {y:.1f}H{end:.1f}", ((start + end) / 2, y)
                else:
                    y, start, end = one.top, one.centre, other.centre
                    lift = min(8.0 + 10.0 * distance, 40.0)
                    d = (
                        f"M{start:.1f} {y:.1f}C{start:.1f} {y - lift:.1f} {end:.1f} {y - lift:.1f} "
                        f"{end:.1f} {y:.1f}"
                    )
                    middle = (start + end) / 2, y - lift * 0.75
                yield self._wire(one.vertex.name, other.vertex.name, d, middle)

    def _arcs(self, bottom: float) -> tuple[list[Wire], float]:
        """Private links between devices, hanging below them."""
        pairs = [
            pair
            for pair in self._pairs
            if all(name in self._at and self._is_device(name) for name in pair)
        ]
        ends: dict[str, list[str]] = {}
        for one, other in pairs:
            ends.setdefault(one, []).append(other)
            ends.setdefault(other, []).append(one)
        for others in ends.values():
            others.sort(key=lambda name: self._at[name].centre)

        def foot(name: str, other: str) -> float:
            place, mine = self._at[name], ends[name]
            return place.left + place.width * (mine.index(other) + 1) / (len(mine) + 1)

        longest = max((abs(foot(a, b) - foot(b, a)) for a, b in pairs), default=0.0)
        wires, deepest = [], 0.0
        for one, other in pairs:
            start, end = foot(one, other), foot(other, one)
            y = max(self._at[one].bottom, self._at[other].bottom)
            depth = 26 + 110 * abs(end - start) / max(longest, 1.0)
            deepest = max(deepest, 0.75 * depth)
            d = (
                f"M{start:.1f} {y:.1f}C{start:.1f} {y + depth:.1f} {end:.1f} {y + depth:.1f} "
                f"{end:.1f} {y:.1f}"
            )
            wires.append(self._wire(one, other, d, ((start + end) / 2, y + 0.75 * depth)))
        return wires, bottom + deepest

    def _is_device(self, name: str) -> bool:
        return self._cluster.vertices[name].kind not in _INNER

    def _nvswitches(self, bottom: float) -> tuple[list[Wire], float]:
        """NVSwitches as bars below the devices, whether they are the host's own or of several."""
        members = (vertex.name for vertex in self._members)
        switches = [
            name
            for name in dict.fromkeys([*members, *(name for pair in self._pairs for name in pair)])
            if self._cluster.vertices[name].kind is VertexKind.NVSWITCH
        ]
        wires = []
        for number, name in enumerate(switches):
            above = [self._at[one] for one in self._joined.get(name, ()) if one in self._at]
            top = bottom + _GAP
            left = min((place.left for place in above), default=MARGIN)
            right = max((place.left + place.width for place in above), default=MARGIN + 120)
            vertex = self._cluster.vertices[name]
            self._at[name] = Place(vertex, left, top, right - left, _BOX)
            for place in above:
                shift = (number - (len(switches) - 1) / 2) * min(10.0, place.width / len(switches))
                x = place.centre + shift
                d = f"M{x:.1f} {place.bottom:.1f}V{top:.1f}"
                middle = x, place.bottom + (top - place.bottom) / 2
                wires.append(self._wire(place.vertex.name, name, d, middle, in_front=number > 0))
            bottom = top + _BOX
        return wires, bottom

    def _outside(self, bottom: float, pitch: float) -> tuple[list[Wire], list[Place], float]:
        """The switches that devices are plugged into; neighbours at one switch share a box."""
        plugs = [
            (place, far)
            for place in sorted(self._at.values(), key=lambda place: place.left)
            for far in self._joined.get(place.vertex.name, ())
            if self._cluster.vertices[far].host != self._host and far not in self._at
        ]
        if not plugs:
            return [], [], bottom
        turns: dict[str, int] = {}
        spots = []
        for place, far in plugs:
            ports = sum(one is place for one, _ in plugs)
            turn = turns[place.vertex.name] = turns.get(place.vertex.name, -1) + 1
            room = min(pitch, place.width) / ports
            spots.append((place.centre + (turn - (ports - 1) / 2) * room, room / 2, place, far))
        spots.sort(key=lambda spot: spot[0])
        height = _BOX if pitch >= _NARROWEST_LABELLED else _TALL_BOX
        wires, places, ends = [], [], list[float]()
        for far, run in groupby(spots, key=lambda spot: spot[3]):
            mine = list(run)
            left, right = mine[0][0] - mine[0][1], mine[-1][0] + mine[-1][1]
            # Where boxes would lie upon each other the later one is a row farther down.
            row = next((row for row, end in enumerate(ends) if end <= left), len(ends))
            ends[row : row + 1] = [right]
            top = bottom + _GAP + row * (height + 10)
            vertex = self._cluster.vertices[far]
            gap = min(1.5, (right - left) / 4)
            places.append(Place(vertex, left + gap, top, right - left - 2 * gap, height))
            for x, _, place, _ in mine:
                d = f"M{x:.1f} {place.bottom:.1f}V{top:.1f}"
                middle = x, place.bottom + 14
                wires.append(self._wire(place.vertex.name, far, d, middle, in_front=True))
        return wires, places, max(place.bottom for place in places)

    def _odd_wires(self) -> Iterator[Wire]:
        """Whatever has no line yet: straight from box to box."""
        for one, other in self._pairs:
            if (one, other) in self._drawn or one not in self._at or other not in self._at:
                continue
            a, b = sorted((self._at[one], self._at[other]), key=lambda place: place.top)
            y, end = a.bottom, b.top
            if end < y:  # of one row
                y = end = a.top + a.height / 2
            d = f"M{a.centre:.1f} {y:.1f}L{b.centre:.1f} {end:.1f}"
            middle = (a.centre + b.centre) / 2, (y + end) / 2
            yield self._wire(one, other, d, middle, is_odd=True)


def _root(name: str, parents: Mapping[str, str]) -> str | None:
    """What a vertex hangs under in the end; None for one that stands alone."""
    root = parents.get(name)
    while root is not None and root in parents:
        root = parents[root]
    return root


def _key(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)


def _pairs(cluster: Cluster, members: Sequence[Vertex]) -> dict[tuple[str, str], tuple[Link, ...]]:
    """The links of a host by their ends, both directions together, in the order of the cluster."""
    index = index_of(cluster)
    found: dict[tuple[str, str], dict[Link, None]] = {}
    for vertex in members:
        for link in (*index.leaving[vertex.name], *index.entering[vertex.name]):
            found.setdefault(_key(link.source, link.target), {})[link] = None
    return {pair: tuple(links) for pair, links in found.items()}
