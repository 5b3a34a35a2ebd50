"""Records of dummy tokens, with which serving engines warm up before the real ones come."""

import numpy as np
import numpy.typing as npt

__all__ = ["WARM_UP_REPEATS", "equal_weights", "repeated_rows"]

BoolArray = npt.NDArray[np.bool_]

# A record that stands more often than this in a row is no choice of real tokens.
WARM_UP_REPEATS = 64


def repeated_rows(rows: npt.NDArray[np.int64]) -> BoolArray:
    """(tokens,) which of (tokens, top_k) records are in a run of equal ones longer than that."""
    if not len(rows):
        return np.zeros(0, dtype=np.bool_)
    starts = np.flatnonzero(np.concatenate(([True], (rows[1:] != rows[:-1]).any(axis=1))))
    lengths = np.diff(np.append(starts, len(rows)))
    return np.repeat(lengths > WARM_UP_REPEATS, lengths)


def equal_weights(weights: npt.NDArray[np.float64]) -> BoolArray:
    """(tokens,) which of (tokens, top_k) router weights are all equal, as a router of zeros gives.

    None are where a token has one expert only.
    """
    if weights.shape[1] < 2:
        return np.zeros(len(weights), dtype=np.bool_)
    equal: BoolArray = (weights == weights[:, :1]).all(axis=1)
    return equal
