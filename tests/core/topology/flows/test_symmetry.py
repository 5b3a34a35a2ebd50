"""Symmetries leave a network as it is, and a collapsed program has the optimum of the whole one."""

from fractions import Fraction
from itertools import permutations
from random import Random

import numpy as np
import pytest

from service.core.topology.cluster import Cluster, LinkKind, VertexKind
from service.core.topology.expand import expand
from service.core.topology.flows.bounds import FlowRouting, bound_exchange, bound_gathering
from service.core.topology.flows.collapse import Collapse
from service.core.topology.flows.demands import CollectiveKind, Exchange, Gathering
from service.core.topology.flows.problems import flow_bound, link_bound, whole
from service.core.topology.flows.results import BoundKind, Method
from service.core.topology.flows.routes import Routes
from service.core.topology.flows.study import FlowStudy
from service.core.topology.flows.symmetry import Symmetry, symmetry_of
from service.core.topology.spec import (
    ClusterSpec,
    DeviceSpec,
    Duplex,
    FabricRates,
    FabricSpec,
    FatTree,
    HostSpec,
    LeafSpine,
    LinkSpec,
    RailOptimised,
)
from tests.core.topology.random_clusters import random_cluster
from validation.small_clusters import nvswitch_hosts, with_rates


def hosts(count: int, gpus: int = 2, name: str = "h", duplex: Duplex = Duplex.FULL) -> HostSpec:
    """Hosts with a PCIe switch between their GPUs and one NIC."""
    devices = [DeviceSpec(name=f"gpu{number}", kind=VertexKind.GPU) for number in range(gpus)]
    devices.append(DeviceSpec(name="nic0", kind=VertexKind.NIC, port_bytes_per_second=10e9))
    links = [
        LinkSpec(
            source=device.name,
            target="pcie0",
            kind=LinkKind.PCIE,
            bandwidth_bytes_per_second=16e9,
            duplex=duplex,
        )
        for device in devices
    ]
    devices.append(DeviceSpec(name="pcie0", kind=VertexKind.PCIE_SWITCH))
    return HostSpec(name=name, count=count, devices=tuple(devices), links=tuple(links))


def built(*entries: HostSpec, fabric: FabricSpec, links: tuple[LinkSpec, ...] = ()) -> Cluster:
    return expand(ClusterSpec(hosts=entries, fabric=fabric, links=links)).cluster


LEAVES = LeafSpine(hosts_per_leaf=2, spines=3, rates=FabricRates(oversubscription_ratio=3.0))
RAILS = RailOptimised(hosts_per_leaf=2, spines=2)
CLUSTERS = {
    "leaves": built(hosts(6), fabric=LEAVES),
    "an odd leaf": built(hosts(5), fabric=LEAVES),
    "two kinds of hosts": built(hosts(3), hosts(3, gpus=3, name="w"), fabric=LEAVES),
    "half duplex": built(hosts(4, duplex=Duplex.HALF), fabric=LEAVES),
    "pods": built(hosts(16, gpus=1), fabric=FatTree(ports_per_switch=4)),
    "uneven pods": built(hosts(13, gpus=1), fabric=FatTree(ports_per_switch=4)),
    "rails": built(HostSpec(name="p", count=4, design="p4d"), fabric=RAILS),
    "one switch": nvswitch_hosts(3, 4, 450e9, 50e9),
    "separate rails": nvswitch_hosts(3, 4, 450e9, 50e9, rails=True),
    "a slow NIC": with_rates(nvswitch_hosts(3, 3, 450e9, 50e9), {("h1/gpu2", "h1/nic2"): 10e9}),
}


def everything(cluster: Cluster) -> tuple[FlowStudy, Symmetry]:
    study = FlowStudy(cluster)
    return study, symmetry_of(study.network, study.network.is_gpu)


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_collapsed_exchange_has_the_optimum_of_the_whole(name: str) -> None:
    study, symmetry = everything(CLUSTERS[name])
    network, routes = study.network, Routes(study.network)
    devices = network.gpus
    small = Collapse(network, routes, symmetry, devices).exchange(Fraction(1), 10**6)
    large = whole(
        network,
        [
            routes.commodity(
                one, [x for x in devices.tolist() if x != one], [Fraction(1)] * (len(devices) - 1)
            )
            for one in devices.tolist()
        ],
    )
    assert small is not None
    assert sum(one.weight for one in small.commodities) == len(devices)
    assert len(small.commodities) < len(devices)
    assert small.size < large.size
    few, all_ = flow_bound(network, small), flow_bound(network, large)
    assert few is not None
    assert all_ is not None
    assert float(few[0].exact_seconds) == pytest.approx(float(all_[0].exact_seconds), rel=1e-9)
    one, other = link_bound(network, small), link_bound(network, large)
    if name == "half duplex":
        # Seen from a sender, the links into other hosts are several.
        assert one is not None
        assert other is not None
        assert one.exact_seconds < other.exact_seconds
    else:
        assert (one and one.exact_seconds) == (other and other.exact_seconds)


@pytest.mark.parametrize("name", CLUSTERS)
@pytest.mark.parametrize("kind", list(CollectiveKind)[1:])
def test_collapsed_gatherings_have_the_bounds_of_whole_ones(
    name: str, kind: CollectiveKind
) -> None:
    """Every device by itself, where the collapsed one asks one of each kind."""
    study, _ = everything(CLUSTERS[name])
    network, devices = study.network, study.network.gpus
    gathering = Gathering(kind, devices, Fraction(len(devices)))
    found = bound_gathering(study, gathering, FlowRouting.ANY, in_network_reduction=True)
    assert found.method is Method.SYMMETRIC_LINEAR_PROGRAM
    flow = found.of(BoundKind.CONCURRENT_FLOW)
    assert flow is not None
    routes = Routes(network, forwarders=network.is_gpu)
    slowest = Fraction(0)
    for root in devices.tolist():
        others = [other for other in devices.tolist() if other != root]
        groups = [others] if kind is not CollectiveKind.ALL_REDUCE else [[one] for one in others]
        share = Fraction(len(devices) if kind is CollectiveKind.ALL_REDUCE else 1)
        for group in groups:
            commodity = routes.commodity(
                root, group, [share] * len(group), inward=kind is CollectiveKind.ALL_GATHER
            )
            solved = flow_bound(network, whole(network, [commodity]))
            assert solved is not None
            slowest = max(slowest, solved[0].exact_seconds)
    assert float(flow.exact_seconds) == pytest.approx(float(slowest), rel=1e-9)


@pytest.mark.parametrize("name", CLUSTERS)
def test_orbits_are_as_large_as_said(name: str) -> None:
    """Pairs of vertices, sorted by their canonical pair: each sort has as many as it should."""
    study, symmetry = everything(CLUSTERS[name])
    count = min(study.network.vertex_count, 60)
    assert symmetry.canonical() == ((), 1)
    sizes: dict[tuple[int, ...], list[int]] = {}
    for pair in permutations(range(study.network.vertex_count), 2):
        canonical, size = symmetry.canonical(*pair)
        assert symmetry.canonical(*canonical) == (canonical, size)
        sizes.setdefault(canonical, []).append(size)
    assert count
    for found in sizes.values():
        assert set(found) == {len(found)}
    # One of each orbit, seen from nowhere and from each vertex that is one.
    firsts = list(symmetry.orbits())
    assert firsts == [vertex for vertex in firsts if symmetry.canonical(vertex)[0] == (vertex,)]
    assert len(firsts) == len({symmetry.canonical(v) for v in range(study.network.vertex_count)})
    for first in firsts:
        seconds = set(symmetry.orbits(first)) - {first}
        assert seconds == {second for one, second in sizes if one == first}


@pytest.mark.parametrize("number", range(30))
def test_canonical_links_are_links_alike(number: int, seed: int) -> None:
    """What a symmetry makes of a link is a link with the same rate, kind and capacity's users."""
    cluster = random_cluster(Random(f"{seed}-{number}"))
    check_links(cluster)


@pytest.mark.parametrize("name", CLUSTERS)
def test_canonical_links_of_known_clusters(name: str) -> None:
    check_links(CLUSTERS[name])


def check_links(cluster: Cluster) -> None:
    study, symmetry = everything(cluster)
    network = study.network
    users = np.bincount(network.resource)
    alike: dict[tuple[int, ...], set[object]] = {}
    orbits: dict[tuple[int, ...], int] = {}
    for link, (tail, head) in enumerate(
        zip(network.tail.tolist(), network.head.tolist(), strict=True)
    ):
        canonical, size = symmetry.canonical(tail, head)
        ends = tuple(network.names[vertex] for vertex in canonical)
        moved = cluster.links[ends[0], ends[1]]
        here = network.links[link]
        assert moved.bandwidth_bytes_per_second == here.bandwidth_bytes_per_second
        assert (moved.kind is LinkKind.NVLINK) == (here.kind is LinkKind.NVLINK)
        assert moved.latency_floor_seconds == here.latency_floor_seconds
        alike.setdefault(canonical, set()).add(int(users[network.resource[link]]))
        orbits[canonical] = orbits.get(canonical, 0) + 1
        assert size >= 1
    assert all(len(found) == 1 for found in alike.values())
    # Whole orbits of links are links: none is missing.
    for canonical, found in orbits.items():
        assert symmetry.canonical(*canonical)[1] == found


def test_devices_that_take_part_are_not_exchanged_with_others() -> None:
    """Two of the three hosts: each can stand for the other, and the third for neither."""
    study = FlowStudy(nvswitch_hosts(3, 2, 450e9, 50e9))
    number = study.network.number
    devices = np.array([number[f"h{h}/gpu{g}"] for h in (0, 2) for g in (0, 1)], dtype=np.int32)
    symmetry = study.symmetry(devices)
    first, other = number["h0/gpu0"], number["h2/gpu0"]
    assert symmetry.canonical(other) == ((first,), 2)
    assert symmetry.canonical(number["h1/gpu0"]) == ((number["h1/gpu0"],), 1)
    found = bound_exchange(study, Exchange(devices, Fraction(1)), FlowRouting.ANY)
    cut = found.of(BoundKind.CUT)
    assert cut is not None
    # Two devices a host: 4 pairs over two NICs.
    assert cut.exact_seconds == Fraction(4, 100 * 10**9)
