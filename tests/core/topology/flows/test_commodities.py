"""What one sender's traffic may use and can't avoid, and the program that is made of it."""

from fractions import Fraction
from itertools import pairwise
from random import Random

import networkx as nx
import numpy as np
import pytest

from service.core.topology.cluster import LinkKind
from service.core.topology.flows import linear_program
from service.core.topology.flows.linear_program import solve
from service.core.topology.flows.network import network_of
from service.core.topology.flows.routes import FREE, Commodity, Routes
from service.core.topology.flows.unavoidable import unavoidable
from service.core.topology.flows.witness import offered, rounded_down, witness_of
from tests.core.topology.random_clusters import random_cluster
from validation.small_clusters import cluster_of, dgx_1_nvlinks, nvswitch_hosts


def commodity_of(random: Random, *, inward: bool) -> Commodity | None:
    network = network_of(random_cluster(random))
    gpus = network.gpus.tolist()
    if len(gpus) < 2:
        return None
    root, *others = random.sample(gpus, min(len(gpus), 5))
    amounts = [Fraction(random.randint(1, 9)) for _ in others]
    return Routes(network).commodity(root, others, amounts, inward=inward)


@pytest.mark.parametrize("inward", [False, True])
@pytest.mark.parametrize("number", range(40))
def test_what_is_unavoidable_is_missed_when_it_is_gone(
    number: int, inward: bool, seed: int
) -> None:
    """Each link is taken away in turn, and who can't be reached any more has no way around it."""
    made = commodity_of(Random(f"{seed}-{number}"), inward=inward)
    if made is None:
        return
    arcs = list(zip(made.tail.tolist(), made.head.tolist(), made.resource.tolist(), strict=True))
    expected: dict[int, Fraction] = {}
    for place, (_, _, resource) in enumerate(arcs):
        if resource == FREE:
            continue
        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from(range(made.nodes))
        for other, (tail, head, _) in enumerate(arcs):
            if other != place:
                graph.add_edge(*((head, tail) if inward else (tail, head)))
        reached = nx.descendants(graph, made.root)
        for node, amount in zip(made.terminals.tolist(), made.amounts, strict=True):
            if node not in reached:
                expected[resource] = expected.get(resource, Fraction(0)) + amount
    assert dict(unavoidable(made)) == expected


def test_traffic_passes_a_device_over_nvlink_and_no_foreign_host() -> None:
    """Separate rails: from h0/gpu0 to h1/gpu1 over NVLink in either host, never through h2."""
    network = network_of(nvswitch_hosts(3, 2, 450e9, 50e9, rails=True))
    one, other = network.number["h0/gpu0"], network.number["h1/gpu1"]
    made = Routes(network).commodity(one, [other], [Fraction(1)])
    used = {network.resource_name(resource) for resource in made.resource.tolist() if resource >= 0}
    assert {"h0/nic0->rail0", "h0/nic1->rail1", "h1/nvs->h1/gpu1", "h0/gpu1->h0/nic1"} <= used
    assert not any("h2" in name for name in used)
    # Out of the host of the source, and never out of that of the target.
    assert "h1/nic0->rail0" not in used


@pytest.mark.parametrize(
    ("kinds", "is_reached"),
    [
        ((LinkKind.PCIE, LinkKind.PCIE), False),
        ((LinkKind.NVLINK, LinkKind.PCIE), True),
        ((LinkKind.PCIE, LinkKind.NVLINK), True),
        ((LinkKind.NVLINK, LinkKind.NVLINK), True),
    ],
)
def test_a_device_in_the_middle_passes_traffic_on_over_nvlink(
    kinds: tuple[LinkKind, LinkKind], is_reached: bool
) -> None:
    names = [f"a/gpu{number}" for number in range(3)]
    pairs = list(pairwise(names))
    cluster = cluster_of(
        names,
        [(*pair, 1e9) for pair in pairs],
        kinds={frozenset(pair): kind for pair, kind in zip(pairs, kinds, strict=True)},
    )
    network = network_of(cluster)
    ends = network.number[names[0]], network.number[names[2]]
    made = Routes(network).commodity(ends[0], [ends[1]], [Fraction(1)])
    assert made.unreached == (() if is_reached else (0,))
    # Where it takes part in a gathering collective it passes on everything.
    open_ = Routes(network, forwarders=network.is_gpu)
    assert open_.commodity(ends[0], [ends[1]], [Fraction(1)]).unreached == ()


def test_a_solved_program_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    network = network_of(nvswitch_hosts(1, 4, 450e9))
    gpus = network.gpus.tolist()
    routes = Routes(network)
    commodities = [
        routes.commodity(one, [x for x in gpus if x != one], [Fraction(1)] * 3) for one in gpus
    ]
    solved = solve(commodities, network.capacity)
    assert solved is not None
    assert solved.seconds == pytest.approx(3 / 450e9)
    # Each port is filled, in both directions.
    assert solved.loads == pytest.approx(np.full(len(network.capacity), 3.0))
    assert capfd.readouterr() == ("", "")
    witness = witness_of(commodities, network.capacity, solved.lengths)
    assert witness.exact_seconds == Fraction(3, 450 * 10**9)
    assert offered(witness.lengths, network.capacity) == witness.offered


def test_after_its_turns_a_program_is_solved_from_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A DGX-1 and its 9.375 GB/s a pair: the last digits may be missing, and never in excess."""
    network = network_of(dgx_1_nvlinks())
    gpus = network.gpus.tolist()
    routes = Routes(network)
    commodities = [
        routes.commodity(one, [x for x in gpus if x != one], [Fraction(1)] * 7) for one in gpus
    ]
    exact = Fraction(1, 9_375_000_000)
    monkeypatch.setattr(linear_program, "_SIMPLEX_WORK", 0)
    solved = solve(commodities, network.capacity)
    assert solved is not None
    witness = witness_of(commodities, network.capacity, solved.lengths)
    assert exact * (1 - Fraction(1, 10**7)) < witness.exact_seconds <= exact
    monkeypatch.setattr(linear_program, "_IPM_TURNS", 1)
    assert solve(commodities, network.capacity) is None


def test_nothing_to_solve() -> None:
    assert solve([], np.ones(3)) is None


@pytest.mark.parametrize("exact", [Fraction(1, 3), Fraction(2, 3), Fraction(1, 10), Fraction(3, 4)])
def test_bounds_are_rounded_down(exact: Fraction) -> None:
    rounded = rounded_down(exact)
    assert rounded <= exact
    assert float(exact) - rounded <= 2e-16
