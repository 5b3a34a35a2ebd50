"""The loops over a program that can't be array expressions, compiled.

Signatures are explicit, so each is compiled once, when this module is first imported (and read
from the cache on disk afterwards); the interpreter lock is released while they run.
"""

import numpy as np
import numpy.typing as npt
from numba import njit, types

from service.core.signatures import at, read_only, writable

__all__ = ["last_ends", "least_slack", "longest_ways", "simulate_rows"]

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Int8Array = npt.NDArray[np.int8]


@njit(
    types.int64(
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
) -> int:
    """Fill start, end and binding, one row a run, from durations (rows, n), latencies (rows, k).

    `holds` is (rows, n), how long a rank stays held after the end of each operation, or (rows, 0)
    where none is. Returns the bits that any time has: none is above that number, and it is negative
    where one is.
    """
    free = np.empty(ranks, np.int64)
    bits = 0
    held = holds.shape[1] > 0
    for row in range(durations.shape[0]):
        free[:] = 0
        # One axis each, which is less to reckon with in the loop.
        takes, passes, keeps = durations[row], latencies[row], holds[row]
        begins, ends, waits_for = start[row], end[row], binding[row]
        for i in range(len(order)):
            operation = at(order[i])
            r = at(rank[operation])
            latest = free[r]
            binds = -1
            binding_latency = np.int64(0)
            for j in range(at(input_offsets[operation]), at(input_offsets[operation + at(1)])):
                latency = passes[j]
                bits |= latency
                arrival = ends[at(inputs[j])] + latency
                if arrival > latest or (
                    arrival == latest and binds >= 0 and latency < binding_latency
                ):
                    latest = arrival
                    binds = j
                    binding_latency = latency
            begins[operation] = latest
            waits_for[operation] = binds
            duration = takes[operation]
            bits |= duration
            latest += duration
            ends[operation] = latest
            free[r] = latest + keeps[operation] if held else latest
    return bits


@njit(
    types.int64(
        read_only(types.int64, 1),
        read_only(types.int32, 1),
        types.int64,
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int8, 1),
        read_only(types.int32, 1),
        read_only(types.int32, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 3),
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
    kind: Int8Array,
    microbatch: Int32Array,
    backward_microbatch: Int32Array,
    durations: Int64Array,
    of_kinds: Int64Array,
    makespans: Int64Array,
) -> int:
    """Fill `makespans` (2,): the last end where transfers are free, with two sets of durations.

    Of durations (n,), and of what each kind takes on any stage: `of_kinds` is (2, kinds,
    microbatches or 1), to be added up, by the operation's microbatch and by that of its backward.
    As `simulate_rows` without latencies, of which nothing but the last end is asked; both in one
    loop, which follows the order once for both. Returns the bits that any duration has.
    """
    free = np.zeros((ranks, 2), np.int64)
    end = np.empty((len(order), 2), np.int64)
    bits = 0
    one, other = at(0), at(1)
    alike = of_kinds.shape[2] == 1
    own, backward = of_kinds[0], of_kinds[1]
    for i in range(len(order)):
        operation = at(order[i])
        r = at(rank[operation])
        latest, other_latest = free[r, one], free[r, other]
        for j in range(at(input_offsets[operation]), at(input_offsets[operation + at(1)])):
            producer = at(inputs[j])
            latest = max(latest, end[producer, one])
            other_latest = max(other_latest, end[producer, other])
        k = at(kind[operation])
        if alike:
            other_duration = own[k, at(0)] + backward[k, at(0)]
        else:
            other_duration = (
                own[k, at(microbatch[operation])] + backward[k, at(backward_microbatch[operation])]
            )
        duration = durations[operation]
        bits |= duration | other_duration
        latest += duration
        other_latest += other_duration
        end[operation, one], end[operation, other] = latest, other_latest
        free[r, one], free[r, other] = latest, other_latest
    for row in range(2):
        makespans[row] = free[:, row].max()
    return bits


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
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        writable(types.int64, 1),
        writable(types.int64, 1),
        writable(types.int64, 1),
    ),
    nogil=True,
    cache=True,
)
def least_slack(
    order: Int64Array,
    rank: Int32Array,
    rank_offsets: Int64Array,
    input_offsets: Int64Array,
    inputs: Int64Array,
    durations: Int64Array,
    latencies: Int64Array,
    holds: Int64Array,
    makespan: int,
    end: Int64Array,
    group: Int64Array,
    slack: Int64Array,
    least: Int64Array,
    place: Int64Array,
) -> None:
    """Fill `slack`: how much later each operation may end for all to end by `makespan`.

    And the least of each group and the first operation that has it, place -1 for no value.

    Against the topological order: what follows an operation, on its rank or as a consumer of its
    value, has said when it must start before the operation itself is looked at. Until then its
    place holds its latest end so far. `holds` is (n,) as in `simulate_rows`, or (0,).
    """
    slack[:] = makespan
    place[:] = -1
    held = len(holds) > 0
    for i in range(len(order) - 1, -1, -1):
        operation = at(order[at(i)])
        latest = slack[operation]
        start = latest - durations[operation]
        if order[at(i)] > rank_offsets[at(rank[operation])]:
            before = operation - at(1)
            free = start - holds[before] if held else start
            if free < slack[before]:
                slack[before] = free
        for j in range(at(input_offsets[operation]), at(input_offsets[operation + at(1)])):
            producer = at(inputs[j])
            sent = start - latencies[j]
            if sent < slack[producer]:
                slack[producer] = sent
        left = latest - end[operation]
        slack[operation] = left
        of = at(group[operation])
        if place[of] < 0 or left < least[of] or (left == least[of] and order[at(i)] < place[of]):
            least[of] = left
            place[of] = order[at(i)]


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
