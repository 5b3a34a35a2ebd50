"""The compiled loops over the choices of tokens, each source's in their order."""

import numpy as np
import numpy.typing as npt
from numba import njit, types

from service.core.signatures import at, read_only, writable

__all__ = ["keep_first", "serve_in_turn"]

BoolArray = npt.NDArray[np.bool_]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]

_CHOICES = (read_only(types.int64, 1), read_only(types.int32, 2))


@njit(
    types.void(*_CHOICES, read_only(types.int64, 2), writable(types.boolean, 2)),
    nogil=True,
    cache=True,
)
def keep_first(
    offsets: Int64Array, choices: Int32Array, kept: Int64Array, keeps: BoolArray
) -> None:
    """Mark in `keeps` (tokens, top_k) the first `kept` (R, E) choices of each source and expert.

    The tokens of source r stand in `offsets[r]:offsets[r + 1]`.
    """
    taken = np.zeros(kept.shape[1], np.int64)
    for source in range(len(offsets) - 1):
        taken[:] = 0
        for token in range(offsets[source], offsets[source + 1]):
            for choice in range(choices.shape[1]):
                expert = choices[token, choice]
                keeps[token, choice] = taken[at(expert)] < kept[source, at(expert)]
                taken[at(expert)] += 1


@njit(
    types.void(
        *_CHOICES,
        read_only(types.boolean, 2),
        types.int64,
        read_only(types.int64, 1),
        read_only(types.boolean, 2),
        *(read_only(types.int64, 2),) * 2,
        writable(types.int32, 2),
    ),
    nogil=True,
    cache=True,
)
def serve_in_turn(
    offsets: Int64Array,
    choices: Int32Array,
    kept: BoolArray,
    first: int,
    slot_expert: Int64Array,
    may: BoolArray,
    turn: Int64Array,
    number: Int64Array,
    slots: Int32Array,
) -> None:
    """Fill `slots` (tokens, top_k) of the sources from `first` on: of those that are `kept`.

    A source's choices of an expert go in turn to those of its slots that `may` (n, P) serve it,
    `number` (n, E) of them; slot p has the turns that are `turn` (n, P) modulo that.
    """
    experts = number.shape[1]
    taken = np.zeros(experts, np.int64)
    # By expert and turn; an expert has no more turns than slots.
    begin = np.zeros(experts + 1, np.int64)
    for slot in range(len(slot_expert)):
        begin[slot_expert[slot] + 1] += 1
    for expert in range(experts):
        begin[expert + 1] += begin[expert]
    serving = np.empty(len(slot_expert), np.int32)
    for row in range(may.shape[0]):
        for slot in range(len(slot_expert)):
            if may[row, slot]:
                serving[begin[slot_expert[slot]] + turn[row, slot]] = slot
        taken[:] = 0
        for token in range(offsets[first + row], offsets[first + row + 1]):
            for choice in range(choices.shape[1]):
                if kept[token, choice]:
                    expert = choices[token, choice]
                    place = taken[at(expert)] % number[row, at(expert)]
                    slots[token, choice] = serving[begin[at(expert)] + place]
                    taken[at(expert)] += 1
