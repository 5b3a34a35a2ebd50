"""Traffic of collectives on the links of their paths, by hand and as properties."""

from collections import Counter
from fractions import Fraction

import pytest

from service.core.topology.collectives import (
    Algorithm,
    CollectiveTraffic,
    NoPath,
    collective_traffic,
    double_tree,
)
from service.core.topology.paths import path_finder
from validation.small_clusters import cluster_of

HOSTS = {f"h{number}/gpu{gpu}": f"h{number}" for number in range(4) for gpu in range(4)}


def traffic(
    groups: list[list[str]], algorithm: Algorithm, joined: list[tuple[str, str, float]]
) -> CollectiveTraffic:
    made = cluster_of({name for group in groups for name in group}, joined)
    found = collective_traffic(path_finder(made), groups, algorithm, made.vertices)
    assert isinstance(found, CollectiveTraffic)
    return found


def star(names: list[str], rate: float) -> list[tuple[str, str, float]]:
    return [(name, "sw", rate) for name in names]


@pytest.mark.parametrize(
    ("algorithm", "sent"),
    [
        (Algorithm.ALL_REDUCE_RING, Fraction(2 * 3, 4)),
        (Algorithm.SCATTER_RING, Fraction(3, 4)),
    ],
)
def test_each_device_of_a_ring_sends_its_share_to_the_next(
    algorithm: Algorithm, sent: Fraction
) -> None:
    group = ["h0/gpu0", "h1/gpu0", "h2/gpu0", "h3/gpu0"]
    found = traffic([group], algorithm, star(group, 10.0))
    assert set(found.seconds_per_byte.values()) == {sent / 10}
    assert len(found.seconds_per_byte) == found.hops * 2 == 8
    assert found.binding is not None


def test_groups_at_once_add_up_on_what_they_share() -> None:
    """Two pairs over one cable between two switches: each sends its whole message each way."""
    groups = [["h0/gpu0", "h1/gpu0"], ["h0/gpu1", "h1/gpu1"]]
    joined = [
        *(("a", name, 10.0) for name in ("h0/gpu0", "h0/gpu1")),
        *(("b", name, 10.0) for name in ("h1/gpu0", "h1/gpu1")),
        ("a", "b", 5.0),
    ]
    found = traffic(groups, Algorithm.ALL_REDUCE_RING, joined)
    assert found.least_seconds_per_byte == Fraction(2, 5)
    assert found.binding is not None
    assert {found.binding.source, found.binding.target} == {"a", "b"}


def test_a_group_of_one_sends_nothing() -> None:
    found = traffic([["h0/gpu0"]], Algorithm.ALL_REDUCE_RING, star(["h0/gpu0"], 1.0))
    assert found.least_seconds_per_byte == found.latency_seconds == 0
    assert found.binding is None


def test_devices_without_a_path_are_named() -> None:
    made = cluster_of(["h0/gpu0", "h1/gpu0"], [("h0/gpu0", "a", 1.0), ("h1/gpu0", "b", 1.0)])
    group = ["h0/gpu0", "h1/gpu0"]
    found = collective_traffic(path_finder(made), [group], Algorithm.ALL_REDUCE_TREE, made.vertices)
    assert found == NoPath("h1/gpu0", "h0/gpu0")


def test_two_trees_are_chains_within_hosts_and_binary_over_them() -> None:
    first, second = double_tree(
        ["h0/gpu0", "h0/gpu1", "h1/gpu0", "h1/gpu1", "h2/gpu0", "h2/gpu1"], HOSTS
    )
    assert set(first) == {
        ("h0/gpu1", "h0/gpu0"),
        ("h1/gpu1", "h1/gpu0"),
        ("h2/gpu1", "h2/gpu0"),
        ("h1/gpu0", "h0/gpu0"),
        ("h2/gpu0", "h0/gpu0"),
    }
    assert ("h1/gpu1", "h2/gpu1") in second
    assert ("h0/gpu1", "h2/gpu1") in second


@pytest.mark.parametrize("count", range(2, 12))
def test_every_device_hangs_on_one_other_and_passes_on_much_in_one_tree_at_most(count: int) -> None:
    devices = [f"h{number}/gpu0" for number in range(count)]
    trees = double_tree(devices, {name: name for name in devices})
    for tree in trees:
        parents = dict(tree)
        assert len(parents) == len(tree) == count - 1
        for device in devices:
            steps, at = 0, device
            while at in parents:
                at, steps = parents[at], steps + 1
            assert steps <= count.bit_length()
    both = [Counter(parent for _, parent in tree) for tree in trees]
    busy = [name for name in devices if both[0][name] == 2 and both[1][name] == 2]
    assert len(busy) <= 1


def test_a_tree_waits_for_its_deepest_chain_there_and_back() -> None:
    devices = ["h0/gpu0", "h0/gpu1", "h0/gpu2"]
    made = cluster_of(devices, star(devices, 1.0))
    slow = {
        ends: type(link)(
            link.source,
            link.target,
            link.kind,
            link.bandwidth_bytes_per_second,
            latency_seconds=1.0,
        )
        for ends, link in made.links.items()
    }
    finder = path_finder(type(made)(made.vertices, slow))
    found = collective_traffic(finder, [devices], Algorithm.ALL_REDUCE_TREE, made.vertices)
    assert isinstance(found, CollectiveTraffic)
    # A chain of three: two hops of two links up and as many down.
    assert found.latency_seconds == 8.0
    around = collective_traffic(finder, [devices], Algorithm.ALL_REDUCE_RING, made.vertices)
    assert isinstance(around, CollectiveTraffic)
    assert around.latency_seconds == 4 * 2.0


def test_both_all_reduces_send_the_same_bytes_in_all() -> None:
    """2 (n - 1) messages, over two links each; which devices send them is another matter."""
    for count in range(2, 9):
        names = [f"h{number % 3}/gpu{number}" for number in range(count)]
        for algorithm in (Algorithm.ALL_REDUCE_RING, Algorithm.ALL_REDUCE_TREE):
            found = traffic([names], algorithm, star(names, 1.0))
            assert sum(found.seconds_per_byte.values()) == 2 * 2 * (count - 1)
