"""Where tokens beyond a capacity land when they go to experts that have room left.

Counts say how many go (no more than there is room for) but not where to: so two orders, each of
which fills experts evenly from the emptiest on.
"""

import numpy as np
import numpy.typing as npt

from service.core.moe.remainders import shares

__all__ = ["reroute"]

BoolArray = npt.NDArray[np.bool_]
Int64Array = npt.NDArray[np.int64]


def reroute(
    kept: Int64Array,
    beyond: Int64Array,
    rows: Int64Array,
    tokens: Int64Array,
    near: BoolArray | None,
) -> Int64Array:
    """(R, E) rerouted assignments where they land; those for which there is no room are in none.

    `kept` (R, E) are within the capacity, `beyond` (R,) are not. `rows` are those of an expert, for
    each source (R, 1) or for all together (1,). No source gives an expert more than its `tokens`.
    With `near` (R, E) each source goes to experts of its own host first.
    """
    if rows.ndim == 2:
        return _by_source(kept, beyond, np.minimum(rows, tokens[:, None]), near)
    return _together(kept, beyond, rows, tokens, near)


def _by_source(
    kept: Int64Array, beyond: Int64Array, most: Int64Array, near: BoolArray | None
) -> Int64Array:
    landed = np.zeros_like(kept)
    for allowed in (near, None) if near is not None else (None,):
        left = beyond - landed.sum(axis=1)
        room = np.maximum(0, most - kept - landed)
        landed += _fill(kept + landed, room if allowed is None else room * allowed, left)
    return landed


def _together(
    kept: Int64Array,
    beyond: Int64Array,
    rows: Int64Array,
    tokens: Int64Array,
    near: BoolArray | None,
) -> Int64Array:
    """Sources with the same experts near are as one; first each of these, then all as one."""
    everyone = np.arange(len(beyond))
    rounds = [(everyone, np.ones(kept.shape[1], dtype=bool))]
    if near is not None:
        kinds, kind_of = np.unique(near, axis=0, return_inverse=True)
        groups = [(np.flatnonzero(kind_of == kind), kinds[kind]) for kind in range(len(kinds))]
        rounds = sorted(groups, key=lambda group: int(group[0][0])) + rounds
    landed, loads = np.zeros_like(kept), kept.sum(axis=0)
    left = beyond.copy()
    for sources, allowed in rounds:
        going = left[sources]
        if not going.any():
            continue
        room = np.maximum(0, rows - loads) * allowed
        wanted = _fill(loads[None], room[None], going.sum(keepdims=True))[0]
        for expert in np.flatnonzero(wanted):
            free = tokens[sources] - kept[sources, expert] - landed[sources, expert]
            takers = np.minimum(left[sources], free)
            given = shares([min(int(wanted[expert]), int(takers.sum()))], takers[None])[0]
            landed[sources, expert] += given
            left[sources] -= given
            loads[expert] += given.sum()
    return landed


def _fill(loads: Int64Array, room: Int64Array, going: Int64Array) -> Int64Array:
    """(N, E) of `going` (N,) what each expert takes where the emptiest take first, up to `room`.

    All below a level are filled up to it; the level is found by halving, and what then remains goes
    to the first experts at the level that have room.
    """
    going = np.minimum(going, room.sum(axis=1))
    filled: Int64Array
    low = np.zeros_like(going)
    high = (loads + room).max(axis=1, initial=0)
    while (low < high).any():
        middle = (low + high + 1) // 2
        fits = np.clip(middle[:, None] - loads, 0, room).sum(axis=1) <= going
        low, high = np.where(fits, middle, low), np.where(fits, high, middle - 1)
    filled = np.clip(low[:, None] - loads, 0, room)
    left = going - filled.sum(axis=1)
    at_level = (filled < room) & (loads + filled <= low[:, None])
    filled += at_level & (np.cumsum(at_level, axis=1) <= left[:, None])
    return filled
