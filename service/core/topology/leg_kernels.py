"""The compiled loop that lays out the ways between two anchors of a pinned path."""

import numpy as np
import numpy.typing as npt
from numba import njit, types

from service.core.signatures import read_only, writable

__all__ = ["lay_leg"]

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]

_TRIPLE = types.UniTuple(types.int64, 3)  # type: ignore[no-untyped-call]


@njit(
    _TRIPLE(
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.int32, 1),
        read_only(types.int64, 1),
        read_only(types.int32, 1),
        types.int64,
        types.int64,
        writable(types.int32, 1),
        writable(types.int32, 1),
        writable(types.int64, 1),
        writable(types.int32, 1),
    ),
    nogil=True,
    cache=True,
)
def lay_leg(
    start: Int64Array,
    best: Int64Array,
    onward: Int32Array,
    reached: Int64Array,
    host: Int32Array,
    near: int,
    target: int,
    number: Int32Array,
    choices: Int32Array,
    offsets: Int64Array,
    entries: Int32Array,
) -> tuple[int, int, int]:
    """All that is best between `near` and the next anchor: a vertex in a host, or `target`.

    The anchor is a target that is a switch (a switch has no place in the order of names, so a path
    that ends there is first), else the one of least number. Fills `choices` with the equally good
    next vertices of `near` and of each switch that leads to the anchor, in order and the anchor
    last: those of entry i stand from `offsets[i]` to `offsets[i + 1]`, and `entries` says which
    entry each choice is itself, -1 for the anchor. `number` (V,) holds -1, before and after.
    Returns the anchor, and how many entries and choices there are.
    """
    found = np.empty(len(reached), np.int32)
    found[0], count, done, anchor = near, 1, 0, -1
    number[near] = 0
    while done < count:
        vertex = found[done]
        done += 1
        for place in range(start[vertex], best[vertex]):
            other = onward[place]
            if host[other] < 0 and other != target:
                if number[other] < 0:
                    number[other] = count
                    found[count] = other
                    count += 1
            elif host[other] < 0 or anchor < 0 or (host[anchor] >= 0 and other < anchor):
                anchor = other
    # Whether each leads to the anchor is known once it is known of all that are farther.
    order = np.argsort(reached[found[:count]])
    leads = np.zeros(count, np.int8)
    for back in range(count - 1, -1, -1):
        one = order[back]
        vertex = found[one]
        for place in range(start[vertex], best[vertex]):
            other = onward[place]
            if other == anchor or (number[other] >= 0 and leads[number[other]]):
                leads[one] = 1
    laid, kept = 0, 0
    entry_of = np.full(count, -1, np.int32)
    for forth in range(count):
        one = order[forth]
        if leads[one]:
            entry_of[one] = kept
            kept += 1
    kept = 0
    for forth in range(count):
        if not leads[order[forth]]:
            continue
        vertex = found[order[forth]]
        offsets[kept] = laid
        kept += 1
        for place in range(start[vertex], best[vertex]):
            other = onward[place]
            if other != anchor and (number[other] < 0 or not leads[number[other]]):
                continue
            slot = laid
            while (
                slot > offsets[kept - 1]
                and other != anchor
                and (choices[slot - 1] == anchor or choices[slot - 1] > other)
            ):
                choices[slot] = choices[slot - 1]
                slot -= 1
            choices[slot] = other
            laid += 1
    offsets[kept] = laid
    for place in range(laid):
        other = choices[place]
        entries[place] = -1 if other == anchor else entry_of[number[other]]
    for one in range(count):
        number[found[one]] = -1
    return anchor, kept, laid
