"""Rates of InfiniBand links, against those the makers publish."""

import pytest

from service.core.topology.infiniband_rates import SPEEDS, WIDTHS, infiniband_rate
from service.core.topology.readings import RateOrigin

# Gb/s of four lanes as printed on the boxes; FDR is sold as 56 and carries 54.5.
FOUR_LANES = {
    "SDR": 8,
    "DDR": 16,
    "QDR": 32,
    "FDR10": 40,
    "FDR": 54.545,
    "EDR": 100,
    "HDR": 200,
    "NDR": 400,
    "XDR": 800,
}


@pytest.mark.parametrize("speed", SPEEDS)
def test_four_lanes_carry_what_is_published(speed: str) -> None:
    rate = infiniband_rate(4, speed)
    assert rate is not None
    assert rate.bytes_per_second * 8 / 1e9 == pytest.approx(FOUR_LANES[speed], rel=1e-4)
    assert (rate.origin, rate.source) == (RateOrigin.READ, f"InfiniBand 4x {speed}")


def test_half_of_the_lanes_carry_half() -> None:
    for speed in SPEEDS:
        two, four = infiniband_rate(2, speed), infiniband_rate(4, speed)
        assert two is not None
        assert four is not None
        assert two.bytes_per_second * 2 == four.bytes_per_second


def test_what_does_not_exist_has_no_rate() -> None:
    assert infiniband_rate(4, "???") is None
    assert infiniband_rate(3, "NDR") is None
    assert 3 not in WIDTHS
