"""Whole numbers shared out in proportion, so that they still add up."""

import numpy as np
import numpy.typing as npt

__all__ = ["shares"]

Int64Array = npt.NDArray[np.int64]


def shares(totals: npt.ArrayLike, weights: npt.ArrayLike) -> Int64Array:
    """Of each total in (N,) a share for each of (N, M) whole weights, by largest remainder: (N, M).

    Row n sums to `totals[n]`; of equal remainders the first goes first. Where all weights of a row
    are 0 they count as equal. A share exceeds its weight only where the total exceeds their sum.
    """
    whole = np.asarray(totals, dtype=np.int64)[:, None]
    parts = np.asarray(weights, dtype=np.int64)
    parts = np.where(parts.sum(axis=1, keepdims=True) > 0, parts, 1)
    sums = parts.sum(axis=1, keepdims=True)
    wide = parts.size and int(whole.max()) * int(parts.max()) > np.iinfo(np.int64).max
    products = (parts.astype(object) if wide else parts) * whole
    found: Int64Array = (products // sums).astype(np.int64)
    remainders = (products % sums).astype(np.int64)
    left = whole - found.sum(axis=1, keepdims=True)
    order = np.argsort(-remainders, axis=1, kind="stable")
    np.put_along_axis(
        found,
        order,
        np.take_along_axis(found, order, axis=1) + (np.arange(parts.shape[1]) < left),
        axis=1,
    )
    return found
