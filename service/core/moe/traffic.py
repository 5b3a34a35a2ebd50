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

    @property
    def sent(self) -> Int64Array:
        """(R,) copies that leave each rank."""
        leaving: Int64Array = self.between.sum(axis=1) - self.between.diagonal()
        return leaving

    @property
    def received(self) -> Int64Array:
        """(R,) copies that come to each rank from others."""
        coming: Int64Array = self.between.sum(axis=0) - self.between.diagonal()
        return coming

    @property
    def staying(self) -> Int64Array:
        """(R,) copies that stay on their rank."""
        return self.between.diagonal()

    @property
    def back(self) -> "Copies":
        """The same copies on their way back: the stage of a combine."""
        return Copies(np.ascontiguousarray(self.between.T))


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """The dispatch of one layer and microbatch in one expert group.

    `stages` follow one another: one, or with relays two (between hosts, then inside them), and with
    experts split over tensor-parallel ranks a last one, which gathers what these received. Where
    copies are spared and it is not known which, `stages` are what is expected, and `fewest` and
    `most` bound each of their entries; else these are None and `stages` are counted.
    `logical` (R,) are the copies of each source as if none were spared: one for each expert that a
    token is served by, its own rank's included, padding too.
    """

    stages: tuple[Copies, ...]
    fewest: tuple[Copies, ...] | None
    most: tuple[Copies, ...] | None
    logical: Int64Array

    @property
    def is_counted(self) -> bool:
        """Whether `stages` follow from the routing, and are not only expected of it."""
        return self.fewest is None

    @property
    def combine(self) -> tuple[Copies, ...]:
        """The stages of the combine: those of the dispatch from last to first, the other way.

        Partial sums are added up where the dispatch made copies, so the way back takes as many.
        """
        return tuple(stage.back for stage in reversed(self.stages))

    @property
    def sent(self) -> Int64Array:
        """(R,) copies that leave each rank, over all stages."""
        leaving: Int64Array = np.sum([stage.sent for stage in self.stages], axis=0)
        return leaving

    @property
    def received(self) -> Int64Array:
        """(R,) copies that come to each rank from others, over all stages."""
        coming: Int64Array = np.sum([stage.received for stage in self.stages], axis=0)
        return coming

    @property
    def staying(self) -> Int64Array:
        """(R,) copies that stay on their rank, over all stages."""
        kept: Int64Array = np.sum([stage.staying for stage in self.stages], axis=0)
        return kept
