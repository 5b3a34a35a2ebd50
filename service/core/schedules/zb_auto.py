"""Zero bubble by trying: the best of several greedy runs that keep a memory limit.

What "Zero Bubble Pipeline Parallelism" (2024) calls ZB-1p and ZB-2p, for a limit of P and of 2P
activations a rank. Forwards and input halves go one by one after a warm-up, as in 1F1B; runs differ
in how long the warm-up of each rank is and in when a weight half that waits is run.
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode
from service.core.schedules.order_costs import OrderCosts, equal_costs
from service.core.schedules.orders import RankOrder
from service.core.schedules.shape import Shape
from service.core.schedules.weight_filling import (
    ANY_NUMBER,
    Filled,
    Filling,
    Sequences,
    complete,
    fill,
)

__all__ = ["BY_HAND", "MOST_PASSES", "check_memory_limit", "zb_auto_orders"]

Int64Array = npt.NDArray[np.int64]

# An iteration that is longer than the shortest by less than this part of it is taken all the same
# if its ranks are done sooner: the zero bubble that is meant is one between a rank's own first
# start and its own last end.
_MAKESPAN_PARTS = 1000

# Warm-ups are tried with the forwards that fit before the first gradient counted down, up, and
# between: in quarters of a forward.
_QUARTERS = 4


# ZB-H1, ZB-H2 and 1F1B: by how many a step along the ranks changes the forwards of the warm-up and
# the weight halves that wait.
BY_HAND = ((1, 1), (2, 2), (1, 0))

# Two warm-ups by hand and three ways to count others, each with every rounding; with each the ways
# to fill of `_fillings`, and those by hand with their own. A run goes over the forwards and the
# input halves, two thirds of all operations.
_RUNS = (2 + 3 * (_QUARTERS + 1)) * 6 + len(BY_HAND)
MOST_PASSES = -(-_RUNS * 2 // 3)


def check_memory_limit(shape: Shape) -> list[Fault]:
    """One activation at least, or no microbatch could run."""
    limit = shape.memory_limit_activations
    if limit is None or limit >= 1:
        return []
    detail = f"a rank keeps at least 1 activation; got {limit}"
    return [
        Fault(FaultCode.OUT_OF_RANGE, ("schedule", "memory_limit_activations"), detail),
    ]


def zb_auto_orders(shape: Shape) -> tuple[RankOrder, ...]:
    """The order of each rank for `shape.costs` (equal stages without) within the memory limit.

    Of the runs within `shape.memory_limit_activations` (P without), none of whose makespans is
    above that of an order `BY_HAND` within the same limit, the one with the shortest span among
    those whose makespan is the shortest but for one part in a thousand. Where the costs name one of
    the orders by hand it is that one, if it can be run.
    """
    costs = equal_costs(shape.ranks) if shape.costs is None else shape.costs
    activations = min(shape.memory_limit_activations or shape.ranks, shape.microbatches)
    memory = list(zip(costs.forward_memory, costs.input_memory, strict=True))
    limits = [activations * max(made, made + change) for made, change in memory]
    # Forwards that a rank can keep and still run the input half of one of them.
    most = [
        min((limit - max(change, 0)) // made, shape.microbatches) if made else shape.microbatches
        for limit, (made, change) in zip(limits, memory, strict=True)
    ]
    by_hand = [
        (_within(most, [times * (shape.ranks - 1 - r) + 1 for r in range(shape.ranks)]), waiting)
        for times, waiting in BY_HAND
    ]

    def runs(warm_up: tuple[int, ...], fillings: Sequence[Filling]) -> list[Filled]:
        sequence = _alternating(warm_up, shape.microbatches)
        (found,) = fill([sequence], fillings, shape.microbatches, costs, np.array(limits))
        return [run for run in found if run is not None]

    def run_by_hand(warm_up: tuple[int, ...], waiting: int) -> list[Filled]:
        most_waiting = tuple(waiting * r for r in range(shape.ranks))
        return runs(warm_up, [Filling(most_waiting, None, None)])

    if costs.taken is not None:
        taken = run_by_hand(*by_hand[costs.taken])
        if taken:
            return complete(taken[0])
    windows = _Windows(costs)
    warm_ups = [
        *(counts for counts, _ in by_hand),
        *(_within(most, c) for c in windows.counts(most)),
    ]
    fillings = _fillings(windows, shape.ranks)
    tried = [run for warm_up in dict.fromkeys(warm_ups) for run in runs(warm_up, fillings)]
    return complete(_best(tried, [run for one in by_hand for run in run_by_hand(*one)]))


def _best(runs: Sequence[Filled], handcrafted: Sequence[Filled]) -> Filled:
    """The first of the best."""
    every = [*runs, *handcrafted]
    shortest = min(run.makespan for run in every)
    most = min([shortest + shortest // _MAKESPAN_PARTS, *(run.makespan for run in handcrafted)])
    return min(
        (run for run in every if run.makespan <= most), key=lambda run: (run.span, run.makespan)
    )


def _within(most: Sequence[int], counts: Sequence[int]) -> tuple[int, ...]:
    """Forwards before each rank's first input half: at least 1, at most as many as it can keep.

    A later rank has no more of them than an earlier one, or it would wait for ever.
    """
    found = np.minimum.accumulate(np.clip(counts, 1, most))
    return tuple(found.tolist())


def _alternating(warm_up: Sequence[int], microbatches: int) -> Sequences:
    """So many forwards on each rank, then input halves and forwards in turn."""
    ranks = len(warm_up)
    first = np.array(warm_up, dtype=np.int64)[:, None]
    number = np.arange(microbatches)
    forward = np.where(number < first, number, 2 * number - first + 1)
    half = np.where(number < microbatches - first, first + 2 * number, microbatches + number)
    place = np.concatenate((forward, half), axis=1) + 2 * microbatches * np.arange(ranks)[:, None]
    is_input = np.empty(2 * ranks * microbatches, dtype=np.bool_)
    microbatch = np.empty(2 * ranks * microbatches, dtype=np.int32)
    is_input[place] = np.repeat((False, True), microbatches)
    microbatch[place] = np.tile(number, 2)
    return Sequences(
        rank_offsets=np.arange(ranks + 1, dtype=np.int64) * 2 * microbatches,
        is_input=is_input,
        stage=np.repeat(np.arange(ranks, dtype=np.int32), 2 * microbatches),
        microbatch=microbatch,
    )


def _fillings(windows: "_Windows", ranks: int) -> list[Filling]:
    """Into gaps only; and with as many waiting as fill the end of a rank that starts late."""
    never = (ANY_NUMBER,) * ranks
    enough = windows.weights_at_the_end
    one_less = tuple(max(count - 1, 0) for count in enough)
    return [
        Filling(never, 0, 0),
        Filling(never, 25, 0),
        Filling(never, 50, 0),
        Filling(never, 100, 0),
        Filling(one_less, 100, 100),
        Filling(enough, 100, 0),
    ]


class _Windows:
    """When the first microbatch reaches each stage and comes back, nothing else running."""

    def __init__(self, costs: OrderCosts) -> None:
        stages = len(costs.forward)
        self._forward = costs.forward
        start = [0] * stages  # of the first forward
        way_back = [0] * stages  # from the end of an input half to that of the first stage
        crossings = sorted(
            zip(costs.edges, costs.forward_latencies, costs.backward_latencies, strict=True)
        )
        for (source, target), forward, backward in crossings:
            start[target] = max(start[target], start[source] + costs.forward[source] + forward)
            way_back[target] = max(
                way_back[target], way_back[source] + costs.backward_input[source] + backward
            )
        arrival = [start[s] + costs.forward[s] for s in range(stages)]
        for (source, target), _, backward in sorted(crossings, key=lambda c: -c[0][1]):
            gradient = arrival[target] + costs.backward_input[target] + backward
            arrival[source] = max(arrival[source], gradient)
        self._room = [arrival[s] - start[s] for s in range(stages)]
        # A rank that starts late ends late, if nobody idles: that long after its last input half.
        self.weights_at_the_end = tuple(
            -(-(start[s] + way_back[s]) // weight) if weight else ANY_NUMBER
            for s, weight in enumerate(costs.backward_weight)
        )

    def counts(self, most: Sequence[int]) -> list[list[int]]:
        """Forwards before the first gradient of each stage, counted in several ways.

        As many as fit; then, where `most` of some stage is below that, all less by the same factor;
        and one for each stage that is left on the way, with its own factor.
        """
        stages = len(self._room)
        # Where nothing takes time nothing fits or all does: one forward.
        fits = [
            (room, forward) if forward else (1, 1)
            for room, forward in zip(self._room, self._forward, strict=True)
        ]
        hops = [(stages - s, 1) for s in range(stages)]
        found = [
            [_rounded(room, forward, quarters) for room, forward in fits]
            for quarters in range(_QUARTERS + 1)
        ]
        for ways in (fits, hops):
            factor = min(
                Fraction(kept * forward, max(room, 1))
                for kept, (room, forward) in zip(most, ways, strict=True)
            )
            if factor >= 1 and ways is fits:
                continue
            part, whole = min(factor, Fraction(1)).as_integer_ratio()
            found += [
                [_rounded(room * part, forward * whole, quarters) for room, forward in ways]
                for quarters in range(_QUARTERS + 1)
            ]
        return found


def _rounded(dividend: int, divisor: int, quarters: int) -> int:
    """The quotient and so many quarters, rounded down; four quarters round up."""
    if quarters == _QUARTERS:
        return -(-dividend // divisor)
    return (_QUARTERS * dividend + quarters * divisor) // (_QUARTERS * divisor)
