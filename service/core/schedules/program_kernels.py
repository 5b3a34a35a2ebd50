"""The loops that make a program, compiled.

Signatures are explicit, as in `service.core.schedules.kernels`.
"""

import numpy as np
import numpy.typing as npt
from numba import njit, types

from service.core.schedules.program import OpKind
from service.core.signatures import at, read_only, writable

__all__ = ["place_operations", "sort_needs", "topological_order"]

BoolArray = npt.NDArray[np.bool_]
Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Int8Array = npt.NDArray[np.int8]

_FORWARD = np.int8(OpKind.FORWARD)
_BACKWARD = np.int8(OpKind.BACKWARD)
_PAIR = np.int8(OpKind.FORWARD_BACKWARD)


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
            for i in range(
                at(input_offsets[at(operation)]), at(input_offsets[at(operation) + at(1)])
            ):
                if not done[at(inputs[i])]:
                    missing = inputs[i]
                    break
            if missing >= 0:
                next_waiter[r] = first_waiter[missing]
                first_waiter[missing] = r
                break
            done[at(operation)] = True
            order[at(ran)] = operation
            ran += 1
            woken = first_waiter[at(operation)]
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
        read_only(types.int32, 1),
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
    before: Int32Array,
    after: Int32Array,
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
        offsets[at(after[i]) + at(1)] += 1
    for operation in range(1, len(offsets)):
        offsets[operation] += offsets[operation - 1]
    # Each is moved on while its needs are placed, up to where the next one began.
    for group in range(len(group_edge)):
        edge, goes_back = group_edge[group], group_gradient[group]
        for i in range(group_offsets[group], group_offsets[group + 1]):
            needs = at(after[i])
            place = at(offsets[needs])
            offsets[needs] += 1
            sorted_before[place] = before[i]
            edges[place] = edge
            gradient[place] = goes_back
    for operation in range(len(offsets) - 1, 0, -1):
        offsets[operation] = offsets[operation - 1]
    offsets[0] = 0


@njit(
    types.void(
        read_only(types.int8, 1),
        read_only(types.int32, 1),
        read_only(types.int32, 1),
        read_only(types.int32, 1),
        read_only(types.int32, 1),
        writable(types.int32, 3),
    ),
    nogil=True,
    cache=True,
)
def place_operations(
    kind: Int8Array,
    stage: Int32Array,
    microbatch: Int32Array,
    backward_stage: Int32Array,
    backward_microbatch: Int32Array,
    position: Int32Array,
) -> None:
    """Write each operation to its place in (kinds, stages, microbatches), a pair to both of its."""
    for operation in range(len(kind)):
        of = kind[operation]
        if of == _PAIR:
            position[
                _BACKWARD, at(backward_stage[operation]), at(backward_microbatch[operation])
            ] = operation
            of = _FORWARD
        position[at(of), at(stage[operation]), at(microbatch[operation])] = operation
