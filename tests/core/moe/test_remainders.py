"""Sharing out whole numbers."""

from fractions import Fraction

import numpy as np
import pytest

from service.core.moe.remainders import shares


@pytest.mark.parametrize(
    ("total", "weights", "expected"),
    [
        (10, [1, 1, 1], [4, 3, 3]),  # equal remainders: the first goes first
        (10, [6, 3, 1], [6, 3, 1]),
        (7, [3, 3, 1], [3, 3, 1]),
        (5, [5, 3, 2], [3, 1, 1]),  # 2.5, 1.5, 1: of the two halves the first
        (4, [0, 0], [2, 2]),
        (0, [3, 1], [0, 0]),
    ],
)
def test_shares_by_hand(total: int, weights: list[int], expected: list[int]) -> None:
    assert shares([total], [weights])[0].tolist() == expected


def test_shares_add_up_and_are_less_than_one_from_what_is_due() -> None:
    random = np.random.default_rng(5)
    weights = random.integers(0, 50, (40, 7))
    totals = random.integers(0, 200, 40)
    found = shares(totals, weights)
    assert found.sum(axis=1).tolist() == totals.tolist()
    for row, total in enumerate(totals):
        whole = int(weights[row].sum())
        for share, weight in zip(found[row], weights[row], strict=True):
            assert abs(int(share) - Fraction(int(total) * int(weight), whole)) < 1
        if total <= whole:
            assert (found[row] <= weights[row]).all()


def test_products_beyond_64_bits_stay_exact() -> None:
    assert shares([2**40], [[2**40, 2**40, 1]])[0].tolist() == [2**39, 2**39, 0]


def test_nothing_among_nobody() -> None:
    assert shares(np.zeros(0, dtype=np.int64), np.zeros((0, 3), dtype=np.int64)).shape == (0, 3)
