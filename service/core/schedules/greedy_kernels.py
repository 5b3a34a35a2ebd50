"""The loops of the schedules that are made by trying: where weight halves go, who comes next."""

import numpy as np
import numpy.typing as npt
from numba import njit, types

from service.core.signatures import read_only, writable

__all__ = ["NOT_RUN", "list_block", "place_weights"]

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Int8Array = npt.NDArray[np.int8]
BoolArray = npt.NDArray[np.bool_]

# What `place_weights` returns of an order that can't be run within its limits.
NOT_RUN = -1

_INT64, _INT32 = types.int64, types.int32


@njit(
    types.void(
        read_only(_INT64, 1),
        read_only(types.bool_, 1),
        read_only(_INT32, 1),
        read_only(_INT32, 1),
        _INT64,
        read_only(_INT64, 2),
        read_only(_INT64, 1),
        read_only(_INT64, 1),
        read_only(_INT64, 2),
        read_only(_INT64, 2),
        read_only(_INT64, 1),
        read_only(_INT64, 1),
        read_only(_INT64, 2),
        writable(_INT32, 1),
        writable(_INT64, 1),
    ),
    nogil=True,
    cache=True,
)
def place_weights(
    rank_offsets: Int64Array,
    is_input: BoolArray,
    stage: Int32Array,
    microbatch: Int32Array,
    microbatches: int,
    need_offsets: Int64Array,
    needs: Int64Array,
    gaps: Int64Array,
    durations: Int64Array,
    memory: Int64Array,
    limits: Int64Array,
    most_waiting: Int64Array,
    least_gap: Int64Array,
    weights_before: Int32Array,
    result: Int64Array,
) -> None:
    """Run forwards and input halves in order, each as early as it may, weight halves between them.

    The orders of all ranks stand one after the other; operation i is the input half
    (`is_input[i]`) or the forward of `microbatch[i]` on `stage[i]`. `need_offsets` is (2, stages +
    1): the forward (row 0) or input half (row 1) of stage s needs the same of the stages
    `needs[need_offsets[row, s]:need_offsets[row, s + 1]]`, each `gaps` after its end.
    `durations` is (3, stages): forward, input half, weight half. `memory` is (2, stages): what the
    first two change, the third frees the rest.

    The oldest weight halves of a rank that wait are run before an operation while it would exceed
    `limits[rank]`, while more than `most_waiting[rank]` wait, and while the rank would be idle at
    least `least_gap[0, stage]` (row 1 once the rank has no forward left), the stage being that of
    the weight half. `weights_before[i]` says how many run right before operation i; what is left
    runs at the end. `result` is filled with makespan and longest span, or with `NOT_RUN` where a
    limit can't be kept or ranks wait for each other for ever.
    """
    ranks = len(rank_offsets) - 1
    operations = len(stage)
    stages = durations.shape[1]
    size = stages * microbatches
    end = np.full(2 * size, -1, np.int64)
    first_waiter = np.full(2 * size, -1, np.int32)
    next_waiter = np.full(ranks, -1, np.int32)
    ready = np.empty(ranks, np.int32)
    reached = rank_offsets[:-1].copy()
    weight = rank_offsets[:-1].copy()  # the input half whose weight half is next, or before it
    waiting = np.zeros(ranks, np.int64)
    forwards_left = np.zeros(ranks, np.int64)
    free = np.zeros(ranks, np.int64)
    first = np.full(ranks, -1, np.int64)
    kept = np.zeros(ranks, np.int64)
    result[:] = -1
    for r in range(ranks):
        ready[ranks - 1 - r] = r
        for i in range(rank_offsets[r], rank_offsets[r + 1]):
            if not is_input[i]:
                forwards_left[r] += 1
    stack = ranks
    ran = 0
    while stack > 0:
        stack -= 1
        r = ready[stack]
        i = reached[r]
        stop = rank_offsets[r + 1]
        while i < stop:
            s = stage[i]
            row = 1 if is_input[i] else 0
            arrival = np.int64(0)
            missing = np.int64(-1)
            for j in range(need_offsets[row, s], need_offsets[row, s + 1]):
                key = row * size + needs[j] * microbatches + microbatch[i]
                if end[key] < 0:
                    missing = key
                    break
                arrival = max(arrival, end[key] + gaps[j])
            if missing >= 0:
                next_waiter[r] = first_waiter[missing]
                first_waiter[missing] = r
                break
            adds = max(memory[row, s], 0)
            drained = 0 if forwards_left[r] > 0 else 1
            time = free[r]
            before = 0
            while waiting[r] > 0:
                while not is_input[weight[r]]:
                    weight[r] += 1
                w = stage[weight[r]]
                gap = arrival - time
                if (
                    kept[r] + adds <= limits[r]
                    and waiting[r] <= most_waiting[r]
                    and (gap <= 0 or gap < least_gap[drained, w])
                ):
                    break
                time += durations[2, w]
                kept[r] -= memory[0, w] + memory[1, w]
                weight[r] += 1
                waiting[r] -= 1
                before += 1
            if kept[r] + adds > limits[r]:
                return
            weights_before[i] = before
            start = max(time, arrival)
            # The first operation of a rank is a forward, so no weight half was before it.
            if first[r] < 0:
                first[r] = start
            free[r] = start + durations[row, s]
            kept[r] += memory[row, s]
            if row == 1:
                waiting[r] += 1
            else:
                forwards_left[r] -= 1
            done = row * size + s * microbatches + microbatch[i]
            end[done] = free[r]
            ran += 1
            woken = first_waiter[done]
            while woken >= 0:
                ready[stack] = woken
                stack += 1
                woken = next_waiter[woken]
            i += 1
        reached[r] = i
    if ran < operations:
        return
    makespan = np.int64(0)
    span = np.int64(0)
    for r in range(ranks):
        while waiting[r] > 0:
            if is_input[weight[r]]:
                free[r] += durations[2, stage[weight[r]]]
                waiting[r] -= 1
            weight[r] += 1
        makespan = max(makespan, free[r])
        span = max(span, free[r] - first[r])
    result[0] = makespan
    result[1] = span


@njit(
    types.void(
        _INT64,
        read_only(_INT64, 2),
        read_only(_INT64, 1),
        _INT64,
        read_only(_INT64, 1),
        _INT64,
        writable(types.int8, 2),
        writable(_INT64, 1),
    ),
    nogil=True,
    cache=True,
)
def list_block(
    microbatches: int,
    slots: Int64Array,
    haste: Int64Array,
    limit: int,
    most_first: Int64Array,
    most_waiting: int,
    sequence: Int8Array,
    result: Int64Array,
) -> None:
    """Fill `sequence` (ranks, 6 x microbatches) with what each rank runs, slot by slot.

    Two stages a rank in a V; kinds are 0, 1 for the forwards of the first and the second stage, 2,
    3 for the input halves of the second and the first, 4, 5 for the weight halves of the second and
    the first. All operations take one slot. Of forwards and input halves that can run a rank takes
    the one with the least `slots[kind, rank]` + 6 x microbatch - `haste[kind]`; a weight half when
    there is none, or when more than `most_waiting` wait, and of two the one whose input half comes
    first in the same sense. At most `limit` activations are kept on a rank, of the first stage at
    most `most_first[rank]`, and a place is left for the second stage while it has none, so that the
    oldest microbatch can always go on. `result` is filled as by `place_weights`.
    """
    ranks = slots.shape[1]
    done = np.zeros((6, ranks), np.int64)  # microbatches of each kind
    end = np.full((4, ranks, microbatches), np.int32(2**31 - 1), np.int32)
    length = np.zeros(ranks, np.int64)
    first = np.full(ranks, -1, np.int64)
    result[:] = -1
    left = 6 * ranks * microbatches
    now = 0
    span = 0
    while left > 0:
        before = left
        for r in range(ranks):
            kept_first = done[0, r] - done[5, r]
            kept_second = done[1, r] - done[4, r]
            room = limit - kept_first - kept_second
            best = -1
            best_slot = np.int64(0)
            for kind in range(4):
                m = done[kind, r]
                if m == microbatches:
                    continue
                if kind == 0:
                    runs = r == 0 or end[0, r - 1, m] <= now
                    place = 1 if kept_second > 0 else 2
                    runs = runs and room >= place and kept_first < most_first[r]
                elif kind == 1:
                    runs = end[0, r, m] <= now if r == ranks - 1 else end[1, r + 1, m] <= now
                    runs = runs and room >= 1
                elif kind == 2:
                    runs = end[1, r, m] <= now and (r == 0 or end[2, r - 1, m] <= now)
                else:
                    runs = end[2, r, m] <= now if r == ranks - 1 else end[3, r + 1, m] <= now
                if not runs:
                    continue
                slot = slots[kind, r] + 6 * m - haste[kind]
                if best < 0 or slot < best_slot:
                    best = kind
                    best_slot = slot
            waiting = done[2, r] - done[4, r] + done[3, r] - done[5, r]
            if waiting > 0 and (best < 0 or waiting > most_waiting):
                best = 4
                if done[2, r] == done[4, r] or (
                    done[3, r] > done[5, r]
                    and slots[3, r] + 6 * done[5, r] - haste[3]
                    < slots[2, r] + 6 * done[4, r] - haste[2]
                ):
                    best = 5
            if best < 0:
                continue
            if best < 4:
                end[best, r, done[best, r]] = now + 1
            if first[r] < 0:
                first[r] = now
            span = max(span, now + 1 - first[r])
            done[best, r] += 1
            sequence[r, length[r]] = best
            length[r] += 1
            left -= 1
        if left == before:
            return
        now += 1
    result[0] = now
    result[1] = span
