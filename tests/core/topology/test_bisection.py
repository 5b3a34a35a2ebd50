"""Bisections by hand, against networkx, and the max-flow behind them."""

from itertools import combinations
from random import Random

import networkx as nx
import pytest

from service.core.topology import bisection
from service.core.topology.bisection import device_bisection, host_bisection
from service.core.topology.cluster import Cluster, LinkKind, VertexKind
from service.core.topology.expand import expand
from service.core.topology.max_flow import Arc, min_cut
from service.core.topology.spec import (
    ClusterSpec,
    DeviceSpec,
    FabricRates,
    FabricSpec,
    HostSpec,
    LeafSpine,
    LinkSpec,
    RailOptimised,
)
from tests.core.topology.random_clusters import random_cluster


def cluster_of(design: str, count: int, fabric: FabricSpec | None = None) -> Cluster:
    host = HostSpec(name="h", count=count, design=design)
    return expand(ClusterSpec(hosts=(host,), fabric=fabric)).cluster


def gpus(cluster: Cluster, *hosts: str) -> list[str]:
    return [gpu.name for gpu in cluster.devices if not hosts or gpu.host in hosts]


@pytest.mark.parametrize("number", range(60))
def test_a_least_cut_is_a_greatest_flow(number: int, seed: int) -> None:
    random = Random(f"{seed}-{number}")
    count = random.randint(2, 12)
    arcs: list[Arc] = []
    for _ in range(random.randint(1, 40)):
        tail, head = random.sample(range(count), 2)
        arcs.append((tail, head, float(random.randint(0, 9))))
    ends = random.sample(range(count), random.randint(2, count))
    split = random.randint(1, len(ends) - 1)
    sources, targets = ends[:split], ends[split:]
    graph: nx.DiGraph = nx.DiGraph()  # type: ignore[type-arg]
    graph.add_nodes_from(["s", "t"])
    for tail, head, capacity in arcs:
        before = graph.edges[tail, head]["capacity"] if graph.has_edge(tail, head) else 0
        graph.add_edge(tail, head, capacity=before + capacity)
    # Without a capacity an edge carries as much as one likes.
    graph.add_edges_from(("s", source) for source in sources)
    graph.add_edges_from((target, "t") for target in targets)
    cut = min_cut(count, arcs, sources, targets)
    assert sum(arcs[arc][2] for arc in cut.arcs) == nx.maximum_flow_value(graph, "s", "t")


def test_rates_that_are_no_round_numbers() -> None:
    cut = min_cut(4, [(0, 1, 0.1), (1, 3, 0.3), (0, 2, 0.7), (2, 3, 0.2)], [0], [3])
    assert cut.arcs == (0, 3)


def test_two_hosts_on_rails() -> None:
    """Eight NICs of 50 GB/s each way are all that joins two hosts."""
    cluster = cluster_of("dgx-h100", 2, RailOptimised())
    found = host_bisection(cluster, gpus(cluster))
    assert found is not None
    assert (found.bytes_per_second, found.is_exact, found.partings) == (400e9, True, 1)
    assert (found.side, found.others) == (("h0",), 1)
    assert len(found.crossing) == 8


def test_an_oversubscribed_leaf_binds_only_allocations_across_it() -> None:
    """2 leaves of 2 hosts, 4:1: 800 GB/s below a leaf, 200 above."""
    fabric = LeafSpine(hosts_per_leaf=2, spines=2, rates=FabricRates(oversubscription_ratio=4.0))
    cluster = cluster_of("dgx-h100", 4, fabric)

    def worst(*hosts: str) -> float:
        found = host_bisection(cluster, gpus(cluster, *hosts))
        assert found is not None
        assert found.is_exact
        return found.bytes_per_second

    assert worst("h0", "h1") == 400e9
    assert worst("h0", "h2") == 200e9
    assert worst("h0", "h1", "h2", "h3") == 200e9
    # One against two: h0 against the others may use its leaf and the uplinks.
    assert worst("h0", "h1", "h2") == 200e9


def test_devices_of_one_host_by_hand() -> None:
    """A ring of 3, 1, 3 and 1 GB/s: the worst halves keep both strong links to themselves."""
    gpu = tuple(DeviceSpec(name=f"gpu{number}", kind=VertexKind.GPU) for number in range(4))
    rates = {(0, 1): 3.0, (1, 2): 1.0, (2, 3): 3.0, (3, 0): 1.0}
    ring = tuple(
        LinkSpec(
            source=f"gpu{one}",
            target=f"gpu{other}",
            kind=LinkKind.NVLINK,
            bandwidth_bytes_per_second=rate * 1e9,
        )
        for (one, other), rate in rates.items()
    )
    cluster = expand(ClusterSpec(hosts=(HostSpec(name="h", devices=gpu, links=ring),))).cluster
    found = device_bisection(cluster, gpus(cluster))
    assert found is not None
    assert (found.bytes_per_second, found.is_exact, found.partings) == (2e9, True, 3)
    assert found.side in {("h/gpu0", "h/gpu1"), ("h/gpu2", "h/gpu3")}


def test_an_nvswitch_gives_each_half_its_ports() -> None:
    cluster = cluster_of("dgx-h100", 1)
    found = device_bisection(cluster, gpus(cluster))
    assert found is not None
    # Four ports of 450 and four of PCIe; where the half is one socket's, the sockets' 192 bind.
    pcie = 4 * 16 * 8e9 / 8 * 128 / 130 * 4
    assert found.is_exact
    assert found.bytes_per_second == pytest.approx(4 * 450e9 + min(192e9, pcie))


def test_nothing_crosses_what_is_not_joined() -> None:
    cluster = cluster_of("dgx-h100", 2)
    found = host_bisection(cluster, gpus(cluster))
    assert found is not None
    assert (found.bytes_per_second, found.crossing) == (0.0, ())
    assert host_bisection(cluster, gpus(cluster, "h0")) is None
    assert device_bisection(cluster, ["h0/gpu0"]) is None


def test_hosts_outside_the_allocation_carry_nothing() -> None:
    """h0 and h2 meet only through h1, whose GPUs are not in the allocation."""
    nic = tuple(DeviceSpec(name=name, kind=VertexKind.NIC) for name in ("nic0", "nic1"))
    host = (DeviceSpec(name="gpu0", kind=VertexKind.GPU), *nic)
    inside = tuple(
        LinkSpec(
            source="gpu0", target=f"nic{number}", kind=LinkKind.PCIE, bandwidth_bytes_per_second=1e9
        )
        for number in range(2)
    )
    chain = tuple(
        LinkSpec(source=one, target=other, kind=LinkKind.OTHER, bandwidth_bytes_per_second=1e9)
        for one, other in (("h0/nic1", "h1/nic0"), ("h1/nic1", "h2/nic0"))
    )
    hosts = (HostSpec(name="h", count=3, devices=host, links=inside),)
    cluster = expand(ClusterSpec(hosts=hosts, links=chain)).cluster
    for pair, expected in ((("h0", "h1"), 1e9), (("h0", "h2"), 0.0)):
        found = host_bisection(cluster, gpus(cluster, *pair))
        assert found is not None
        assert found.bytes_per_second == expected


def test_a_card_with_two_ports_counts_once() -> None:
    """Two ports of 25 GB/s on one card of 31: the card is what crosses."""
    nics = tuple(
        DeviceSpec(name=f"nic{number}", kind=VertexKind.NIC, card="card0", rail=number)
        for number in range(2)
    )
    devices = (
        DeviceSpec(name="gpu0", kind=VertexKind.GPU),
        *nics,
        DeviceSpec(name="pcie0", kind=VertexKind.PCIE_SWITCH),
    )
    rates = {"gpu0": 100e9, "nic0": 31e9, "nic1": 31e9}
    links = tuple(
        LinkSpec(source=name, target="pcie0", kind=LinkKind.PCIE, bandwidth_bytes_per_second=rate)
        for name, rate in rates.items()
    )
    fabric = RailOptimised(rates=FabricRates(link_bytes_per_second=25e9))
    hosts = (HostSpec(name="h", count=2, devices=devices, links=links),)
    cluster = expand(ClusterSpec(hosts=hosts, fabric=fabric)).cluster
    found = host_bisection(cluster, gpus(cluster))
    assert found is not None
    assert found.bytes_per_second == 31e9
    assert found.crossing in {("h0/card0->h0/pcie0",), ("h0/pcie0->h0/card0",)}


def slow_host_bisection(cluster: Cluster) -> float:
    """Every parting of the hosts by networkx, transit through hosts taken away."""
    hosts = [host for host in cluster.hosts if gpus(cluster, host)]
    best = float("inf")
    for half in combinations(hosts, len(hosts) // 2):
        rest = [host for host in hosts if host not in half]
        for ours, theirs in ((list(half), rest), (rest, list(half))):
            graph: nx.DiGraph = nx.DiGraph()  # type: ignore[type-arg]
            graph.add_nodes_from(["S", "T"])
            for (one, other), link in cluster.links.items():
                a, b = cluster.vertices[one].host, cluster.vertices[other].host
                known = {None, *hosts}
                enters = b in ours and a != b
                leaves = a in theirs and a != b
                if a in known and b in known and not enters and not leaves:
                    graph.add_edge(one, other, capacity=link.bandwidth_bytes_per_second)
            graph.add_edges_from(("S", name) for name in gpus(cluster, *ours))
            graph.add_edges_from((name, "T") for name in gpus(cluster, *theirs))
            best = min(best, nx.maximum_flow_value(graph, "S", "T"))
    return best


@pytest.mark.parametrize("number", range(40))
def test_random_clusters_against_all_partings(number: int, seed: int) -> None:
    cluster = random_cluster(Random(f"{seed}-{number}"))
    found = host_bisection(cluster, gpus(cluster))
    if found is None:
        assert len([host for host in cluster.hosts if gpus(cluster, host)]) < 2
        return
    assert found.is_exact
    assert found.bytes_per_second == pytest.approx(slow_host_bisection(cluster))
    rates = {link.resource: link.bandwidth_bytes_per_second for link in cluster.links.values()}
    assert sum(rates[name] for name in found.crossing) == pytest.approx(found.bytes_per_second)


def test_too_many_partings_give_an_upper_end() -> None:
    """64 hosts on 16 leaves: likely partings only, and the first finds what the uplinks carry."""
    fabric = LeafSpine(hosts_per_leaf=4, spines=4, rates=FabricRates(oversubscription_ratio=2.0))
    cluster = cluster_of("p4d", 64, fabric)
    found = host_bisection(cluster, gpus(cluster))
    assert found is not None
    assert not found.is_exact
    assert found.partings == 3
    # Eight leaves of four hosts of 50 GB/s, half of it upwards.
    assert found.bytes_per_second == 8 * 4 * 50e9 / 2


def test_what_is_too_large_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_of("dgx-h100", 16, LeafSpine(hosts_per_leaf=8, spines=2))
    found = host_bisection(cluster, gpus(cluster))
    assert found is not None
    assert found.is_exact
    monkeypatch.setattr(bisection, "_MAX_LINKS", 100)
    assert host_bisection(cluster, gpus(cluster)) is None
    assert device_bisection(cluster, gpus(cluster)) is None
