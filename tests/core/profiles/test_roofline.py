"""The longer of computing and of moving bytes."""

import pytest

from service.core.profiles.roofline import Roofline


def test_the_longer_of_both_counts() -> None:
    """1 TFLOP/s and 100 GB/s: 10 FLOPs a byte divide what computes from what moves."""
    device = Roofline(1e12, 1e11)
    assert device.picoseconds(10**9, 10**8) == 10**9
    assert device.picoseconds(2 * 10**9, 10**8) == 2 * 10**9
    assert device.picoseconds(10**9, 3 * 10**8) == 3 * 10**9


def test_nothing_takes_no_time_and_anything_takes_some() -> None:
    device = Roofline(1e15, 1e15)
    assert device.picoseconds(0, 0) == 0
    assert device.picoseconds(1, 0) == 1


def test_what_no_time_can_hold_is_refused() -> None:
    with pytest.raises(OverflowError, match="more than 100000 s"):
        Roofline(1.0, 1.0).picoseconds(10**6, 0)
