"""Which routes traffic may take when it may take any, as a graph for each kind of goods.

Under the policy `any` a route

- leaves no host but the one it starts in, and enters no host but those of its two ends (between two
  devices of one host it may go out and come back, and between two hosts it may come back to the
  latter where the pinned path does);
- passes through a device only if it enters or leaves it over NVLink: that is how libraries forward
  to the device beside the right NIC (PXN in NCCL), or from mesh neighbour to mesh neighbour.

Devices that take part in a gathering collective keep what they forward, so there they pass on
everything, in whatever host they are.

In the graph each device is up to four nodes: where traffic starts and where NVLink brings it (it
may go on everywhere), where other links bring it (it may go on over NVLink), where NVLink takes it,
and where it ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from service.core.topology.flows.network import NO_HOST, Network

__all__ = ["FREE", "Commodity", "Routes", "trimmed"]

BoolArray = npt.NDArray[np.bool_]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]

# In place of a capacity: an arc inside a device, which takes up none.
FREE = -1

_OPEN, _ARRIVED, _NVLINK, _SINK = range(4)


@dataclass(frozen=True, slots=True, eq=False)
class Commodity:
    """One kind of goods on a graph of its own: from a root to terminals, or from these to it.

    `tail`, `head` and `resource` (A,) are the arcs, with nodes numbered below `nodes` and the
    capacity that each takes up (`FREE` for none). `terminals` (K,) are nodes, `amounts` bytes of
    each; `inward` when the terminals send to the root. `weight` is how many kinds of goods alike
    this one stands for: its arcs take up their capacities so many times. `single` (A,) marks arcs
    that are one link; the others stand for several. `unreached` are the places, in the list that
    was asked for, of terminals that no route joins to the root.
    """

    nodes: int
    tail: Int32Array
    head: Int32Array
    resource: Int32Array
    single: BoolArray
    root: int
    terminals: Int32Array
    amounts: tuple[Fraction, ...]
    inward: bool = False
    weight: int = 1
    unreached: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """How large its part of a linear program is: arcs and nodes."""
        return len(self.tail) + self.nodes


class Routes:
    """The routes that a network allows.

    `forwarders` (V,) marks devices that pass on everything, `usable` (E,) the links that may be
    used at all; without `forwarders` the rules for traffic from device to device hold.
    """

    def __init__(
        self,
        network: Network,
        *,
        forwarders: BoolArray | None = None,
        usable: BoolArray | None = None,
    ) -> None:
        self._network = network
        self._bound_to_ends = forwarders is None
        self._usable = np.ones(len(network.links), dtype=np.bool_) if usable is None else usable
        count = network.vertex_count
        restricted = network.is_gpu if forwarders is None else network.is_gpu & ~forwarders
        tail_role = np.where(restricted[network.tail] & network.is_nvlink, _NVLINK, _OPEN)
        head_role = np.where(restricted[network.head] & ~network.is_nvlink, _ARRIVED, _OPEN)
        self._tail = network.tail + tail_role * count
        self._head_role = head_role * count
        self._restricted = restricted

    def may_use(self, source_hosts: Int32Array, target_hosts: Int32Array) -> BoolArray:
        """(E,) which links routes from one of the former hosts to one of the latter may use.

        That no route goes through the host of another's end is exact for one source host; with
        several, or where everything is passed on, all routes between any of them count.
        """
        network = self._network
        if not self._bound_to_ends:
            return self._usable
        tail, head = network.host[network.tail], network.host[network.head]
        leaves = (tail == NO_HOST) | np.isin(tail, source_hosts) | (tail == head)
        ends = np.union1d(source_hosts, target_hosts)
        allowed: BoolArray = self._usable & leaves & ((head == NO_HOST) | np.isin(head, ends))
        return allowed

    def arcs(
        self,
        links: Int64Array,
        sinks: Int32Array,
        heads: Int32Array | None = None,
        resources: Int32Array | None = None,
    ) -> tuple[Int64Array, Int64Array, Int32Array]:
        """Tail nodes, head nodes and capacities of the arcs over `links` (L,) and into `sinks`.

        `heads` and `resources` (L,) stand in for the vertices where the links end and for what they
        take up.
        """
        network = self._network
        count = network.vertex_count
        if heads is None or resources is None:
            heads, resources = network.head[links], network.resource[links]
        touched = np.zeros(count, dtype=np.bool_)
        touched[heads] = touched[network.tail[links]] = True
        inside = np.flatnonzero(self._restricted & touched)
        into = np.concatenate([sinks + _OPEN * count, sinks + _ARRIVED * count])
        tail = np.concatenate(
            [self._tail[links], inside + _OPEN * count, inside + _ARRIVED * count, into]
        )
        head = np.concatenate(
            [
                heads + self._head_role[links],
                np.tile(inside + _NVLINK * count, 2),
                np.tile(sinks + _SINK * count, 2),
            ]
        )
        free = np.full(len(tail) - len(links), FREE, dtype=np.int32)
        return tail, head, np.concatenate([resources, free])

    def ends(self, root: int, others: Int32Array, *, inward: bool) -> tuple[int, list[int]]:
        """The nodes of a root and of others: where traffic starts, and where it ends."""
        count = self._network.vertex_count
        to, at = (_SINK, _OPEN) if inward else (_OPEN, _SINK)
        return root + to * count, (others + at * count).tolist()

    def commodity(
        self,
        root: int,
        others: Sequence[int],
        amounts: Sequence[Fraction],
        *,
        inward: bool = False,
        comes_back: bool = False,
    ) -> Commodity:
        """What goes from device `root` to others, or from these to it.

        Others that no route joins are left out and named by their place. With `comes_back`, for
        others of one host, routes may leave that host and enter it again.
        """
        network = self._network
        terminals = np.array(others, dtype=np.int32)
        hosts, home = np.unique(network.host[terminals]), network.host[[root]]
        if comes_back:
            both = np.union1d(home, hosts)
            links = self.may_use(both, both)
        else:
            links = self.may_use(hosts, home) if inward else self.may_use(home, hosts)
        sinks = np.array([root], dtype=np.int32) if inward else terminals
        start, ends = self.ends(root, terminals, inward=inward)
        arcs = self.arcs(np.flatnonzero(links), sinks)
        return trimmed(*arcs, start, ends, amounts, inward=inward)


def trimmed(
    tail: Int64Array,
    head: Int64Array,
    resource: Int32Array,
    root: int,
    terminals: Sequence[int],
    amounts: Sequence[Fraction],
    *,
    inward: bool,
    weight: int = 1,
    single: BoolArray | None = None,
) -> Commodity:
    """A commodity on those arcs only that some route uses, its nodes numbered afresh.

    `terminals` are all different and each gets or gives something.
    """
    outwards, backwards = ((head, tail), (tail, head)) if inward else ((tail, head), (head, tail))
    from_root = _reached(*outwards, [root])
    reached = [place for place, node in enumerate(terminals) if node in from_root]
    to_terminals = _reached(*backwards, [terminals[place] for place in reached])
    number = {node: place for place, node in enumerate(sorted(from_root & to_terminals | {root}))}
    ends = zip(tail.tolist(), head.tolist(), strict=True)
    used = [place for place, (one, other) in enumerate(ends) if one in number and other in number]
    return Commodity(
        nodes=len(number),
        tail=np.array([number[node] for node in tail[used].tolist()], dtype=np.int32),
        head=np.array([number[node] for node in head[used].tolist()], dtype=np.int32),
        resource=resource[used].astype(np.int32),
        single=np.ones(len(used), dtype=np.bool_) if single is None else single[used],
        root=number[root],
        terminals=np.array([number[terminals[place]] for place in reached], dtype=np.int32),
        amounts=tuple(amounts[place] for place in reached),
        inward=inward,
        weight=weight,
        unreached=tuple(sorted(set(range(len(terminals))) - set(reached))),
    )


def _reached(tail: Int64Array, head: Int64Array, starts: Sequence[int]) -> set[int]:
    """All nodes that can be reached from `starts`, these included."""
    onward: dict[int, list[int]] = {}
    for one, other in zip(tail.tolist(), head.tolist(), strict=True):
        onward.setdefault(one, []).append(other)
    seen, waiting = set(starts), list(starts)
    while waiting:
        for node in onward.get(waiting.pop(), ()):
            if node not in seen:
                seen.add(node)
                waiting.append(node)
    return seen
