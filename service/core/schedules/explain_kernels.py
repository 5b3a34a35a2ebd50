"""The loops that explain a simulated run, compiled.

Signatures are explicit, as in `service.core.schedules.kernels`.
"""

import numpy as np
import numpy.typing as npt
from numba import njit, types

from service.core.signatures import at, read_only, writable

__all__ = ["add_up_path", "add_waits", "follow_back", "least_of_groups"]

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]


@njit(
    types.int64(
        types.int64,
        read_only(types.int64, 1),
        read_only(types.int32, 1),
        read_only(types.int64, 1),
        read_only(types.int32, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        writable(types.int64, 2),
    ),
    nogil=True,
    cache=True,
)
def follow_back(
    operation: int,
    rank_offsets: Int64Array,
    rank: Int32Array,
    inputs: Int64Array,
    binding: Int32Array,
    sends: Int64Array,
    latencies: Int64Array,
    steps: Int64Array,
) -> int:
    """Go back from an operation over what each waited for; returns how many there are.

    Fills the rows of `steps` (3, n) from the end, so that the first of the path comes first:
    operations, the input that each of them waited for (its own, or the one by which its rank was
    held, -1 for none), and what that takes. `sends` is (n,), the last input that each operation
    sends, -1 for none, or (0,) where ranks are not held.
    """
    length = len(rank)
    place = length
    while operation >= 0:
        place -= 1
        steps[0, place] = operation
        bound = np.int64(binding[operation])
        if bound >= 0:
            operation = inputs[bound]
        elif operation == rank_offsets[rank[operation]]:
            operation = -1
        else:
            operation -= 1
            if len(sends) > 0 and sends[operation] >= 0 and latencies[sends[operation]] > 0:
                bound = sends[operation]
        steps[1, place] = bound
        steps[2, place] = latencies[bound] if bound >= 0 else 0
    return length - place


@njit(
    types.void(
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        writable(types.int64, 3),
        writable(types.int64, 2),
        writable(types.int64, 1),
        writable(types.int64, 2),
    ),
    nogil=True,
    cache=True,
)
def add_up_path(
    operations: Int64Array,
    crossed: Int64Array,
    latency: Int64Array,
    durations: Int64Array,
    group: Int64Array,
    way: Int64Array,
    by_group: Int64Array,
    by_way: Int64Array,
    by_stage: Int64Array,
    by_kind: Int64Array,
) -> None:
    """Add up the steps of a path: row 0 how many there are, row 1 their times together.

    `by_group` is (2, stages, kinds), `by_kind` (2, kinds), `by_way` (2, ways) of what was crossed;
    `by_stage` (stages,) has times alone. `durations` and `group` are by operation, `way` by input.
    """
    kinds = by_group.shape[2]
    for i in range(len(operations)):
        operation = at(operations[i])
        stage, kind = at(group[operation] // kinds), at(group[operation] % kinds)
        time = durations[operation]
        by_group[0, stage, kind] += 1
        by_group[1, stage, kind] += time
        by_kind[0, kind] += 1
        by_kind[1, kind] += time
        by_stage[stage] += time
        if crossed[i] >= 0:
            by_way[0, way[crossed[i]]] += 1
            by_way[1, way[crossed[i]]] += latency[i]


@njit(
    types.void(
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        writable(types.int64, 1),
        writable(types.int64, 1),
    ),
    nogil=True,
    cache=True,
)
def least_of_groups(
    group: Int64Array, values: Int64Array, least: Int64Array, place: Int64Array
) -> None:
    """Fill the least value of each group and where it stands first; place -1 for no value."""
    place[:] = -1
    for i in range(len(group)):
        of = group[i]
        if place[of] < 0 or values[i] < least[of]:
            least[of] = values[i]
            place[of] = i


@njit(
    types.void(
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int32, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int32, 1),
        writable(types.int64, 2),
    ),
    nogil=True,
    cache=True,
)
def add_waits(
    rank_offsets: Int64Array,
    start: Int64Array,
    released: Int64Array,
    binding: Int32Array,
    latencies: Int64Array,
    queueing: Int64Array,
    place: Int32Array,
    waits: Int64Array,
) -> None:
    """Add each operation's wait to column `place[operation]` of `waits`, by cause.

    Rows are dependency, transfer, contention. `released` is when each operation's rank is free
    after it; `queueing` is (inputs,), or (0,) where nothing queues.
    """
    for r in range(len(rank_offsets) - 1):
        free = released[at(rank_offsets[r])]
        for operation in range(at(rank_offsets[r]) + at(1), at(rank_offsets[r + 1])):
            rest = start[operation] - free
            free = released[operation]
            if rest == 0:
                continue
            bound = binding[operation]
            column = at(place[operation])
            if bound >= 0:
                if len(queueing) > 0:
                    contention = min(rest, queueing[at(bound)])
                    waits[2, column] += contention
                    rest -= contention
                transfer = min(rest, latencies[at(bound)])
                waits[1, column] += transfer
                rest -= transfer
            waits[0, column] += rest
