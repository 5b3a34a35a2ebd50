"""Rings for each NIC: by hand, and as properties of random clusters."""

from fractions import Fraction
from itertools import pairwise
from random import Random

import numpy as np
import pytest

from service.core.topology import rings as module
from service.core.topology.cluster import Cluster, LinkKind
from service.core.topology.collectives import Algorithm, CollectiveTraffic, collective_traffic
from service.core.topology.expand import expand
from service.core.topology.flows.demands import CollectiveKind, Gathering
from service.core.topology.flows.prediction import PredictionMethod, predict
from service.core.topology.flows.study import FlowStudy
from service.core.topology.paths import path_finder
from service.core.topology.rings import rings_by_nic
from service.core.topology.spec import ClusterSpec, HostSpec, RailOptimised
from tests.core.topology.random_clusters import random_cluster
from validation.small_clusters import GB, nvswitch_hosts, shared_nic_hosts, with_rates

LARGE = Fraction(10**12)


def names(hosts: int, gpus: int) -> list[str]:
    return [f"h{host}/gpu{place}" for host in range(hosts) for place in range(gpus)]


def rings(cluster: Cluster, devices: list[str]) -> tuple[tuple[str, ...], ...]:
    return rings_by_nic(path_finder(cluster), devices, cluster.vertices)


def traffic(cluster: Cluster, groups: list[list[str]]) -> CollectiveTraffic:
    finder = path_finder(cluster)
    found = collective_traffic(finder, groups, Algorithm.ALL_REDUCE_RING, cluster.vertices)
    assert isinstance(found, CollectiveTraffic)
    return found


def places(ring: tuple[str, ...]) -> str:
    return " ".join(name.replace("h", "").replace("/gpu", ".") for name in ring)


def test_the_order_is_turned_within_hosts_so_that_each_ring_has_its_nic() -> None:
    cluster = nvswitch_hosts(2, 4, 400 * GB, 25 * GB)
    assert [places(ring) for ring in rings(cluster, names(2, 4))] == [
        "0.0 0.1 0.2 0.3 1.0 1.1 1.2 1.3",
        "0.3 0.0 0.1 0.2 1.3 1.0 1.1 1.2",
        "0.2 0.3 0.0 0.1 1.2 1.3 1.0 1.1",
        "0.1 0.2 0.3 0.0 1.1 1.2 1.3 1.0",
    ]


def test_four_nics_carry_four_times_as_much_as_one() -> None:
    """Eight devices each send 2 * 7/8 of a message: by one NIC of 25 GB/s, a quarter by each of 4.

    Within hosts three of the four rings go on over NVLink of 400 GB/s, which is no limit.
    """
    devices = names(2, 4)
    cluster = nvswitch_hosts(2, 4, 400 * GB, 25 * GB)
    found = traffic(cluster, [devices])
    assert found.rings == 4
    assert found.least_seconds_per_byte == Fraction(7, 4) / 4 / (25 * 10**9)
    # Each NIC carries its quarter out and in; each NVLink what the three other rings hand on.
    assert found.share_of["h0/gpu3->h0/nic3"] == Fraction(7, 4) / 4
    assert found.share_of["h0/gpu3->h0/nvs"] == Fraction(7, 4) * 3 / 4
    assert found.binding is not None
    assert "nic" in found.binding.source + found.binding.target
    study = FlowStudy(cluster)
    for kind, turns in ((CollectiveKind.ALL_REDUCE, 2), (CollectiveKind.ALL_GATHER, 1)):
        predicted = predict(study, Gathering(kind, study.network.gpus, LARGE))
        assert predicted is not None
        assert (predicted.method, predicted.rings) == (PredictionMethod.RING, 4)
        assert predicted.seconds == pytest.approx(float(LARGE) * turns * 7 / 8 / (100 * GB))


def test_two_devices_of_each_nic_have_one_ring_for_both() -> None:
    """Eight devices and four NICs of 25 GB/s a host: 100 GB/s, not 200 and not 25."""
    found = traffic(shared_nic_hosts(2), [names(2, 8)])
    assert found.rings == 4
    assert found.least_seconds_per_byte == Fraction(15, 8) / (100 * 10**9)


def test_two_groups_of_the_same_hosts_share_all_their_nics() -> None:
    """Even and odd devices: each group uses all four NICs, half of each."""
    cluster = shared_nic_hosts(2)
    devices = names(2, 8)
    found = traffic(cluster, [devices[::2], devices[1::2]])
    assert found.rings == 4
    assert found.least_seconds_per_byte == 2 * Fraction(7, 4) / (100 * 10**9)


def test_one_ring_where_hosts_have_one_nic_for_all_or_one_rank_each() -> None:
    cluster = shared_nic_hosts(2)
    pair = ["h0/gpu0", "h0/gpu1", "h1/gpu0", "h1/gpu1"]
    for devices in (pair, ["h0/gpu0", "h1/gpu0"], names(1, 8), ["h0/gpu0", *names(2, 8)[8:]]):
        assert rings(cluster, devices) == (tuple(devices),)
        assert traffic(cluster, [devices]).rings == 1


def test_the_host_with_the_fewest_nics_decides() -> None:
    cluster = shared_nic_hosts(2)
    devices = [*names(1, 8), "h1/gpu0", "h1/gpu2", "h1/gpu3"]
    found = rings(cluster, devices)
    assert len(found) == 2
    assert found[0] == tuple(devices)
    assert all(sorted(ring) == sorted(devices) for ring in found)


def test_rails_have_a_ring_each() -> None:
    """Each of 24 devices sends 2 * 23/24, an eighth of it in each of eight rings.

    Pinned paths change rails within their host, so the first device of the next one decides the
    NIC. Each NIC has one ring; what binds is the link between sockets that one ring takes each way.
    """
    hosts = (HostSpec(name="h", count=3, design="dgx-h100"),)
    cluster = expand(ClusterSpec(hosts=hosts, fabric=RailOptimised())).cluster
    found = traffic(cluster, [[vertex.name for vertex in cluster.devices]])
    assert found.rings == 8
    eighth = Fraction(23, 12) / 8
    network = [link for link in cluster.links.values() if link.kind is LinkKind.NETWORK]
    assert {found.share_of[link.resource] for link in network} == {eighth}
    assert found.binding is not None
    assert found.binding.kind is LinkKind.SOCKET
    assert found.share_of[found.binding.resource] == eighth


def test_one_ring_where_finding_the_others_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LINKS_SEARCHED", 0)
    assert len(rings(nvswitch_hosts(2, 4, 400 * GB, 25 * GB), names(2, 4))) == 1


def test_one_ring_where_it_is_quicker() -> None:
    """The other NICs are a hundred times slower than the one that the given order leaves by."""
    cluster = nvswitch_hosts(2, 4, 400 * GB, 25 * GB)
    slow = {
        ends: GB / 4
        for ends in cluster.links
        if any("/nic" in end and end[-1] not in "03" for end in ends)
    }
    made = with_rates(cluster, slow)
    assert len(rings(made, names(2, 4))) > 1
    found = traffic(made, [names(2, 4)])
    assert found.rings == 1
    assert found.least_seconds_per_byte == Fraction(7, 4) / (25 * 10**9)


@pytest.mark.parametrize("seed", range(20))
def test_every_ring_visits_each_device_once_and_several_are_no_slower(seed: int) -> None:
    random = Random(seed)
    cluster = random_cluster(random)
    devices = [vertex.name for vertex in cluster.devices]
    random.shuffle(devices)
    found = rings(cluster, devices)
    for ring in found:
        assert sorted(ring) == sorted(devices)
    both = collective_traffic(
        path_finder(cluster), [devices], Algorithm.SCATTER_RING, cluster.vertices
    )
    if not isinstance(both, CollectiveTraffic):
        return
    assert both.rings in {1, len(found)}
    # One ring, added up by other code.
    sent = Fraction(len(devices) - 1, len(devices))
    taken: dict[str, Fraction] = {}
    for pair in pairwise([*devices, devices[0]] if len(devices) > 1 else []):
        path = path_finder(cluster).path(*pair)
        assert path is not None
        for link in path.links:
            rate = link.effective_bytes_per_second or link.bandwidth_bytes_per_second
            taken[link.resource] = taken.get(link.resource, Fraction(0)) + sent / Fraction(rate)
    assert both.least_seconds_per_byte <= max(taken.values(), default=Fraction(0))


@pytest.mark.parametrize("seed", range(10))
def test_no_rate_that_rises_makes_it_slower(seed: int) -> None:
    random = Random(seed)
    cluster = shared_nic_hosts(3)
    devices = random.sample(names(3, 8), 12)
    before = traffic(cluster, [devices])
    raised = dict.fromkeys(random.sample(list(cluster.links), 10), 600 * GB)
    after = traffic(with_rates(cluster, raised), [devices])
    assert after.least_seconds_per_byte <= before.least_seconds_per_byte


def test_the_prediction_of_flows_is_that_of_reductions() -> None:
    cluster = shared_nic_hosts(2)
    study = FlowStudy(cluster)
    devices = ["h0/gpu0", "h0/gpu2", "h0/gpu5", "h1/gpu1", "h1/gpu4", "h1/gpu7"]
    vertices = np.array([study.network.number[name] for name in devices], dtype=np.int32)
    predicted = predict(study, Gathering(CollectiveKind.ALL_REDUCE, vertices, LARGE))
    found = traffic(cluster, [devices])
    assert predicted is not None
    assert predicted.rings == found.rings == 3
    assert predicted.seconds == pytest.approx(float(LARGE * found.least_seconds_per_byte))
