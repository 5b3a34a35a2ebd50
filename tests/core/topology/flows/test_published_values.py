"""Published and hand-derived figures of all-to-all and all-gather, and what binds them.

Further ones stand in `validation`.
"""

from fractions import Fraction
from math import prod

import pytest

from service.core.topology.cluster import Cluster, LinkKind, VertexKind
from service.core.topology.expand import expand
from service.core.topology.flows.bounds import FlowRouting, bound_exchange, bound_gathering
from service.core.topology.flows.demands import CollectiveKind, Exchange, Gathering
from service.core.topology.flows.results import BindingKind, BoundKind, FlowBounds
from service.core.topology.flows.study import FlowStudy
from service.core.topology.spec import ClusterSpec, DeviceSpec, HostSpec, NvlinkDomain, Torus
from validation.small_clusters import dgx_1_nvlinks, nvswitch_hosts, two_dgx_2
from validation.topologies import all_to_all_rate

GB = 10**9


def gathered(cluster: Cluster, kind: CollectiveKind = CollectiveKind.ALL_GATHER) -> FlowBounds:
    study = FlowStudy(cluster)
    gathering = Gathering(kind, study.network.gpus, Fraction(1))
    return bound_gathering(study, gathering, FlowRouting.ANY)


def digits(value: float, printed: str) -> bool:
    """Whether a value rounds to what was printed."""
    decimals = len(printed.partition(".")[2])
    return f"{value:.{decimals}f}" == printed


def test_the_mesh_of_a_dgx_1_binds_before_its_ports() -> None:
    """A port alone would allow 150 GB/s over 7 pairs, distances 15 GB/s."""
    study = FlowStudy(dgx_1_nvlinks())
    found = bound_exchange(study, Exchange(study.network.gpus, Fraction(1)), FlowRouting.ANY)
    port, flow = found.of(BoundKind.PORT), found.of(BoundKind.CONCURRENT_FLOW)
    assert port is not None
    assert flow is not None
    assert 1 / port.seconds == pytest.approx(150e9 / 7)
    assert flow.exact_seconds == Fraction(1, 9_375_000_000)
    # One half of the mesh against the other: 16 pairs over six NVLinks of 25 GB/s, two of which are
    # between the same two devices.
    assert flow.binding.kind is BindingKind.LENGTHS


@pytest.mark.parametrize(
    ("dimensions", "expected"),
    [((4,), Fraction(1, 2)), ((8,), Fraction(1, 8)), ((4, 4), Fraction(1, 8))],
)
def test_rings_and_tori_whose_routers_forward(
    dimensions: tuple[int, ...], expected: Fraction
) -> None:
    """The same, made as a device network: a router beside each device, which passes nothing on."""
    host = HostSpec(
        name="t",
        count=prod(dimensions),
        devices=(DeviceSpec(name="gpu0", kind=VertexKind.GPU),),
    )
    network = Torus(dimensions=dimensions, link_bytes_per_second=1.0)
    made = expand(ClusterSpec(hosts=(host,), device_network=network)).cluster
    assert all_to_all_rate(made) == pytest.approx(float(expected), rel=1e-12)


def test_a_rack_of_72_and_its_links() -> None:
    """900 GB/s a device in one NVLink domain: 12.68 GB/s for each of 71 others."""
    hosts = HostSpec(name="h", count=18, design="gb200-nvl72")
    domain = NvlinkDomain(hosts_per_domain=18)
    whole = expand(ClusterSpec(hosts=(hosts,), device_network=domain)).cluster
    kept = {ends: one for ends, one in whole.links.items() if one.kind is LinkKind.NVLINK}
    names = {end for ends in kept for end in ends}
    vertices = {name: vertex for name, vertex in whole.vertices.items() if name in names}
    assert all_to_all_rate(Cluster(vertices, kept)) == pytest.approx(900e9 / 71)


def test_all_to_all_of_two_dgx_2() -> None:
    """256 pairs over 100 GB/s; as bytes that each of 32 devices holds, 12.5 GB/s.

    TE-CCL's schedule reaches 12.42.
    """
    study = FlowStudy(two_dgx_2())
    found = bound_exchange(study, Exchange(study.network.gpus, Fraction(1, 32)), FlowRouting.ANY)
    cut, flow = found.of(BoundKind.CUT), found.of(BoundKind.CONCURRENT_FLOW)
    assert cut is not None
    assert flow is not None
    assert cut.binding.kind is BindingKind.HOST
    assert flow.exact_seconds == cut.exact_seconds == Fraction(256, 32) / 100_000_000_000
    assert 1 / flow.seconds == pytest.approx(12.5e9)
    assert 1 / flow.seconds > 12.42e9


@pytest.mark.parametrize(
    ("cluster", "printed"),
    [
        # ForestColl, computed by its authors' program.
        (nvswitch_hosts(1, 8, 300e9), "342.857"),
        (nvswitch_hosts(2, 8, 300e9, 25e9), "346.667"),
    ],
    ids=["8 A100", "2 x 8 A100"],
)
def test_all_gather_of_known_hosts(cluster: Cluster, printed: str) -> None:
    """Bytes that each device holds at the end, a second; a reduce-scatter is the same backwards."""
    for kind in (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER):
        flow = gathered(cluster, kind).of(BoundKind.CONCURRENT_FLOW)
        assert flow is not None
        assert digits(1 / flow.seconds / GB, printed), kind


def test_all_gather_of_a_dgx_1() -> None:
    """SCCL: seven blocks into six NVLinks of a device, so 7/6 rounds of one block a link."""
    flow = gathered(dgx_1_nvlinks()).of(BoundKind.CONCURRENT_FLOW)
    assert flow is not None
    block_round = Fraction(1, 8) / (25 * GB)
    assert flow.exact_seconds / block_round == Fraction(7, 6)


def test_all_reduce_without_and_with_reduction_in_the_network() -> None:
    """2 (n - 1) / n of the message over a port, or the message once."""
    study = FlowStudy(nvswitch_hosts(1, 8, 450e9))
    gathering = Gathering(CollectiveKind.ALL_REDUCE, study.network.gpus, Fraction(8))
    for reduction, expected in ((False, Fraction(14, 450 * GB)), (True, Fraction(8, 450 * GB))):
        found = bound_gathering(study, gathering, FlowRouting.ANY, in_network_reduction=reduction)
        flow = found.of(BoundKind.CONCURRENT_FLOW)
        assert flow is not None
        assert flow.exact_seconds == expected


def test_all_gather_of_sixteen_mi250_dies() -> None:
    """ForestColl: 342.857; a cut between the halves of the mesh is what binds."""
    spec = ClusterSpec(hosts=(HostSpec(name="h", design="mi250x"),))
    whole = expand(spec).cluster
    dies = {device.name: device for device in whole.devices}
    mesh = {ends: link for ends, link in whole.links.items() if set(ends) <= dies.keys()}
    flow = gathered(Cluster(dies, mesh)).of(BoundKind.CONCURRENT_FLOW)
    assert flow is not None
    assert digits(1 / flow.seconds / GB, "342.857")
    # The seven links of a die would let 16/15 x 350 through.
    assert 1 / flow.seconds < Fraction(16, 15) * 350 * GB
