"""Exchanges over real links: by hand on two hosts, and what holds for all of them."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.moe.exchange import (
    GroupExchange,
    exchange_paths,
    price_exchange,
)
from service.core.moe.exchange_bounds import (
    ExchangeLimit,
    bound_exchange,
    bound_picoseconds,
    group_bisections,
)
from service.core.moe.traffic import Copies
from service.core.topology.cluster import Cluster, LinkKind, VertexKind
from service.core.topology.expand import expand
from service.core.topology.flows.bounds import FlowRouting
from service.core.topology.flows.results import Method
from service.core.topology.flows.study import FlowStudy
from service.core.topology.spec import (
    ClusterSpec,
    DeviceSpec,
    HostSpec,
    LinkSpec,
    RailOptimised,
    SwitchSpec,
)

SEEDS = st.integers(min_value=0, max_value=2**32 - 1)
GB = 10**9


def h100s(hosts: int = 2, **changes: object) -> FlowStudy:
    """DGX H100: 450 GB/s to the NVSwitches and a NIC of 50 GB/s for each GPU."""
    spec = ClusterSpec(
        hosts=(HostSpec(name="host", count=hosts, design="dgx-h100"),),
        fabric=RailOptimised(spines=4),
    )
    cluster = expand(spec).cluster
    links = {ends: replace(link, **changes) for ends, link in cluster.links.items()}  # type: ignore[arg-type]
    return FlowStudy(Cluster(cluster.vertices, links))


def by_hand() -> FlowStudy:
    """Two hosts of two GPUs: NVLink of 100 B/s between them, and one NIC of 10 B/s for both."""
    gpus = tuple(DeviceSpec(name=f"gpu{i}", kind=VertexKind.GPU) for i in range(2))
    nic = DeviceSpec(name="nic0", kind=VertexKind.NIC, port_bytes_per_second=10.0)

    def link(source: str, target: str, kind: LinkKind, rate: float) -> LinkSpec:
        return LinkSpec(
            source=source,
            target=target,
            kind=kind,
            bandwidth_bytes_per_second=rate,
            effective_bytes_per_second=rate / 2,
            latency_seconds=1.0,
        )

    inside = (
        link("gpu0", "gpu1", LinkKind.NVLINK, 100.0),
        link("gpu0", "nic0", LinkKind.PCIE, 40.0),
        link("gpu1", "nic0", LinkKind.PCIE, 40.0),
    )
    hosts = tuple(HostSpec(name=n, devices=(*gpus, nic), links=inside) for n in "ab")
    wires = tuple(link(f"{name}/nic0", "leaf", LinkKind.NETWORK, 10.0) for name in "ab")
    leaf = SwitchSpec(name="leaf", kind=VertexKind.LEAF)
    return FlowStudy(expand(ClusterSpec(hosts=hosts, switches=(leaf,), links=wires)).cluster)


def group(study: FlowStudy, *stages: object) -> GroupExchange:
    matrices = tuple(np.array(one, dtype=np.int64) for one in stages)
    return GroupExchange(study.network.gpus[: len(matrices[0])], matrices)


# From a/0, a/1, b/0, b/1: a sends 60 + 40 over its NIC, b 20.
BY_HAND = [[5, 30, 60, 0], [10, 0, 0, 40], [20, 0, 0, 0], [0, 0, 0, 7]]


def test_two_hosts_by_hand() -> None:
    study = by_hand()
    network = study.network
    cost = price_exchange(study, [group(study, BY_HAND)])
    resources, total = cost.loads.resources(network)
    carried = {network.resource_name(r): int(b) for r, b in zip(resources, total, strict=True)}
    assert carried == {
        "a/gpu0->a/gpu1": 30,
        "a/gpu1->a/gpu0": 10,
        "a/gpu0->a/nic0": 60,
        "a/gpu1->a/nic0": 40,
        "a/nic0->leaf": 100,
        "leaf->b/nic0": 100,
        "b/nic0->b/gpu0": 60,
        "b/nic0->b/gpu1": 40,
        "b/gpu0->b/nic0": 20,
        "b/nic0->leaf": 20,
        "leaf->a/nic0": 20,
        "a/nic0->a/gpu0": 20,
    }
    # 100 B at 5 B/s; a/gpu0 starts a message over one link and one over four.
    assert cost.transfer_picoseconds == (20 * 10**12,)
    assert cost.latency_picoseconds == (5 * 10**12,)
    assert cost.binding[0] is not None
    assert network.resource_name(cost.binding[0]) == "a/nic0->leaf"
    slower = price_exchange(study, [group(study, BY_HAND)], efficiency=0.5)
    assert slower.picoseconds == (40 + 5) * 10**12

    bounds = bound_exchange(study, [group(study, BY_HAND)])
    pinned = {limit: bound.seconds for limit, bound in bounds.pinned.items()}
    assert pinned == {
        # What b/gpu0 gets, all of it over PCIe; a/gpu0 sends 90 over two links of 140 together.
        ExchangeLimit.GPU_PORT: 60 / 40,
        ExchangeLimit.CARD: 60 / 40,
        ExchangeLimit.NIC: 10.0,
        ExchangeLimit.CUT: 10.0,
        ExchangeLimit.CONCURRENT_FLOW: 10.0,
    }
    assert bounds.any_route[ExchangeLimit.HOST].exact_seconds == 10
    assert bounds.any_route[ExchangeLimit.CONCURRENT_FLOW].exact_seconds == 10
    assert bounds.method is Method.LINEAR_PROGRAM
    assert bounds.picoseconds(FlowRouting.ANY) == 10 * 10**12


def test_stages_follow_one_another_but_their_sum_is_no_bound() -> None:
    study = by_hand()
    inside = [[0, 400, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    both = group(study, BY_HAND, inside)
    cost = price_exchange(study, [both])
    assert cost.transfer_picoseconds == (20 * 10**12, 8 * 10**12)
    assert cost.latency_picoseconds == (5 * 10**12, 10**12)
    bounds = bound_exchange(study, [both])
    assert bounds.picoseconds(FlowRouting.PINNED) == 10 * 10**12
    # What a/gpu1 gets in both stages, over NVLink.
    assert bounds.pinned[ExchangeLimit.GPU_PORT].seconds == 4.3
    # On the way back the last stage comes first.
    back = price_exchange(study, [both.reversed()])
    assert back.transfer_picoseconds == (8 * 10**12, 20 * 10**12)


def test_one_hot_rank_of_two_hosts_of_eight() -> None:
    """400 GB of one rank: 8 s through its own NIC, 1 s through all NICs of its host."""
    study = h100s()
    matrix = np.zeros((16, 16), dtype=np.int64)
    matrix[3, 8:] = 50 * GB
    bounds = bound_exchange(study, [GroupExchange(study.network.gpus, (matrix,))])
    assert bounds.pinned[ExchangeLimit.NIC].exact_seconds == 8
    assert bounds.any_route[ExchangeLimit.HOST].exact_seconds == 1
    assert bounds.any_route[ExchangeLimit.CONCURRENT_FLOW].exact_seconds == 1
    assert ExchangeLimit.NIC not in bounds.any_route


def test_gpus_that_share_a_nic() -> None:
    """p4d: two GPUs to a NIC of 12.5 GB/s; each sends 25 GB to its like."""
    spec = ClusterSpec(
        hosts=(HostSpec(name="host", count=2, design="p4d"),), fabric=RailOptimised()
    )
    study = FlowStudy(expand(spec).cluster)
    matrix = np.zeros((16, 16), dtype=np.int64)
    matrix[np.arange(8), np.arange(8) + 8] = 25 * GB
    pinned = bound_exchange(study, [GroupExchange(study.network.gpus, (matrix,))]).pinned
    assert pinned[ExchangeLimit.NIC].exact_seconds == 4


def test_nothing_moves() -> None:
    study = h100s()
    for matrix in (np.zeros((16, 16)), np.diag(np.arange(16))):
        one = group(study, matrix)
        cost = price_exchange(study, [one])
        assert (cost.picoseconds, cost.binding, len(cost.loads.links)) == (0, (None,), 0)
        bounds = bound_exchange(study, [one])
        assert (bounds.pinned, bounds.any_route) == ({}, {})
        assert bounds.picoseconds(FlowRouting.ANY) == 0


def test_an_expert_group_of_one_rank_sends_nothing() -> None:
    study = h100s()
    alone = [GroupExchange(study.network.gpus[[i]], (np.array([[9]]),)) for i in range(16)]
    assert price_exchange(study, alone).picoseconds == 0


def test_one_host_uses_no_nic() -> None:
    study = h100s()
    one = group(study, np.full((8, 8), 1000))
    links = price_exchange(study, [one]).loads.links
    assert {study.network.links[link].kind for link in links} == {LinkKind.NVLINK}
    assert ExchangeLimit.NIC not in bound_exchange(study, [one]).pinned


def test_groups_at_once_share_links() -> None:
    """Two groups of one rank a host in the same rail's place: on p4d their NIC is one."""
    spec = ClusterSpec(
        hosts=(HostSpec(name="host", count=2, design="p4d"),), fabric=RailOptimised()
    )
    study = FlowStudy(expand(spec).cluster)
    matrix = np.array([[0, GB], [GB, 0]])
    pair, other = (GroupExchange(study.network.gpus[[i, i + 8]], (matrix,)) for i in (0, 1))
    alone, both = price_exchange(study, [pair]), price_exchange(study, [pair, other])
    assert both.transfer_picoseconds[0] == pytest.approx(2 * alone.transfer_picoseconds[0], abs=1)
    summed = alone.loads.plus(price_exchange(study, [other]).loads)
    assert np.array_equal(summed.links, both.loads.links)
    assert np.array_equal(summed.bytes, both.loads.bytes)


def test_bytes_of_copies() -> None:
    study = by_hand()
    copies = Copies(np.array(BY_HAND, dtype=np.int64))
    made = GroupExchange.of_copies(study.network.gpus, [copies], 7, [copies])
    assert np.array_equal(made.stages[0], 7 * np.array(BY_HAND))
    assert np.array_equal(made.least, made.stages[0])


def test_bounds_are_of_the_fewest_copies() -> None:
    study = by_hand()
    full = np.array(BY_HAND, dtype=np.int64)
    one = GroupExchange(study.network.gpus, (full,), (full // 2,))
    assert bound_exchange(study, [one]).pinned[ExchangeLimit.NIC].exact_seconds == 5
    assert price_exchange(study, [one]).transfer_picoseconds == (20 * 10**12,)


def test_bisection_of_each_group() -> None:
    study = h100s()
    gpus = study.network.gpus
    split, alone = group_bisections(study, [GroupExchange(gpus, ()), GroupExchange(gpus[:1], ())])
    assert alone is None
    assert split is not None
    assert split.bytes_per_second == 8 * 50e9


@settings(max_examples=6)
@given(SEEDS)
def test_what_holds_for_any_exchange(seed: int) -> None:
    draw = np.random.default_rng(seed)
    study = _STUDIES[seed % len(_STUDIES)]
    count = 16
    matrix = draw.integers(0, 10 * GB, (count, count)) * (draw.random((count, count)) < 0.2)
    one = GroupExchange(study.network.gpus[:count], (matrix,))
    cost, bounds = price_exchange(study, [one]), bound_exchange(study, [one])
    # Effective capacities are at most nominal ones: bounds are below the prediction.
    assert bounds.picoseconds(FlowRouting.PINNED) <= cost.picoseconds
    assert bounds.picoseconds(FlowRouting.ANY) <= bounds.picoseconds(FlowRouting.PINNED)
    for family in (bounds.pinned, bounds.any_route):
        exact = {limit: bound.exact_seconds for limit, bound in family.items()}
        flow = exact.pop(ExchangeLimit.CONCURRENT_FLOW)
        assert max(exact.values()) == exact[ExchangeLimit.CUT] <= flow
    # The way back has the same bounds, into for out.
    back = bound_exchange(study, [one.reversed()])
    for limit in (ExchangeLimit.HOST, ExchangeLimit.GPU_PORT):
        assert back.any_route[limit].exact_seconds == bounds.any_route[limit].exact_seconds
    # Ranks that change places inside their hosts: what hosts send stays.
    order = np.concatenate([draw.permutation(8), 8 + draw.permutation(8)])
    moved = GroupExchange(one.devices, (np.ascontiguousarray(matrix[np.ix_(order, order)]),))
    host = bound_exchange(study, [moved]).any_route[ExchangeLimit.HOST]
    assert host.exact_seconds == bounds.any_route[ExchangeLimit.HOST].exact_seconds


_STUDIES = (h100s(), h100s(effective_bytes_per_second=20e9, latency_seconds=1e-6))


@settings(max_examples=5)
@given(SEEDS, st.sampled_from((Fraction(1, 4), Fraction(2), Fraction(8))))
def test_faster_links_divide_times(seed: int, factor: Fraction) -> None:
    study = h100s(effective_bytes_per_second=None)
    rates = {
        ends: replace(
            link,
            bandwidth_bytes_per_second=link.bandwidth_bytes_per_second * float(factor),
        )
        for ends, link in study.network.cluster.links.items()
    }
    faster = FlowStudy(Cluster(study.network.cluster.vertices, rates))
    matrix = np.random.default_rng(seed).integers(0, GB, (16, 16))
    ours, theirs = (
        bound_exchange(one, [GroupExchange(one.network.gpus, (matrix,))], with_flow=False)
        for one in (study, faster)
    )
    for slow, fast in ((ours.pinned, theirs.pinned), (ours.any_route, theirs.any_route)):
        assert {limit: b.exact_seconds / factor for limit, b in slow.items()} == {
            limit: b.exact_seconds for limit, b in fast.items()
        }


def test_many_pairs_have_cuts_alone() -> None:
    study = h100s(8)
    one = group(study, np.full((64, 64), 1000))
    bounds = bound_exchange(study, [one])
    assert bounds.method is Method.CUTS
    assert ExchangeLimit.CONCURRENT_FLOW not in bounds.any_route
    # 8 ranks of a host send 56 others each 1,000 B over 8 NICs of 50 GB/s.
    host = bounds.any_route[ExchangeLimit.HOST]
    assert host.exact_seconds == Fraction(8 * 56 * 1000, 400 * GB)
    assert bound_picoseconds(host) == 1_120_000


def test_pairs_that_nothing_joins() -> None:
    spec = ClusterSpec(hosts=(HostSpec(name="host", count=2, design="dgx-h100"),), fabric=None)
    study = FlowStudy(expand(spec).cluster)
    one = group(study, np.ones((9, 9)))
    assert exchange_paths(study, [one]).lost[:2] == (
        (one.devices[0], one.devices[8]),
        (one.devices[1], one.devices[8]),
    )
