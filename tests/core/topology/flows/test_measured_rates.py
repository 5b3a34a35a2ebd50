"""Nothing that was measured is quicker than the bound of the same collective."""

from fractions import Fraction

import pytest

from service.core.topology.flows.bounds import (
    FlowRouting,
    bound_exchange,
    bound_gathering,
    bound_messages,
)
from service.core.topology.flows.demands import CollectiveKind, Exchange, Gathering, Messages
from service.core.topology.flows.results import FlowBounds
from service.core.topology.flows.study import FlowStudy
from tests.core.topology.flows.measured_rates import EXEMPT, MEASURED, SEND, Measured

SIZE = Fraction(10**9)


def algorithm_rate(measured: Measured, *, in_network_reduction: bool) -> tuple[float, int]:
    """The greatest rate, GB/s, that the bound leaves, and among how many devices."""
    study = FlowStudy(measured.cluster())
    devices = study.network.gpus
    found: FlowBounds
    if measured.kind == SEND:
        ends = int(devices[0]), int(devices[-1])
        found = bound_messages(study, Messages.of([(*ends, SIZE)]), FlowRouting.ANY)
    elif measured.kind == CollectiveKind.ALL_TO_ALL:
        exchange = Exchange(devices, SIZE / len(devices))
        found = bound_exchange(study, exchange, FlowRouting.ANY)
    else:
        gathering = Gathering(CollectiveKind(measured.kind), devices, SIZE)
        found = bound_gathering(
            study, gathering, FlowRouting.ANY, in_network_reduction=in_network_reduction
        )
    assert found.bounds
    return float(SIZE) / found.seconds / 1e9, len(devices)


def bus_factor(kind: str, count: int) -> float:
    if kind == SEND:
        return 1.0
    return (2 if kind == CollectiveKind.ALL_REDUCE else 1) * (count - 1) / count


@pytest.mark.parametrize("measured", MEASURED, ids=lambda one: f"{one.what}: {one.kind}")
def test_no_measured_rate_beats_the_bound(measured: Measured) -> None:
    rate, count = algorithm_rate(measured, in_network_reduction=measured.in_network_reduction)
    factor = 1.0 if measured.is_algorithm_rate else bus_factor(measured.kind, count)
    assert measured.rate <= rate * factor * (1 + 1e-12)


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
    rate, count = algorithm_rate(narrow, in_network_reduction=False)
    assert rate * bus_factor(narrow.kind, count) == pytest.approx(450)
    assert nvls.rate > 450
    rate, count = algorithm_rate(narrow, in_network_reduction=True)
    assert nvls.rate < rate * bus_factor(narrow.kind, count)


def test_exempt_figures_are_data_with_a_reason() -> None:
    """One of them shows why: 58 GB/s through a NIC whose line carries 50."""
    assert max(EXEMPT[1].rates) > 50
    assert all(one.rates and one.reason and one.source for one in EXEMPT)
