"""Which choice of a token is the how-manieth that its source makes for an expert."""

import numpy as np
import numpy.typing as npt

from service.core.moe.assignments import Assignments

__all__ = ["choice_places"]

BoolArray = npt.NDArray[np.bool_]
Int64Array = npt.NDArray[np.int64]


def choice_places(
    assignments: Assignments, counted: BoolArray | None = None
) -> tuple[Int64Array, Int64Array]:
    """For each choice its place among those of its source for its expert, and that pair's number.

    Both (tokens, top_k), of tokens in their order; the pair of source r and expert e is r x E + e.
    Only choices that are `counted` (tokens, top_k) have a place, the others -1.

    Raises ValueError where no tokens are known.
    """
    if assignments.choices is None:
        raise ValueError("a routing of counts knows no tokens")
    source = np.repeat(np.arange(assignments.sources), assignments.tokens)
    pairs = source[:, None] * assignments.experts + assignments.choices.astype(np.int64)
    places = np.full(pairs.size, -1, dtype=np.int64)
    which = np.arange(pairs.size) if counted is None else np.flatnonzero(counted)
    listed = pairs.reshape(-1)[which]
    order = np.argsort(listed, kind="stable")
    ordered = listed[order]
    begins = np.concatenate(([True], ordered[1:] != ordered[:-1]))[: len(ordered)]
    first = np.maximum.accumulate(np.where(begins, np.arange(len(ordered)), 0))
    places[which[order]] = np.arange(len(ordered)) - first
    return places.reshape(pairs.shape), pairs
