"""Predictions and uses of links beside the bounds; no prediction beats a bound."""

from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.topology.cluster import Cluster, LinkKind
from service.core.topology.flows import collapse, exchanges, fair_sharing, gatherings
from service.core.topology.flows.bounds import FlowRouting
from service.core.topology.flows.demands import CollectiveKind
from service.core.topology.flows.prediction import PredictionMethod
from service.core.topology.flows.questions import (
    Collective,
    Flow,
    FlowFindings,
    FlowQuestion,
    answer_flows,
)
from service.core.topology.flows.results import BoundKind, Method
from service.core.topology.flows.use import UseBasis, uses_of
from tests.core.topology.random_clusters import random_cluster
from validation.small_clusters import cluster_of, nvswitch_hosts, with_rates

SEEDS = st.integers(min_value=0, max_value=2**32 - 1)


def line() -> Cluster:
    """Three devices in a row, 10 GB/s there and 5 GB/s back."""
    names = [f"a/gpu{number}" for number in range(3)]
    joined = [(names[0], "a/s", 10e9), (names[1], "a/s", 10e9), (names[2], "a/s", 10e9)]
    cluster = cluster_of(names, joined, kind=LinkKind.OTHER)
    return with_rates(cluster, {("a/s", "a/gpu0"): 5e9})


def asked(cluster: Cluster, kind: CollectiveKind, routing: FlowRouting) -> FlowFindings:
    devices = tuple(device.name for device in cluster.devices)
    collective = Collective(kind, devices, message_bytes=3 * 10**9)
    return answer_flows(cluster, FlowQuestion(collective=collective, routing=routing))


def test_an_all_to_all_by_hand() -> None:
    """Blocks of 1 GB: 2 GB into gpu0 at 5 GB/s, 2 GB into the others at 10 GB/s."""
    for routing in FlowRouting:
        found = asked(line(), CollectiveKind.ALL_TO_ALL, routing)
        port = found.bounds.of(BoundKind.PORT)
        assert port is not None
        assert port.exact_seconds == Fraction(2, 5)
        assert (port.binding.name, port.binding.direction) == ("a/gpu0", "into")
        assert found.bounds.seconds == pytest.approx(0.4)
        assert found.prediction is not None
        assert found.prediction.seconds == pytest.approx(0.4)
        uses = uses_of(found, routing)
        assert uses is not None
        by_name = {found.study.network.resource_name(use.load.resource): use for use in uses.links}
        assert by_name["a/s->a/gpu0"].utilisation == pytest.approx(1.0)
        assert by_name["a/gpu1->a/s"].load.bytes == pytest.approx(2e9)
        assert by_name["a/gpu1->a/s"].utilisation == pytest.approx(0.5)


def test_a_ring_by_hand() -> None:
    """Each of three sends 2/3 of 3 GB to the next; into gpu0 goes half as much a second."""
    found = asked(line(), CollectiveKind.ALL_GATHER, FlowRouting.ANY)
    assert found.prediction is not None
    assert found.prediction.method is PredictionMethod.RING
    assert found.prediction.seconds == pytest.approx(2 / 5)
    reduced = asked(line(), CollectiveKind.ALL_REDUCE, FlowRouting.ANY)
    assert reduced.prediction is not None
    assert reduced.prediction.seconds == pytest.approx(4 / 5)
    uses = uses_of(found, FlowRouting.ANY)
    assert uses is not None
    assert uses.basis is UseBasis.RING
    assert uses.seconds == found.prediction.seconds
    assert [use.load.bytes for use in uses.links] == pytest.approx([2e9] * 6)
    assert [use.utilisation for use in uses.links] == pytest.approx([1.0] + [0.5] * 5)


@given(SEEDS)
@settings(max_examples=40)
def test_no_prediction_beats_the_bounds_of_pinned_routing(number: int) -> None:
    random = Random(number)
    cluster = random_cluster(random)
    names = [device.name for device in cluster.devices]
    devices = tuple(random.sample(names, min(len(names), random.randint(2, 6))))
    if len(devices) < 2:
        return
    kind = random.choice(list(CollectiveKind))
    collective = Collective(kind, devices, message_bytes=random.choice((1, 10**6, 10**10)))
    question = FlowQuestion(collective=collective, routing=FlowRouting.PINNED)
    found = answer_flows(cluster, question)
    if found.bounds.unreachable:
        assert not found.bounds.bounds
        return
    if found.prediction is not None:
        assert found.bounds.seconds <= found.prediction.seconds * (1 + 1e-9)
        uses = uses_of(found, FlowRouting.PINNED)
        assert uses is not None
        assert all(0 < use.utilisation <= 1 for use in uses.links)


def test_too_many_pairs_have_cuts_and_no_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "MAX_PINNED_PAIRS", 11)
    cluster = nvswitch_hosts(2, 2, 450e9, 50e9)
    for kind in CollectiveKind:
        found = asked(cluster, kind, FlowRouting.PINNED)
        assert found.bounds.method is Method.CUTS
        assert found.bounds.of(BoundKind.CUT) is not None
        assert found.bounds.of(BoundKind.CONCURRENT_FLOW) is None
    exchange = asked(cluster, CollectiveKind.ALL_TO_ALL, FlowRouting.PINNED)
    assert exchange.prediction is None
    assert uses_of(exchange, FlowRouting.PINNED) is None


def test_paths_that_are_too_far_to_search_have_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "MAX_LINKS_SEARCHED", 3)
    cluster = nvswitch_hosts(2, 2, 450e9, 50e9)
    flows = (Flow("h0/gpu0", "h1/gpu0", 10**9),)
    found = answer_flows(cluster, FlowQuestion(flows=flows, routing=FlowRouting.PINNED))
    assert found.bounds.method is Method.CUTS
    # Out of the host by two NICs.
    assert found.bounds.seconds == pytest.approx(1 / 100)
    assert found.prediction is None


def two_apart() -> Cluster:
    """Two hosts of two devices each and nothing between them."""
    names = [f"h{host}/gpu{gpu}" for host in range(2) for gpu in range(2)]
    return cluster_of(names, [(names[0], names[1], 10e9), (names[2], names[3], 10e9)])


@pytest.mark.parametrize("routing", FlowRouting)
@pytest.mark.parametrize("kind", CollectiveKind)
def test_hosts_that_nothing_joins_are_noticed_at_any_size(
    monkeypatch: pytest.MonkeyPatch, kind: CollectiveKind, routing: FlowRouting
) -> None:
    small = asked(two_apart(), kind, routing)
    monkeypatch.setattr(exchanges, "MAX_PINNED_PAIRS", 11)
    monkeypatch.setattr(exchanges, "MAX_JOINT_SIZE", 2)
    monkeypatch.setattr(exchanges, "MAX_SYMMETRIC_SIZE", 2)
    monkeypatch.setattr(gatherings, "MAX_SEPARATE_SIZE", 2)
    large = asked(two_apart(), kind, routing)
    for found in (small, large):
        assert not found.bounds.bounds
        assert found.bounds.unreachable
    names = large.study.network.names
    lost = {(names[one], names[other]) for one, other in large.bounds.unreachable}
    assert lost <= {
        pair
        for one in ("h0/gpu0", "h0/gpu1")
        for other in ("h1/gpu0", "h1/gpu1")
        for pair in ((one, other), (other, one))
    }


@pytest.mark.parametrize("routing", FlowRouting)
def test_messages_that_cannot_arrive_are_no_part_of_cuts(
    monkeypatch: pytest.MonkeyPatch, routing: FlowRouting
) -> None:
    monkeypatch.setattr(exchanges, "MAX_LINKS_SEARCHED", 0)
    monkeypatch.setattr(exchanges, "MAX_JOINT_SIZE", 0)
    flows = (Flow("h0/gpu0", "h1/gpu0", 10**12), Flow("h0/gpu0", "h0/gpu1", 10**9))
    found = answer_flows(two_apart(), FlowQuestion(flows=flows, routing=routing))
    number = found.study.network.number
    assert found.bounds.method is Method.CUTS
    assert found.bounds.unreachable == ((number["h0/gpu0"], number["h1/gpu0"]),)
    assert found.bounds.seconds == pytest.approx(0.1)


@pytest.mark.parametrize("kind", CollectiveKind)
def test_symmetries_are_looked_at_within_bounds(
    monkeypatch: pytest.MonkeyPatch, kind: CollectiveKind
) -> None:
    """Devices that are all different would each have a program as large as the network."""
    cluster = nvswitch_hosts(2, 2, 450e9, 50e9)
    within = asked(cluster, kind, FlowRouting.ANY).bounds
    monkeypatch.setattr(collapse, "MAX_COLLAPSED_LINKS", 5)
    monkeypatch.setattr(exchanges, "MAX_JOINT_SIZE", 2)
    beyond = asked(nvswitch_hosts(2, 2, 450e9, 50e9), kind, FlowRouting.ANY).bounds
    assert within.method is Method.SYMMETRIC_LINEAR_PROGRAM
    assert beyond.method is Method.CUTS
    assert 0 < beyond.seconds <= within.seconds


def test_a_program_that_is_too_large_is_not_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "MAX_JOINT_SIZE", 20)
    monkeypatch.setattr(exchanges, "MAX_SYMMETRIC_SIZE", 20)
    cluster = nvswitch_hosts(2, 2, 450e9, 50e9)
    found = asked(cluster, CollectiveKind.ALL_TO_ALL, FlowRouting.ANY)
    assert found.bounds.method is Method.CUTS
    # 4 pairs of 3/4 GB between the hosts over two NICs.
    assert found.bounds.seconds == pytest.approx(4 * 0.75 / 100)
    # What is predicted is carried all the same.
    uses = uses_of(found, FlowRouting.ANY)
    assert uses is not None
    assert uses.basis is UseBasis.PINNED_PATHS
    assert found.prediction is not None
    assert uses.seconds == found.prediction.seconds


def test_sharing_that_takes_too_long_is_not_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_sharing, "MAX_ROUND_ENTRIES", 3)
    found = asked(line(), CollectiveKind.ALL_TO_ALL, FlowRouting.ANY)
    assert found.prediction is None
    assert found.bounds.seconds == pytest.approx(0.4)
