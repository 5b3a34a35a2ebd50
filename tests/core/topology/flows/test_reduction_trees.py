"""Trees that add up in the network, counted by hand, and never quicker than what bounds forbid."""

from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.topology.cluster import Cluster, LinkKind, VertexKind
from service.core.topology.flows import reduction_trees as trees_module
from service.core.topology.flows.bounds import FlowRouting, bound_gathering
from service.core.topology.flows.demands import CollectiveKind, Gathering
from service.core.topology.flows.prediction import FlowPrediction, PredictionMethod, predict
from service.core.topology.flows.questions import Collective, FlowQuestion, answer_flows
from service.core.topology.flows.study import FlowStudy
from service.core.topology.flows.use import UseBasis, uses_of
from tests.core.topology.random_clusters import random_cluster
from validation.small_clusters import cluster_of, nvswitch_hosts

GB = 10**9
SEEDS = st.integers(min_value=0, max_value=2**32 - 1)


def predicted(cluster: Cluster, message_bytes: int) -> tuple[FlowPrediction, dict[str, float]]:
    """The prediction, and what each link carries."""
    study = FlowStudy(cluster)
    kind = CollectiveKind.ALL_REDUCE
    gathering = Gathering(kind, study.network.gpus, Fraction(message_bytes))
    found = predict(study, gathering, in_network_reduction=True)
    assert found is not None
    assert found.method is PredictionMethod.REDUCTION_TREES
    assert found.loads is not None
    name = study.network.resource_name
    return found, {name(load.resource): load.bytes for load in found.loads}


def test_a_switch_takes_and_gives_the_message_once() -> None:
    """Of four shares a device sends those of three others and then its own sum."""
    found, loads = predicted(nvswitch_hosts(1, 4, 100e9), 8 * GB)
    assert set(loads.values()) == {8e9}
    assert found.seconds == pytest.approx(0.08)


@pytest.mark.parametrize("rails", [False, True])
def test_hosts_send_one_share_for_each_owner_at_a_place(*, rails: bool) -> None:
    """Of four shares a NIC carries that of the owner in the other host, and the own one's sum."""
    found, loads = predicted(nvswitch_hosts(2, 2, 100e9, 10e9, rails=rails), 8 * GB)
    nics = [load for name, load in loads.items() if "/" not in name.partition("->")[2]]
    assert nics == [4e9] * 4
    assert max(loads.values()) == 8e9
    assert found.seconds == pytest.approx(0.4)


def test_without_a_switch_each_piece_goes_by_itself() -> None:
    names = [f"a/gpu{number}" for number in range(3)]
    pairs = [(names[0], names[1]), (names[0], names[2]), (names[1], names[2])]
    found, loads = predicted(cluster_of(names, [(*pair, 10e9) for pair in pairs]), 3 * GB)
    assert set(loads.values()) == {2e9}
    assert found.seconds == pytest.approx(0.2)


def test_a_cpu_adds_nothing_up() -> None:
    """Three devices at a CPU: two shares there and two copies, and as much back."""
    host = nvswitch_hosts(1, 3, 10e9)
    found, loads = predicted(host, 3 * GB)
    assert set(loads.values()) == {3e9}
    names = [f"a/gpu{number}" for number in range(3)]
    joined = [(name, "a/cpu0", 10e9) for name in names]
    star = cluster_of(names, joined, kind=LinkKind.HOST_BRIDGE)
    cpu = replace(star.vertices["a/cpu0"], kind=VertexKind.CPU)
    bare, more = predicted(Cluster({**star.vertices, "a/cpu0": cpu}, star.links), 3 * GB)
    assert set(more.values()) == {4e9}
    assert bare.seconds == pytest.approx(found.seconds * 4 / 3)


def test_what_is_told_of_an_all_reduce() -> None:
    cluster = nvswitch_hosts(1, 4, 100e9)
    devices = tuple(device.name for device in cluster.devices)
    asked = Collective(
        CollectiveKind.ALL_REDUCE, devices, message_bytes=8 * GB, in_network_reduction=True
    )
    found = answer_flows(cluster, FlowQuestion(collective=asked))
    uses = uses_of(found, FlowRouting.ANY)
    assert uses is not None
    assert uses.basis is UseBasis.REDUCTION_TREES
    assert {use.utilisation for use in uses.links} == {1.0}
    assert found.prediction is not None
    assert uses.seconds == found.prediction.seconds == pytest.approx(found.bounds.seconds)


def test_too_many_paths_and_missing_ones_are_not_predicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def found(cluster: Cluster) -> FlowPrediction | None:
        study = FlowStudy(cluster)
        gathering = Gathering(CollectiveKind.ALL_REDUCE, study.network.gpus, Fraction(1))
        return predict(study, gathering, in_network_reduction=True)

    assert found(nvswitch_hosts(2, 2, 100e9)) is None
    assert found(nvswitch_hosts(2, 2, 100e9, 10e9)) is not None
    # Three pairs within a host for each of two places and hosts, two between hosts: both ways.
    monkeypatch.setattr(trees_module, "MAX_PINNED_PAIRS", 2 * (4 + 4) - 1)
    assert found(nvswitch_hosts(2, 2, 100e9, 10e9)) is None


@given(SEEDS)
@settings(max_examples=40)
def test_no_bound_is_beaten(number: int) -> None:
    random = Random(number)
    study = FlowStudy(random_cluster(random))
    gpus = study.network.gpus
    devices = gpus[sorted(random.sample(range(len(gpus)), min(len(gpus), random.randint(2, 8))))]
    if len(devices) < 2:
        return
    gathering = Gathering(CollectiveKind.ALL_REDUCE, devices, Fraction(10**9))
    found = predict(study, gathering, in_network_reduction=True)
    if found is None:
        return
    for routing in FlowRouting:
        bound = bound_gathering(study, gathering, routing, in_network_reduction=True)
        assert bound.seconds <= found.seconds * (1 + 1e-9) + float(bound.latency_floor)
