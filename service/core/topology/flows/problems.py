"""Commodities that share capacities, and the bounds that follow from lengths and from one link."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from service.core.topology.flows.linear_program import LpSolution, solve
from service.core.topology.flows.network import Network
from service.core.topology.flows.results import Binding, BindingKind, BoundKind, FlowBound, Part
from service.core.topology.flows.routes import FREE, Commodity
from service.core.topology.flows.unavoidable import unavoidable
from service.core.topology.flows.witness import witness_of

__all__ = ["Problem", "flow_bound", "latency_floor", "link_bound", "whole"]

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Commodities to be moved together, over numbered kinds of capacities.

    `representative` (R,) is a capacity of the network of each kind and `copies` (R,) how many there
    are of it: one each unless the problem is collapsed.
    """

    commodities: tuple[Commodity, ...]
    representative: Int32Array
    copies: Int64Array
    is_collapsed: bool = False

    @property
    def size(self) -> int:
        """How large its linear program is: arcs and nodes."""
        return sum(commodity.size for commodity in self.commodities)

    def capacity(self, network: Network) -> Float64Array:
        """(R,) bytes per second of one capacity of each kind."""
        return network.capacity[self.representative]


def whole(network: Network, commodities: Sequence[Commodity]) -> Problem:
    """The problem on the network as it is."""
    count = len(network.capacity)
    return Problem(
        tuple(commodities),
        np.arange(count, dtype=np.int32),
        np.ones(count, dtype=np.int64),
    )


def flow_bound(network: Network, problem: Problem) -> tuple[FlowBound, LpSolution] | None:
    """The bound of the maximum concurrent flow, and a flow that reaches it; None for no answer."""
    capacity = problem.capacity(network)
    solution = solve(problem.commodities, capacity * problem.copies)
    if solution is None:
        return None
    witness = witness_of(problem.commodities, capacity, solution.lengths, problem.copies)
    if not witness.offered:
        return None
    parts = tuple(
        Part(int(problem.representative[kind]), length, int(problem.copies[kind]))
        for kind, length in sorted(witness.lengths.items())
    )
    name = network.resource_name(parts[0].resource)
    binding = Binding(BindingKind.LENGTHS, name)
    kind = BoundKind.CONCURRENT_FLOW
    return FlowBound(kind, binding, witness.demanded, witness.offered, parts), solution


def link_bound(network: Network, problem: Problem) -> FlowBound | None:
    """The bound of the one link that most traffic per capacity has no way around.

    In a collapsed problem those links count that are single as seen from a root: what each terminal
    has before it is counted as seen from nobody, and cuts have it.
    """
    forced: dict[int, Fraction] = {}
    for commodity in problem.commodities:
        for kind, amount in unavoidable(commodity).items():
            forced[kind] = forced.get(kind, Fraction(0)) + amount * commodity.weight
    best: FlowBound | None = None
    for kind, amount in sorted(forced.items()):
        resource = int(problem.representative[kind])
        demanded = amount / int(problem.copies[kind])
        binding = Binding(BindingKind.LINK, network.resource_name(resource))
        capacity = Fraction(float(network.capacity[resource]))
        found = FlowBound(BoundKind.LINK, binding, demanded, capacity, (Part(resource, 1),))
        if best is None or found.exact_seconds > best.exact_seconds:
            best = found
    return best


def latency_floor(network: Network, problem: Problem) -> Fraction:
    """The guaranteed latency of the pair that has most of it, each over its quickest route."""
    floors = network.latency_floor[problem.representative].tolist()
    if not any(floors):
        return Fraction(0)
    longest = Fraction(0)
    for commodity in problem.commodities:
        onward: list[list[tuple[int, Fraction]]] = [[] for _ in range(commodity.nodes)]
        for tail, head, kind in zip(
            commodity.tail.tolist(),
            commodity.head.tolist(),
            commodity.resource.tolist(),
            strict=True,
        ):
            floor = Fraction(0) if kind == FREE else Fraction(floors[kind])
            one, other = (head, tail) if commodity.inward else (tail, head)
            onward[one].append((other, floor))
        at = {commodity.root: Fraction(0)}
        queue = [(Fraction(0), commodity.root)]
        while queue:
            time, node = heappop(queue)
            if time > at[node]:
                continue
            for other, floor in onward[node]:
                if other not in at or time + floor < at[other]:
                    at[other] = time + floor
                    heappush(queue, (time + floor, other))
        longest = max([longest, *(at[node] for node in commodity.terminals.tolist())])
    return longest
