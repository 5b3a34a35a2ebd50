"""Bounds from cuts: what must leave or enter a set of vertices, over what the links there carry.

Cuts of all sets would be too many. The families here are where clusters are narrow: single devices
(the ports), PCIe switches, NVLink islands, sockets, hosts, NVLink domains, leaves, pods and rails.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from service.core.topology.cluster import LinkKind
from service.core.topology.flows.demands import Demand, Gathering
from service.core.topology.flows.network import NO_HOST, Network
from service.core.topology.flows.results import (
    Binding,
    BindingKind,
    BoundKind,
    Direction,
    FlowBound,
    Part,
)
from service.core.topology.flows.tiers import components, levels
from service.core.topology.flows.witness import offered

__all__ = [
    "Border",
    "Family",
    "cut_families",
    "every_family",
    "family_bound",
    "partition_bound",
    "port_family",
]

BoolArray = npt.NDArray[np.bool_]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """Disjoint sets of vertices: `label` (V,) numbers them below `groups`, -1 is in none."""

    kind: BindingKind
    label: Int32Array
    groups: int

    def members(self, group: int) -> BoolArray:
        """(V,) who is in one of the sets."""
        chosen: BoolArray = self.label == group
        return chosen


def port_family(network: Network, devices: Int32Array) -> Family:
    """Each of some devices by itself."""
    label = np.full(network.vertex_count, -1, dtype=np.int32)
    label[devices] = np.arange(len(devices))
    return Family(BindingKind.DEVICE, label, len(devices))


def cut_families(network: Network) -> tuple[Family, ...]:
    """The families of cuts of a network beyond its ports, none twice."""
    families: list[Family] = []
    for family in every_family(network):
        if not any(np.array_equal(family.label, one.label) for one in families):
            families.append(family)
    return tuple(families)


def every_family(network: Network) -> Iterator[Family]:
    """All of them by their names, also where two have the same sets."""
    for kind, label in _labels(network):
        found, compact = np.unique(label[label >= 0], return_inverse=True)
        numbered = np.full(network.vertex_count, -1, dtype=np.int32)
        numbered[label >= 0] = compact
        if len(found):
            yield Family(kind, numbered, len(found))


def _labels(network: Network) -> Iterator[tuple[BindingKind, Int32Array]]:
    kinds = np.array([link.kind.value for link in network.links])
    pcie, bridge = kinds == LinkKind.PCIE.value, kinds == LinkKind.HOST_BRIDGE.value
    chip = kinds == LinkKind.ON_CHIP.value
    alone = np.full(network.vertex_count, -1, dtype=np.int32)
    yield BindingKind.PCIE_SWITCH, components(network, pcie, alone)
    yield BindingKind.NVLINK, components(network, network.is_nvlink, alone)
    yield BindingKind.SOCKET, components(network, pcie | bridge | chip, alone)
    if chip.any():
        yield BindingKind.HOST_BRIDGE, components(network, pcie | bridge, alone)
    names = (BindingKind.HOST, BindingKind.NVLINK_DOMAIN, BindingKind.LEAF)
    for place, label in enumerate(levels(network)):
        yield names[place] if place < len(names) else BindingKind.POD, label
    rails = [vertex.rail for vertex in network.cluster.vertices.values()]
    yield (
        BindingKind.RAIL,
        np.array([-1 if rail is None else rail for rail in rails], dtype=np.int32),
    )


def family_bound(
    network: Network,
    demand: Demand,
    family: Family,
    kind: BoundKind = BoundKind.CUT,
    usable: BoolArray | None = None,
    border: "Border | None" = None,
) -> FlowBound | None:
    """The greatest bound of a family's sets; None when nothing crosses any, or can't.

    With `usable` (E,) only those links count. `border` is that of the family over all links, for
    who has it.
    """
    out, into = demand.crossings(family.label, family.groups)
    both = out + into
    best: tuple[float, int, Direction] | None = None
    border = border or Border(network, family, usable)
    for direction, moved in ((Direction.OUT, out), (Direction.INTO, into), (Direction.BOTH, both)):
        if direction is Direction.BOTH and not border.is_shared:
            continue
        capacity = border.capacities(direction)
        crossed = (moved > 0) & (capacity > 0)
        seconds = np.divide(moved, capacity, out=np.zeros(family.groups), where=crossed)
        group = int(seconds.argmax()) if family.groups else 0
        if family.groups and seconds[group] > 0 and (best is None or seconds[group] > best[0]):
            best = float(seconds[group]), group, direction
    if best is None:
        return None
    _, group, direction = best
    inside = family.members(group)
    crossing = demand.crossing(inside)
    demanded = {
        Direction.OUT: crossing.out,
        Direction.INTO: crossing.into,
        Direction.BOTH: crossing.out + crossing.into,
    }[direction]
    binding = Binding(family.kind, _name(network, family, inside), direction)
    return _bound(network, kind, binding, demanded, border.resources(group, direction))


def partition_bound(
    network: Network,
    gatherings: Sequence[Gathering],
    family: Family,
    usable: BoolArray | None = None,
    border: "Border | None" = None,
) -> FlowBound | None:
    """All-reduces at once without reduction in the network, between the sets of a family.

    Until one set has the whole sum, at least k - 1 messages have entered sets with each byte's
    contributions, and then k - 1 others still have to get it: 2 (k - 1) in all (a gossip among k
    takes no fewer one-way messages; Harary and Schwenk, 1974). So 2 (k - 1) bytes enter sets, and
    leave them, for each byte of the message. A gathering counts when the sets hold all its devices,
    in at least two of them; None where none does. `border` as in `family_bound`.
    """
    moved = Fraction(0)
    touched = np.zeros(family.groups, dtype=np.bool_)
    for gathering in gatherings:
        labels = np.unique(family.label[gathering.vertices])
        if len(labels) > 1 and labels[0] >= 0:
            touched[labels] = True
            moved += 2 * (len(labels) - 1) * gathering.message_bytes
    if not moved:
        return None
    border = border or Border(network, family, usable)
    best: FlowBound | None = None
    for direction in (Direction.OUT, Direction.INTO):
        resources = border.resources_of(touched, direction)
        if not len(resources):
            continue
        binding = Binding(BindingKind.PARTITION, family.kind.value, direction)
        found = _bound(network, BoundKind.CUT, binding, moved, resources)
        if best is None or found.exact_seconds > best.exact_seconds:
            best = found
    return best


def _bound(
    network: Network,
    kind: BoundKind,
    binding: Binding,
    demanded: Fraction,
    resources: Int64Array,
) -> FlowBound:
    parts = tuple(Part(resource, 1) for resource in resources.tolist())
    lengths = {part.resource: part.length for part in parts}
    return FlowBound(kind, binding, demanded, offered(lengths, network.capacity), parts)


def _name(network: Network, family: Family, inside: BoolArray) -> str:
    """The host of a host, the switches of a leaf, else the first vertex."""
    first = int(np.flatnonzero(inside)[0])
    if family.kind is BindingKind.HOST:
        return network.host_names[int(network.host[first])]
    if family.kind is BindingKind.RAIL:
        return f"rail {network.cluster.vertices[network.names[first]].rail}"
    switches = np.flatnonzero(inside & (network.host == NO_HOST))
    return network.names[int(switches[0]) if len(switches) else first]


class Border:
    """The capacities that the links over the borders of a family's sets take up."""

    def __init__(self, network: Network, family: Family, usable: BoolArray | None = None) -> None:
        self._network, self._groups = network, family.groups
        tail, head = family.label[network.tail], family.label[network.head]
        crossing = tail != head if usable is None else usable & (tail != head)
        count = np.int64(len(network.capacity))
        out, into = crossing & (tail >= 0), crossing & (head >= 0)
        # Group and capacity in one number, each pair once.
        self._out = np.unique(tail[out] * count + network.resource[out])
        self._into = np.unique(head[into] * count + network.resource[into])
        both = np.union1d(self._out, self._into)
        self.is_shared = len(both) < len(self._out) + len(self._into)
        self._both, self._count = both, count
        self._capacities: dict[Direction, Float64Array] = {}

    def _crossed(self, direction: Direction) -> Int64Array:
        named = {Direction.OUT: self._out, Direction.INTO: self._into, Direction.BOTH: self._both}
        return named[direction]

    def capacities(self, direction: Direction) -> Float64Array:
        """(groups,) bytes per second over each border."""
        if direction not in self._capacities:
            group, resource = np.divmod(self._crossed(direction), self._count)
            rates = self._network.capacity[resource]
            found = np.bincount(group, rates, self._groups).astype(np.float64)
            self._capacities[direction] = found
        return self._capacities[direction]

    def resources(self, group: int, direction: Direction) -> Int64Array:
        """The capacities of one border."""
        groups, resource = np.divmod(self._crossed(direction), self._count)
        chosen: Int64Array = resource[groups == group]
        return chosen

    def resources_of(self, groups: BoolArray, direction: Direction) -> Int64Array:
        """The capacities of the borders of some groups (groups,), none twice."""
        group, resource = np.divmod(self._crossed(direction), self._count)
        return np.unique(resource[groups[group]])
