"""Amounts that differ among microbatches, and the classes of those that are alike."""

import random
from fractions import Fraction

import pytest

from service.core.amounts import (
    SizeClasses,
    Spread,
    at_class,
    combine,
    largest,
    repeat_of,
    smallest,
    total,
)


def test_microbatches_that_are_alike_in_every_column_share_a_class() -> None:
    sizes = SizeClasses.of(5, [(1, 2, 1, 2, 1), (7, 7, 7, 8, 7)])
    assert sizes.of_microbatch == (0, 1, 0, 2, 0)
    assert sizes.first == (0, 1, 3)
    assert sizes.count == 3
    assert sizes.amount((1, 2, 1, 2, 1)) == (1, 2, 2)
    assert sizes.amount((4, 4, 4, 4, 4)) == 4


def test_all_alike_is_one_class_and_needs_no_list() -> None:
    for columns in ([], [(3, 3, 3)]):
        sizes = SizeClasses.of(3, columns)
        assert sizes == SizeClasses(3)
        assert sizes.count == 1
    huge = SizeClasses(2**31)
    assert huge.spread(2) == Spread(2, 2, 2**32, 2**31)


def test_a_spread_counts_each_microbatch() -> None:
    sizes = SizeClasses.of(5, [(1, 2, 1, 2, 1)])
    both = sizes.spread((10, 30))
    assert both == Spread(10, 30, 90, 5)
    assert both.mean == 18
    assert both.differs
    assert sizes.spread((10, 30), 0, 2) == Spread(10, 10, 30, 3)
    assert sizes.spread((10, 30), 1, 2) == Spread(30, 30, 60, 2)
    assert not sizes.spread(7).differs
    assert Spread(1, 2, 3, 2).mean == Fraction(3, 2)


def test_tables_are_as_wide_as_they_need_to_be() -> None:
    sizes = SizeClasses.of(3, [(1, 2, 1)])
    assert sizes.table([4, 5]).tolist() == [[4], [5]]
    assert sizes.table([4, (5, 6)]).tolist() == [[4, 4, 4], [5, 6, 5]]
    assert sizes.table([]).shape == (0, 1)
    assert SizeClasses(9).table([4]).tolist() == [[4]]


def test_amounts_are_combined_class_by_class() -> None:
    assert combine(max, 1, 5) == 5
    assert combine(max, 3, (1, 5)) == (3, 5)
    assert combine(max, 5, (1, 5)) == 5  # one number again
    assert total((1, 2), (3, 4), 10) == (14, 16)
    assert total((1, 2), (2, 1)) == 3
    assert total() == 0
    assert (smallest((2, 1)), largest((2, 1)), smallest(4), largest(4)) == (1, 2, 4, 4)
    assert (at_class((2, 1), 1), at_class(4, 1)) == (1, 4)


@pytest.mark.parametrize(
    ("sequence", "repeat"),
    [([1], 1), ([1, 1], 1), ([1, 2], 2), ([1, 2, 1], 2), ([1, 1, 2, 1, 1], 3), ([1, 2, 3], 3)],
)
def test_repeats_by_hand(sequence: list[int], repeat: int) -> None:
    assert repeat_of(sequence) == repeat


def test_repeats_are_those_of_the_definition(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(2000):
        sequence = [rng.randint(0, 1) for _ in range(rng.randint(1, 12))]
        if rng.random() < 0.5:
            sequence *= rng.randint(2, 3)
        length = len(sequence)
        expected = next(
            p
            for p in range(1, length + 1)
            if all(sequence[i] == sequence[i + p] for i in range(length - p))
        )
        assert repeat_of(sequence) == expected
