"""How many copies are left where one serves all of a token's experts in a place.

From counts alone that is not known. What it can be at least and at most follows from them, and
what is expected follows from the one model that adds nothing to them: of all distributions of
`top_k` different experts with the given probabilities, the one of most entropy (conditional Poisson
sampling; Chen, Dempster and Liu, Biometrika 81, 1994). Where all experts are asked for alike it
is the hypergeometric one, and `distinct_groups` its closed form.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import comb
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from service.core.moe.copy_kernels import fit_odds, missing_probabilities

__all__ = ["SpareableCopies", "choice_odds", "distinct_groups", "spareable"]

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]
_Array = TypeVar("_Array", FloatArray, Int64Array)

# What an expected number may lack of a whole one by rounding alone.
_NEAR = 1e-6


def distinct_groups(experts: int, top_k: int, groups: int, *, limit: int | None = None) -> Fraction:
    """Groups that the `top_k` experts of a token fall into, expected of an even choice.

    P equal groups of E / P experts: P x (1 - C(E - E/P, k) / C(E, k)). With `limit` a token keeps
    to so many groups, chosen evenly, and to even choice among their experts.

    Raises ValueError where the groups are not equal, or the limit leaves too few experts.
    """
    if groups < 1 or experts % groups:
        raise ValueError(f"{experts} experts are not {groups} equal groups")
    size = experts // groups
    open_groups = groups if limit is None else min(limit, groups)
    within = size * open_groups
    if not 1 <= top_k <= within:
        raise ValueError(f"{top_k} experts of a token among {within}")
    missed = Fraction(comb(within - size, top_k), comb(within, top_k))
    return open_groups * (1 - missed)


@dataclass(frozen=True, slots=True, eq=False)
class SpareableCopies:
    """Copies from each source to each place, (R, S): at least, expected, at most."""

    fewest: Int64Array
    expected: FloatArray
    most: Int64Array

    def whole(
        self, at_least: Int64Array | None = None, at_most: Int64Array | None = None
    ) -> Int64Array:
        """(R, S) the expected numbers, rounded down or up, inside the bounds and the given ones.

        Rows and columns still sum to what is expected but for about one: what the rows before have
        left owing to a column decides who is rounded up.
        """
        used = np.flatnonzero(self.most.any(axis=0))
        low, high = self.fewest[:, used], self.most[:, used]
        if at_least is not None:
            low = np.maximum(low, at_least[:, used])
        if at_most is not None:
            high = np.minimum(high, at_most[:, used])
        exact = np.clip(self.expected[:, used], low, high)
        rounded = np.floor(exact + _NEAR).astype(np.int64)
        remainders = np.maximum(exact - rounded, 0.0)
        totals = np.rint(np.cumsum(remainders.sum(axis=1))).astype(np.int64)
        owing = np.zeros(exact.shape[1])
        given = 0
        for row, total in enumerate(totals.tolist()):
            owing += remainders[row]
            open_places = np.flatnonzero(remainders[row] > _NEAR)
            left = min(total - given, len(open_places))
            if left > 0:
                up = open_places[np.argsort(-owing[open_places], kind="stable")[:left]]
                rounded[row, up] += 1
                owing[up] -= 1.0
                given += left
        return _placed(rounded, used, self.most.shape[1])


def choice_odds(rows: Int64Array, tokens: Int64Array, top_k: int) -> FloatArray:
    """(R, E + k) odds of the experts in the choice of each source, from its rows (R, E).

    A token that is served by fewer than `top_k` experts has chosen some of the last k, which are
    no experts.
    """
    experts = rows.shape[1]
    shares = np.zeros((len(rows), experts + top_k))
    np.divide(rows, tokens[:, np.newaxis], out=shares[:, :experts], where=tokens[:, np.newaxis] > 0)
    np.minimum(shares, 1.0, out=shares)
    unserved = np.maximum(top_k - shares.sum(axis=1, keepdims=True), 0.0)
    # What is left by the rounding of a sum is nobody's.
    shares[:, experts:] = np.where(unserved > _NEAR, unserved / top_k, 0.0)
    odds = np.empty_like(shares)
    fit_odds(shares, top_k, odds)
    return odds


def spareable(
    rows: Int64Array,
    tokens: Int64Array,
    top_k: int,
    slot_expert: npt.NDArray[np.integer],
    slot_place: npt.NDArray[np.integer],
    places: int,
    odds: FloatArray,
) -> SpareableCopies:
    """Copies to each of S `places` if one serves all of a token's experts there.

    `rows` (R, P) are those of each source in each slot, whose expert and place are given; a source
    has `tokens` (R,); `odds` are those of `choice_odds` for the same sources. With c the
    rows of each expert in a place: max(max c, ceil(sum c / k)) <= copies <= min(tokens, sum c).
    """
    experts = odds.shape[1] - top_k
    keys, cell_of_slot = np.unique(
        slot_place.astype(np.int64) * experts + slot_expert, return_inverse=True
    )
    # Of many ranks only those with experts matter here.
    occupied, cell_place = np.unique(keys // experts, return_inverse=True)
    cell_expert = keys % experts
    cells = np.zeros((len(rows), len(keys)), dtype=np.int64)
    for slot, cell in enumerate(cell_of_slot.tolist()):
        cells[:, cell] += rows[:, slot]
    begins = np.searchsorted(cell_place, np.arange(len(occupied)))
    sums = np.add.reduceat(cells, begins, axis=1)
    fewest = np.maximum(np.maximum.reduceat(cells, begins, axis=1), -(-sums // top_k))
    most = np.maximum(fewest, np.minimum(tokens[:, np.newaxis], sums))
    of_expert = np.zeros((len(rows), experts), dtype=np.int64)
    for cell, expert in enumerate(cell_expert.tolist()):
        of_expert[:, expert] += cells[:, cell]
    wholes = of_expert[:, cell_expert]
    parts = np.divide(cells, wholes, out=np.zeros(cells.shape), where=wholes > 0)
    missing = np.empty(sums.shape)
    missing_probabilities(odds, top_k, cell_expert, cell_place, parts, missing)
    expected = np.where(sums > 0, tokens[:, np.newaxis] * (1.0 - missing), 0.0)
    return SpareableCopies(
        _placed(fewest, occupied, places),
        _placed(expected, occupied, places),
        _placed(most, occupied, places),
    )


def _placed(values: _Array, columns: Int64Array, width: int) -> _Array:
    """(R, width) zeros but for `values` in their columns."""
    whole = np.zeros((len(values), width), dtype=values.dtype)
    whole[:, columns] = values
    return whole
