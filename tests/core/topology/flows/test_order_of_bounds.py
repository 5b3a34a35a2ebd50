"""Random clusters: each kind of bound is at least the one before, and no schedule is quicker.

What a bound says is added up again from the links of the cluster, by code of its own.
"""

from fractions import Fraction
from random import Random

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.topology.cluster import LinkKind
from service.core.topology.flows.bounds import FlowRouting, bound_exchange, bound_messages
from service.core.topology.flows.demands import Exchange, Messages
from service.core.topology.flows.fair_sharing import share_fairly
from service.core.topology.flows.pinned import PinnedRoutes, pinned_routes
from service.core.topology.flows.results import BindingKind, BoundKind, FlowBound, FlowBounds
from service.core.topology.flows.study import FlowStudy
from tests.core.topology.flows.slow_bounds import added_up, crossing_capacity, route_graph
from tests.core.topology.random_clusters import random_cluster
from validation.small_clusters import cluster_of

SEEDS = st.integers(min_value=0, max_value=2**32 - 1)


def some_messages(random: Random, study: FlowStudy) -> Messages:
    gpus = study.network.gpus.tolist()
    count = random.randint(1, 6)
    drawn = [
        (random.choice(gpus), random.choice(gpus), random.choice((1, 10**6, 2**31, 12345678901)))
        for _ in range(count)
    ]
    return Messages.of(drawn)


def demand_by_name(study: FlowStudy, messages: Messages) -> dict[tuple[str, str], Fraction]:
    demand: dict[tuple[str, str], Fraction] = {}
    ends = zip(messages.sources.tolist(), messages.targets.tolist(), strict=True)
    for (one, other), amount in zip(ends, messages.amounts, strict=True):
        pair = study.network.names[one], study.network.names[other]
        demand[pair] = demand.get(pair, Fraction(0)) + amount
    return demand


def in_order(found: FlowBounds) -> None:
    known = [found.of(kind) for kind in BoundKind]
    port, link, cut, flow = (None if one is None else one.exact_seconds for one in known)
    if cut is None:
        assert (port, link, flow) == (None, None, None)
        return
    assert port is not None
    assert port <= cut
    assert link is None or link <= cut
    if flow is not None:
        assert cut <= flow


def lengths_of(study: FlowStudy, bound: FlowBound) -> dict[str, int]:
    return {study.network.resource_name(part.resource): part.length for part in bound.parts}


def fair_seconds(study: FlowStudy, routes: PinnedRoutes) -> float:
    """How long fair sharing takes at nominal rates: a schedule like any other."""
    network = study.network
    amounts = np.array([float(amount) for amount in routes.messages.amounts])
    nominal = network.capacity[network.resource]
    ends = share_fairly(routes.links, amounts, network.resource, nominal)
    assert ends is not None
    return float(ends.max(initial=0.0))


@given(SEEDS)
@settings(max_examples=50)
def test_messages_over_any_route(number: int) -> None:
    random = Random(number)
    cluster = random_cluster(random)
    study = FlowStudy(cluster)
    messages = some_messages(random, study)
    found = bound_messages(study, messages, FlowRouting.ANY)
    in_order(found)
    lost = set(found.unreachable)
    ends = list(zip(messages.sources.tolist(), messages.targets.tolist(), strict=True))
    for one, other in ends:
        graph = route_graph(cluster, study.network.names[one])
        goal = f"to {study.network.names[other]}"
        start = study.network.names[one]
        is_joined = goal in graph and nx.has_path(graph, start, goal)
        # A pinned path that comes back to its last host is none of the graph's.
        is_pinned = study.finder.path(start, study.network.names[other]) is not None
        assert ((one, other) in lost) == (not is_joined and not is_pinned)
    kept = [
        (*pair, amount)
        for pair, amount in zip(ends, messages.amounts, strict=True)
        if pair not in lost
    ]
    reached = Messages.of(kept)
    demand = demand_by_name(study, reached)
    for bound in found.bounds:
        again = added_up(cluster, demand, lengths_of(study, bound))
        # Distances may be longer than the one crossing that a cut counts.
        assert again >= bound.exact_seconds
        if bound.binding.kind is BindingKind.LENGTHS:
            assert again == bound.exact_seconds
        assert bound.seconds <= bound.exact_seconds
    routes = pinned_routes(study.network, study.finder, reached)
    if routes.lost:
        return
    flow = found.of(BoundKind.CONCURRENT_FLOW)
    pinned = bound_messages(study, reached, FlowRouting.PINNED).of(BoundKind.CONCURRENT_FLOW)
    assert (flow is None) == (pinned is None)
    if flow is not None and pinned is not None:
        assert float(flow.exact_seconds) <= float(pinned.exact_seconds) * (1 + 1e-9)
    assert found.seconds <= fair_seconds(study, routes) * (1 + 1e-9) + float(found.latency_floor)


@given(SEEDS)
@settings(max_examples=50)
def test_messages_over_pinned_paths(number: int) -> None:
    random = Random(number)
    cluster = random_cluster(random)
    study = FlowStudy(cluster)
    messages = some_messages(random, study)
    found = bound_messages(study, messages, FlowRouting.PINNED)
    in_order(found)
    routes = pinned_routes(study.network, study.finder, messages)
    assert found.unreachable == routes.lost
    carried: dict[str, Fraction] = {}
    for path, amount in zip(routes.paths, routes.messages.amounts, strict=True):
        for link in path.links:
            carried[link.resource] = carried.get(link.resource, Fraction(0)) + amount
    rates = {link.resource: link.bandwidth_bytes_per_second for link in cluster.links.values()}
    worst = max((carried[name] / Fraction(rates[name]) for name in carried), default=Fraction(0))
    flow = found.of(BoundKind.CONCURRENT_FLOW)
    assert (Fraction(0) if flow is None else flow.exact_seconds) == worst
    assert {
        study.network.resource_name(load.resource): load.bytes for load in found.loads
    } == pytest.approx({name: float(amount) for name, amount in carried.items()})
    assert float(worst) <= fair_seconds(study, routes) * (1 + 1e-9)


@given(SEEDS)
@settings(max_examples=40)
def test_one_message_is_a_maximum_flow(number: int) -> None:
    """networkx on a graph of its own finds what the linear program does."""
    random = Random(number)
    cluster = random_cluster(random)
    if any(link.shared_capacity for link in cluster.links.values()):
        return
    study = FlowStudy(cluster)
    one, other = (random.choice(study.network.gpus.tolist()) for _ in range(2))
    if one == other:
        return
    found = bound_messages(study, Messages.of([(one, other, 10**9)]), FlowRouting.ANY)
    source, target = study.network.names[one], study.network.names[other]
    graph = route_graph(cluster, source)
    capacities: nx.DiGraph[str] = nx.DiGraph()
    for tail, head in graph.edges:
        link = graph.edges[tail, head]["link"]
        if link is None:
            capacities.add_edge(tail, head)
            continue
        # A link that two states of a device may leave by is one link all the same.
        middle = link.name
        capacities.add_edge(tail, f"in {middle}")
        rate = Fraction(link.bandwidth_bytes_per_second)
        capacities.add_edge(f"in {middle}", f"out {middle}", capacity=rate)
        capacities.add_edge(f"out {middle}", head)
    goal = f"to {target}"
    if goal not in capacities or not nx.has_path(capacities, source, goal):
        assert found.unreachable == ((one, other),)
        return
    most = nx.maximum_flow_value(capacities, source, goal)
    flow = found.of(BoundKind.CONCURRENT_FLOW)
    assert flow is not None
    assert float(flow.exact_seconds) == pytest.approx(float(Fraction(10**9) / most), rel=1e-9)


@given(SEEDS)
@settings(max_examples=40)
def test_exchanges_and_their_cuts(number: int) -> None:
    random = Random(number)
    cluster = random_cluster(random)
    study = FlowStudy(cluster)
    gpus = study.network.gpus
    devices = gpus[sorted(random.sample(range(len(gpus)), min(len(gpus), random.randint(2, 6))))]
    names = [study.network.names[device] for device in devices.tolist()]
    demand = {(one, other): Fraction(3, 7) for one in names for other in names if one != other}
    found = bound_exchange(study, Exchange(devices, Fraction(3, 7)), FlowRouting.ANY)
    in_order(found)
    if found.unreachable:
        assert not found.bounds
        return
    for bound in found.bounds:
        if bound.binding.kind not in (BindingKind.DEVICE, BindingKind.HOST):
            continue
        direction = bound.binding.direction
        assert direction is not None
        inside = {
            name
            for name, vertex in cluster.vertices.items()
            if bound.binding.name in (name, vertex.host)
        }
        if direction.value != "both":
            out = direction.value == "out"
            assert bound.offered == crossing_capacity(cluster, inside, out=out)
            crossing = [
                amount
                for (one, other), amount in demand.items()
                if (one in inside) != (other in inside) and (one in inside) == out
            ]
            assert bound.demanded == sum(crossing)
    pinned = bound_exchange(study, Exchange(devices, Fraction(3, 7)), FlowRouting.PINNED)
    in_order(pinned)
    if not pinned.unreachable:
        assert found.seconds <= pinned.seconds * (1 + 1e-9) + float(found.latency_floor)


def test_a_path_that_comes_back_to_its_last_host_is_a_route() -> None:
    """The NIC that the switch of A leads to is not joined to the device of B inside B; another is,
    over a switch of B's own.
    """
    links = [
        *(("a/gpu0", "a/nic0", 20e9), ("a/nic0", "s0", 10e9), ("s0", "b/nic0", 10e9)),
        *(("b/nic0", "b/pcie0", 20e9), ("b/pcie0", "b/nic1", 20e9), ("b/nic1", "s1", 5e9)),
        *(("s1", "b/nic2", 10e9), ("b/nic2", "b/gpu0", 20e9)),
    ]
    cluster = cluster_of(["a/gpu0", "b/gpu0"], links, kind=LinkKind.OTHER)
    study = FlowStudy(cluster)
    one, other = (study.network.number[name] for name in ("a/gpu0", "b/gpu0"))
    back_and_forth = Messages.of([(one, other, 10**10), (other, one, 10**10)])
    for routing in FlowRouting:
        found = bound_messages(study, back_and_forth, routing)
        assert found.unreachable == ()
        flow = found.of(BoundKind.CONCURRENT_FLOW)
        assert flow is not None
        assert flow.exact_seconds == 2
        exchanged = bound_exchange(study, Exchange(study.network.gpus, Fraction(10**10)), routing)
        assert exchanged.unreachable == ()
        assert exchanged.seconds == 2.0
