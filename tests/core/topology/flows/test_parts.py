"""Parts of random clusters against networkx on nothing but the list of edges."""

from random import Random

import networkx as nx
import numpy as np
import pytest

from service.core.topology.flows.network import network_of
from service.core.topology.flows.parts import (
    lost_between_parts,
    lost_in_collective,
    part_of_each,
)
from tests.core.topology.random_clusters import random_cluster
from validation.small_clusters import cluster_of, ring


@pytest.mark.parametrize("seed", range(60))
def test_parts_are_those_that_links_join(seed: int) -> None:
    random = Random(seed)
    whole = random_cluster(random)
    kept = [link for link in whole.links.values() if random.random() < 0.4]
    cluster = type(whole)(whole.vertices, {(link.source, link.target): link for link in kept})
    network = network_of(cluster)
    graph = nx.Graph([(link.source, link.target) for link in kept])
    graph.add_nodes_from(cluster.vertices)
    part = part_of_each(network).tolist()
    for joined in nx.connected_components(graph):
        numbers = sorted(network.number[name] for name in joined)
        assert {part[number] for number in numbers} == {numbers[0]}
    assert len(set(part)) == nx.number_connected_components(graph)


def test_a_long_ring_is_one_part() -> None:
    assert set(part_of_each(network_of(ring(1000))).tolist()) == {0}


def test_one_pair_a_part_stands_for_those_that_are_lost() -> None:
    names = [f"h{host}/gpu0" for host in range(4)]
    network = network_of(cluster_of(names, [(names[0], names[2], 1.0)]))
    one, two, three, four = (network.number[name] for name in names)
    devices = np.array([three, two, one, four], dtype=np.int32)
    assert lost_in_collective(network, devices) == (
        (three, two),
        (two, three),
        (three, four),
        (four, three),
    )
    assert lost_in_collective(network, devices[[0, 2]]) == ()
    pairs = [(one, three), (one, two), (two, one), (one, two)]
    assert lost_between_parts(network, pairs) == ((one, two), (two, one))
