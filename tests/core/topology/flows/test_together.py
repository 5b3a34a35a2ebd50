"""Bounds of collectives that run at once: by hand, and never above what is predicted."""

from fractions import Fraction
from random import Random

import numpy as np
import pytest

from service.core.topology.cluster import Cluster
from service.core.topology.collectives import Algorithm, CollectiveTraffic, collective_traffic
from service.core.topology.expand import expand
from service.core.topology.flows.bounds import FlowRouting, bound_gathering
from service.core.topology.flows.demands import CollectiveKind, Gathering
from service.core.topology.flows.study import FlowStudy
from service.core.topology.flows.together import bound_together
from service.core.topology.paths import path_finder
from service.core.topology.spec import ClusterSpec, HostSpec, RailOptimised
from tests.core.topology.random_clusters import random_cluster
from validation.small_clusters import cluster_of

GB = 10**9
KINDS = {
    Algorithm.ALL_REDUCE_RING: CollectiveKind.ALL_REDUCE,
    Algorithm.ALL_REDUCE_TREE: CollectiveKind.ALL_REDUCE,
    Algorithm.SCATTER_RING: CollectiveKind.REDUCE_SCATTER,
}


def least(made: Cluster, groups: list[list[str]], kind: CollectiveKind) -> Fraction:
    """Seconds for one byte that each device holds."""
    study = FlowStudy(made)
    gatherings = [
        Gathering(
            kind,
            np.array([study.network.number[name] for name in group], dtype=np.int32),
            Fraction(1),
        )
        for group in groups
    ]
    found = bound_together(study, gatherings)
    return Fraction(0) if found is None else found.exact_seconds


@pytest.fixture(scope="module")
def two_hosts() -> Cluster:
    hosts = (HostSpec(name="host", count=2, design="dgx-h100"),)
    return expand(ClusterSpec(hosts=hosts, fabric=RailOptimised())).cluster


def test_eight_pairs_between_two_hosts_fill_eight_nics(two_hosts: Cluster) -> None:
    """One pair alone may use all eight NICs of 50 GB/s, eight pairs have one each."""
    pairs = [[f"host0/gpu{number}", f"host1/gpu{number}"] for number in range(8)]
    assert least(two_hosts, pairs, CollectiveKind.ALL_REDUCE) == Fraction(8, 400 * GB)
    assert least(two_hosts, pairs[:1], CollectiveKind.ALL_REDUCE) == Fraction(1, 400 * GB)


def test_one_group_of_a_host_is_bound_by_its_ports(two_hosts: Cluster) -> None:
    group = [f"host0/gpu{number}" for number in range(8)]
    # 450 GB/s of NVLink and 63 of PCIe leave each device.
    whole = least(two_hosts, [group], CollectiveKind.ALL_REDUCE)
    assert float(whole) == pytest.approx(14 / (8 * 513 * GB), rel=1e-4)
    assert least(two_hosts, [group], CollectiveKind.REDUCE_SCATTER) == whole / 2


def test_no_bound_of_one_group_is_above_that_of_a_linear_program(two_hosts: Cluster) -> None:
    study = FlowStudy(two_hosts)
    group = np.array(study.network.gpus[::3], dtype=np.int32)
    for kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER):
        gathering = Gathering(kind, group, Fraction(1))
        found = bound_together(study, [gathering])
        whole = bound_gathering(study, gathering, FlowRouting.ANY)
        assert found is not None
        assert 0 < float(found.exact_seconds) <= max(b.seconds for b in whole.bounds) * (1 + 1e-9)


def test_what_moves_nothing_has_no_bound() -> None:
    made = cluster_of(["a/gpu0", "b/gpu0"], [("a/gpu0", "b/gpu0", 1.0)])
    assert least(made, [["a/gpu0"]], CollectiveKind.ALL_REDUCE) == 0


@pytest.mark.parametrize("seed", range(25))
def test_no_prediction_is_quicker_than_the_bound(seed: int) -> None:
    """Random groups on random clusters, with every algorithm."""
    random = Random(seed)
    made = random_cluster(random)
    devices = [vertex.name for vertex in made.devices]
    random.shuffle(devices)
    size = random.randint(2, 4)
    groups = [devices[i : i + size] for i in range(0, len(devices) - size + 1, size)][:4]
    if not groups:
        return
    for algorithm, kind in KINDS.items():
        found = collective_traffic(path_finder(made), groups, algorithm, made.vertices)
        if isinstance(found, CollectiveTraffic):
            assert least(made, groups, kind) <= found.least_seconds_per_byte
