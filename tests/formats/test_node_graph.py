"""Nodes joined into layers: by hand, and against a slow reference on random graphs."""

from itertools import pairwise
from random import Random

import networkx as nx

from service.formats.node_graph import layers_in_order


def test_a_chain_keeps_to_the_order_of_the_file_where_it_can() -> None:
    assert layers_in_order(4, [(2, 0), (0, 3)], ()) == [[1], [2], [0], [3]]


def test_nodes_together_are_one_layer_through_several_lists() -> None:
    assert layers_in_order(5, [(0, 1)], [[0, 2], [2, 4]]) == [[0, 2, 4], [1], [3]]


def test_what_lies_between_nodes_of_a_layer_belongs_to_it() -> None:
    assert layers_in_order(4, [(0, 1), (1, 2), (2, 3)], [[0, 2]]) == [[0, 1, 2], [3]]


def test_a_long_chain_needs_no_recursion() -> None:
    count = 50_000
    order = layers_in_order(count, pairwise(range(count)), ())
    assert order == [[node] for node in range(count)]


def test_random_graphs_against_networkx() -> None:
    random = Random(11)
    for _ in range(200):
        count = random.randint(1, 14)
        edges = [
            (random.randrange(count), random.randrange(count)) for _ in range(random.randint(0, 20))
        ]
        together = [random.choices(range(count), k=2) for _ in range(random.randint(0, 3))]
        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from(range(count))
        graph.add_edges_from(edges)
        for first, second in together:
            graph.add_edges_from([(first, second), (second, first)])
        layers = layers_in_order(count, edges, together)
        expected = {frozenset(each) for each in nx.strongly_connected_components(graph)}
        assert {frozenset(each) for each in layers} == expected
        assert all(layer == sorted(layer) for layer in layers)
        place = {node: index for index, layer in enumerate(layers) for node in layer}
        assert all(place[source] <= place[target] for source, target in edges)
