"""Tiers of switches by what they are joined to, in fabrics whose tiers are known."""

from collections.abc import Iterable

from service.core.topology.cluster import Cluster, Link, LinkKind, Vertex, VertexKind
from service.core.topology.tiers import fabric_tiers, switch_tiers

Pairs = list[tuple[str, str]]


def tiers(hosts: dict[str, int], pairs: Pairs) -> dict[str, int]:
    neighbours: dict[str, list[str]] = {}
    for one, other in pairs:
        neighbours.setdefault(one, []).append(other)
        neighbours.setdefault(other, []).append(one)
    return fabric_tiers(hosts, neighbours)


def between(lower: Iterable[str], upper: Iterable[str]) -> Pairs:
    upper = list(upper)
    return [(one, other) for one in lower for other in upper]


LEAVES = [f"l{k}" for k in range(4)]
SPINES = [f"s{k}" for k in range(2)]
TWO_TIERS = between(LEAVES, SPINES)
IN_TWO_TIERS = dict.fromkeys(LEAVES, 0) | dict.fromkeys(SPINES, 1)


def test_leaves_have_hosts_and_spines_are_above() -> None:
    assert tiers(dict.fromkeys(LEAVES, 16), TWO_TIERS) == IN_TWO_TIERS
    assert tiers({"l0": 3}, []) == {"l0": 0}
    assert tiers({}, TWO_TIERS) == {}


def test_a_spine_with_a_host_is_no_leaf() -> None:
    hosts = dict.fromkeys(LEAVES, 16)
    assert tiers({**hosts, "s1": 1}, TWO_TIERS) == IN_TWO_TIERS
    assert tiers({**hosts, "s0": 2, "s1": 2}, TWO_TIERS) == IN_TWO_TIERS
    # Nor the only spine there is.
    alone = between(LEAVES, ["s0"])
    assert tiers({**hosts, "s0": 1}, alone) == dict.fromkeys(LEAVES, 0) | {"s0": 1}


def test_a_leaf_with_few_hosts_is_one() -> None:
    assert tiers({"l0": 16, "l1": 16, "l2": 16, "l3": 1}, TWO_TIERS) == IN_TWO_TIERS
    assert tiers({"l0": 16, "l1": 1, "l2": 1, "l3": 1}, TWO_TIERS) == IN_TWO_TIERS
    # As many on all: nothing tells them apart, and all have hosts.
    everywhere = dict.fromkeys([*LEAVES, *SPINES], 2)
    assert set(tiers(everywhere, TWO_TIERS).values()) == {0}


def pods(*, cores: int = 4) -> Pairs:
    """Three pods of two leaves and two spines; spine j of each joins its half of the cores."""
    pairs: Pairs = []
    for pod in range(3):
        pairs += between((f"p{pod}l{k}" for k in range(2)), (f"p{pod}s{k}" for k in range(2)))
        for spine in range(2):
            half = range(spine * cores // 2, (spine + 1) * cores // 2)
            pairs += between([f"p{pod}s{spine}"], (f"c{k}" for k in half))
    return pairs


def test_a_core_with_a_host_is_no_leaf() -> None:
    hosts = {f"p{pod}l{k}": 16 for pod in range(3) for k in range(2)}
    found = tiers({**hosts, "c0": 1}, pods())
    assert found == tiers(hosts, pods())
    assert (found["p0l0"], found["p0s0"], found["c0"]) == (0, 1, 2)


def test_a_pod_that_is_hardly_filled_has_a_leaf() -> None:
    hosts = {"p0l0": 16, "p0l1": 16, "p1l0": 16, "p1l1": 16, "p2l0": 1}
    found = tiers(hosts, pods())
    assert (found["p2l0"], found["p2s0"], found["c0"]) == (0, 1, 2)
    half = {"p0l0": 16, "p0l1": 16, "p1l0": 16, "p1l1": 1}
    assert tiers(half, pods())["p1l1"] == 0


def test_too_many_switches_with_few_hosts_are_not_compared() -> None:
    """Thousands of leaves with a host each beside one that has most: leaves all the same."""
    leaves = [f"l{k}" for k in range(3000)]
    hosts = dict.fromkeys(leaves, 1) | {"l0": 9000, "s1": 1}
    found = tiers(hosts, between(leaves, SPINES))
    assert found == dict.fromkeys(leaves, 0) | {"s0": 1, "s1": 0}


def test_switches_of_a_torus_are_all_leaves() -> None:
    places = [(x, y) for x in range(4) for y in range(4)]
    pairs = [
        (f"{x}{y}", f"{(x + dx) % 4}{(y + dy) % 4}")
        for x, y in places
        for dx, dy in ((1, 0), (0, 1))
    ]
    hosts = {f"{x}{y}": 8 for x, y in places} | {"11": 1}
    assert tiers(hosts, pairs) == dict.fromkeys(hosts, 0)


def test_tiers_of_a_cluster_count_hosts_and_not_their_links() -> None:
    """Two ports of one server at a spine are one host there."""
    names = {"s0": VertexKind.SPINE, "l0": VertexKind.LEAF, "l1": VertexKind.LEAF}
    vertices = {name: Vertex(name, kind) for name, kind in names.items()}
    ends = [("l0", "s0"), ("l1", "s0")]
    for leaf in ("l0", "l1"):
        for host in ("a", "b", "c"):
            vertices[f"{leaf}{host}"] = Vertex(f"{leaf}{host}", VertexKind.NIC, host=leaf + host)
            ends.append((f"{leaf}{host}", leaf))
    for port in ("x", "y"):
        vertices[port] = Vertex(port, VertexKind.NIC, host="ufm")
        ends.append((port, "s0"))
    links = {
        pair: Link(*pair, LinkKind.NETWORK, 50e9)
        for one, other in ends
        for pair in ((one, other), (other, one))
    }
    assert switch_tiers(Cluster(vertices, links)) == {"l0": 1, "l1": 1, "s0": 2}
