"""How unevenly rows are spread over experts, ranks or hosts, and what waiting for that costs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, overload

import numpy as np
import numpy.typing as npt

__all__ = ["Imbalance", "Tails", "imbalance", "nearest_rank", "rows_by_node", "tails"]

Int64Array = npt.NDArray[np.int64]
Number = TypeVar("Number", np.int64, np.float64)
Figure = TypeVar("Figure", int, float)


@dataclass(frozen=True, slots=True)
class Imbalance:
    """Of n experts, ranks or hosts: which is the busiest (the first of equals), and the mean.

    Rows are whole where they were counted; a replicated expert's load divided evenly is not.
    """

    busiest: int
    most_rows: float
    mean_rows: float

    @property
    def max_over_mean(self) -> float | None:
        """At least 1; of no rows at all None."""
        return self.most_rows / self.mean_rows if self.mean_rows else None

    @property
    def straggler_loss_fraction(self) -> float:
        """1 - mean/max: the share of all ranks' time that waits for the busiest; 0 of no rows."""
        return 1 - self.mean_rows / self.most_rows if self.most_rows else 0.0


@dataclass(frozen=True, slots=True)
class Tails(Generic[Figure]):
    """Percentiles of rows by nearest rank, so that each is a number of rows that occurred."""

    p50: Figure
    p90: Figure
    p99: Figure
    most: Figure


def imbalance(rows: npt.NDArray[Number]) -> Imbalance:
    """Of (n,) rows, n > 0."""
    busiest = int(np.argmax(rows))
    return Imbalance(busiest, float(rows[busiest]), float(rows.sum() / len(rows)))


def rows_by_node(rows: npt.NDArray[Number], node_of_rank: npt.ArrayLike) -> npt.NDArray[Number]:
    """(hosts,) sums of (ranks,) rows; hosts are numbered from 0."""
    numbers = np.asarray(node_of_rank, dtype=np.int64)
    found = np.zeros(int(numbers.max(initial=-1)) + 1, dtype=rows.dtype)
    np.add.at(found, numbers, rows)
    return found


@overload
def tails(rows: npt.NDArray[np.int64] | Sequence[int]) -> Tails[int]: ...


@overload
def tails(rows: npt.NDArray[np.float64]) -> Tails[float]: ...


def tails(
    rows: npt.NDArray[np.float64] | npt.NDArray[np.int64] | Sequence[int],
) -> Tails[float] | Tails[int]:
    """Of rows of any shape, as of all ranks in all layers and steps; there is at least one."""
    ordered = np.sort(np.asarray(rows), axis=None).tolist()
    p50, p90, p99, most = (nearest_rank(ordered, share) for share in (0.5, 0.9, 0.99, 1.0))
    return Tails(p50, p90, p99, most)


def nearest_rank(ordered: Sequence[Figure], share: float) -> Figure:
    """The least of ascending numbers that at least this share of them does not exceed."""
    # Products such as 0.07 x 100 are a bit above the whole number that they mean.
    place = int(np.ceil(round(share * len(ordered), 9))) - 1
    return ordered[max(0, place)]
