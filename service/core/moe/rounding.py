"""From shares of tokens to whole assignments that still add up, by row and by column."""

import numpy as np
import numpy.typing as npt

__all__ = ["apportion", "largest_remainder"]

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]

# What a product of a share and a number of tokens may lack of a whole number by rounding alone.
TOLERANCE = 1e-6


def largest_remainder(amounts: FloatArray, total: int) -> Int64Array:
    """Whole numbers for (n,) `amounts` that sum to `total`, which the amounts do but for rounding.

    Each is its amount rounded down or up; those with the largest remainders are rounded up, of
    equal ones the first.
    """
    whole = np.floor(amounts + TOLERANCE).astype(np.int64)
    left = total - int(whole.sum())
    up = np.argsort(-(amounts - whole), kind="stable")[:left]
    whole[up] += 1
    return whole


def apportion(shares: FloatArray, tokens: Int64Array, top_k: int) -> Int64Array:
    """(R, E) int64 assignments of sources whose tokens ask for expert e with probability shares[e].

    `shares` is (E,), the same for each source, or (R, E); each is at most 1 and those of a source
    sum to `top_k`. `tokens` (R,) are those of each source. Row r sums to `top_k` x `tokens[r]` and
    none of it is above `tokens[r]`: an entry is its share rounded down or up. Who is rounded up in
    a row is decided by what the rows before have left owing to each column, so that columns sum to
    their shares rounded by largest remainder, unless only entries off by more would allow it.
    """
    exact = np.minimum(shares, 1.0) * tokens[:, np.newaxis]
    down = np.minimum(np.floor(exact + TOLERANCE).astype(np.int64), tokens[:, np.newaxis])
    remainders = np.maximum(exact - down, 0.0)
    counts: Int64Array = down.copy()
    left = top_k * tokens - down.sum(axis=1)
    owing = np.zeros(counts.shape[1])
    for row in range(len(tokens)):
        owing += remainders[row]
        if left[row] > 0:
            # Whole entries come last, full ones not at all: a row of shares has room enough.
            score = np.where(remainders[row] > TOLERANCE, owing, owing - len(tokens) - 1.0)
            score[counts[row] >= tokens[row]] = -np.inf
            up = np.argsort(-score, kind="stable")[: left[row]]
            counts[row, up] += 1
            owing[up] -= 1.0
    _mend_columns(counts, down, remainders, tokens, exact.sum(axis=0))
    return counts


def _mend_columns(
    counts: Int64Array,
    down: Int64Array,
    remainders: FloatArray,
    tokens: Int64Array,
    columns: FloatArray,
) -> None:
    """Moves units along rows, in place, until columns sum to `columns` as nearly as they can."""
    beyond = counts.sum(axis=0) - largest_remainder(columns, int(counts.sum()))
    # Rows whose shares don't sum to what they should leave one side over.
    while beyond.max(initial=0) > 0 > beyond.min(initial=0):
        above, below = int(np.argmax(beyond)), int(np.argmin(beyond))
        room = (counts[:, above] > 0) & (counts[:, below] < tokens)
        # Best a row where one entry was rounded up and the other could have been instead.
        exchange = (counts[:, above] > down[:, above]) & (counts[:, below] == down[:, below])
        best = room & exchange & (remainders[:, below] > TOLERANCE)
        rows = np.flatnonzero(best if best.any() else room)
        if not len(rows):
            return
        counts[rows[0], above] -= 1
        counts[rows[0], below] += 1
        beyond[above] -= 1
        beyond[below] += 1
