"""Bounds and predictions of transfers: by hand, and properties over random clusters."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.errors import FaultCode, InvalidInput
from service.core.topology.bounds import (
    MAX_MESSAGE_BYTES,
    Transfer,
    link_loads,
    transfer_lower_bound_seconds,
    transfer_prediction_seconds,
)
from service.core.topology.cluster import Cluster, LinkKind, VertexKind
from service.core.topology.expand import expand
from service.core.topology.paths import PathFinder, PhysicalPath
from service.core.topology.spec import (
    ClusterSpec,
    DeviceSpec,
    Duplex,
    FabricRates,
    HostSpec,
    LeafSpine,
    LinkSpec,
)
from tests.core.topology.random_clusters import random_cluster

SEEDS = st.integers(min_value=0, max_value=2**32 - 1)
MESSAGES = st.integers(min_value=0, max_value=2**40)


def any_path(random: Random, cluster: Cluster) -> PhysicalPath | None:
    gpus = cluster.devices
    return PathFinder(cluster).path(random.choice(gpus).name, random.choice(gpus).name)


def two_p4d(oversubscription: float) -> PathFinder:
    rates = FabricRates(oversubscription_ratio=oversubscription)
    spec = ClusterSpec(
        hosts=(HostSpec(name="host", count=2, design="p4d"),),
        fabric=LeafSpine(hosts_per_leaf=1, spines=1, rates=rates),
    )
    return PathFinder(expand(spec).cluster)


def transfers(finder: PathFinder, *pairs: tuple[str, str, int]) -> list[Transfer]:
    made = []
    for source, target, message_bytes in pairs:
        path = finder.path(source, target)
        assert path is not None
        made.append(Transfer(path, message_bytes))
    return made


def test_bound_and_prediction_by_hand() -> None:
    """First 10 GB/s nominal, 8 effective, 1 us floor, 3 us typical; then 20 GB/s, 2 us floor."""
    gpus = tuple(DeviceSpec(name=f"gpu{i}", kind=VertexKind.GPU) for i in range(2))
    switch = DeviceSpec(name="switch", kind=VertexKind.SWITCH)
    links = (
        LinkSpec(
            source="gpu0",
            target="switch",
            kind=LinkKind.OTHER,
            bandwidth_bytes_per_second=10e9,
            effective_bytes_per_second=8e9,
            latency_floor_seconds=1e-6,
            latency_seconds=3e-6,
        ),
        LinkSpec(
            source="switch",
            target="gpu1",
            kind=LinkKind.OTHER,
            bandwidth_bytes_per_second=20e9,
            latency_floor_seconds=2e-6,
        ),
    )
    spec = ClusterSpec(hosts=(HostSpec(name="a", devices=(*gpus, switch), links=links),))
    path = PathFinder(expand(spec).cluster).path("a/gpu0", "a/gpu1")
    assert path is not None
    assert (path.links_without_latency, path.links_without_effective) == (1, 1)
    # 80 kB: 3 us + 8 us at least; where no typical latency is known its floor counts.
    assert transfer_lower_bound_seconds(path, 80_000) == pytest.approx(11e-6)
    assert transfer_prediction_seconds(path, 80_000) == pytest.approx(5e-6 + 10e-6)


def test_a_device_sends_itself_nothing() -> None:
    path = two_p4d(1.0).path("host0/gpu0", "host0/gpu0")
    assert path is not None
    assert transfer_lower_bound_seconds(path, 10**9) == 0
    assert transfer_prediction_seconds(path, 10**9) == 0
    assert link_loads([Transfer(path, 10**9)]).loads == ()


def test_two_gpus_that_share_a_nic_share_its_capacity() -> None:
    finder = two_p4d(1.0)
    pairs = [(f"host0/gpu{i}", f"host1/gpu{i}", 10**9) for i in (0, 1, 2)]
    loads = link_loads(transfers(finder, *pairs))
    by_name = {load.link.name: load for load in loads.loads}
    nic = by_name["host0/nic0->leaf0"]
    assert (nic.total_bytes, nic.transfers) == (2 * 10**9, (0, 1))
    assert nic.lower_bound_seconds == 2e9 / 12.5e9
    # The leaf's uplink carries all three at 4 x 12.5 GB/s and is not what binds.
    assert by_name["leaf0->spine0"].transfers == (0, 1, 2)
    assert by_name["leaf0->spine0"].lower_bound_seconds == 3e9 / 50e9
    assert loads.lower_bound_seconds == 2e9 / 12.5e9
    assert loads.binding is not None
    # The PCIe switch's link to the NIC carries as much, but is wider.
    assert loads.binding.link.name == "host0/nic0->leaf0"
    assert {load.link.name for load in loads.shared} == {
        *("host0/pcie0->host0/nic0", "host0/nic0->leaf0", "leaf0->spine0", "spine0->leaf1"),
        *("leaf1->host1/nic0", "host1/nic0->host1/pcie0"),
    }


def test_an_oversubscribed_uplink_binds() -> None:
    finder = two_p4d(8.0)
    pairs = [(f"host0/gpu{i}", f"host1/gpu{i}", 10**9) for i in (0, 2, 4, 6)]
    loads = link_loads(transfers(finder, *pairs))
    assert loads.binding is not None
    assert loads.binding.link.name == "leaf0->spine0"
    assert loads.lower_bound_seconds == 4e9 / (50e9 / 8)


def test_the_two_directions_do_not_compete() -> None:
    finder = two_p4d(1.0)
    there = ("host0/gpu0", "host1/gpu0", 10**9)
    back = ("host1/gpu0", "host0/gpu0", 10**9)
    loads = link_loads(transfers(finder, there, back))
    assert loads.shared == ()
    assert loads.lower_bound_seconds == 1e9 / 12.5e9


def half_duplex_pair() -> PathFinder:
    """Two GPUs, each on a switch by a half-duplex link of 10 GB/s."""
    gpus = tuple(DeviceSpec(name=f"gpu{i}", kind=VertexKind.GPU) for i in range(2))
    switch = DeviceSpec(name="switch", kind=VertexKind.SWITCH)
    joined = {"kind": LinkKind.OTHER, "bandwidth_bytes_per_second": 10e9, "duplex": Duplex.HALF}
    links = tuple(LinkSpec(source=gpu.name, target="switch", **joined) for gpu in gpus)  # type: ignore[arg-type]
    host = HostSpec(name="h", devices=(*gpus, switch), links=links)
    return PathFinder(expand(ClusterSpec(hosts=(host,))).cluster)


def test_opposed_transfers_over_a_half_duplex_link_add_up() -> None:
    finder = half_duplex_pair()
    there, back = ("h/gpu0", "h/gpu1", 3 * 10**9), ("h/gpu1", "h/gpu0", 10**9)
    loads = link_loads(transfers(finder, there, back))
    assert [(load.name, load.total_bytes, load.transfers) for load in loads.loads] == [
        ("h/gpu0<->h/switch", 4 * 10**9, (0, 1)),
        ("h/gpu1<->h/switch", 4 * 10**9, (0, 1)),
    ]
    assert loads.shared == loads.loads
    assert loads.lower_bound_seconds == 4e9 / 10e9
    assert link_loads(transfers(finder, there)).lower_bound_seconds == 3e9 / 10e9


def test_nothing_to_send_is_bound_by_nothing() -> None:
    loads = link_loads([])
    assert loads.binding is None
    assert loads.lower_bound_seconds == 0


@pytest.mark.parametrize("message_bytes", [-1, MAX_MESSAGE_BYTES + 1])
def test_bytes_out_of_range_are_refused(message_bytes: int) -> None:
    path = two_p4d(1.0).path("host0/gpu0", "host0/gpu1")
    assert path is not None
    for refuse in (transfer_lower_bound_seconds, transfer_prediction_seconds):
        with pytest.raises(InvalidInput) as refused:
            refuse(path, message_bytes)
        assert refused.value.faults[0].code is FaultCode.OUT_OF_RANGE
    with pytest.raises(InvalidInput) as refused:
        link_loads([Transfer(path, 1), Transfer(path, message_bytes)])
    assert refused.value.faults[0].path == (1, "message_bytes")


@given(SEEDS, MESSAGES, MESSAGES)
def test_no_prediction_is_below_its_bound_and_both_grow_with_bytes(
    number: int, one: int, other: int
) -> None:
    random = Random(number)
    path = any_path(random, random_cluster(random))
    if path is None:
        return
    small, large = sorted((one, other))
    assert transfer_prediction_seconds(path, small) >= transfer_lower_bound_seconds(path, small)
    assert transfer_lower_bound_seconds(path, small) <= transfer_lower_bound_seconds(path, large)
    assert transfer_prediction_seconds(path, small) <= transfer_prediction_seconds(path, large)
    floor = path.latency_floor_seconds
    once = transfer_lower_bound_seconds(path, small) - floor
    thrice = transfer_lower_bound_seconds(path, 3 * small) - floor
    assert thrice == pytest.approx(3 * once, rel=1e-9, abs=1e-15)


@given(SEEDS)
def test_a_path_is_what_its_rule_says(number: int) -> None:
    random = Random(number)
    cluster = random_cluster(random)
    path = any_path(random, cluster)
    if path is None or not path.links:
        return
    homes = {cluster.vertices[end].host for end in (path.source, path.target)}
    assert len(set(path.vertices)) == len(path.vertices)
    assert path.vertices[-1] == path.target
    for link in path.links:
        assert cluster.links[link.source, link.target] is link
    for name in path.vertices[1:-1]:
        assert cluster.vertices[name].kind is not VertexKind.GPU
        assert cluster.vertices[name].host in {*homes, None}


@given(SEEDS, MESSAGES, st.floats(min_value=1, max_value=100))
def test_widening_a_link_never_narrows_a_path(number: int, size: int, factor: float) -> None:
    """With equal floors it never raises the bound either."""
    random = Random(number)
    cluster = random_cluster(random)
    links = {pair: replace(link, latency_floor_seconds=0.0) for pair, link in cluster.links.items()}
    before = Cluster(cluster.vertices, links)
    pair = random.choice(list(links))
    widened = links[pair].bandwidth_bytes_per_second * factor
    link = replace(links[pair], bandwidth_bytes_per_second=widened)
    after = Cluster(cluster.vertices, {**links, pair: link})
    state = random.getstate()
    old = any_path(random, before)
    random.setstate(state)
    new = any_path(random, after)
    assert (old is None) == (new is None)
    if old is None or new is None or not old.links:
        return
    assert new.distance == old.distance
    assert transfer_lower_bound_seconds(new, size) <= transfer_lower_bound_seconds(old, size)


@given(SEEDS, st.lists(MESSAGES, min_size=1, max_size=6))
def test_loads_add_up(number: int, sizes: list[int]) -> None:
    random = Random(number)
    cluster = random_cluster(random)
    sent = [
        Transfer(path, size) for size in sizes if (path := any_path(random, cluster)) is not None
    ]
    loads = link_loads(sent)
    hops = sum(transfer.message_bytes * len(transfer.path.links) for transfer in sent)
    assert sum(load.total_bytes for load in loads.loads) == hops
    for transfer in sent:
        if transfer.path.bandwidth_bytes_per_second is not None:
            alone = transfer.message_bytes / transfer.path.bandwidth_bytes_per_second
            assert loads.lower_bound_seconds >= alone
    assert link_loads(sent[:-1]).lower_bound_seconds <= loads.lower_bound_seconds
    for load in loads.loads:
        resource = load.link.resource
        users = [i for i, t in enumerate(sent) if any(k.resource == resource for k in t.path.links)]
        assert list(load.transfers) == users
