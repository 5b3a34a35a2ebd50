"""The compiled loops over dense matrices of bytes between devices, and over their pinned paths."""

import numpy as np
import numpy.typing as npt
from numba import njit, types

from service.core.signatures import at, read_only, writable

__all__ = ["add_crossings", "add_loads", "lay_rows"]

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]

_INTS = read_only(types.int32, 1)
_LONGS = read_only(types.int64, 1)


@njit(
    types.int64(
        *(_INTS,) * 4,  # of rows: template, source and target base, whether local
        _LONGS,  # of templates
        *(_INTS,) * 2,
        *(_LONGS,) * 2,  # of legs
        *(_INTS,) * 3,
        *(_INTS,) * 2,  # of vertices
        types.int64,
        _LONGS,  # of links
        *(_INTS,) * 2,
        _LONGS,
        writable(types.int64, 1),
        writable(types.int32, 1),
    ),
    nogil=True,
    cache=True,
)
def lay_rows(
    template: Int32Array,
    source_base: Int32Array,
    target_base: Int32Array,
    is_local: Int32Array,
    first_leg: Int64Array,
    start: Int32Array,
    leg_end: Int32Array,
    first_choice: Int64Array,
    first_offset: Int64Array,
    choices: Int32Array,
    offsets: Int32Array,
    entries: Int32Array,
    members: Int32Array,
    destination: Int32Array,
    vertices: int,
    link_key: Int64Array,
    link_number: Int32Array,
    local_place: Int32Array,
    row_first: Int64Array,
    row_length: Int64Array,
    row_links: Int32Array,
) -> int:
    """Walk the path of each row: of one source for all like it, and of one target.

    Vertices of templates are coded: below `vertices` as they are, then members of the source's
    host, then those of the target's, by their place. Where a leg has a choice, the number of the
    device it leads to decides. With an empty `row_links` only `row_length` is filled; else the
    links of row n stand from `row_first[n]`, those of a source's host in a row that is local as
    minus one minus their place there. Returns how many links there are.
    """
    total = 0
    fill = len(row_links) > 0
    for row in range(len(template)):
        one = template[row]
        length = 0
        code = start[one]
        vertex = code if code < vertices else members[source_base[row] + code - vertices]
        for leg in range(first_leg[one], first_leg[one + 1]):
            end = leg_end[leg]
            if end >= 2 * vertices:
                end = members[target_base[row] + end - 2 * vertices]
            elif end >= vertices:
                end = members[source_base[row] + end - vertices]
            number = destination[end]
            entry = 0
            while entry >= 0:
                low = offsets[first_offset[leg] + entry]
                width = offsets[first_offset[leg] + entry + 1] - low
                place = first_choice[leg] + low + number % width
                number //= width
                onward = choices[place]
                entry = entries[place]
                if onward >= 2 * vertices:
                    other = members[target_base[row] + onward - 2 * vertices]
                elif onward >= vertices:
                    other = members[source_base[row] + onward - vertices]
                else:
                    other = onward
                if fill:
                    key = np.int64(vertex) * vertices + other
                    link = link_number[np.searchsorted(link_key, key)]
                    of_source = vertices <= code < 2 * vertices or vertices <= onward < 2 * vertices
                    if is_local[row] and of_source:
                        link = -1 - local_place[link]
                    row_links[row_first[row] + length] = link
                length += 1
                vertex, code = other, onward
        row_length[row] = length
        total += length
    return total


@njit(
    types.int64(
        read_only(types.int64, 2),
        types.int64,
        *(_INTS,) * 2,
        read_only(types.int32, 3),
        _LONGS,
        _INTS,
        read_only(types.int32, 2),
        _INTS,
        _LONGS,
        writable(types.int64, 1),
        *(writable(types.int64, 1),) * 2,
    ),
    nogil=True,
    cache=True,
)
def add_loads(
    amounts: Int64Array,
    first: int,
    kind: Int32Array,
    host: Int32Array,
    row_of: npt.NDArray[np.int32],
    row_first: Int64Array,
    row_links: Int32Array,
    local: npt.NDArray[np.int32],
    home: Int32Array,
    wait: Int64Array,
    loads: Int64Array,
    sending: Int64Array,
    getting: Int64Array,
) -> int:
    """Add what a matrix of bytes puts on each link of the pinned paths to `loads` (E,).

    Device i of the matrix is device `first` + i of all. `wait` (E,) is the latency of each link, or
    empty; `sending` and `getting` (D,) get the sum of the latencies of the paths to and from each
    device's peers. What a device sends itself goes nowhere. Returns how many pairs send something
    and have no path.
    """
    lost = 0
    count = amounts.shape[0]
    waits = len(wait) > 0
    for i in range(count):
        source = first + i
        own, mine, order_host = kind[source], home[source], host[source]
        for j in range(count):
            amount = amounts[i, j]
            if amount == 0 or i == j:
                continue
            target = first + j
            order = 1
            if order_host < host[target]:
                order = 0
            elif order_host > host[target]:
                order = 2
            row = row_of[own, order, target]
            if row < 0:
                lost += 1
                continue
            latency = 0
            for place in range(row_first[row], row_first[row + 1]):
                link = row_links[place]
                if link < 0:
                    link = local[mine, -1 - link]
                loads[at(link)] += amount
                if waits:
                    latency += wait[at(link)]
            sending[source] += latency
            getting[target] += latency
    return lost


@njit(
    types.void(
        read_only(types.int64, 2),
        _INTS,
        writable(types.int64, 1),
        writable(types.int64, 1),
    ),
    nogil=True,
    cache=True,
)
def add_crossings(
    amounts: Int64Array, label: Int32Array, out: Int64Array, into: Int64Array
) -> None:
    """Add what a matrix of bytes (D, D) carries out of each set and into it.

    `label` (D,) is the set of each device, -1 for none.
    """
    count = amounts.shape[0]
    for i in range(count):
        one = label[i]
        left = 0
        for j in range(count):
            other = label[j]
            if other != one:
                amount = amounts[i, j]
                left += amount
                if other >= 0:
                    into[at(other)] += amount
        if one >= 0:
            out[at(one)] += left
