"""The compiled passes over what links served in link mode."""

import numpy as np
import numpy.typing as npt
from numba import njit, types

from service.core.signatures import read_only, writable

__all__ = ["exchange_pieces", "latest_ends_with_links", "link_intervals"]

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]


@njit(
    types.void(
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int32, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int32, 1),
        read_only(types.int64, 1),
        read_only(types.int32, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        types.int64,
        types.int64,
        writable(types.int64, 1),
    ),
    nogil=True,
    cache=True,
)
def latest_ends_with_links(
    sequence: Int64Array,
    rank_offsets: Int64Array,
    rank: Int32Array,
    input_offsets: Int64Array,
    inputs: Int64Array,
    durations: Int64Array,
    kind_of: Int32Array,
    offsets: Int64Array,
    link: Int32Array,
    occupied: Int64Array,
    latency: Int64Array,
    links: int,
    makespan: int,
    latest: Int64Array,
) -> None:
    """Fill `latest`: as `latest_ends`, every link serving the messages in the sequence it did.

    `durations` are as long as operations took, with what their own bundles waited.

    Against `sequence`, in which whatever follows something comes later: the next operation of its
    rank, its messages, the next bundle on each of its links.
    """
    operations, messages = len(rank), len(inputs)
    latest[:] = makespan
    latest_arrival = np.full(messages, makespan, np.int64)
    link_must_start = np.full(links, makespan, np.int64)
    for s in range(len(sequence) - 1, -1, -1):
        item = sequence[s]
        if item < operations:
            begin = latest[item] - durations[item]
            if item > rank_offsets[rank[item]]:
                latest[item - 1] = min(latest[item - 1], begin)
            for i in range(input_offsets[item], input_offsets[item + 1]):
                latest_arrival[i] = begin
            continue
        bundle = item - operations
        if bundle >= messages:
            continue
        kind = kind_of[bundle]
        must_end = latest_arrival[bundle] - latency[kind]
        ready = must_end
        for e in range(offsets[kind], offsets[kind + 1]):
            begin = min(must_end, link_must_start[link[e]]) - occupied[e]
            link_must_start[link[e]] = begin
            ready = min(ready, begin)
        latest[inputs[bundle]] = min(latest[inputs[bundle]], ready)


@njit(
    types.int64(
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int32, 1),
        read_only(types.int64, 1),
        read_only(types.int32, 1),
        read_only(types.int64, 1),
        types.int64,
        read_only(types.bool_, 1),
        writable(types.int64, 1),
        writable(types.int32, 1),
        writable(types.int64, 1),
        writable(types.int64, 1),
    ),
    nogil=True,
    cache=True,
)
def link_intervals(
    served: Int64Array,
    ready: Int64Array,
    kind_of: Int32Array,
    offsets: Int64Array,
    link: Int32Array,
    occupied: Int64Array,
    links: int,
    wanted: BoolArray,
    interval_bundle: Int64Array,
    interval_link: Int32Array,
    begin: Int64Array,
    end: Int64Array,
) -> int:
    """When each bundle in `served` held each of its links, of those `wanted` (by place in it).

    `ready` is by place in `served`, `kind_of` by bundle. The four results are long enough for all
    that is wanted; returns how many there are.
    """
    link_free = np.zeros(links, np.int64)
    count = 0
    for s in range(len(served)):
        kind = kind_of[served[s]]
        for e in range(offsets[kind], offsets[kind + 1]):
            at = max(ready[s], link_free[link[e]])
            link_free[link[e]] = at + occupied[e]
            if wanted[s]:
                interval_bundle[count], interval_link[count] = served[s], link[e]
                begin[count], end[count] = at, at + occupied[e]
                count += 1
    return count


@njit(
    types.int64(
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        writable(types.int64, 1),
        writable(types.int64, 1),
        writable(types.int64, 1),
        writable(types.int64, 1),
    ),
    nogil=True,
    cache=True,
)
def exchange_pieces(
    message_offsets: Int64Array,
    message_start: Int64Array,
    message_end: Int64Array,
    offsets: Int64Array,
    ready: Int64Array,
    occupied: Int64Array,
    done: Int64Array,
    place: Int64Array,
    begin: Int64Array,
    end: Int64Array,
) -> int:
    """When each link served what operations exchange themselves, between messages.

    By link: messages that hold it, ascending, and exchanges in their sequence, with when each is
    ready and for how long it occupies it. Fills when each exchange is `done`, and pieces: `place`
    of the exchange, `begin` and `end`, of which there are at most as many as exchanges and messages
    together. Returns how many.
    """
    count = 0
    for link in range(len(offsets) - 1):
        i, last = message_offsets[link], message_offsets[link + 1]
        at = np.int64(0)
        for j in range(offsets[link], offsets[link + 1]):
            at = max(at, ready[j])
            left = occupied[j]
            while left > 0:
                while i < last and message_end[i] <= at:
                    i += 1
                if i < last and message_start[i] <= at:
                    at = message_end[i]
                    continue
                piece = left if i == last else min(left, message_start[i] - at)
                place[count], begin[count], end[count] = j, at, at + piece
                count += 1
                at += piece
                left -= piece
            done[j] = at
    return count
