"""The compiled loops of the search for pinned paths; `service.core.topology.routing` has the rule.

Vertices are numbers. The links that leave (or enter) vertex v are places `first[v]` to
`first[v + 1]`, by the host at their far end: those to the accelerators' own network, from
`fabric[v]` those to the fabric, from `inner[v]` those to hosts in the order of their numbers. A
search sees some of them only, which its `view` says: whether those to the fabric, whether those to
the own network, and up to two hosts (-1 for none).
"""

import numpy as np
import numpy.typing as npt
from numba import njit, types

from service.core.signatures import read_only, writable

__all__ = ["FAR", "NO_RAIL", "mark_ways", "settle", "weigh_ways"]

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Int8Array = npt.NDArray[np.int8]
Float64Array = npt.NDArray[np.float64]

# A distance that nothing has.
FAR = np.iinfo(np.int64).max
# The rail of a vertex that has none, or whose rail does not matter.
NO_RAIL = -1

# What is known of a vertex: it lies on a shortest path; on one of the widest of them.
_ON_WAY = 1
_WIDE = 2

_OFFSETS = (read_only(types.int64, 1),) * 3  # first, fabric, inner
# Of links as `Arcs.of_search` has them: offsets, the far ends and their hosts, distances.
_ARCS = (*_OFFSETS, *(read_only(types.int32, 1),) * 2, read_only(types.int64, 1))
_PAIR = types.UniTuple(types.int64, 2)  # type: ignore[no-untyped-call]
_TRIPLE = types.UniTuple(types.int64, 3)  # type: ignore[no-untyped-call]


@njit(types.int64(read_only(types.int32, 1), *(types.int64,) * 3), nogil=True, cache=True)
def _first_of(far_host: Int32Array, low: int, high: int, host: int) -> int:
    """The first place from `low` before `high` that is not below a host."""
    while low < high:
        middle = (low + high) >> 1
        if far_host[middle] < host:
            low = middle + 1
        else:
            high = middle
    return low


@njit(
    types.void(
        *_OFFSETS,
        read_only(types.int32, 1),
        read_only(types.int64, 1),
        types.int64,
        writable(types.int64, 1),
    ),
    nogil=True,
    cache=True,
)
def _seen(
    first: Int64Array,
    fabric: Int64Array,
    inner: Int64Array,
    far_host: Int32Array,
    view: Int64Array,
    vertex: int,
    parts: Int64Array,
) -> None:
    """The places of a vertex's links that a view lets see: four parts, each from and to."""
    parts[:] = 0
    if view[1]:
        parts[0], parts[1] = first[vertex], fabric[vertex]
    if view[0]:
        parts[2], parts[3] = fabric[vertex], inner[vertex]
    end = first[vertex + 1]
    if inner[vertex] == end:
        return
    for part in range(2):
        host = view[2 + part]
        if host >= 0:
            start = _first_of(far_host, inner[vertex], end, host)
            parts[4 + 2 * part] = start
            parts[5 + 2 * part] = _first_of(far_host, start, end, host + 1)


@njit(
    _PAIR(
        *_ARCS,
        read_only(types.int8, 1),
        read_only(types.int64, 1),
        types.int64,
        types.int64,
        types.int64,
        writable(types.int64, 1),
        writable(types.int32, 1),
    ),
    nogil=True,
    cache=True,
)
def settle(
    first: Int64Array,
    fabric: Int64Array,
    inner: Int64Array,
    far: Int32Array,
    far_host: Int32Array,
    distance: Int64Array,
    is_gpu: Int8Array,
    view: Int64Array,
    source: int,
    target: int,
    longest: int,
    reached: Int64Array,
    settled: Int32Array,
) -> tuple[int, int]:
    """Distances (V,) from `source` over leaving links, final for all that is nearer than `target`.

    Fills `reached`, which holds `FAR` at first, and `settled` (V,) in the order of distance, the
    target last. Returns how many are settled, 0 when the target is not reached, and how many links
    were looked at. Buckets by distance (Dial, 1969), of which there is one more than the `longest`
    link is long.
    """
    buckets = longest + 1
    # Entries of buckets as linked lists; a vertex has as many as it was found nearer.
    entry_vertex = np.empty(len(far) + 1, np.int32)
    entry_next = np.empty(len(far) + 1, np.int32)
    heads = np.full(buckets, -1, np.int32)
    parts = np.empty(8, np.int64)
    entry_vertex[0], entry_next[0] = source, -1
    heads[0] = 0
    entries, waiting, count, looked, now = 1, 1, 0, 0, 0
    reached[source] = 0
    while waiting:
        bucket = now % buckets
        entry = heads[bucket]
        if entry < 0:
            now += 1
            continue
        heads[bucket] = entry_next[entry]
        waiting -= 1
        vertex = entry_vertex[entry]
        if reached[vertex] != now:
            continue  # it was found nearer before
        settled[count] = vertex
        count += 1
        if vertex == target:
            return count, looked
        _seen(first, fabric, inner, far_host, view, vertex, parts)
        for part in range(4):
            looked += parts[2 * part + 1] - parts[2 * part]
            for place in range(parts[2 * part], parts[2 * part + 1]):
                other = far[place]
                if is_gpu[other] and other != target:
                    continue
                further = now + distance[place]
                if further < reached[other]:
                    reached[other] = further
                    slot = further % buckets
                    entry_vertex[entries], entry_next[entries] = other, heads[slot]
                    heads[slot] = entries
                    entries += 1
                    waiting += 1
    return 0, looked


@njit(
    types.int64(
        *_ARCS,
        read_only(types.int64, 1),
        types.int64,
        read_only(types.int64, 1),
        writable(types.int8, 1),
    ),
    nogil=True,
    cache=True,
)
def mark_ways(
    first: Int64Array,
    fabric: Int64Array,
    inner: Int64Array,
    far: Int32Array,
    far_host: Int32Array,
    distance: Int64Array,
    view: Int64Array,
    target: int,
    reached: Int64Array,
    known: Int8Array,
) -> int:
    """Mark what lies on a shortest path, backwards over entering links; how many were looked at."""
    waiting = np.empty(len(reached), np.int32)
    parts = np.empty(8, np.int64)
    waiting[0], count, looked = target, 1, 0
    known[target] = _ON_WAY
    while count:
        count -= 1
        vertex = waiting[count]
        _seen(first, fabric, inner, far_host, view, vertex, parts)
        for part in range(4):
            looked += parts[2 * part + 1] - parts[2 * part]
            for place in range(parts[2 * part], parts[2 * part + 1]):
                other = far[place]
                if (
                    reached[other] != FAR
                    and not known[other]
                    and reached[other] + distance[place] == reached[vertex]
                ):
                    known[other] = _ON_WAY
                    waiting[count] = other
                    count += 1
    return looked


@njit(
    _TRIPLE(
        *_ARCS,
        read_only(types.float64, 1),
        read_only(types.int64, 1),
        types.int64,
        types.int64,
        read_only(types.int32, 1),
        read_only(types.int32, 1),
        types.int64,
        read_only(types.int64, 1),
        read_only(types.int32, 1),
        types.int64,
        writable(types.int8, 1),
        writable(types.int64, 1),
        writable(types.int64, 1),
        writable(types.int64, 1),
        writable(types.int32, 1),
    ),
    nogil=True,
    cache=True,
)
def weigh_ways(
    first: Int64Array,
    fabric: Int64Array,
    inner: Int64Array,
    far: Int32Array,
    far_host: Int32Array,
    distance: Int64Array,
    bandwidth: Float64Array,
    view: Int64Array,
    source: int,
    target: int,
    host: Int32Array,
    nic_rail: Int32Array,
    most_counted: int,
    reached: Int64Array,
    settled: Int32Array,
    settled_count: int,
    known: Int8Array,
    start: Int64Array,
    best: Int64Array,
    end: Int64Array,
    onward: Int32Array,
) -> tuple[int, int, int]:
    """Of the shortest paths that `settle` found and `mark_ways` marked the widest.

    `nic_rail` (V,) is the rail of each NIC, `view[4:6]` that of each end. Fills for each vertex on
    such a path where its ways on stand in `onward`: from `start` to `end` all, from `start` to
    `best` those on which the fewest NICs of a foreign rail lie ahead. Returns how many paths there
    are beside one, up to `most_counted`, how many ways on, and how many links were looked at.
    """
    parts = np.empty(8, np.int64)
    vertices = len(reached)
    # The widest bottleneck from each vertex to the target.
    width = np.empty(vertices, np.float64)
    width[target] = np.inf
    looked = 0
    for back in range(settled_count - 2, -1, -1):
        vertex = settled[back]
        if not known[vertex]:
            continue
        widest = 0.0
        _seen(first, fabric, inner, far_host, view, vertex, parts)
        for part in range(4):
            looked += parts[2 * part + 1] - parts[2 * part]
            for place in range(parts[2 * part], parts[2 * part + 1]):
                other = far[place]
                if known[other] and reached[vertex] + distance[place] == reached[other]:
                    widest = max(widest, min(bandwidth[place], width[other]))
        width[vertex] = widest
    least_width = width[source]
    paths = np.empty(vertices, np.int64)
    foreign = np.empty(vertices, np.int64)
    known[target], foreign[target], paths[target], laid = _WIDE, 0, 1, 0
    for back in range(settled_count - 2, -1, -1):
        vertex = settled[back]
        if not known[vertex] or width[vertex] < least_width:
            continue
        known[vertex] = _WIDE
        start[vertex] = laid
        least, counted = FAR, 0
        _seen(first, fabric, inner, far_host, view, vertex, parts)
        for part in range(4):
            for place in range(parts[2 * part], parts[2 * part + 1]):
                other = far[place]
                if (
                    known[other] == _WIDE
                    and bandwidth[place] >= least_width
                    and reached[vertex] + distance[place] == reached[other]
                ):
                    onward[laid] = other
                    laid += 1
                    counted += paths[other]
                    least = min(least, foreign[other])
        split = start[vertex]
        for place in range(split, laid):
            other = onward[place]
            if foreign[other] == least:
                onward[split], onward[place] = other, onward[split]
                split += 1
        best[vertex], end[vertex] = split, laid
        paths[vertex] = min(counted, most_counted + 1)
        own = 0
        if nic_rail[vertex] != NO_RAIL:
            for number in range(2):
                near = target if number else source
                rail = view[4 + number]
                if host[near] == host[vertex] and rail != NO_RAIL and rail != nic_rail[vertex]:
                    own += 1
        foreign[vertex] = least + own
    return paths[source] - 1, laid, looked
