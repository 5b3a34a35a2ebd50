"""Orders of forwards and input halves, completed with weight halves where ranks would idle."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.schedules.greedy_kernels import NOT_RUN, place_weights
from service.core.schedules.order_costs import OrderCosts
from service.core.schedules.orders import RankOrder
from service.core.schedules.program import OpKind

__all__ = ["ANY_NUMBER", "Filled", "Filling", "Sequences", "complete", "fill"]

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]

ANY_NUMBER = 2**62


@dataclass(frozen=True, slots=True, eq=False)
class Sequences:
    """What each rank runs without weight halves, rank after rank.

    `rank_offsets` is (ranks + 1,); the others have one entry an operation: an input half, or else a
    forward, of a microbatch on a stage.
    """

    rank_offsets: Int64Array
    is_input: npt.NDArray[np.bool_]
    stage: Int32Array
    microbatch: Int32Array


@dataclass(frozen=True, slots=True)
class Filling:
    """When a rank runs a weight half that waits, beside when its memory has no room left.

    While more than `most_waiting` (one entry a rank) wait; and instead of idling, when it would
    idle for at least this many hundredths of the weight half: `steady_percent` while forwards are
    left, `drain_percent` after that. None: never instead of idling.
    """

    most_waiting: tuple[int, ...]
    steady_percent: int | None = 0
    drain_percent: int | None = 0


@dataclass(frozen=True, slots=True, eq=False)
class Filled:
    """Where the weight halves went: how many right before each operation, and what that took."""

    sequences: Sequences
    weights_before: Int32Array
    makespan: int
    span: int


def fill(
    sequences: Sequence[Sequences],
    fillings: Iterable[Filling],
    microbatches: int,
    costs: OrderCosts,
    limits: Int64Array,
) -> list[list[Filled | None]]:
    """Each of the sequences with each filling; None where it can't be run within the limits.

    `limits` is (ranks,), in the memory unit of the rank's stages.
    """
    needs = _needs(costs)
    durations = np.array(
        (costs.forward, costs.backward_input, costs.backward_weight), dtype=np.int64
    )
    memory = np.array((costs.forward_memory, costs.input_memory), dtype=np.int64)
    made = [_filling_arrays(filling, costs.backward_weight) for filling in fillings]
    found = []
    result = np.empty(2, dtype=np.int64)
    for of_ranks in sequences:
        row: list[Filled | None] = []
        for most_waiting, least_gap in made:
            before = np.empty(len(of_ranks.stage), dtype=np.int32)
            place_weights(
                of_ranks.rank_offsets,
                of_ranks.is_input,
                of_ranks.stage,
                of_ranks.microbatch,
                microbatches,
                *needs,
                durations,
                memory,
                limits,
                most_waiting,
                least_gap,
                before,
                result,
            )
            makespan, span = result.tolist()
            ran = makespan != NOT_RUN
            row.append(Filled(of_ranks, before, makespan, span) if ran else None)
        found.append(row)
    return found


def complete(filled: Filled) -> tuple[RankOrder, ...]:
    """The order of each rank, weight halves included: oldest input half first."""
    sequences = filled.sequences
    orders = []
    for first, stop in np.stack(
        (sequences.rank_offsets[:-1], sequences.rank_offsets[1:]), axis=1
    ).tolist():
        is_input = sequences.is_input[first:stop]
        halves = np.flatnonzero(is_input)
        place = np.arange(stop - first) + np.cumsum(filled.weights_before[first:stop])
        weight = np.ones(stop - first + len(halves), dtype=np.bool_)
        weight[place] = False
        origin = np.empty(len(weight), dtype=np.int64)
        origin[place] = np.arange(stop - first)
        origin[weight] = halves
        kind = np.where(is_input, OpKind.BACKWARD_INPUT, OpKind.FORWARD).astype(np.int8)[origin]
        kind[weight] = OpKind.BACKWARD_WEIGHT
        orders.append(
            RankOrder(
                kind,
                sequences.stage[first:stop][origin],
                sequences.microbatch[first:stop][origin],
            )
        )
    return tuple(orders)


def _filling_arrays(filling: Filling, weights: Sequence[int]) -> tuple[Int64Array, Int64Array]:
    least = [
        [ANY_NUMBER if percent is None else weight * percent // 100 for weight in weights]
        for percent in (filling.steady_percent, filling.drain_percent)
    ]
    return np.array(filling.most_waiting, dtype=np.int64), np.array(least, dtype=np.int64)


def _needs(costs: OrderCosts) -> tuple[Int64Array, Int64Array, Int64Array]:
    """(2, stages + 1) offsets of the needs of forwards and of input halves, whose, and gaps."""
    stages = len(costs.forward)
    of_stage: list[list[tuple[int, int]]] = [[] for _ in range(2 * stages)]
    for (source, target), forward, backward in zip(
        costs.edges, costs.forward_latencies, costs.backward_latencies, strict=True
    ):
        of_stage[target].append((source, forward))
        of_stage[stages + source].append((target, backward))
    ends = np.cumsum([0, *(len(needs) for needs in of_stage)])
    flat = np.array([need for needs in of_stage for need in needs], dtype=np.int64).reshape(-1, 2)
    offsets = np.stack((ends[: stages + 1], ends[stages:])).astype(np.int64)
    return offsets, flat[:, 0].copy(), flat[:, 1].copy()
