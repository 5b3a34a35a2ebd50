"""How traffic is spread over equal-cost paths: by destination, and by nothing else."""

from collections import Counter
from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.topology.bounds import Transfer, link_loads
from service.core.topology.cluster import Cluster, LinkKind, VertexKind
from service.core.topology.expand import expand
from service.core.topology.paths import PathFinder, PhysicalPath
from service.core.topology.spec import (
    ClusterSpec,
    DeviceSpec,
    FabricSpec,
    HostSpec,
    LeafSpine,
    LinkSpec,
    RailOptimised,
    SwitchSpec,
)
from tests.core.topology.random_clusters import random_cluster

CLUSTERS = 60


def h100(count: int, fabric: FabricSpec) -> Cluster:
    host = HostSpec(name="host", count=count, design="dgx-h100")
    return expand(ClusterSpec(hosts=(host,), fabric=fabric)).cluster


def single(count: int, switches: Iterable[str], links: Iterable[tuple[str, str]]) -> Cluster:
    """Hosts `h0`, `h1`, ... of one GPU each and what joins them, every link equally fast."""
    gpu = DeviceSpec(name="gpu0", kind=VertexKind.GPU)
    return expand(
        ClusterSpec(
            hosts=tuple(HostSpec(name=f"h{number}", devices=(gpu,)) for number in range(count)),
            switches=tuple(SwitchSpec(name) for name in switches),
            links=tuple(
                LinkSpec(
                    source=one,
                    target=other,
                    kind=LinkKind.FABRIC,
                    bandwidth_bytes_per_second=1e9,
                )
                for one, other in links
            ),
        )
    ).cluster


def found(finder: PathFinder, source: str, target: str) -> PhysicalPath:
    path = finder.path(source, target)
    assert path is not None
    return path


def test_two_leaves_and_three_spines_by_hand() -> None:
    """NICs are numbered leaf by leaf: 0 to 7 on leaf0, 8 to 15 on leaf1."""
    finder = PathFinder(h100(2, LeafSpine(hosts_per_leaf=1, spines=3)))
    there = [found(finder, f"host0/gpu{i}", f"host1/gpu{i}").vertices[4] for i in range(8)]
    back = [found(finder, f"host1/gpu{i}", f"host0/gpu{i}").vertices[4] for i in range(8)]
    assert there == [f"spine{(8 + i) % 3}" for i in range(8)]
    assert back == [f"spine{i % 3}" for i in range(8)]
    assert found(finder, "host0/gpu0", "host1/gpu0").equal_cost_alternatives == 2


@given(
    hosts_per_leaf=st.integers(1, 4),
    leaves=st.integers(2, 4),
    spines=st.integers(1, 11),
    last=st.integers(0, 3),
)
def test_uniform_destinations_load_spines_evenly(
    hosts_per_leaf: int, leaves: int, spines: int, last: int
) -> None:
    """From one leaf to all NICs of another: no two spines differ by more than one flow."""
    count = hosts_per_leaf * leaves - min(last, hosts_per_leaf - 1)
    finder = PathFinder(h100(count, LeafSpine(hosts_per_leaf=hosts_per_leaf, spines=spines)))
    for leaf in range(1, leaves):
        below = range(leaf * hosts_per_leaf, min(count, (leaf + 1) * hosts_per_leaf))
        flows = [found(finder, "host0/gpu3", f"host{h}/gpu{g}") for h in below for g in range(8)]
        loads = Counter(dict.fromkeys((f"spine{s}" for s in range(spines)), 0))
        loads.update(path.vertices[4] for path in flows)
        assert len(loads) == spines
        assert max(loads.values()) - min(loads.values()) <= 1
        assert sum(loads.values()) == 8 * len(below)


@pytest.mark.parametrize("spines", [2, 3, 4, 8])
def test_traffic_to_one_rail_is_spread_too(spines: int) -> None:
    """The NICs of one rail switch, one a host, have consecutive numbers."""
    count = 24
    finder = PathFinder(h100(count, RailOptimised(spines=spines)))
    flows = [found(finder, "host0/gpu0", f"host{h}/gpu6") for h in range(1, count)]
    loads = Counter(path.vertices[4] for path in flows)
    assert len(loads) == spines
    assert max(loads.values()) - min(loads.values()) <= 1


def test_the_bound_of_a_link_falls_with_the_number_of_spines() -> None:
    """Eight pairs cross rails; over one spine each uplink carries all of its rail's traffic."""
    bounds = []
    for spines in (1, 2, 4):
        finder = PathFinder(h100(9, RailOptimised(spines=spines)))
        flows = [found(finder, "host0/gpu0", f"host{h}/gpu5") for h in range(1, 9)]
        trunks = [
            load
            for load in link_loads([Transfer(path, 1_000_000) for path in flows]).loads
            if load.link.source == "rail0"
        ]
        bounds.append(max(load.total_bytes for load in trunks))
    assert bounds == [8_000_000, 4_000_000, 2_000_000]


def fat_tree() -> Cluster:
    """Two pods of two edge and two aggregation switches, four cores, two hosts an edge switch.

    The 4-ary fat tree cut down to two of its pods: aggregation switch `a0` of each pod has cores
    `c0` and `c1`, `a1` has `c2` and `c3`.
    """
    switches = [f"c{core}" for core in range(4)]
    links = []
    for pod in "pq":
        switches += [f"{pod}{kind}{i}" for kind in "ae" for i in range(2)]
        links += [(f"{pod}e{e}", f"{pod}a{a}") for e in range(2) for a in range(2)]
        links += [(f"{pod}a{a}", f"c{2 * a + c}") for a in range(2) for c in range(2)]
    edges = [f"{pod}e{e}" for pod in "pq" for e in range(2)]
    links += [(f"h{number}/gpu0", edges[number // 2]) for number in range(8)]
    return single(8, switches, links)


def test_a_three_tier_tree_uses_every_core() -> None:
    """By hand: hosts are numbers 0 to 7; the first binary digit picks the aggregation switch, the
    second the core. Were the remainder taken twice, cores c1 and c2 would carry nothing."""
    finder = PathFinder(fat_tree())
    ways = [found(finder, "h0/gpu0", f"h{number}/gpu0").vertices[1:-1] for number in range(1, 8)]
    assert ways == [
        ("pe0",),
        ("pe0", "pa0", "pe1"),
        ("pe0", "pa1", "pe1"),
        ("pe0", "pa0", "c0", "qa0", "qe0"),
        ("pe0", "pa1", "c2", "qa1", "qe0"),
        ("pe0", "pa0", "c1", "qa0", "qe1"),
        ("pe0", "pa1", "c3", "qa1", "qe1"),
    ]


@pytest.mark.parametrize(
    "cluster",
    [
        fat_tree(),
        h100(6, LeafSpine(hosts_per_leaf=2, spines=3)),
        h100(5, RailOptimised(hosts_per_leaf=2, spines=3)),
    ],
)
def test_a_switch_has_one_way_to_a_destination(cluster: Cluster) -> None:
    """As a forwarding table: whichever device sends, the next hop to one NIC is the same."""
    finder = PathFinder(cluster)
    table: dict[tuple[str, str], str] = {}
    for source in cluster.devices:
        for target in cluster.devices:
            names = found(finder, source.name, target.name).vertices
            inside = [cluster.vertices[name].host is not None for name in names]
            switches = [i for i, within in enumerate(inside) if not within]
            for i in switches:
                entry = names[i], names[switches[-1] + 1]
                assert table.setdefault(entry, names[i + 1]) == names[i + 1]
    assert table


def test_all_flows_to_one_device_share_the_last_link_down() -> None:
    """Adding senders changes no path that was there before: nothing but the pair decides."""
    cluster = h100(8, LeafSpine(hosts_per_leaf=2, spines=3))
    finder = PathFinder(cluster)
    paths = [found(finder, f"host{h}/gpu{h}", "host7/gpu4").vertices for h in range(6)]
    assert len({path[4] for path in paths}) == 1


@pytest.mark.parametrize("number", range(CLUSTERS))
def test_neither_earlier_questions_nor_the_order_of_the_document_matter(
    number: int, seed: int
) -> None:
    """What was found for like pairs, and hosts and links in another order, change no path."""
    random = Random(f"{seed}-{number}")
    cluster = random_cluster(random)
    vertices, links = list(cluster.vertices.items()), list(cluster.links.items())
    random.shuffle(vertices)
    random.shuffle(links)
    shuffled = PathFinder(Cluster(dict(vertices), dict(links)))
    asked_often = PathFinder(cluster)
    gpus = [device.name for device in cluster.devices]
    pairs = [(random.choice(gpus), random.choice(gpus)) for _ in range(25)]
    for pair in pairs:
        expected = PathFinder(cluster).path(*pair)
        assert asked_often.path(*pair) == expected
        assert shuffled.path(*pair) == expected
