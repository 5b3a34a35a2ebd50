"""Why a reduction in the network has a bound of its own."""

from dataclasses import replace

import pytest

from validation.measured_rates import MEASURED, Measured
from validation.topologies import algorithm_rate, bus_factor


def test_what_switches_add_up_is_quicker_than_any_ring() -> None:
    """480 GB/s on the bus of eight H100: the bound without reduction in the network forbids it.

    On NVLink alone, 450 GB/s; the whole host has PCIe beside it.
    """
    nvls = next(one for one in MEASURED if one.what == "8 H100, NVLS")
    narrow = Measured(
        nvls.what,
        next(one for one in MEASURED if one.what == "8 H200, one way").cluster,
        nvls.kind,
        nvls.rate,
        nvls.source,
    )
    rate, count = algorithm_rate(narrow)
    assert rate * bus_factor(narrow.kind, count) == pytest.approx(450)
    assert nvls.rate > 450
    rate, count = algorithm_rate(replace(narrow, in_network_reduction=True))
    assert nvls.rate < rate * bus_factor(narrow.kind, count)
