"""The loops that can't be array expressions, compiled.

Signatures are explicit, so each is compiled once, when this module is first imported (and read
from the cache on disk afterwards); the interpreter lock is released while they run.
"""

import numpy as np
import numpy.typing as npt
from numba import njit, types

from service.core.schedules.signatures import read_only, writable

__all__ = [
    "last_ends",
    "latest_ends",
    "longest_ways",
    "simulate_rows",
    "sort_needs",
    "topological_order",
]

BoolArray = npt.NDArray[np.bool_]
Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]


@njit(
    types.int64(
        read_only(types.int64, 1),
        read_only(types.int32, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        writable(types.int64, 1),
        writable(types.int64, 1),
    ),
    nogil=True,
    cache=True,
)
def topological_order(
    rank_offsets: Int64Array,
    rank: Int32Array,
    input_offsets: Int64Array,
    inputs: Int64Array,
    order: Int64Array,
    reached: Int64Array,
) -> int:
    """Run every rank in order as far as its inputs allow; returns how many operations ran.

    Fills `order` with the operations as they run and `reached` (one a rank) with the first
    operation of the rank that did not. A rank that is stuck waits on one operation at a time and
    is woken when that one has run, so the work is linear in operations and inputs.
    """
    ranks = len(rank_offsets) - 1
    operations = len(rank)
    done = np.zeros(operations, np.bool_)
    first_waiter = np.full(operations, -1, np.int32)  # a rank, the head of a list
    next_waiter = np.full(ranks, -1, np.int32)
    ready = np.empty(ranks, np.int32)  # a stack; a rank is on it at most once
    for r in range(ranks):
        reached[r] = rank_offsets[r]
        ready[ranks - 1 - r] = r
    waiting_to_run = ranks
    ran = 0
    while waiting_to_run > 0:
        waiting_to_run -= 1
        r = ready[waiting_to_run]
        operation = reached[r]
        stop = rank_offsets[r + 1]
        while operation < stop:
            missing = -1
            for i in range(input_offsets[operation], input_offsets[operation + 1]):
                if not done[inputs[i]]:
                    missing = inputs[i]
                    break
            if missing >= 0:
                next_waiter[r] = first_waiter[missing]
                first_waiter[missing] = r
                break
            done[operation] = True
            order[ran] = operation
            ran += 1
            woken = first_waiter[operation]
            while woken >= 0:
                ready[waiting_to_run] = woken
                waiting_to_run += 1
                woken = next_waiter[woken]
            operation += 1
        reached[r] = operation
    return ran


@njit(
    types.void(
        read_only(types.int64, 1),
        read_only(types.int32, 1),
        types.int64,
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 2),
        read_only(types.int64, 2),
        read_only(types.int64, 2),
        writable(types.int64, 2),
        writable(types.int64, 2),
        writable(types.int32, 2),
    ),
    nogil=True,
    cache=True,
)
def simulate_rows(
    order: Int64Array,
    rank: Int32Array,
    ranks: int,
    input_offsets: Int64Array,
    inputs: Int64Array,
    durations: Int64Array,
    latencies: Int64Array,
    holds: Int64Array,
    start: Int64Array,
    end: Int64Array,
    binding: Int32Array,
) -> None:
    """Fill start, end and binding, one row a run, from durations (rows, n), latencies (rows, k).

    `holds` is (rows, n), how long a rank stays held after the end of each operation, or (rows, 0)
    where none is.
    """
    free = np.empty(ranks, np.int64)
    held = holds.shape[1] > 0
    for row in range(durations.shape[0]):
        free[:] = 0
        for i in range(len(order)):
            operation = order[i]
            r = rank[operation]
            latest = free[r]
            binds = -1
            binding_latency = np.int64(0)
            for j in range(input_offsets[operation], input_offsets[operation + 1]):
                latency = latencies[row, j]
                arrival = end[row, inputs[j]] + latency
                if arrival > latest or (
                    arrival == latest and binds >= 0 and latency < binding_latency
                ):
                    latest = arrival
                    binds = j
                    binding_latency = latency
            start[row, operation] = latest
            binding[row, operation] = binds
            latest += durations[row, operation]
            end[row, operation] = latest
            free[r] = latest + holds[row, operation] if held else latest


@njit(
    types.void(
        read_only(types.int64, 1),
        read_only(types.int32, 1),
        types.int64,
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 2),
        writable(types.int64, 1),
    ),
    nogil=True,
    cache=True,
)
def last_ends(
    order: Int64Array,
    rank: Int32Array,
    ranks: int,
    input_offsets: Int64Array,
    inputs: Int64Array,
    durations: Int64Array,
    makespan: Int64Array,
) -> None:
    """Fill `makespan`, one a row of durations (rows, n): the last end where transfers are free.

    As `simulate_rows` without latencies, of which nothing but the last end is asked.
    """
    free = np.empty(ranks, np.int64)
    end = np.empty(len(order), np.int64)
    for row in range(durations.shape[0]):
        free[:] = 0
        for operation in order:
            r = rank[operation]
            latest = free[r]
            for j in range(input_offsets[operation], input_offsets[operation + 1]):
                latest = max(latest, end[inputs[j]])
            latest += durations[row, operation]
            end[operation] = latest
            free[r] = latest
        makespan[row] = free.max()


@njit(
    types.void(
        read_only(types.int64, 1),
        read_only(types.int32, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        types.int64,
        writable(types.int64, 1),
    ),
    nogil=True,
    cache=True,
)
def latest_ends(
    order: Int64Array,
    rank: Int32Array,
    rank_offsets: Int64Array,
    input_offsets: Int64Array,
    inputs: Int64Array,
    durations: Int64Array,
    latencies: Int64Array,
    holds: Int64Array,
    makespan: int,
    latest: Int64Array,
) -> None:
    """Fill `latest`: when each operation may end at the latest for all to end by `makespan`.

    Against the topological order: what follows an operation, on its rank or as a consumer of its
    value, has said when it must start before the operation itself is looked at. `holds` is (n,) as
    in `simulate_rows`, or (0,).
    """
    latest[:] = makespan
    held = len(holds) > 0
    for i in range(len(order) - 1, -1, -1):
        operation = order[i]
        start = latest[operation] - durations[operation]
        if operation > rank_offsets[rank[operation]]:
            hold = holds[operation - 1] if held else np.int64(0)
            latest[operation - 1] = min(latest[operation - 1], start - hold)
        for j in range(input_offsets[operation], input_offsets[operation + 1]):
            producer = inputs[j]
            latest[producer] = min(latest[producer], start - latencies[j])


@njit(
    types.void(
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        writable(types.int64, 1),
        writable(types.int64, 1),
    ),
    nogil=True,
    cache=True,
)
def longest_ways(
    order: Int64Array,
    offsets: Int64Array,
    before: Int64Array,
    gaps: Int64Array,
    durations: Int64Array,
    start: Int64Array,
    after: Int64Array,
) -> None:
    """Fill the longest way to each operation and from its end, as if ranks could run any number.

    `before` and `gaps` say, for the needs `offsets[i]:offsets[i+1]` of operation i, what it needs
    and how long after the end of that one it can start.
    """
    after[:] = 0
    for i in range(len(order)):
        operation = order[i]
        latest = np.int64(0)
        for j in range(offsets[operation], offsets[operation + 1]):
            need = before[j]
            latest = max(latest, start[need] + durations[need] + gaps[j])
        start[operation] = latest
    for i in range(len(order) - 1, -1, -1):
        operation = order[i]
        way = durations[operation] + after[operation]
        for j in range(offsets[operation], offsets[operation + 1]):
            need = before[j]
            after[need] = max(after[need], gaps[j] + way)


@njit(
    types.void(
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int32, 1),
        read_only(types.bool_, 1),
        writable(types.int64, 1),
        writable(types.int64, 1),
        writable(types.int32, 1),
        writable(types.bool_, 1),
    ),
    nogil=True,
    cache=True,
)
def sort_needs(
    group_offsets: Int64Array,
    before: Int64Array,
    after: Int64Array,
    group_edge: Int32Array,
    group_gradient: BoolArray,
    offsets: Int64Array,
    sorted_before: Int64Array,
    edges: Int32Array,
    gradient: BoolArray,
) -> None:
    """Sort needs by the operation that needs, keeping the sequence of those of one operation.

    They come in groups, each over one edge in one way. Fills `offsets` (operations + 1,) and, in
    the new sequence, what is needed, over which edge, and whether it is a gradient.
    """
    offsets[:] = 0
    for i in range(len(after)):
        offsets[after[i] + 1] += 1
    for operation in range(1, len(offsets)):
        offsets[operation] += offsets[operation - 1]
    slot = offsets[:-1].copy()
    for group in range(len(group_edge)):
        for i in range(group_offsets[group], group_offsets[group + 1]):
            place = slot[after[i]]
            slot[after[i]] += 1
            sorted_before[place] = before[i]
            edges[place] = group_edge[group]
            gradient[place] = group_gradient[group]
