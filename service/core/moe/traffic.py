"""Who sends how many copies of tokens to whom, in which stages."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Copies", "Traffic"]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Copies:
    """One stage of an exchange: (R, R) int64 copies from each rank of a group to each.

    On the diagonal are those that stay where they are: no traffic, but copied all the same.
    """

    between: Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """The dispatch of one layer and microbatch in one expert group; the combine is its transpose.

    `stages` follow one another: one, or with relays two. Where only counts are known and copies are
    spared, `stages` are what is expected, and `fewest` and `most` bound them; else these are None.
    `logical` counts copies as if none were spared and none stayed at home.
    """

    stages: tuple[Copies, ...]
    fewest: tuple[Copies, ...] | None
    most: tuple[Copies, ...] | None
    logical: int
