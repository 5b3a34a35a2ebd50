"""Times as people read them."""

from fractions import Fraction

import pytest

from service.formats.time_units import exact_seconds, fitting_unit, readable_time


@pytest.mark.parametrize(
    ("picoseconds", "text"),
    [
        (0, "0 s"),
        (1, "1 ps"),
        (999, "999 ps"),
        (1_500, "1.5 ns"),
        (20_333_333_333, "20.33 ms"),
        (447 * 10**9, "447 ms"),
        (10**12, "1 s"),
        (-(10**9), "-1 ms"),
        (Fraction(10**9, 3), "333.3 µs"),
        (123_456 * 10**12, "123456 s"),
    ],
)
def test_readable(picoseconds: int | Fraction, text: str) -> None:
    assert readable_time(picoseconds) == text


def test_in_a_given_unit() -> None:
    assert readable_time(6 * 10**9, fitting_unit(10**12)) == "0.006 s"


@pytest.mark.parametrize(
    ("picoseconds", "text"),
    [
        (0, "0"),
        (1, "0.000000000001"),
        (6 * 10**9, "0.006"),
        (10**13, "10"),
        (10**12 + 5 * 10**11, "1.5"),
    ],
)
def test_exact(picoseconds: int, text: str) -> None:
    assert exact_seconds(picoseconds) == text
