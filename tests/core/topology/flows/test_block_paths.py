"""Paths laid out for dense matrices against the path finder, pair by pair."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.errors import WorkBudgetExceeded
from service.core.topology.cluster import Cluster, LinkKind, VertexKind
from service.core.topology.expand import expand
from service.core.topology.flows import block_templates
from service.core.topology.flows.block_paths import block_paths
from service.core.topology.flows.blocks import Block, Blocks
from service.core.topology.flows.study import FlowStudy
from service.core.topology.spec import (
    ClusterSpec,
    DeviceSpec,
    FatTree,
    HostSpec,
    LeafSpine,
    LinkSpec,
    NvlinkDomain,
    RailOptimised,
    SwitchSpec,
)
from tests.core.topology.random_clusters import random_cluster

SEEDS = st.integers(min_value=0, max_value=2**32 - 1)


def slow_loads(study: FlowStudy, blocks: Blocks) -> tuple[np.ndarray, list[float], set[object]]:
    """Link by link of each pair's path; the latencies of what each device sends; pairs lost."""
    network = study.network
    loads = np.zeros(len(network.links), dtype=np.int64)
    waits: list[float] = []
    lost: set[object] = set()
    for block in blocks.groups:
        names = [network.names[device] for device in block.devices]
        for i, source in enumerate(names):
            waits.append(0.0)
            for j, target in enumerate(names):
                if i == j:
                    continue
                path = study.finder.path(source, target)
                if path is None:
                    lost.add((block.devices[i], block.devices[j]))
                elif block.between[i, j]:
                    waits[-1] += path.latency_seconds
                    for link in path.links:
                        loads[network.link_number[link.source, link.target]] += block.between[i, j]
    return loads, waits, lost


def check(study: FlowStudy, groups: list[list[int]], seed: int) -> None:
    draw = np.random.default_rng(seed)
    blocks = Blocks.of(
        [
            Block(np.array(one, dtype=np.int32), draw.integers(0, 4, (len(one), len(one))))
            for one in groups
        ]
    )
    paths = block_paths(study, [one.devices for one in blocks.groups])
    found = paths.loads(blocks)
    loads, waits, lost = slow_loads(study, blocks)
    assert np.array_equal(found.link_bytes, loads)
    assert found.sending_picoseconds.tolist() == pytest.approx([1e12 * w for w in waits], abs=2)
    assert set(paths.lost) <= lost
    assert bool(paths.lost) == bool(lost)


@settings(max_examples=40)
@given(SEEDS)
def test_random_clusters(seed: int) -> None:
    random = Random(seed)
    study = FlowStudy(random_cluster(random))
    gpus = study.network.gpus.tolist()
    random.shuffle(gpus)
    gpus = gpus[:24]
    cut = random.randint(0, len(gpus))
    check(study, [gpus[:cut], gpus[cut:]], seed)


def designs() -> list[ClusterSpec]:
    hosts = HostSpec(name="host", count=6, design="dgx-h100")
    shared = HostSpec(name="host", count=5, design="p4d")
    trays = HostSpec(name="tray", count=6, design="gb200-nvl72")
    return [
        ClusterSpec(hosts=(hosts,), fabric=LeafSpine(hosts_per_leaf=2, spines=3)),
        ClusterSpec(hosts=(hosts,), fabric=RailOptimised(hosts_per_leaf=2, spines=3)),
        ClusterSpec(hosts=(hosts,), fabric=RailOptimised()),
        ClusterSpec(
            hosts=(shared,),
            fabric=FatTree(hosts_per_leaf=2, leaves_per_pod=2, spines_per_pod=2, cores_per_spine=3),
        ),
        ClusterSpec(
            hosts=(trays,),
            fabric=LeafSpine(hosts_per_leaf=3, spines=2),
            device_network=NvlinkDomain(hosts_per_domain=3),
        ),
    ]


@pytest.mark.parametrize("number", range(5))
def test_designs(number: int) -> None:
    """All ranks, in an order that has nothing to do with names."""
    study = FlowStudy(expand(designs()[number]).cluster)
    gpus = study.network.gpus.tolist()
    Random(number).shuffle(gpus)
    check(study, [gpus[:17], gpus[17:]], number)


def test_a_group_without_the_first_host_of_its_kind() -> None:
    study = FlowStudy(expand(designs()[2]).cluster)
    gpus = study.network.gpus.tolist()
    check(study, [gpus[9:12], gpus[18:20] + gpus[40:41]], 2)


def test_latencies_of_hosts_wired_alike_may_differ() -> None:
    cluster = expand(designs()[0]).cluster
    study = FlowStudy(
        Cluster(
            cluster.vertices,
            {
                ends: replace(link, latency_seconds=1e-7 * (number % 7))
                for number, (ends, link) in enumerate(cluster.links.items())
            },
        )
    )
    check(study, [study.network.gpus.tolist()], 0)


def chooses_before_it_leaves() -> Cluster:
    """Two hosts whose GPUs reach their NICs over two switches that are in no host, and two others.

    From the former to the latter a path enters its own host again before it leaves it for good.
    """
    gpu = DeviceSpec(name="gpu0", kind=VertexKind.GPU)
    nic = DeviceSpec(name="nic0", kind=VertexKind.NIC, port_bytes_per_second=50e9)
    hosts = tuple(HostSpec(name=f"h{i}", devices=(gpu, nic), links=()) for i in range(4))
    devices = [f"h{i}/{device}" for i in (0, 1) for device in ("gpu0", "nic0")]
    ends = [(device, x) for device in devices for x in "xy"]
    ends += [(f"h{i}/gpu0", f"h{i}/nic0") for i in (2, 3)]
    links = [(*pair, LinkKind.OTHER) for pair in ends]
    links += [(f"h{i}/nic0", "leaf", LinkKind.NETWORK) for i in range(4)]
    switches = (*(SwitchSpec(name=x) for x in "xy"), SwitchSpec(name="leaf", kind=VertexKind.LEAF))
    wired = tuple(
        LinkSpec(source=one, target=other, kind=kind, bandwidth_bytes_per_second=50e9)
        for one, other, kind in links
    )
    return expand(ClusterSpec(hosts=hosts, switches=switches, links=wired)).cluster


def test_choices_before_a_path_leaves_its_host() -> None:
    study = FlowStudy(chooses_before_it_leaves())
    paths = [study.finder.path(f"h{i}/gpu0", "h2/gpu0") for i in (0, 1)]
    assert [path and path.vertices[1] for path in paths] == ["x", "y"]
    check(study, [study.network.gpus.tolist()], 1)


def test_many_kinds_of_pairs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_templates, "MAX_BLOCK_LINKS_SEARCHED", 100)
    study = FlowStudy(expand(designs()[0]).cluster)
    with pytest.raises(WorkBudgetExceeded):
        block_paths(study, [study.network.gpus])


def test_crossings_are_those_of_messages() -> None:
    study = FlowStudy(random_cluster(Random(5)))
    gpus = study.network.gpus[:12]
    draw = np.random.default_rng(3)
    matrix = draw.integers(0, 9, (len(gpus), len(gpus)))
    blocks = Blocks.of([Block(gpus[:5], matrix[:5, :5]), Block(gpus[5:], matrix[5:, 5:])])
    messages = blocks.messages()
    assert blocks.pairs == len(messages.amounts)
    assert blocks.vertices.tolist() == messages.vertices.tolist()
    for family in study.families:
        ours = blocks.crossings(family.label, family.groups)
        theirs = messages.crossings(family.label, family.groups)
        assert [one.tolist() for one in ours] == [one.tolist() for one in theirs]
        inside = family.members(0)
        assert blocks.crossing(inside) == messages.crossing(inside)


def test_paths_are_of_their_groups_alone() -> None:
    study = FlowStudy(expand(designs()[2]).cluster)
    paths = block_paths(study, [study.network.gpus[:4]])
    with pytest.raises(ValueError, match="4"):
        paths.loads(Blocks.of([Block(study.network.gpus[:3], np.zeros((3, 3), dtype=np.int64))]))
