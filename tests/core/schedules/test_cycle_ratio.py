"""The maximum cycle ratio against every simple cycle of small graphs."""

import random
from fractions import Fraction

import networkx as nx

from service.core.schedules.cycle_ratio import Arc, maximum_cycle_ratio


def best_of_all_cycles(arcs: list[Arc]) -> Fraction:
    graph: nx.DiGraph[int] = nx.DiGraph()
    for arc in arcs:
        graph.add_edge(arc.tail, arc.head, weight=arc.weight, tokens=arc.tokens)
    ratios = []
    for cycle in nx.simple_cycles(graph):
        steps = [graph.edges[a, b] for a, b in zip(cycle, cycle[1:] + cycle[:1], strict=True)]
        ratios.append(Fraction(sum(s["weight"] for s in steps), sum(s["tokens"] for s in steps)))
    return max(ratios)


def random_arcs(rng: random.Random, nodes: int) -> list[Arc]:
    """Every node has an arc leaving it; tokens may be negative, but on no cycle in sum."""
    shift = [rng.randint(-3, 3) for _ in range(nodes)]
    pairs = {(n, rng.randrange(nodes)) for n in range(nodes)}
    pairs |= {(rng.randrange(nodes), rng.randrange(nodes)) for _ in range(nodes)}
    return [
        Arc(
            a,
            b,
            rng.choice([0, 1, rng.randint(0, 10**15)]),
            rng.randint(1, 4) + shift[a] - shift[b],
        )
        for a, b in sorted(pairs)
    ]


def test_equals_the_best_of_all_simple_cycles(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(500):
        nodes = rng.randint(1, 7)
        arcs = random_arcs(rng, nodes)
        found = maximum_cycle_ratio(nodes, arcs)
        assert found.ratio == best_of_all_cycles(arcs)
        steps = [arcs[i] for i in found.cycle]
        assert all(a.head == b.tail for a, b in zip(steps, steps[1:] + steps[:1], strict=True))
        assert found.ratio == Fraction(sum(s.weight for s in steps), sum(s.tokens for s in steps))


def test_many_equal_cycles_come_to_an_end() -> None:
    nodes = 30
    arcs = [Arc(a, b, 5, 1) for a in range(nodes) for b in range(nodes)]
    assert maximum_cycle_ratio(nodes, arcs).ratio == 5


def test_numbers_beyond_64_bits_change_nothing_but_the_scale(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        nodes = rng.randint(1, 12)
        arcs = [
            Arc(tail, head, rng.randrange(10**6), 1 if head <= tail else rng.randint(0, 1))
            for tail in range(nodes)
            for head in rng.choices(range(nodes), k=rng.randint(1, 3))
        ]
        found = maximum_cycle_ratio(nodes, arcs)
        for scale in (10**11, 10**12, 10**20):
            large = [Arc(arc.tail, arc.head, arc.weight * scale, arc.tokens) for arc in arcs]
            in_large = maximum_cycle_ratio(nodes, large)
            assert (in_large.ratio, in_large.cycle) == (found.ratio * scale, found.cycle)
