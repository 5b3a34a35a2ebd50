"""Array types in the signatures of compiled loops."""

from numba import types

__all__ = ["read_only", "writable"]


def read_only(dtype: types.Type, dimensions: int) -> types.Array:
    """A C-contiguous array that is not written; arrays that could be are accepted too."""
    return types.Array(dtype, dimensions, "C", readonly=True)


def writable(dtype: types.Type, dimensions: int) -> types.Array:
    """A C-contiguous array that is written."""
    return types.Array(dtype, dimensions, "C")
