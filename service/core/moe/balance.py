"""Placements that serve a measured load more evenly, with and without replicas.

The load of a replicated expert is taken to divide evenly over its replicas, as it does in the long
run under every splitting rule that does not look at who asks. Two ways are greedy: replicate the
expert with the most load per replica, then pack the largest first; over all ranks at once, or host
by host with groups of experts kept together, as DeepSeek's EPLB describes its two policies. One
searches all placements where there are few enough of them.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.moe.exact_packing import exact_packing
from service.core.moe.imbalance import Imbalance, imbalance, rows_by_node
from service.core.moe.packing import pack
from service.core.moe.placement import given
from service.core.moe.served import ExpertPlacement

__all__ = [
    "Advice",
    "BalanceMethod",
    "ExpertGroup",
    "Proposal",
    "advise",
    "even_loads",
    "group_faults",
    "least_busiest_load",
]

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]


# Beyond so many slots the search for the best placement only burns its steps.
EXACT_SLOTS = 64
# Sums of shares of loads are off by less than this share of them.
ROUNDING = 1e-12


class BalanceMethod(StrEnum):
    """How a placement was found."""

    GREEDY = "greedy"  # over all ranks at once
    BY_NODE = "by_node"  # groups of experts to hosts first: all replicas of one on one host
    EXACT = "exact"  # all placements were looked at, or left out for good reason


@dataclass(frozen=True, slots=True)
class ExpertGroup:
    """The ranks that share the experts, and how many experts and replicas they hold in all.

    Consecutive `ranks_per_node` ranks are on one host, the last of which may have fewer; None where
    hosts do not matter. Experts are in `expert_groups` of equal size, consecutive, which a plan by
    host keeps together; None where each is its own. No rank holds more than its equal share of
    `slots`, rounded up.
    """

    ranks: int
    slots: int
    ranks_per_node: int | None = None
    expert_groups: int | None = None

    @property
    def slots_per_rank(self) -> int:
        """The most that a rank holds."""
        return -(-self.slots // self.ranks)

    @property
    def node_of_rank(self) -> Int64Array:
        """(ranks,) the host of each, all on one where hosts do not matter."""
        numbers: Int64Array = np.arange(self.ranks) // (self.ranks_per_node or self.ranks)
        return numbers


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """A placement, and how uneven the load is on it. `nodes` is None where hosts do not matter.

    `is_optimal` where it is known that no placement of as many slots has a less busy rank.
    """

    method: BalanceMethod
    placement: ExpertPlacement
    ranks: Imbalance
    nodes: Imbalance | None
    is_optimal: bool


@dataclass(frozen=True, slots=True, eq=False)
class Advice:
    """Proposals from the least busy rank on; `bound_rows` is what no busiest rank can be below."""

    proposals: tuple[Proposal, ...]
    bound_rows: float


def group_faults(group: ExpertGroup, experts: int) -> list[Fault]:
    """What of an expert group can't be for so many experts."""
    faults = []
    if not experts <= group.slots <= experts * group.ranks:
        detail = (
            f"{experts} experts on {group.ranks} ranks, each at most once on a rank, take "
            f"{experts} to {experts * group.ranks} slots"
        )
        faults.append(Fault(FaultCode.OUT_OF_RANGE, ("slots",), detail))
    if group.ranks_per_node is not None and group.ranks_per_node > group.ranks:
        detail = f"there are no more than {group.ranks} ranks"
        faults.append(Fault(FaultCode.OUT_OF_RANGE, ("ranks_per_node",), detail))
    if group.expert_groups is None:
        return faults
    if group.ranks_per_node is None:
        detail = "groups of experts are kept together on a host: say how many ranks it has"
        faults.append(Fault(FaultCode.MISSING_FIELD, ("ranks_per_node",), detail))
    elif group.ranks % group.ranks_per_node or group.expert_groups % _nodes(group):
        detail = (
            f"{group.expert_groups} groups do not divide over {_nodes(group)} hosts of "
            f"{group.ranks_per_node} ranks each"
        )
        faults.append(Fault(FaultCode.INDIVISIBLE, ("expert_groups",), detail))
    if experts % group.expert_groups:
        detail = f"{experts} experts do not divide into {group.expert_groups} groups"
        faults.append(Fault(FaultCode.INDIVISIBLE, ("expert_groups",), detail))
    return faults


def even_loads(loads: npt.ArrayLike, placement: ExpertPlacement) -> FloatArray:
    """(ranks,) what each computes of (E,) loads where replicas have equal shares."""
    of_slot = np.asarray(loads)[placement.slot_expert] / _replicas(placement)
    found = np.zeros(placement.ranks)
    np.add.at(found, placement.slot_rank, of_slot)
    return found


def least_busiest_load(loads: Int64Array, group: ExpertGroup) -> float:
    """What the busiest rank has at least: the mean, and the largest share of a single replica."""
    shares = loads / _replicate(loads, group.slots - len(loads), group.ranks)
    return max(float(loads.sum()) / group.ranks, float(shares.max(initial=0.0)))


def advise(loads: Int64Array, group: ExpertGroup, *, steps: int) -> Advice:
    """Placements for (E,) loads of one layer. `steps` limits the search for the best one.

    Raises InvalidInput where the group can't hold the experts.
    """
    faults = group_faults(group, len(loads))
    if faults:
        raise InvalidInput(faults)
    bound = least_busiest_load(loads, group)
    proposals = [_proposal(BalanceMethod.GREEDY, _greedy(loads, group), loads, group, bound)]
    if group.ranks_per_node is not None and _nodes(group) > 1:
        by_node = _by_node(loads, group)
        proposals.append(_proposal(BalanceMethod.BY_NODE, by_node, loads, group, bound))
    best = min(proposal.ranks.most_rows for proposal in proposals)
    if best > bound and steps > 0 and group.slots <= EXACT_SLOTS:
        found = exact_packing(loads.tolist(), group.ranks, group.slots, beat=best, steps=steps)
        if found.by_rank is not None:
            placement = _arranged(given(len(loads), group.ranks, found.by_rank), loads, group)
            proposals.append(_proposal(BalanceMethod.EXACT, placement, loads, group, bound))
        if found.proven:
            best = min(proposal.ranks.most_rows for proposal in proposals)
            proposals = [
                replace(one, is_optimal=one.ranks.most_rows <= best * (1 + ROUNDING))
                for one in proposals
            ]
    return Advice(tuple(sorted(proposals, key=lambda one: one.ranks.most_rows)), bound)


def _nodes(group: ExpertGroup) -> int:
    return -(-group.ranks // (group.ranks_per_node or group.ranks))


def _replicas(placement: ExpertPlacement) -> Int64Array:
    """(P,) how many replicas the expert of each slot has."""
    numbers = np.bincount(placement.slot_expert, minlength=placement.experts)
    of_slot: Int64Array = numbers[placement.slot_expert]
    return of_slot


def _proposal(
    method: BalanceMethod,
    placement: ExpertPlacement,
    loads: Int64Array,
    group: ExpertGroup,
    bound: float,
) -> Proposal:
    rows = even_loads(loads, placement)
    ranks = imbalance(rows)
    nodes = None
    if group.ranks_per_node is not None:
        nodes = imbalance(rows_by_node(rows, group.node_of_rank))
    return Proposal(method, placement, ranks, nodes, ranks.most_rows <= bound * (1 + ROUNDING))


def _replicate(loads: Int64Array, extra: int, most: int) -> Int64Array:
    """(E,) how many replicas each has after `extra` went to the most loaded, one after the other.

    None has more than `most`. The largest share of a replica is then as small as it can be.
    """
    replicas = np.ones(len(loads), dtype=np.int64)
    heap = [(-float(load), expert) for expert, load in enumerate(loads.tolist())]
    heapify(heap)
    while extra and heap:
        _, expert = heappop(heap)
        if replicas[expert] < most:
            replicas[expert] += 1
            extra -= 1
            heappush(heap, (-float(loads[expert]) / int(replicas[expert]), expert))
    return replicas


def _greedy(loads: Int64Array, group: ExpertGroup) -> ExpertPlacement:
    replicas = _replicate(loads, group.slots - len(loads), group.ranks)
    experts, shares = _slots(np.arange(len(loads)), loads, replicas)
    room = np.full(group.ranks, group.slots_per_rank)
    return _arranged(_placement(experts, pack(shares, experts, room), loads, group), loads, group)


def _by_node(loads: Int64Array, group: ExpertGroup) -> ExpertPlacement:
    """Groups of experts to hosts, then replicas within a host, then these to its ranks."""
    groups = group.expert_groups or len(loads)
    of_group = loads.reshape(groups, -1).sum(axis=1).astype(np.float64)
    sizes = np.bincount(group.node_of_rank)
    share = -(-groups * sizes // group.ranks)
    node_of_group = pack(of_group, np.arange(groups), share)
    node_of_expert = np.repeat(node_of_group, len(loads) // groups)
    held = np.bincount(node_of_expert, minlength=len(sizes))
    extra = _extra_by_node(held, sizes, group)
    experts, ranks = [], []
    for node, size in enumerate(sizes.tolist()):
        own = np.flatnonzero(node_of_expert == node)
        replicas = _replicate(loads[own], int(extra[node]), size)
        slots, shares = _slots(own, loads[own], replicas)
        experts.append(slots)
        inside = pack(shares, slots, np.full(size, group.slots_per_rank))
        ranks.append(inside + node * (group.ranks_per_node or 0))
    return _placement(np.concatenate(experts), np.concatenate(ranks), loads, group)


def _extra_by_node(held: Int64Array, sizes: Int64Array, group: ExpertGroup) -> Int64Array:
    """(hosts,) slots beyond one for each expert, to the host with the most room left first."""
    room = np.minimum(group.slots_per_rank * sizes, held * sizes) - held
    extra = np.zeros_like(held)
    for _ in range(group.slots - int(held.sum())):
        roomiest = int(np.argmax(room - extra))
        if room[roomiest] == extra[roomiest]:
            break
        extra[roomiest] += 1
    return extra


def _slots(
    experts: Int64Array, loads: Int64Array, replicas: Int64Array
) -> tuple[Int64Array, FloatArray]:
    """The expert of each slot, and its share of the load."""
    return np.repeat(experts, replicas), np.repeat(loads / replicas, replicas)


def _placement(
    experts: Int64Array, ranks: Int64Array, loads: Int64Array, group: ExpertGroup
) -> ExpertPlacement:
    """In the order of the ranks, and of the experts on each."""
    order = np.lexsort((experts, ranks))
    return ExpertPlacement(
        len(loads), group.ranks, experts[order].astype(np.int32), ranks[order].astype(np.int32)
    )


def _arranged(placement: ExpertPlacement, loads: Int64Array, group: ExpertGroup) -> ExpertPlacement:
    """The same ranks, those on a host chosen so that hosts are even: no rank gets busier by it."""
    if group.ranks_per_node is None or _nodes(group) == 1:
        return placement
    sizes = np.bincount(group.node_of_rank)
    node = pack(even_loads(loads, placement), np.arange(group.ranks), sizes)
    position = np.empty(group.ranks, dtype=np.int64)
    position[np.argsort(node, kind="stable")] = np.arange(group.ranks)
    return _placement(
        placement.slot_expert.astype(np.int64), position[placement.slot_rank], loads, group
    )
