"""Array types in the signatures of compiled loops."""

import numpy as np
from numba import types

__all__ = ["at", "read_only", "writable"]

# An index that is known not to be negative: the loop then does not look whether it counts from the
# end, which a loop of a few instructions feels.
at = np.uint64


def read_only(dtype: types.Type, dimensions: int) -> types.Array:
    """A C-contiguous array that is not written; arrays that could be are accepted too."""
    return types.Array(dtype, dimensions, "C", readonly=True)


def writable(dtype: types.Type, dimensions: int) -> types.Array:
    """A C-contiguous array that is written."""
    return types.Array(dtype, dimensions, "C")
