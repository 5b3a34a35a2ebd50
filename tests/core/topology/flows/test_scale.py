"""1,024 hosts of eight behind leaves and spines: answers are exact, and work is that of a few."""

from fractions import Fraction

import pytest

from service.core.topology.cluster import Cluster
from service.core.topology.expand import expand
from service.core.topology.flows.bounds import FlowRouting, bound_exchange, bound_gathering
from service.core.topology.flows.collapse import Collapse
from service.core.topology.flows.demands import CollectiveKind, Exchange, Gathering
from service.core.topology.flows.exchanges import MAX_SYMMETRIC_SIZE
from service.core.topology.flows.results import BindingKind, BoundKind, Method
from service.core.topology.flows.routes import Routes
from service.core.topology.flows.study import FlowStudy
from service.core.topology.paths import path_finder
from service.core.topology.spec import (
    ClusterSpec,
    Edit,
    FabricRates,
    FailedLink,
    HostSpec,
    LeafSpine,
)

HOSTS, PER_LEAF, SPINES = 1_024, 32, 32
DEVICES = 8 * HOSTS
GB = 10**9


def cluster(ratio: float = 1.0, edits: tuple[Edit, ...] = ()) -> Cluster:
    """A handful of numbers and its exceptions are all that is stored of it."""
    rates = FabricRates(oversubscription_ratio=ratio)
    fabric = LeafSpine(hosts_per_leaf=PER_LEAF, spines=SPINES, rates=rates)
    hosts = (HostSpec(name="host", count=HOSTS, design="dgx-h100"),)
    return expand(ClusterSpec(hosts=hosts, fabric=fabric, edits=edits)).cluster


@pytest.fixture(scope="module")
def study() -> FlowStudy:
    return FlowStudy(cluster())


def test_an_all_to_all_is_bound_by_the_hosts(study: FlowStudy) -> None:
    """Eight devices to 8,184 others over eight NICs of 50 GB/s."""
    devices = study.network.gpus
    found = bound_exchange(study, Exchange(devices, Fraction(1)), FlowRouting.ANY)
    assert found.method is Method.SYMMETRIC_LINEAR_PROGRAM
    flow = found.of(BoundKind.CONCURRENT_FLOW)
    assert flow is not None
    assert flow.exact_seconds == Fraction(8 * (DEVICES - 8), 400 * GB)
    assert flow.binding.kind is BindingKind.HOST
    # What each link carries is told for all of a kind at once.
    assert sum(load.copies for load in found.loads) > 16 * HOSTS
    assert len(found.loads) < 500


def test_an_all_gather_is_bound_by_the_hosts_too(study: FlowStudy) -> None:
    gathering = Gathering(CollectiveKind.ALL_GATHER, study.network.gpus, Fraction(DEVICES))
    found = bound_gathering(study, gathering, FlowRouting.ANY)
    flow = found.of(BoundKind.CONCURRENT_FLOW)
    assert flow is not None
    assert flow.exact_seconds == Fraction(DEVICES - 8, 400 * GB)


def test_a_device_and_its_pinned_path(study: FlowStudy) -> None:
    path = path_finder(study.network.cluster).path("host0/gpu0", "host1023/gpu5")
    assert path is not None
    assert path.bandwidth_bytes_per_second == 50e9
    # 32 spines, and eight NICs at the far end are not equally near.
    assert path.equal_cost_alternatives == SPINES - 1


def test_exceptions_and_oversubscription() -> None:
    """Leaves give their spines a third, and one NIC has failed.

    A leaf's 256 devices and the other 7,936: 32 hosts of 400 GB/s over 3 up. The host with seven
    NICs would take 8 x 8,184 bytes over 350 GB/s, which is less.
    """
    edits = (FailedLink(source="host5/nic3", target="leaf0"),)
    made = FlowStudy(cluster(3.0, edits))
    devices = made.network.gpus
    found = bound_exchange(made, Exchange(devices, Fraction(1)), FlowRouting.ANY)
    assert found.method is Method.SYMMETRIC_LINEAR_PROGRAM
    flow = found.of(BoundKind.CONCURRENT_FLOW)
    assert flow is not None
    uplinks = Fraction(32 * 400 * GB, 3)
    assert float(flow.exact_seconds) == pytest.approx(float(256 * (DEVICES - 256) / uplinks))
    assert float(flow.exact_seconds) > 8 * (DEVICES - 8) / 350e9
    assert flow.binding.kind is BindingKind.LEAF
    # The host, those at its leaf, and all others: three kinds of eight devices.
    collapse = Collapse(made.network, Routes(made.network), made.symmetry(devices), devices)
    kinds = collapse.kinds_of_devices()
    assert sorted({count for _, count in kinds}) == [1, PER_LEAF - 1, HOSTS - PER_LEAF]
    assert len(kinds) == 24
    problem = collapse.exchange(Fraction(1), MAX_SYMMETRIC_SIZE)
    assert problem is not None
    assert problem.size <= MAX_SYMMETRIC_SIZE
