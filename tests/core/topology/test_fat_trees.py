"""Fat trees: the counts of the k-ary tree, shapes given in numbers, and what does not fit."""

from collections import Counter
from dataclasses import replace

import networkx as nx
import pytest

from service.core.errors import FaultCode, InvalidInput
from service.core.topology.cluster import RateOrigin, VertexKind
from service.core.topology.expand import expand
from service.core.topology.fabric_parts import DevicePort, FabricParts, HostPorts
from service.core.topology.fat_trees import fat_tree
from service.core.topology.paths import PathFinder
from service.core.topology.spec import ClusterSpec, FabricRates, FatTree, HostSpec

GB = 1e9
SHAPE = FatTree(hosts_per_leaf=2, leaves_per_pod=3, spines_per_pod=2, cores_per_spine=4)


def ports(hosts: int, nics: int, rate: float | None = 50 * GB) -> list[HostPorts]:
    return [
        HostPorts(f"host{h}", tuple(DevicePort(f"host{h}/nic{n}", n, rate) for n in range(nics)))
        for h in range(hosts)
    ]


def rates(parts: FabricParts, source: str, target: str) -> set[float]:
    """The rates of all links between switches whose names begin so."""
    return {
        link.bandwidth_bytes_per_second
        for link in parts.links
        if link.source.startswith(source) and link.target.startswith(target)
    }


@pytest.mark.parametrize("ports_per_switch", [2, 4, 6, 8])
def test_a_full_k_ary_tree(ports_per_switch: int) -> None:
    """k^3/4 hosts of one NIC, 5k^2/4 switches of k ports each, k^3/4 links in each of 3 tiers."""
    k = ports_per_switch
    parts = fat_tree(FatTree(ports_per_switch=k), ports(k**3 // 4, 1))
    kinds = Counter(switch.kind for switch in parts.switches)
    assert kinds == {
        VertexKind.LEAF: k * k // 2,
        VertexKind.SPINE: k * k // 2,
        VertexKind.CORE: k * k // 4,
    }
    assert len(parts.links) == 3 * k**3 // 4
    used: Counter[str] = Counter()
    for link in parts.links:
        used.update((link.source, link.target))
    assert {used[switch.name] for switch in parts.switches} == {k}
    assert {link.bandwidth_bytes_per_second for link in parts.links} == {50 * GB}
    # Every host keeps its full rate to any other: half of them can send to the other half.
    graph: nx.Graph[str] = nx.Graph()
    for link in parts.links:
        graph.add_edge(link.source, link.target, capacity=1)
    names = [f"host{h}/nic0" for h in range(k**3 // 4)]
    for number, name in enumerate(names):
        graph.add_edge("all" if number < len(names) // 2 else "others", name, capacity=1)
    assert nx.maximum_flow_value(graph, "all", "others") == len(names) // 2


def test_a_k_ary_tree_for_hosts_of_several_nics() -> None:
    """Eight ports for hosts on a leaf are one host of 8 NICs, or two of 4."""
    tree = FatTree(ports_per_switch=16)
    one, two = fat_tree(tree, ports(8, 8)), fat_tree(tree, ports(8, 4))
    assert Counter(link.target for link in one.links)["leaf7"] == 8
    assert Counter(link.target for link in two.links)["leaf3"] == 8
    assert "leaf4" not in {switch.name for switch in two.switches}


def test_a_shape_by_hand() -> None:
    """12 hosts of two NICs: 6 leaves in 2 pods, 2 spines each, 2 groups of 4 cores.

    A leaf takes 200 GB/s and gives 100 to each spine. A spine takes 300 from three leaves, and
    gives 37.5 to each of four cores at 2:1.
    """
    parts = fat_tree(replace(SHAPE, core_oversubscription_ratio=2.0), ports(12, 2))
    assert [switch.name for switch in parts.switches] == [
        *(f"leaf{n}" for n in range(6)),
        *("spine0-0", "spine0-1", "spine1-0", "spine1-1"),
        *(f"core{group}-{n}" for group in range(2) for n in range(4)),
    ]
    assert rates(parts, "leaf", "spine") == {100 * GB}
    assert rates(parts, "spine", "core") == {37.5 * GB}
    ends = {(link.source, link.target) for link in parts.links}
    assert ("leaf3", "spine1-0") in ends
    assert ("leaf2", "spine1-0") not in ends
    assert ("spine1-1", "core1-3") in ends
    assert ("spine1-1", "core0-3") not in ends
    assert len(ends) == 24 + 6 * 2 + 4 * 4


def test_rates_that_nobody_states_are_assumed() -> None:
    def origins(tree: FatTree) -> list[tuple[RateOrigin, str | None]]:
        parts = fat_tree(tree, ports(12, 2))
        found = {link.source[:4]: link for link in parts.links}
        return [
            (found[name].bandwidth_origin, found[name].bandwidth_source)
            for name in ("leaf", "spin")
        ]

    assert origins(SHAPE) == [
        (RateOrigin.ASSUMED, "leaves that are not oversubscribed"),
        (RateOrigin.ASSUMED, "spines that are not oversubscribed"),
    ]
    stated = replace(SHAPE, core_oversubscription_ratio=1.0)
    assert origins(stated)[1][0] is RateOrigin.ASSUMED
    both = replace(stated, rates=FabricRates(oversubscription_ratio=1.0))
    assert [origin for origin, _ in origins(both)] == [RateOrigin.STATED] * 2
    given = replace(stated, rates=FabricRates(uplink_bytes_per_second=80 * GB))
    assert [origin for origin, _ in origins(given)] == [RateOrigin.STATED] * 2
    assert rates(fat_tree(given, ports(12, 2)), "spine", "core") == {60 * GB}
    alike = "all links of a k-ary fat tree have the rate of its hosts' links"
    assert origins(FatTree(ports_per_switch=8)) == [(RateOrigin.STATED, alike)] * 2
    assert "fabric: spines are not oversubscribed" in fat_tree(SHAPE, ports(12, 2)).assumptions
    said = fat_tree(FatTree(ports_per_switch=8), ports(12, 2)).assumptions
    assert not any("oversubscribed" in text for text in said)


@pytest.mark.parametrize(
    ("tree", "hosts", "expected"),
    [
        (FatTree(), 1, [(FaultCode.MISSING_FIELD, name) for name in (
            "hosts_per_leaf", "leaves_per_pod", "spines_per_pod", "cores_per_spine"
        )]),
        (replace(SHAPE, hosts_per_leaf=0), 1, [(FaultCode.OUT_OF_RANGE, "hosts_per_leaf")]),
        (
            replace(SHAPE, ports_per_switch=4),
            1,
            [(FaultCode.EXCLUSIVE_FIELDS, name) for name in (
                "hosts_per_leaf", "leaves_per_pod", "spines_per_pod", "cores_per_spine"
            )],
        ),
        (FatTree(ports_per_switch=5), 1, [(FaultCode.OUT_OF_RANGE, "ports_per_switch")]),
        (FatTree(ports_per_switch=1026), 1, [(FaultCode.OUT_OF_RANGE, "ports_per_switch")]),
        # Three NICs a host do not fill a leaf of two ports.
        (FatTree(ports_per_switch=4), 3, [(FaultCode.INCONSISTENT, "ports_per_switch")]),
        (
            FatTree(ports_per_switch=8, core_oversubscription_ratio=2.0,
                    rates=FabricRates(oversubscription_ratio=2.0)),
            1,
            [(FaultCode.INCONSISTENT, "oversubscription_ratio"),
             (FaultCode.INCONSISTENT, "core_oversubscription_ratio")],
        ),
        (
            replace(SHAPE, core_oversubscription_ratio=0.0,
                    rates=FabricRates(latency_seconds=2.0)),
            1,
            [(FaultCode.OUT_OF_RANGE, "core_oversubscription_ratio"),
             (FaultCode.OUT_OF_RANGE, "latency_seconds")],
        ),
        (
            FatTree(hosts_per_leaf=1, leaves_per_pod=1, spines_per_pod=4096, cores_per_spine=4096),
            1,
            [(FaultCode.OUT_OF_RANGE, "cores_per_spine")],
        ),
        (FatTree(ports_per_switch=1024), 2, [(FaultCode.OUT_OF_RANGE, "ports_per_switch")]),
    ],
)  # fmt: skip
def test_trees_at_fault(tree: FatTree, hosts: int, expected: list[tuple[FaultCode, str]]) -> None:
    with pytest.raises(InvalidInput) as refused:
        fat_tree(tree, ports(1, hosts))
    assert [(fault.code, fault.path) for fault in refused.value.faults] == [
        (code, (name,)) for code, name in expected
    ]


def test_too_many_hosts_for_a_k_ary_tree() -> None:
    """Four pods of two leaves of two ports: 16 hosts, and not one more."""
    tree = FatTree(ports_per_switch=4)
    assert len(fat_tree(tree, ports(16, 1)).links) == 48
    with pytest.raises(InvalidInput, match="join at most 16 such hosts; there are 17"):
        fat_tree(tree, ports(17, 1))


def test_a_rate_has_to_be_known() -> None:
    with pytest.raises(InvalidInput) as refused:
        fat_tree(SHAPE, ports(2, 2, rate=None))
    assert refused.value.faults[0].path == ("link_bytes_per_second",)


def test_paths_climb_as_far_as_they_must() -> None:
    """Within a leaf, a pod, and across pods by a core; the destinations take turns above."""
    spec = ClusterSpec(
        hosts=(HostSpec(name="host", count=16, design="p4d"),),
        fabric=FatTree(hosts_per_leaf=2, leaves_per_pod=2, spines_per_pod=2, cores_per_spine=2),
    )
    finder = PathFinder(expand(spec).cluster)

    def switches(target: str) -> list[str]:
        path = finder.path("host0/gpu0", target)
        assert path is not None
        return [name for name in path.vertices if "/" not in name]

    assert switches("host1/gpu0") == ["leaf0"]
    assert [name[:5] for name in switches("host2/gpu0")] == ["leaf0", "spine", "leaf1"]
    assert [name[:4] for name in switches("host4/gpu0")] == [
        *("leaf", "spin", "core", "spin", "leaf")
    ]
    cores = Counter(switches(f"host{h}/gpu{g}")[2] for h in range(4, 8) for g in range(8))
    assert len(cores) == 4
    assert set(cores.values()) == {8}
