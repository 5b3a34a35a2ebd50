"""The loops over tokens and over independent choices, compiled."""

import numpy as np
import numpy.typing as npt
from numba import njit, types

from service.core.signatures import read_only, writable

__all__ = ["count_copies", "fit_odds", "missing_probabilities", "pass_on"]

FloatArray = npt.NDArray[np.float64]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]

# Odds are taken as found when each probability comes out this near to what it has to be.
_NEAR = 1e-10
_ROUNDS = 200


@njit(
    types.void(
        read_only(types.int64, 1),
        read_only(types.int32, 2),
        read_only(types.int32, 1),
        types.int64,
        read_only(types.int64, 1),
        read_only(types.int64, 2),
        types.boolean,
        writable(types.int64, 2),
        writable(types.int64, 2),
    ),
    nogil=True,
    cache=True,
)
def count_copies(
    offsets: Int64Array,
    choices: Int32Array,
    slot_rank: Int32Array,
    expert_tensor: int,
    nodes: Int64Array,
    relays: Int64Array,
    by_node: bool,
    first: Int64Array,
    last: Int64Array,
) -> None:
    """Adds to `first` (R, R) copies between hosts, to `last` (R, R) those to where they are used.

    `choices` (tokens, k) has slots, those of source r in `offsets[r]:offsets[r + 1]`, -1 for none.
    Unless `by_node`, all go straight, and `first` stays as it is.
    """
    sources = offsets.shape[0] - 1
    seen_rank = np.full(nodes.shape[0], -1, np.int64)
    seen_node = np.full(relays.shape[1], -1, np.int64)
    for source in range(sources):
        coordinate = source % expert_tensor
        home = nodes[source]
        for token in range(offsets[source], offsets[source + 1]):
            for choice in range(choices.shape[1]):
                slot = choices[token, choice]
                if slot < 0:
                    continue
                rank = slot_rank[slot] * expert_tensor + coordinate
                if seen_rank[rank] == token:
                    continue
                seen_rank[rank] = token
                node = nodes[rank]
                if not by_node or node == home:
                    last[source, rank] += 1
                    continue
                relay = relays[source, node]
                if seen_node[node] != token:
                    seen_node[node] = token
                    first[source, relay] += 1
                last[relay, rank] += 1


@njit(
    types.void(
        read_only(types.int64, 2),
        read_only(types.int64, 2),
        read_only(types.int64, 1),
        read_only(types.int64, 2),
        writable(types.int64, 2),
        writable(types.int64, 2),
    ),
    nogil=True,
    cache=True,
)
def pass_on(
    to_rank: Int64Array,
    to_node: Int64Array,
    nodes: Int64Array,
    relays: Int64Array,
    first: Int64Array,
    last: Int64Array,
) -> None:
    """Adds to `first` (R, R) what goes to hosts `to_node` (R, N), to `last` (R, R) what goes on.

    `to_rank` (R, R) is what each source has for each rank; a host's relay passes it on.
    """
    for source in range(to_rank.shape[0]):
        for node in range(to_node.shape[1]):
            if node != nodes[source]:
                first[source, relays[source, node]] += to_node[source, node]
        for rank in range(to_rank.shape[1]):
            copies = to_rank[source, rank]
            if copies:
                last[relays[source, nodes[rank]], rank] += copies


@njit(
    types.void(read_only(types.float64, 2), types.int64, writable(types.float64, 2)),
    nogil=True,
    cache=True,
)
def fit_odds(shares: FloatArray, top_k: int, odds: FloatArray) -> None:
    """Fills `odds` (R, n) so that choices of `top_k` of n things have the probabilities `shares`.

    A choice has the product of its things' odds as weight. Row r of `shares` (R, n) sums to
    `top_k`; things that are always chosen get infinite odds, those that never are none.
    """
    things = shares.shape[1]
    before = np.empty((things + 1, top_k + 1))
    after = np.empty((things + 1, top_k + 1))
    free = np.empty(things, np.int64)
    for row in range(shares.shape[0]):
        left, count = top_k, 0
        for thing in range(things):
            share = shares[row, thing]
            if share >= 1.0 - 1e-12:
                odds[row, thing] = np.inf
                left -= 1
            elif share <= 0.0:
                odds[row, thing] = 0.0
            else:
                free[count] = thing
                count += 1
                # Sources are mostly alike: the odds of the one before are near.
                known = odds[row - 1, thing] if row else 0.0
                odds[row, thing] = known if 0.0 < known < np.inf else share / (1.0 - share)
        if left <= 0 or count <= left:
            # No choice is left open: those that are not certain are so but for rounding.
            for place in range(count):
                odds[row, free[place]] = np.inf if left > 0 else 0.0
            continue
        for _ in range(_ROUNDS):
            total = 0.0
            for place in range(count):
                total += odds[row, free[place]]
            before[0, :] = 0.0
            before[0, 0] = 1.0
            for place in range(count):
                odds[row, free[place]] *= left / total
                weight = odds[row, free[place]]
                before[place + 1, 0] = 1.0
                for size in range(1, left + 1):
                    before[place + 1, size] = before[place, size] + weight * before[place, size - 1]
            after[count, :] = 0.0
            after[count, 0] = 1.0
            for place in range(count - 1, -1, -1):
                weight = odds[row, free[place]]
                after[place, 0] = 1.0
                for size in range(1, left + 1):
                    after[place, size] = (
                        after[place + 1, size] + weight * after[place + 1, size - 1]
                    )
            whole = before[count, left]
            off = 0.0
            for place in range(count):
                without, short = 0.0, 0.0
                for size in range(left + 1):
                    without += before[place, size] * after[place + 1, left - size]
                    if size < left:
                        short += before[place, size] * after[place + 1, left - 1 - size]
                share = shares[row, free[place]]
                off = max(off, abs(odds[row, free[place]] * short / whole - share))
                odds[row, free[place]] = share / (1.0 - share) * without / short
            if off < _NEAR:
                break


@njit(types.void(writable(types.float64, 1), types.float64, types.int64), nogil=True, cache=True)
def _multiply(series: FloatArray, weight: float, degree: int) -> None:
    """Times (1 + weight z), in place, up to `degree`."""
    for size in range(degree, 0, -1):
        series[size] += weight * series[size - 1]


@njit(
    types.void(writable(types.float64, 1), writable(types.float64, 1), writable(types.float64, 1)),
    nogil=True,
    cache=True,
)
def _product(one: FloatArray, other: FloatArray, into: FloatArray) -> None:
    """The product of two series, as far as `into` goes."""
    for size in range(into.shape[0]):
        total = 0.0
        for part in range(size + 1):
            total += one[part] * other[size - part]
        into[size] = total


@njit(
    types.void(
        read_only(types.float64, 2),
        types.int64,
        read_only(types.int64, 1),
        read_only(types.int64, 1),
        read_only(types.float64, 2),
        writable(types.float64, 2),
    ),
    nogil=True,
    cache=True,
)
def missing_probabilities(
    odds: FloatArray,
    top_k: int,
    cell_thing: Int64Array,
    cell_set: Int64Array,
    parts: FloatArray,
    missing: FloatArray,
) -> None:
    """Fills `missing` (R, S) with how likely a choice of `top_k` things has none in each set.

    `odds` (R, n) are those of `fit_odds`. A cell is what a set has of a thing: `parts` (R, cells)
    of the times that it is chosen. Cells are in the order of their sets.
    """
    sets = missing.shape[1]
    things = odds.shape[1]
    before = np.empty((sets + 1, top_k + 1))
    after = np.empty((sets + 1, top_k + 1))
    own = np.empty((sets, top_k + 1))
    outside = np.empty(top_k + 1)
    rest = np.empty(top_k + 1)
    begins = np.searchsorted(cell_set, np.arange(sets + 1))
    touched = np.empty(things, np.int64)  # how many sets have any of a thing
    kept = np.empty(things)  # of a thing in many sets, what is left outside the present one
    many = np.empty(things, np.int64)
    for row in range(odds.shape[0]):
        touched[:] = 0
        for cell in range(cell_thing.shape[0]):
            if parts[row, cell] > 0.0:
                touched[cell_thing[cell]] += 1
        left, several = top_k, 0
        rest[:] = 0.0
        rest[0] = 1.0
        for thing in range(things):
            weight = odds[row, thing]
            if np.isinf(weight):
                left -= 1
            elif touched[thing] > 1:
                many[several] = thing
                several += 1
            elif touched[thing] == 0 and weight > 0.0:
                _multiply(rest, weight, top_k)
        own[:] = 0.0
        for number in range(sets):
            own[number, 0] = 1.0
            for cell in range(begins[number], begins[number + 1]):
                thing = cell_thing[cell]
                weight = odds[row, thing]
                if parts[row, cell] > 0.0 and touched[thing] == 1 and not np.isinf(weight):
                    _multiply(own[number], weight, top_k)
        before[0] = rest
        after[sets] = 0.0
        after[sets, 0] = 1.0
        for number in range(sets):
            _product(before[number], own[number], before[number + 1])
        for number in range(sets - 1, -1, -1):
            _product(after[number + 1], own[number], after[number])
        rest[:] = before[sets]
        for place in range(several):
            kept[many[place]] = 1.0
            _multiply(rest, odds[row, many[place]], top_k)
        whole = rest[max(left, 0)]
        for number in range(sets):
            certain = 1.0
            for cell in range(begins[number], begins[number + 1]):
                thing = cell_thing[cell]
                if np.isinf(odds[row, thing]):
                    certain *= 1.0 - parts[row, cell]
                elif touched[thing] > 1:
                    kept[thing] = 1.0 - parts[row, cell]
            _product(before[number], after[number + 1], outside)
            for place in range(several):
                thing = many[place]
                _multiply(outside, odds[row, thing] * kept[thing], top_k)
                kept[thing] = 1.0
            missing[row, number] = certain * outside[max(left, 0)] / whole
