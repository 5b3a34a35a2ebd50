"""What in a network can change places with what, so that one stands for many.

Hosts, NVLink domains, leaves with all below them, pods and spines form a tree: a part contains what
is joined below its own switches. Two children of one part are alike when they are built the same
and joined alike to the same vertices outside. Exchanging them changes nothing, so all such
exchanges together are a group of symmetries of the network: every child of a class may be moved to
the place of every other, independently at each part.

Under this group the orbit of a vertex, a link or any tuple of vertices has a canonical member,
found by giving the members of each class their places in the order in which the tuple meets them,
and a size, the product of how many were free each time.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from service.core.topology.flows.network import NO_HOST, Network
from service.core.topology.flows.tiers import nested_parts

__all__ = ["Symmetry", "symmetry_of"]

BoolArray = npt.NDArray[np.bool_]

_Address = tuple[int, ...]


@dataclass(slots=True, eq=False)
class _Part:
    """A part of the tree, or a vertex of its own when it has no children.

    `peers` has for each child all children that are like it, itself among them.
    """

    vertex: int = -1
    children: list["_Part"] = field(default_factory=list)
    peers: list[list[int]] = field(default_factory=list)


class Symmetry:
    """The exchanges that leave a network as it is."""

    def __init__(self, root: _Part, addresses: Sequence[_Address]) -> None:
        self._root = root
        self._addresses = addresses

    def canonical(self, *vertices: int) -> tuple[tuple[int, ...], int]:
        """The first tuple that symmetries can make of `vertices`, and how many they can make."""
        placed: dict[tuple[_Address, int], int] = {}
        taken: dict[tuple[_Address, int], int] = {}
        size, moved = 1, []
        for vertex in vertices:
            part = after = self._root
            prefix: _Address = ()
            for child in self._addresses[vertex]:
                key = prefix, child
                place = placed.get(key)
                if place is None:
                    peers = part.peers[child]
                    of_class = prefix, peers[0]
                    before = taken.get(of_class, 0)
                    place = placed[key] = peers[before]
                    taken[of_class] = before + 1
                    size *= len(peers) - before
                part, after = part.children[child], after.children[place]
                prefix = (*prefix, child)
            moved.append(after.vertex)
        return tuple(moved), size

    def orbits(self, *fixed: int) -> Iterator[int]:
        """One vertex of each orbit under the symmetries that leave `fixed` where it is.

        `fixed` is its own canonical tuple, and so is `fixed` with each of the vertices.
        """
        yield from _orbits(self._root, [self._addresses[vertex] for vertex in fixed])


def _orbits(part: _Part, fixed: Sequence[_Address]) -> Iterator[int]:
    """The canonical vertices of a part in which `fixed` are, seen from it."""
    if not part.children:
        yield part.vertex
        return
    inside: dict[int, list[_Address]] = {}
    for address in fixed:
        inside.setdefault(address[0], []).append(address[1:])
    for place, peers in enumerate(part.peers):
        if peers[0] != place:
            continue
        taken = [peer for peer in peers[: len(fixed)] if peer in inside]
        # What is fixed is in the first ones of its class; the next stands for all the others.
        for peer in peers[: len(taken) + 1]:
            yield from _orbits(part.children[peer], inside.get(peer, []))


def symmetry_of(network: Network, special: BoolArray) -> Symmetry:
    """The symmetries of `network` that move no `special` (V,) vertex to one that is not.

    Links that share a capacity are moved to links that share one.
    """
    root = _Part()
    addresses: list[_Address] = [()] * network.vertex_count
    _plant(root, (), nested_parts(network), addresses)
    _Wiring(network, special, addresses).compare(root, ())
    return Symmetry(root, addresses)


def _plant(part: _Part, prefix: _Address, nested: Iterable[Any], addresses: list[_Address]) -> None:
    """Make the tree of parts, and note where each vertex stands in it."""
    for place, inside in enumerate(nested):
        if isinstance(inside, int):
            addresses[inside] = (*prefix, place)
            part.children.append(_Part(inside))
        else:
            child = _Part()
            _plant(child, (*prefix, place), inside, addresses)
            part.children.append(child)


class _Wiring:
    """Compares parts by what is in them and by what joins them to the rest."""

    def __init__(self, network: Network, special: BoolArray, addresses: Sequence[_Address]) -> None:
        self._network, self._special = network, special
        # Links by the part that contains both ends, and by each part that contains one of them.
        self._inner: dict[_Address, list[Any]] = {}
        self._outer: dict[_Address, list[Any]] = {}
        self._known: dict[Any, int] = {}
        users = np.bincount(network.resource, minlength=len(network.capacity))
        firsts = np.where(users > 1, network.representative, -1)[network.resource]
        rows = zip(
            network.tail.tolist(),
            network.head.tolist(),
            firsts.tolist(),
            network.is_nvlink.tolist(),
            network.capacity[network.resource].tolist(),
            network.latency_floor[network.resource].tolist(),
            strict=True,
        )
        for tail, head, first, *kind in rows:
            one, other = addresses[tail], addresses[head]
            common = 0
            while one[common] == other[common]:
                common += 1
            # Where capacities are shared, the first link of each tells them apart.
            ends = () if first < 0 else (int(network.tail[first]), int(network.head[first]))

            def seen_from(
                part: _Address, ends: tuple[int, ...] = ends, kind: list[Any] = kind
            ) -> tuple[Any, ...]:
                depth = len(part)
                places = [
                    (addresses[end][depth:], -1) if addresses[end][:depth] == part else ((), end)
                    for end in ends
                ]
                return (*kind, *places)

            inside = self._inner.setdefault(one[:common], [])
            inside.append((one[common:], other[common:], seen_from(one[:common])))
            for address, vertex, far, leaving in ((one, tail, head, 1), (other, head, tail, 0)):
                # The vertices of a host are not compared with each other.
                deepest = len(address) + (network.host[vertex] == NO_HOST)
                for depth in range(common + 1, deepest):
                    outside = self._outer.setdefault(address[:depth], [])
                    outside.append((address[depth:], leaving, far, seen_from(address[:depth])))

    def compare(self, part: _Part, prefix: _Address) -> int:
        """Find out, from the inside out, which children of each part are alike.

        Gives a number that parts built alike have in common.
        """
        kinds: dict[Any, list[int]] = {}
        signatures = []
        for place, child in enumerate(part.children):
            here = (*prefix, place)
            signature = self.compare(child, here) if child.children else self._vertex(child.vertex)
            signatures.append(signature)
            # The vertices of a host are told apart: which is which is what its wiring says.
            apart = not child.children and self._network.host[child.vertex] != NO_HOST
            likeness = place if apart else (signature, tuple(sorted(self._outer.get(here, ()))))
            kinds.setdefault(likeness, []).append(place)
        part.peers = [[] for _ in part.children]
        for peers in kinds.values():
            for place in peers:
                part.peers[place] = peers
        return self._number((tuple(signatures), tuple(sorted(self._inner.get(prefix, ())))))

    def _vertex(self, vertex: int) -> int:
        kind = bool(self._network.is_gpu[vertex]), bool(self._special[vertex])
        return self._number(kind)

    def _number(self, thing: Any) -> int:
        return self._known.setdefault(thing, len(self._known))
