"""NVLink domains over hosts, and tori: counts, rates, and the paths over them."""

from collections import Counter
from dataclasses import replace
from itertools import product

import networkx as nx
import pytest

from service.core.errors import FaultCode, InvalidInput, Path
from service.core.topology.bounds import Transfer, link_loads
from service.core.topology.cluster import Cluster, LinkKind, RateOrigin, VertexKind
from service.core.topology.expand import expand
from service.core.topology.path_kinds import PathKind, path_kind
from service.core.topology.paths import PathFinder
from service.core.topology.spec import (
    ClusterSpec,
    DeviceNetworkSpec,
    DeviceSpec,
    FailedDevice,
    FailedLink,
    HostSpec,
    LinkSpec,
    NvlinkDomain,
    RailOptimised,
    SwitchSpec,
    Torus,
)
from service.core.topology.tiers import switch_tiers

GB = 1e9
RACK = ClusterSpec(
    hosts=(HostSpec(name="tray", count=18, design="gb200-nvl72"),),
    fabric=RailOptimised(),
    device_network=NvlinkDomain(),
)
TORUS = Torus(dimensions=(4, 8), link_bytes_per_second=80 * GB, latency_seconds=1e-6)


def chips(hosts: int, each: int = 4) -> HostSpec:
    """Hosts of accelerators that only their own network joins."""
    devices = tuple(DeviceSpec(name=f"gpu{n}", kind=VertexKind.GPU) for n in range(each))
    return HostSpec(name="pod", count=hosts, devices=devices)


def torus(*dimensions: int, wraparound: bool = True, rate: float = 80 * GB) -> Cluster:
    network = Torus(dimensions=dimensions, link_bytes_per_second=rate, wraparound=wraparound)
    count = 1
    for size in dimensions:
        count *= size
    spec = ClusterSpec(hosts=(chips(count, each=1),), device_network=network)
    return expand(spec).cluster


def between_routers(cluster: Cluster) -> "nx.DiGraph[str]":
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_edges_from(
        ends for ends, link in cluster.links.items() if link.kind is LinkKind.FABRIC
    )
    return graph


def test_a_rack_is_one_nvlink_domain() -> None:
    """18 hosts x 4 GPUs, 900 GB/s of 18 links each, one vertex; 4 x 50 GB/s out of each host."""
    cluster = expand(RACK).cluster
    assert len(cluster.devices) == 72
    domain = cluster.vertices["nvlink0"]
    assert (domain.kind, domain.host) == (VertexKind.NVSWITCH, None)
    ports = [link for ends, link in cluster.links.items() if ends[1] == "nvlink0"]
    assert len(ports) == 72
    assert {(p.bandwidth_bytes_per_second, p.lanes, p.kind) for p in ports} == {
        (900 * GB, 18, LinkKind.NVLINK)
    }
    assert {(p.bandwidth_origin, p.bandwidth_source) for p in ports} == {
        (RateOrigin.PRODUCT, "18 x NVLink 5")
    }
    out = [link for link in cluster.links.values() if link.target.startswith("rail")]
    assert Counter(link.source.partition("/")[0] for link in out) == {
        f"tray{n}": 4 for n in range(18)
    }
    assert {link.bandwidth_bytes_per_second for link in out} == {50 * GB}
    finder = PathFinder(cluster)
    for one, other in (("tray0/gpu0", "tray17/gpu3"), ("tray0/gpu0", "tray0/gpu1")):
        path = finder.path(one, other)
        assert path is not None
        # Also within a host, where the way over its CPU is as short and half as wide.
        assert path.vertices == (one, "nvlink0", other)
        assert path.bandwidth_bytes_per_second == 900 * GB
        assert path_kind(cluster, path.links) is PathKind.NVLINK
    to_nic = finder.path("tray0/gpu0", "tray0/nic1")
    assert to_nic is not None
    assert to_nic.vertices == ("tray0/gpu0", "tray0/cpu0", "tray0/nic1")


def test_beyond_its_domain_an_accelerator_takes_its_nic() -> None:
    """Two racks: each has NVSwitches of its own, rails join them."""
    spec = replace(
        RACK,
        hosts=(replace(RACK.hosts[0], count=36),),
        device_network=NvlinkDomain(hosts_per_domain=18),
    )
    cluster = expand(spec).cluster
    assert [name for name in cluster.vertices if name.startswith("nvlink")] == [
        "nvlink0",
        "nvlink1",
    ]
    path = PathFinder(cluster).path("tray17/gpu2", "tray18/gpu2")
    assert path is not None
    assert path.vertices == (
        *("tray17/gpu2", "tray17/cpu1", "tray17/nic2", "rail2"),
        *("tray18/nic2", "tray18/cpu1", "tray18/gpu2"),
    )
    assert path_kind(cluster, path.links) is PathKind.RAIL


def test_the_rate_of_a_domain_may_be_stated() -> None:
    spec = replace(
        RACK,
        device_network=NvlinkDomain(
            link_bytes_per_second=450 * GB,
            link_effective_bytes_per_second=400 * GB,
            latency_seconds=1e-6,
            lanes=9,
        ),
    )
    link = expand(spec).cluster.links["tray3/gpu1", "nvlink0"]
    assert (link.bandwidth_bytes_per_second, link.effective_bytes_per_second) == (
        450 * GB,
        400 * GB,
    )
    assert (link.lanes, link.latency_seconds) == (9, 1e-6)
    assert (link.bandwidth_origin, link.bandwidth_source) == (RateOrigin.STATED, None)


def test_a_torus_of_32_chips() -> None:
    """4 x 8 at 80 GB/s: two links a chip in each dimension, 64 cables, 4 links at each router."""
    spec = ClusterSpec(hosts=(chips(8),), device_network=TORUS)
    cluster = expand(spec).cluster
    assert len(cluster.devices) == 32
    routers = [v for v in cluster.vertices.values() if v.kind is VertexKind.ROUTER]
    assert len(routers) == 32
    graph = between_routers(cluster)
    assert graph.number_of_edges() == 2 * 64
    assert {degree for _, degree in graph.out_degree()} == {4}
    link = cluster.links["router0-0", "router0-7"]
    assert (link.bandwidth_bytes_per_second, link.latency_seconds) == (80 * GB, 1e-6)
    # In order, the last dimension first: host 2 has the row of the second half of x = 1.
    assert ("pod2/gpu1", "router1-1") in cluster.links
    into = cluster.links["pod2/gpu1", "router1-1"]
    assert (into.bandwidth_bytes_per_second, into.lanes) == (320 * GB, 4)


@pytest.mark.parametrize(
    ("dimensions", "wraparound"),
    [
        ((8,), True),
        ((5,), False),
        ((4, 4), True),
        ((3, 4), False),
        ((2, 3, 4), True),
        ((1, 6), True),
    ],
)
def test_the_links_are_those_of_networkx(dimensions: tuple[int, ...], wraparound: bool) -> None:
    cluster = torus(*dimensions, wraparound=wraparound)
    grid = nx.grid_graph(dim=dimensions[::-1], periodic=wraparound)
    expected = {
        frozenset(
            "router" + "-".join(map(str, place if isinstance(place, tuple) else (place,)))
            for place in edge
        )
        for edge in grid.edges
        if edge[0] != edge[1]
    }
    assert {frozenset(ends) for ends in between_routers(cluster).edges} == expected


@pytest.mark.parametrize(
    ("dimensions", "wraparound"), [((8,), True), ((4, 4), True), ((3, 3, 2), True), ((4, 3), False)]
)
def test_paths_are_shortest_and_pass_no_other_device(
    dimensions: tuple[int, ...], wraparound: bool
) -> None:
    cluster = torus(*dimensions, wraparound=wraparound)
    graph, finder = between_routers(cluster), PathFinder(cluster)
    distance = dict(nx.all_pairs_shortest_path_length(graph))
    gpus = [gpu.name for gpu in cluster.devices]
    beside = {gpu: next(t for s, t in cluster.links if s == gpu) for gpu in gpus}
    for one, other in product(gpus, gpus):
        path = finder.path(one, other)
        assert path is not None
        if one == other:
            continue
        assert len(path.links) == 2 + distance[beside[one]][beside[other]]
        assert not set(path.vertices[1:-1]) & set(gpus)
        count = len(list(nx.all_shortest_paths(graph, beside[one], beside[other])))
        assert path.equal_cost_alternatives == count - 1
        assert path_kind(cluster, path.links) is PathKind.TORUS


@pytest.mark.parametrize(("size", "theta"), [(4, 0.5), (8, 0.125), (16, 0.03125)])
def test_a_ring_is_bound_by_distance(size: int, theta: float) -> None:
    """All to all on a ring of links of rate 1: 8 / n^2 for each pair at best.

    Pinned paths are shortest ones, so the mean load is that of the bound, and no link has less
    than the mean on the busiest one.
    """
    finder = PathFinder(torus(size, rate=1.0))
    names = [f"pod{n}/gpu0" for n in range(size)]
    paths = [finder.path(one, other) for one in names for other in names if one != other]
    loads = link_loads([Transfer(path, 1) for path in paths if path is not None])
    ring = [load for load in loads.loads if load.link.kind is LinkKind.FABRIC]
    mean = sum(load.total_bytes for load in ring) / (2 * size)
    assert mean == 1 / theta
    assert loads.lower_bound_seconds >= 1 / theta


def test_accelerators_keep_to_their_own_network_however_far() -> None:
    """16 in a ring, two a host with a NIC each: half around is nine links, by NICs it were six."""
    devices = [DeviceSpec(name=f"gpu{n}", kind=VertexKind.GPU, rail=n) for n in range(2)]
    devices += [
        DeviceSpec(name=f"nic{n}", kind=VertexKind.NIC, port_bytes_per_second=50 * GB)
        for n in range(2)
    ]
    devices.append(DeviceSpec(name="pcie0", kind=VertexKind.PCIE_SWITCH))
    links = [
        LinkSpec(
            source=one.name,
            target="pcie0",
            kind=LinkKind.PCIE,
            bandwidth_bytes_per_second=32 * GB,
        )
        for one in devices[:-1]
    ]
    spec = ClusterSpec(
        hosts=(HostSpec(name="h", count=8, devices=tuple(devices), links=tuple(links)),),
        fabric=RailOptimised(spines=1),
        device_network=Torus(dimensions=(16,), link_bytes_per_second=10 * GB),
    )
    cluster = expand(spec).cluster
    path = PathFinder(cluster).path("h0/gpu0", "h4/gpu0")
    assert path is not None
    assert len(path.links) == 10
    assert path_kind(cluster, path.links) is PathKind.TORUS
    # A torn ring joins its parts by NICs again.
    cut = (FailedLink(source="router0", target="router15"), FailedDevice("router7"))
    torn = expand(replace(spec, edits=cut)).cluster
    path = PathFinder(torn).path("h0/gpu0", "h5/gpu0")
    assert path is not None
    assert path_kind(torn, path.links) is PathKind.RAIL


def faults_of(network: DeviceNetworkSpec, *hosts: HostSpec) -> list[tuple[FaultCode, Path]]:
    with pytest.raises(InvalidInput) as refused:
        expand(ClusterSpec(hosts=hosts or (chips(8),), device_network=network))
    return [(fault.code, fault.path) for fault in refused.value.faults]


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        (NvlinkDomain(), [(FaultCode.MISSING_FIELD, "link_bytes_per_second")]),
        (
            NvlinkDomain(hosts_per_domain=0, link_bytes_per_second=0.5),
            [
                (FaultCode.OUT_OF_RANGE, "link_bytes_per_second"),
                (FaultCode.OUT_OF_RANGE, "hosts_per_domain"),
            ],
        ),
        (
            NvlinkDomain(link_bytes_per_second=1 * GB, link_effective_bytes_per_second=2 * GB),
            [(FaultCode.INCONSISTENT, "link_effective_bytes_per_second")],
        ),
        (replace(TORUS, latency_seconds=2.0), [(FaultCode.OUT_OF_RANGE, "latency_seconds")]),
        (replace(TORUS, dimensions=(4, 7)), [(FaultCode.INCONSISTENT, "dimensions")]),
        (replace(TORUS, dimensions=()), [(FaultCode.OUT_OF_RANGE, "dimensions")]),
        (replace(TORUS, dimensions=(2, 2, 2, 4)), [(FaultCode.OUT_OF_RANGE, "dimensions")]),
        (replace(TORUS, dimensions=(64, 65)), [(FaultCode.OUT_OF_RANGE, "dimensions")]),
        (replace(TORUS, dimensions=(-4, -8)), [(FaultCode.OUT_OF_RANGE, "dimensions")]),
    ],
)
def test_networks_at_fault(
    network: DeviceNetworkSpec, expected: list[tuple[FaultCode, str]]
) -> None:
    assert faults_of(network) == [(code, ("device_network", name)) for code, name in expected]


def test_what_a_port_carries_is_at_most_its_nominal_rate() -> None:
    network = NvlinkDomain(link_effective_bytes_per_second=901 * GB)
    where = ("device_network", "link_effective_bytes_per_second")
    assert faults_of(network, RACK.hosts[0]) == [(FaultCode.INCONSISTENT, where)]


def test_names_of_a_network_are_its_own() -> None:
    spec = replace(RACK, switches=(SwitchSpec("nvlink0"),))
    with pytest.raises(InvalidInput) as refused:
        expand(spec)
    assert [(fault.code, fault.path) for fault in refused.value.faults] == [
        (FaultCode.DUPLICATE_NAME, ("device_network",))
    ]


def test_the_accelerators_own_network_has_no_tiers() -> None:
    """Neither the NVSwitches of a domain nor the routers of a torus are leaves of a fabric."""
    rack = switch_tiers(expand(RACK).cluster)
    assert rack == {f"rail{n}": 1 for n in range(4)}
    assert switch_tiers(torus(4, 4)) == {}


def test_one_chip_is_a_torus_without_links() -> None:
    cluster = torus(1, 1)
    assert set(cluster.vertices) == {"pod0/gpu0", "router0-0"}
    assert cluster.links == {}
