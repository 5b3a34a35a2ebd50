"""Pinned paths of random clusters against networkx on nothing but the list of edges."""

from random import Random

import networkx as nx
import pytest

from service.core.topology.bounds import transfer_lower_bound_seconds
from service.core.topology.cluster import Cluster
from service.core.topology.paths import PathFinder
from tests.core.topology.random_clusters import random_cluster

CLUSTERS = 200
PAIRS_PER_CLUSTER = 10

DISTANCE = {"host_bridge": 16, "on_chip": 16, "socket": 64}


def slow_path(cluster: Cluster, source: str, target: str) -> tuple[list[str], int] | None:
    """The rule of docs/decisions/0003, by listing every shortest path of a networkx graph.

    Also counts the other paths of the same length and rate.
    """
    vertices = cluster.vertices
    ends = (source, target)
    homes = {vertices[end].host for end in ends}

    own_network = {
        name
        for name, vertex in vertices.items()
        if vertex.host is None and vertex.kind.value in ("nvswitch", "router")
    }

    def graph(with_fabric: bool) -> "nx.DiGraph[str]":
        made: nx.DiGraph[str] = nx.DiGraph()
        for name, vertex in vertices.items():
            outside = vertex.host is None and (with_fabric or name in own_network)
            entered = vertex.host in homes or outside
            if entered and (vertex.kind.value != "gpu" or name in ends):
                made.add_node(name)
        for (one, other), link in cluster.links.items():
            if one in made and other in made:
                weight = DISTANCE.get(link.kind.value, 1)
                made.add_edge(one, other, weight=weight, rate=link.bandwidth_bytes_per_second)
        return made

    views = [graph(with_fabric=True)]
    if len(homes) == 1 or own_network:
        views.insert(0, graph(with_fabric=False))
    for view in views:
        try:
            shortest = list(nx.all_shortest_paths(view, source, target, weight="weight"))
        except nx.NetworkXNoPath:
            continue

        def rate(path: list[str], view: "nx.DiGraph[str]" = view) -> float:
            return float(min(view.edges[hop]["rate"] for hop in nx.utils.pairwise(path)))

        def strangers(path: list[str]) -> int:
            nics = [vertices[name] for name in path[1:-1] if vertices[name].kind.value == "nic"]
            return sum(
                1
                for nic in nics
                for end in (vertices[source], vertices[target])
                if end.host == nic.host and None not in (end.rail, nic.rail)
                if end.rail != nic.rail
            )

        widest = [path for path in shortest if rate(path) == max(map(rate, shortest))]
        fewest = min(map(strangers, widest))
        best = [path for path in widest if strangers(path) == fewest]
        in_hosts = [[name for name in path if vertices[name].host is not None] for path in best]
        chosen = [
            path for path, names in zip(best, in_hosts, strict=True) if names == min(in_hosts)
        ]
        return forwarded(cluster, chosen), len(widest) - 1
    return None


def forwarded(cluster: Cluster, paths: list[list[str]]) -> list[str]:
    """Of paths that differ in their switches only, the one that static forwarding takes.

    Step by step, the paths that go on differently are thrown away.
    """
    vertices = cluster.vertices
    switches_of: dict[str, list[str]] = {}
    for one, other in cluster.links:
        if vertices[one].host is None and vertices[other].host is not None:
            switches_of.setdefault(other, []).append(one)
    destinations = sorted(switches_of, key=lambda name: (min(switches_of[name]), name))
    quotient, ahead, step = 0, "", 1
    while len(paths) > 1:
        before = paths[0][step - 1]
        if vertices[before].host is not None:
            ahead = next(name for name in paths[0][step:] if vertices[name].host is not None)
            quotient = destinations.index(ahead) if ahead in destinations else 0
        ways = sorted({path[step] for path in paths}, key=lambda name: (name == ahead, name))
        taken = ways[quotient % len(ways)]
        quotient //= len(ways)
        paths = [path for path in paths if path[step] == taken]
        step += 1
    return paths[0]


@pytest.mark.parametrize("number", range(CLUSTERS))
def test_path_bottleneck_and_bound_equal_networkx(number: int, seed: int) -> None:
    random = Random(f"{seed}-{number}")
    cluster = random_cluster(random)
    finder = PathFinder(cluster)
    gpus = [device.name for device in cluster.devices]
    pairs = [(random.choice(gpus), random.choice(gpus)) for _ in range(PAIRS_PER_CLUSTER)]
    for source, target in pairs:
        case = f"seed {seed}-{number}: {source} to {target}"
        found = finder.path(source, target)
        if source == target:
            assert found is not None, case
            assert found.links == (), case
            continue
        slow = slow_path(cluster, source, target)
        if slow is None:
            assert found is None, case
            continue
        assert found is not None, case
        expected, alternatives = slow
        assert list(found.vertices) == expected, case
        assert found.equal_cost_alternatives == alternatives, case
        links = [cluster.links[hop] for hop in nx.utils.pairwise(expected)]
        slowest = min(link.bandwidth_bytes_per_second for link in links)
        assert found.bandwidth_bytes_per_second == slowest, case
        assert found.bottleneck in links, case
        assert found.bottleneck.bandwidth_bytes_per_second == slowest, case
        floors = sum(link.latency_floor_seconds for link in links)
        bound = floors + 4_194_304 / slowest
        assert transfer_lower_bound_seconds(found, 4_194_304) == pytest.approx(bound, rel=1e-12)


def test_the_random_clusters_are_worth_trying(seed: int) -> None:
    """Among them are connected and torn ones, shared hosts and far ones, equal-cost choices."""
    same = far = torn = choices = 0
    for number in range(CLUSTERS):
        random = Random(f"{seed}-{number}")
        cluster = random_cluster(random)
        finder = PathFinder(cluster)
        gpus = cluster.devices
        for _ in range(PAIRS_PER_CLUSTER):
            one, other = random.choice(gpus), random.choice(gpus)
            path = finder.path(one.name, other.name)
            torn += path is None
            same += one.host == other.host
            far += path is not None and one.host != other.host
            choices += path is not None and path.equal_cost_alternatives > 0
    counts = {"same host": same, "far": far, "torn": torn, "choices": choices}
    assert min(counts.values()) >= CLUSTERS // 4, counts
