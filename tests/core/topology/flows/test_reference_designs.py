"""All-to-all on reference designs and on the accelerators' own networks, by hand and published."""

from fractions import Fraction

import pytest

from service.core.topology.cluster import Cluster, VertexKind
from service.core.topology.expand import expand
from service.core.topology.flows.bounds import FlowRouting, bound_exchange
from service.core.topology.flows.demands import Exchange
from service.core.topology.flows.results import BoundKind
from service.core.topology.flows.study import FlowStudy
from service.core.topology.spec import (
    ClusterSpec,
    DeviceSpec,
    HostSpec,
    NvlinkDomain,
    RailOptimised,
    Torus,
)

GB = 10**9


def theta(cluster: Cluster) -> float:
    """Bytes per second for each pair at once, under the policy `any`."""
    study = FlowStudy(cluster)
    found = bound_exchange(study, Exchange(study.network.gpus, Fraction(1)), FlowRouting.ANY)
    flow = found.of(BoundKind.CONCURRENT_FLOW)
    assert flow is not None
    return 1 / flow.seconds


def chips(count: int, *dimensions: int) -> Cluster:
    """Accelerators that are joined by a torus of links of rate 1 and by nothing else."""
    chip = DeviceSpec(name="gpu0", kind=VertexKind.GPU)
    network = Torus(dimensions=dimensions, link_bytes_per_second=1.0)
    hosts = (HostSpec(name="h", count=count, devices=(chip,)),)
    return expand(ClusterSpec(hosts=hosts, device_network=network)).cluster


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [(chips(8, 8), 0.125), (chips(16, 16), 0.03125), (chips(16, 4, 4), 0.125)],
    ids=["ring of 8", "ring of 16", "torus of 4 x 4"],
)
def test_routers_carry_what_links_from_device_to_device_would(
    cluster: Cluster, expected: float
) -> None:
    assert theta(cluster) == expected


def test_all_to_all_of_reference_designs() -> None:
    """Two DGX-2 are 256 pairs over 8 x 12.5 GB/s.

    A host of a rack sends from each of its 4 GPUs to 68 others, over 4 x (900 + 50) GB/s; among its
    own GPUs the CPUs help.
    """
    dgx_2 = HostSpec(name="h", count=2, design="dgx-2")
    two = expand(ClusterSpec(hosts=(dgx_2,), fabric=RailOptimised())).cluster
    assert theta(two) / GB == pytest.approx(100 / 256, rel=1e-9)
    tray = HostSpec(name="h", count=18, design="gb200-nvl72")
    rack = ClusterSpec(hosts=(tray,), fabric=RailOptimised(), device_network=NvlinkDomain())
    study = FlowStudy(expand(rack).cluster)
    found = bound_exchange(study, Exchange(study.network.gpus, Fraction(1)), FlowRouting.ANY)
    assert found.seconds * GB == pytest.approx(68 / 950, rel=1e-9)
