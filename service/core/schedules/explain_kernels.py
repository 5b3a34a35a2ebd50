"""The loops that explain a simulated run, compiled.

Signatures are explicit, as in `service.core.schedules.kernels`.
"""

import numpy as np
import numpy.typing as npt
from numba import njit, types

from service.core.schedules.signatures import read_only, writable

__all__ = ["add_up", "add_waits", "follow_back", "least_of_groups"]

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
        writable(types.int64, 1),
        writable(types.int64, 1),
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
    operations: Int64Array,
    crossed: Int64Array,
) -> int:
    """Go back from an operation over what each waited for; returns how many there are.

    Fills `operations`, the last first, and the input that each of them waited for: its own, or the
    one by which its rank was held, -1 for none. `sends` is (n,), the last input that each operation
    sends, -1 for none, or (0,) where ranks are not held.
    """
    count = 0
    while operation >= 0:
        operations[count] = operation
        bound = np.int64(binding[operation])
        if bound >= 0:
            operation = inputs[bound]
        elif operation == rank_offsets[rank[operation]]:
            operation = -1
        else:
            operation -= 1
            if len(sends) > 0 and sends[operation] >= 0 and latencies[sends[operation]] > 0:
                bound = sends[operation]
        crossed[count] = bound
        count += 1
    return count


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
def add_up(group: Int64Array, times: Int64Array, counts: Int64Array, sums: Int64Array) -> None:
    """Add to `counts` how many there are of each group, and to `sums` their times."""
    for i in range(len(group)):
        counts[group[i]] += 1
        sums[group[i]] += times[i]


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
        for operation in range(rank_offsets[r] + 1, rank_offsets[r + 1]):
            rest = start[operation] - released[operation - 1]
            bound = binding[operation]
            column = place[operation]
            if bound >= 0:
                if len(queueing) > 0:
                    contention = min(rest, queueing[bound])
                    waits[2, column] += contention
                    rest -= contention
                transfer = min(rest, latencies[bound])
                waits[1, column] += transfer
                rest -= transfer
            waits[0, column] += rest
