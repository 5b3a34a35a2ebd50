"""From who serves whom to the copies that travel: which ones are spared, and by which way."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.moe.copy_kernels import count_copies, pass_on
from service.core.moe.distinct import choice_odds, spareable
from service.core.moe.served import Served
from service.core.moe.settings import Deduplication, Dispatcher
from service.core.moe.traffic import Copies, Traffic

__all__ = ["dispatch", "relays"]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """The R ranks of an expert group: their hosts (R,), and the relay of each in each host."""

    nodes: Int64Array
    relays: Int64Array
    expert_tensor: int

    def through_relays(self, to_rank: Int64Array, to_node: Int64Array) -> tuple[Copies, ...]:
        """Both stages of copies from source to rank (R, R), spared by host (R, N) on the way."""
        size = len(self.nodes)
        between, inside = np.zeros((2, size, size), dtype=np.int64)
        pass_on(to_rank, to_node, self.nodes, self.relays, between, inside)
        return Copies(between), Copies(inside)

    def own_coordinate(self, by_rank: Int64Array) -> Int64Array:
        """(R, R) what each source sends to ranks of its own expert-tensor coordinate, of (R, q)."""
        width = self.expert_tensor
        whole = np.zeros((len(by_rank), by_rank.shape[1] * width), dtype=np.int64)
        for coordinate in range(width):
            whole[coordinate::width, coordinate::width] = by_rank[coordinate::width]
        return whole

    def gathered(self, stages: tuple[Copies, ...]) -> tuple[Copies, ...]:
        """With what the ranks that share experts gather of each other's copies at the end."""
        if self.expert_tensor == 1:
            return stages
        arrived = stages[-1].between.sum(axis=0)
        expert = np.arange(len(arrived)) // self.expert_tensor
        together = expert[:, np.newaxis] == expert
        return (*stages, Copies(np.where(together, arrived[:, np.newaxis], 0)))


def dispatch(
    served: Served,
    *,
    dispatcher: Dispatcher,
    deduplication: Deduplication,
    node_of_source: npt.NDArray[np.integer],
    place_in_node: npt.NDArray[np.integer],
    expert_tensor: int,
    top_k: int,
    tokens: Int64Array,
    padded: bool = False,
) -> Traffic:
    """What the R ranks of an expert group send each other for the experts of one layer.

    `node_of_source` (R,) numbers their hosts, `place_in_node` (R,) says where in its host each
    stands; `tokens` (R,) are what they bring. Experts are split over `expert_tensor` ranks,
    the innermost of the group: a source sends to those of its own coordinate, which then gather
    each other's copies. `padded` says that blocks of a fixed size travel, whatever is in them:
    then no copy is spared.

    A gathering dispatcher sends all tokens to all ranks, whoever serves them. With `node`, copies
    to another host go to the rank of like place there (`relays`), and from there to where they are
    used; those for the own host go straight there in the second stage.
    """
    # Numbered without gaps: hosts of the cluster that have no rank of the group are none of its.
    nodes = np.unique(node_of_source, return_inverse=True)[1].astype(np.int64)
    logical: Int64Array = served.rows.sum(axis=1)
    if dispatcher is Dispatcher.ALL_GATHER:
        whole = np.repeat(tokens[:, np.newaxis], len(tokens), axis=1).astype(np.int64)
        return Traffic((Copies(whole),), None, None, logical)
    group = _Group(nodes, relays(nodes, place_in_node), expert_tensor)
    by_rows = padded or not np.array_equal(served.rows, served.kept)
    if by_rows or deduplication is Deduplication.NONE:
        stages = _unspared(served, group, deduplication)
    elif served.choices is not None:
        stages = _counted(served, group, deduplication, tokens)
    else:
        fewest, expected, most = _from_counts(served, group, deduplication, top_k, tokens)
        return Traffic(
            group.gathered(expected), group.gathered(fewest), group.gathered(most), logical
        )
    return Traffic(group.gathered(stages), None, None, logical)


def relays(nodes: Int64Array, place_in_node: npt.NDArray[np.integer]) -> Int64Array:
    """(R, N) the rank of each host that passes on what a source sends there.

    `nodes` (R,) numbers hosts without gaps. The relay is the one of like place; where a host has no
    rank of the group in that place, they take turns in the order of places. In its own host a
    source is its own relay.
    """
    count = int(nodes.max()) + 1
    found = np.zeros((len(nodes), count), dtype=np.int64)
    turn = np.zeros(len(nodes), dtype=np.int64)
    members = []
    for node in range(count):
        inside = np.flatnonzero(nodes == node)
        members.append(inside[np.argsort(place_in_node[inside], kind="stable")])
        turn[members[-1]] = np.arange(len(inside))
    for node, inside in enumerate(members):
        places = place_in_node[inside]
        like = np.minimum(np.searchsorted(places, place_in_node), len(inside) - 1)
        found[:, node] = np.where(
            places[like] == place_in_node, inside[like], inside[turn % len(inside)]
        )
    found[np.arange(len(nodes)), nodes] = np.arange(len(nodes))
    return found


def _unspared(served: Served, group: _Group, deduplication: Deduplication) -> tuple[Copies, ...]:
    """One copy for each row, which goes straight or over a relay."""
    by_rank = np.zeros((len(served.rows), served.placement.ranks), dtype=np.int64)
    for slot, rank in enumerate(served.placement.slot_rank.tolist()):
        by_rank[:, rank] += served.rows[:, slot]
    to_rank = group.own_coordinate(by_rank)
    if deduplication is not Deduplication.NODE:
        return (Copies(to_rank),)
    return group.through_relays(
        to_rank, _by_node(np.add, to_rank, group.nodes, group.relays.shape[1])
    )


def _by_node(over: np.ufunc, by_rank: Int64Array, nodes: Int64Array, count: int) -> Int64Array:
    """(R, N) the sum or maximum over the ranks of each host, 0 where a host has none."""
    order = np.argsort(nodes, kind="stable")
    present, begins = np.unique(nodes[order], return_index=True)
    found = np.zeros((len(by_rank), count), dtype=np.int64)
    found[:, present] = over.reduceat(by_rank[:, order], begins, axis=1)
    return found


def _counted(
    served: Served, group: _Group, deduplication: Deduplication, tokens: Int64Array
) -> tuple[Copies, ...]:
    """Copies counted token by token."""
    size = len(group.nodes)
    by_node = deduplication is Deduplication.NODE
    first, last = np.zeros((2, size, size), dtype=np.int64)
    count_copies(
        np.concatenate(([0], np.cumsum(tokens))),
        np.ascontiguousarray(served.choices, dtype=np.int32),
        np.ascontiguousarray(served.placement.slot_rank, dtype=np.int32),
        group.expert_tensor,
        group.nodes,
        group.relays,
        by_node,
        first,
        last,
    )
    return (Copies(first), Copies(last)) if by_node else (Copies(last),)


def _from_counts(
    served: Served, group: _Group, deduplication: Deduplication, top_k: int, tokens: Int64Array
) -> tuple[tuple[Copies, ...], ...]:
    """The stages with the fewest copies, the expected and the most."""
    placement = served.placement
    by_expert = np.zeros((len(served.rows), placement.experts), dtype=np.int64)
    for slot, expert in enumerate(placement.slot_expert.tolist()):
        by_expert[:, expert] += served.rows[:, slot]
    odds = choice_odds(by_expert, tokens, top_k)
    ranks = spareable(
        served.rows,
        tokens,
        top_k,
        placement.slot_expert,
        placement.slot_rank,
        placement.ranks,
        odds,
    )
    expected = ranks.whole()
    to_ranks = [group.own_coordinate(one) for one in (ranks.fewest, expected, ranks.most)]
    if deduplication is Deduplication.RANK:
        return tuple((Copies(one),) for one in to_ranks)
    to_nodes = np.zeros((3, len(tokens), group.relays.shape[1]), dtype=np.int64)
    width = group.expert_tensor
    for coordinate in range(width):
        own = slice(coordinate, None, width)
        node_of_rank = group.nodes[coordinate::width]
        nodes = spareable(
            np.ascontiguousarray(served.rows[own]),
            tokens[own],
            top_k,
            placement.slot_expert,
            node_of_rank[placement.slot_rank],
            to_nodes.shape[2],
            np.ascontiguousarray(odds[own]),
        )
        # No fewer copies to a host than to any of its ranks, no more than to all of them.
        largest, sums = (
            _by_node(over, expected[own], node_of_rank, to_nodes.shape[2])
            for over in (np.maximum, np.add)
        )
        to_nodes[:, own] = nodes.fewest, nodes.whole(largest, sums), nodes.most
    return tuple(
        group.through_relays(to_rank, to_node)
        for to_rank, to_node in zip(to_ranks, to_nodes, strict=True)
    )
