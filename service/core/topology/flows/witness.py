"""Lower bounds from lengths: what makes a bound true can be added up again.

Give each capacity r of c_r bytes per second a length l_r >= 0. A byte from s to t takes up at least
dist(s, t) of length, whatever its route, and all capacities together offer sum(c_r l_r) of it a
second. So no schedule takes less than sum(bytes(s, t) dist(s, t)) / sum(c_r l_r). This is the dual
of the maximum concurrent flow: the best lengths give its optimum. A cut is the case of length 1 on
what crosses it.

Lengths are whole numbers, all sums are exact, and the seconds are rounded down: what a solver got
wrong in the last digits makes a bound weaker, never false.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import heappop, heappush
from math import inf, nextafter

import numpy as np
import numpy.typing as npt

from service.core.topology.flows.routes import FREE, Commodity

__all__ = ["Witness", "offered", "rounded_down", "weighed", "witness_of"]

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]

# Lengths that a solver found are measured in so many parts of the greatest one.
_PARTS = 2**32
# Optimal lengths are ratios of small numbers more often than not, and these give exact bounds.
_SIMPLE = 5_040


@dataclass(frozen=True, slots=True)
class Witness:
    """Lengths by capacity (the others have none), and what they amount to.

    `demanded` is sum(bytes x distance) and `offered` sum(capacity x length) a second.
    """

    lengths: Mapping[int, int]
    demanded: Fraction
    offered: Fraction

    @property
    def exact_seconds(self) -> Fraction:
        """The bound before it is rounded."""
        return self.demanded / self.offered if self.offered else Fraction(0)

    @property
    def seconds(self) -> float:
        """The bound, rounded down."""
        return rounded_down(self.exact_seconds)


def rounded_down(exact: Fraction) -> float:
    """The greatest float that is not above `exact` (or the one below it)."""
    near = float(exact)
    return nextafter(near, -inf) if Fraction(near) > exact else near


def witness_of(
    commodities: Sequence[Commodity],
    capacity: Float64Array,
    found: Float64Array,
    copies: Int64Array | None = None,
) -> Witness:
    """The witness closest to the lengths (R,) that a solver found.

    `copies` (R,) says how many capacities alike each one stands for.
    """
    best: Witness | None = None
    for lengths in _whole(found):
        demanded = sum((weighed(one, lengths) for one in commodities), Fraction(0))
        witness = Witness(lengths, demanded, offered(lengths, capacity, copies))
        if best is None or witness.exact_seconds > best.exact_seconds:
            best = witness
    return best or Witness({}, Fraction(0), Fraction(0))


def offered(
    lengths: Mapping[int, int], capacity: Float64Array, copies: Int64Array | None = None
) -> Fraction:
    """sum(capacity x length) over all capacities, exactly."""
    alike: Counter[tuple[float, int]] = Counter()
    for resource, length in lengths.items():
        count = 1 if copies is None else int(copies[resource])
        alike[float(capacity[resource]), length] += count
    return sum(
        (Fraction(rate) * length * count for (rate, length), count in alike.items()), Fraction(0)
    )


def weighed(commodity: Commodity, lengths: Mapping[int, int]) -> Fraction:
    """sum(bytes x distance) of what one commodity stands for, by Dijkstra's algorithm."""
    onward: list[list[tuple[int, int]]] = [[] for _ in range(commodity.nodes)]
    ends = (commodity.tail.tolist(), commodity.head.tolist(), commodity.resource.tolist())
    for tail, head, resource in zip(*ends, strict=True):
        length = 0 if resource == FREE else lengths.get(resource, 0)
        if commodity.inward:
            onward[head].append((tail, length))
        else:
            onward[tail].append((head, length))
    distance = {commodity.root: 0}
    queue = [(0, commodity.root)]
    while queue:
        far, node = heappop(queue)
        if far > distance[node]:
            continue
        for other, length in onward[node]:
            if far + length < distance.get(other, inf):
                distance[other] = far + length
                heappush(queue, (far + length, other))
    terms = zip(commodity.terminals.tolist(), commodity.amounts, strict=True)
    return sum((amount * distance[node] for node, amount in terms), Fraction(0)) * commodity.weight


def _whole(found: Float64Array) -> list[dict[int, int]]:
    """The lengths as whole numbers: to many digits, and as ratios of small numbers."""
    greatest = float(found.max(initial=0.0))
    if greatest <= 0:
        return []
    used = np.flatnonzero(found > greatest * 1e-9)
    shares = found[used] / greatest
    fine = np.rint(shares * _PARTS).astype(np.int64).tolist()
    simple = np.rint(shares * _SIMPLE).astype(np.int64).tolist()
    numbers = used.tolist()
    return [
        {number: length for number, length in zip(numbers, lengths, strict=True) if length}
        for lengths in (fine, simple)
    ]
