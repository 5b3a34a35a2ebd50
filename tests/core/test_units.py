"""Picoseconds and seconds, one at a time and many at once."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.core.units import all_to_seconds, to_seconds


@given(st.lists(st.integers(-(2**62), 2**62) | st.integers(0, 10**13), max_size=20))
def test_many_are_the_same_floats_as_one_by_one(picoseconds: list[int]) -> None:
    found = all_to_seconds(np.array(picoseconds, dtype=np.int64))
    assert found == [to_seconds(one) for one in picoseconds]
    assert all(type(seconds) is float for seconds in found)


def test_beyond_what_floats_count_exactly_the_quotient_is_still_rounded_once() -> None:
    """Rounded to a float first, 2**53 + 1 would be 2**53, and some quotient of such a neighbour."""
    differs = [
        number
        for number in range(2**53, 2**53 + 40_000)
        if number / 10**12 != float(number) / 10**12
    ]
    assert differs
    found = all_to_seconds(np.array(differs, dtype=np.int64))
    assert found == [number / 10**12 for number in differs]
