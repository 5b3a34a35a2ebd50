"""All ways between two devices: alternatives, forwarding, and what is shared."""

from itertools import pairwise
from random import Random

import networkx as nx
import pytest

from service.core.errors import InvalidInput, WorkBudgetExceeded
from service.core.topology import pair_paths
from service.core.topology.bounds import transfer_lower_bound_seconds
from service.core.topology.cluster import Cluster, LinkKind, VertexKind
from service.core.topology.expand import expand
from service.core.topology.pair_paths import PathRole, find_pair_paths
from service.core.topology.paths import PathFinder
from service.core.topology.spec import (
    ClusterSpec,
    DeviceSpec,
    Duplex,
    FabricRates,
    FabricSpec,
    HostSpec,
    LeafSpine,
    LinkSpec,
    RailOptimised,
)
from tests.core.topology.random_clusters import random_cluster

CLUSTERS = 80
DISTANCE = {"host_bridge": 16, "on_chip": 16, "socket": 64}


def cluster_of(design: str, count: int = 1, fabric: FabricSpec | None = None) -> Cluster:
    host = HostSpec(name="h", count=count, design=design)
    return expand(ClusterSpec(hosts=(host,), fabric=fabric)).cluster


def names(path: tuple[str, ...]) -> str:
    return " ".join(name.removeprefix("h0/") for name in path)


def test_pxn_by_hand_on_rails_that_nothing_joins() -> None:
    """gpu0 reaches rail 3 over the CPU, or by NVLink over gpu3, which sits beside nic3."""
    cluster = cluster_of("dgx-h100", 2, RailOptimised())
    found = find_pair_paths(cluster, ("h0/gpu0", "h1/gpu3"))
    pxn = [one for one in found.paths if one.role is PathRole.PXN]
    assert found.forwarding == len(pxn) == 1
    (way,) = pxn
    there = "gpu0 nvswitch0 gpu3 pcie3 nic3 rail3 h1/nic3 h1/pcie3 h1/gpu3"
    assert names(way.path.vertices) == there
    assert way.forwarded_by == "h0/gpu3"
    assert (way.kind.value, way.source_nic and way.source_nic.kind.value) == ("rail", "pxn")
    assert way.path.bandwidth_bytes_per_second == 50e9
    # Both NVLinks that forward, with their 936.25 ns each, and the two of the network with 500.
    assert way.path.latency_seconds == pytest.approx(2 * 936.25e-9 + 2 * 500e-9)
    assert transfer_lower_bound_seconds(way.path, 50_000_000_000) == 1.0


def test_pxn_spares_the_spines() -> None:
    cluster = cluster_of("dgx-h100", 2, RailOptimised(spines=2))
    found = find_pair_paths(cluster, ("h0/gpu0", "h1/gpu3"))
    assert [(one.role.value, one.kind.value) for one in found.paths] == [
        ("pinned", "spine"),
        ("equal_cost", "spine"),
        ("pxn", "rail"),
    ]


@pytest.mark.parametrize(
    ("cluster", "pair"),
    [
        (cluster_of("dgx-h100", 2, RailOptimised(spines=2)), ("h0/gpu3", "h1/gpu3")),
        (cluster_of("pcie-gen4-8gpu", 2, RailOptimised(spines=2)), ("h0/gpu0", "h1/gpu5")),
        (cluster_of("dgx-h100", 2, RailOptimised()), ("h0/gpu0", "h0/gpu0")),
        (cluster_of("dgx-h100", 2, RailOptimised()), ("h0/gpu0", "h0/gpu5")),
        (cluster_of("dgx-h100", 2, RailOptimised()), ("h0/gpu0", "h0/nic5")),
        (cluster_of("dgx-h100", 2), ("h0/gpu0", "h1/gpu5")),
    ],
    ids=["own rail", "no NVLink", "itself", "NVLink", "a NIC inside", "no fabric"],
)
def test_nobody_forwards(cluster: Cluster, pair: tuple[str, str]) -> None:
    assert find_pair_paths(cluster, pair).forwarding == 0


def test_nvb_by_hand() -> None:
    """In the cube mesh 0 and 5 share the neighbours 1 (25 and 50 GB/s) and 4 (50 and 25)."""
    found = find_pair_paths(cluster_of("dgx-1-v100"), ("h0/gpu0", "h0/gpu5"))
    assert [(one.role.value, one.kind.value, names(one.path.vertices)) for one in found.paths] == [
        ("pinned", "sys", "gpu0 pcie0 cpu0 cpu1 pcie2 gpu5"),
        ("nvb", "nvb", "gpu0 gpu1 gpu5"),
        ("nvb", "nvb", "gpu0 gpu4 gpu5"),
    ]
    assert [one.path.bandwidth_bytes_per_second for one in found.paths[1:]] == [25e9, 25e9]
    assert len(find_pair_paths(cluster_of("dgx-1-v100"), ("h0/gpu0", "h0/gpu5"), (), 1).paths) == 2


def test_unreachable_is_a_result() -> None:
    cluster = cluster_of("dgx-h100", 2)
    found = find_pair_paths(cluster, ("h0/gpu0", "h1/gpu0"), [("h1/gpu0", "h0/gpu0")])
    assert (found.paths, found.concurrent) == ((), (None,))


def levels(
    cluster: Cluster, pair: tuple[str, str], concurrent: list[tuple[str, str]]
) -> list[tuple[str, str, tuple[int, ...]]]:
    pinned = find_pair_paths(cluster, pair, concurrent).paths[0]
    return [(one.level.value, one.link.name, one.users) for one in pinned.shared]


def test_two_gpus_on_one_nic_share_slot_and_port() -> None:
    """p4d: gpu0 and gpu1 have nic0 in common, each its own slot."""
    cluster = cluster_of("p4d", 2, RailOptimised())
    concurrent = [("h0/gpu1", "h1/gpu1"), ("h0/gpu2", "h1/gpu2"), ("h1/gpu1", "h0/gpu1")]
    assert levels(cluster, ("h0/gpu0", "h1/gpu0"), concurrent) == [
        ("slot", "h0/pcie0->h0/nic0", (0,)),
        ("port", "h0/nic0->rail0", (0,)),
        ("port", "rail0->h1/nic0", (0,)),
        ("slot", "h1/nic0->h1/pcie0", (0,)),
    ]


def test_sharing_the_host_bridge_and_the_socket() -> None:
    cluster = cluster_of("pcie-gen4-8gpu")
    concurrent = [("h0/gpu1", "h0/gpu5"), ("h0/gpu4", "h0/gpu0"), ("h0/gpu2", "h0/gpu3")]
    assert levels(cluster, ("h0/gpu0", "h0/gpu4"), concurrent) == [
        ("host_bridge", "h0/pcie0->h0/cpu0", (0,)),
        ("socket", "h0/cpu0->h0/cpu1", (0,)),
        ("host_bridge", "h0/cpu1->h0/pcie1", (0,)),
    ]


def test_sharing_between_the_tiers() -> None:
    """One spine: all that leaves a leaf goes up the same way."""
    cluster = cluster_of("dgx-h100", 2, LeafSpine(hosts_per_leaf=1, spines=1))
    concurrent = [("h0/gpu1", "h1/gpu1"), ("h0/gpu2", "h1/gpu2")]
    found = find_pair_paths(cluster, ("h0/gpu0", "h1/gpu0"), concurrent).paths[0]
    up, down = found.shared
    assert (up.level.value, up.link.name) == ("leaf_uplink", "leaf0->spine0")
    assert (down.level.value, down.link.name) == ("leaf_downlink", "spine0->leaf1")
    # Eight NICs of 50 GB/s, not oversubscribed; three of them send.
    assert up.equal_share_bytes_per_second == pytest.approx(400e9 / 3)
    assert up.lower_bound_seconds(400_000_000_000) == pytest.approx(3.0)


def test_two_nvlink_transfers_share_the_port_of_one_gpu() -> None:
    cluster = cluster_of("dgx-h100")
    concurrent = [("h0/gpu0", "h0/gpu2"), ("h0/gpu3", "h0/gpu1"), ("h0/gpu4", "h0/gpu5")]
    assert levels(cluster, ("h0/gpu0", "h0/gpu1"), concurrent) == [
        ("nvlink", "h0/gpu0->h0/nvswitch0", (0,)),
        ("nvlink", "h0/nvswitch0->h0/gpu1", (1,)),
    ]


def test_every_unknown_name_is_told() -> None:
    with pytest.raises(InvalidInput) as refused:
        find_pair_paths(cluster_of("p4d"), ("h0/gpu9", "h0/gpu1"), [("h0/gpu0", "h0/gpu8")])
    paths = [fault.path for fault in refused.value.faults]
    assert paths == [("source",), ("concurrent", 0, "target")]


def test_pairs_that_are_alike_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_of("p4d", 64, LeafSpine(hosts_per_leaf=64, spines=0))
    alike = [("h0/gpu0", f"h{number}/gpu0") for number in range(1, 64)]
    unlike = [(f"h0/gpu{one}", f"h1/gpu{two}") for one in range(8) for two in range(8)]
    most = 66 * 60  # links of two hosts: 2 x 33, and what is looked at for the pair itself
    monkeypatch.setattr(pair_paths, "MAX_LINKS_SEARCHED", most)
    assert len(find_pair_paths(cluster, ("h0/gpu0", "h1/gpu1"), alike).concurrent) == 63
    with pytest.raises(WorkBudgetExceeded) as refused:
        find_pair_paths(cluster, ("h0/gpu0", "h1/gpu1"), unlike)
    assert refused.value.faults[0].path == ("concurrent",)


def equals(cluster: Cluster, source: str, target: str) -> list[tuple[str, ...]] | None:
    """Every allowed path of least distance and widest bottleneck, by networkx."""
    vertices = cluster.vertices
    homes = {vertices[source].host, vertices[target].host}
    own_network = {
        name
        for name, vertex in vertices.items()
        if vertex.host is None and vertex.kind.value in ("nvswitch", "router")
    }
    for with_fabric in (False, True) if len(homes) == 1 or own_network else (True,):
        graph: nx.DiGraph[str] = nx.DiGraph()
        for (one, other), link in cluster.links.items():
            if all(
                (
                    vertices[end].host in homes
                    or end in own_network
                    or (with_fabric and vertices[end].host is None)
                )
                and (vertices[end].kind.value != "gpu" or end in (source, target))
                for end in (one, other)
            ):
                weight = DISTANCE.get(link.kind.value, 1)
                graph.add_edge(one, other, weight=weight, rate=link.bandwidth_bytes_per_second)
        try:
            listed = list(nx.all_shortest_paths(graph, source, target, weight="weight"))
        except (nx.NetworkXNoPath, nx.NodeNotFound):
            continue
        rates = [min(graph.edges[hop]["rate"] for hop in pairwise(path)) for path in listed]
        widest = zip(listed, rates, strict=True)
        return sorted(tuple(path) for path, rate in widest if rate == max(rates))
    return None


@pytest.mark.parametrize("number", range(CLUSTERS))
def test_alternatives_are_all_others_that_networkx_lists(number: int, seed: int) -> None:
    random = Random(f"{seed}-{number}")
    cluster = random_cluster(random)
    finder = PathFinder(cluster)
    gpus = [device.name for device in cluster.devices]
    for _ in range(10):
        source, target = random.choice(gpus), random.choice(gpus)
        if source == target:
            continue
        case = f"seed {seed}-{number}: {source} to {target}"
        expected = equals(cluster, source, target)
        pinned = finder.path(source, target)
        found = [path.vertices for path in finder.equal_cost_paths(source, target, 10_000)]
        if expected is None or pinned is None:
            assert (expected, pinned, found) == (None, None, []), case
            continue
        assert found == [path for path in expected if path != pinned.vertices], case
        assert len(found) == pinned.equal_cost_alternatives, case
        some = finder.equal_cost_paths(source, target, 2)
        assert [path.vertices for path in some] == found[:2], case


@pytest.mark.parametrize("number", range(CLUSTERS))
def test_forwarded_ways_hold_what_they_promise(number: int, seed: int) -> None:
    """Links follow each other from end to end, one GPU is between, NVLink leads to it."""
    random = Random(f"{seed}-{number}")
    cluster = random_cluster(random)
    gpus = [device.name for device in cluster.devices]
    for _ in range(10):
        pair = random.choice(gpus), random.choice(gpus)
        found = find_pair_paths(cluster, pair)
        for one in found.paths:
            way = one.path.vertices
            assert (way[0], way[-1]) == pair
            assert all(hop in cluster.links for hop in pairwise(way))
            between = [name for name in way[1:-1] if cluster.vertices[name].kind.value == "gpu"]
            assert between == ([] if one.forwarded_by is None else [one.forwarded_by])
            if one.forwarded_by is not None:
                first = one.path.links[: way.index(one.forwarded_by)]
                assert {link.kind.value for link in first} == {"nvlink"}


def test_random_clusters_have_ways_that_forward(seed: int) -> None:
    found = 0
    for number in range(CLUSTERS):
        cluster = random_cluster(Random(f"{seed}-{number}"))
        gpus = [device.name for device in cluster.devices]
        found += any(find_pair_paths(cluster, (gpus[0], gpu)).forwarding for gpu in gpus)
    assert found >= CLUSTERS // 10


def test_raising_a_link_that_does_not_bind_changes_no_bound() -> None:
    def bound(uplink: float, oversubscribed: float | None = None) -> float:
        rates = FabricRates(uplink_bytes_per_second=uplink, oversubscription_ratio=oversubscribed)
        cluster = cluster_of("dgx-h100", 2, LeafSpine(hosts_per_leaf=1, spines=2, rates=rates))
        path = find_pair_paths(cluster, ("h0/gpu0", "h1/gpu0")).paths[0].path
        return transfer_lower_bound_seconds(path, 10**9)

    assert bound(60e9) == bound(600e9)
    assert bound(40e9) > bound(50e9) == bound(60e9)


def test_the_directions_of_a_half_duplex_link_are_one_capacity() -> None:
    gpus = tuple(DeviceSpec(name=f"gpu{number}", kind=VertexKind.GPU) for number in range(2))
    wire = LinkSpec(
        source="gpu0",
        target="gpu1",
        kind=LinkKind.PCIE,
        bandwidth_bytes_per_second=1e9,
        duplex=Duplex.HALF,
    )
    host = HostSpec(name="h", devices=gpus, links=(wire,))
    cluster = expand(ClusterSpec(hosts=(host,))).cluster
    (pinned,) = find_pair_paths(cluster, ("h/gpu0", "h/gpu1"), [("h/gpu1", "h/gpu0")]).paths
    (shared,) = pinned.shared
    assert (shared.link.resource, shared.users) == ("h/gpu0<->h/gpu1", (0,))
    assert shared.equal_share_bytes_per_second == 0.5e9
