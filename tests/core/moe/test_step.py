"""A layer's parts put together, by hand and as FasterMoE publishes it."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.models.dtypes import DType
from service.core.moe.compute import Experts, Products, expert_times
from service.core.moe.exchange import GroupExchange, price_exchange
from service.core.moe.exchange_bounds import ExchangeLimit, bound_exchange
from service.core.moe.settings import Overlap
from service.core.moe.step import (
    LayerParts,
    exchanged_together,
    overlapped_bound_picoseconds,
    step_picoseconds,
)
from service.core.profiles.roofline import Roofline
from service.core.topology.cluster import LinkKind, VertexKind
from service.core.topology.expand import expand
from service.core.topology.flows.bounds import FlowRouting
from service.core.topology.flows.study import FlowStudy
from service.core.topology.spec import ClusterSpec, DeviceSpec, HostSpec, LinkSpec, SwitchSpec

PARTS = LayerParts(pack=10, dispatch=300, compute=900, combine=500, unpack=20, shared=400)


def test_one_part_after_the_other() -> None:
    assert step_picoseconds(PARTS, Overlap()) == 2_130


def test_chunks_by_hand() -> None:
    """(300 + 900 + 500) / 4 + 3/4 of 900, and what is outside."""
    assert step_picoseconds(PARTS, Overlap(chunks=4)) == 425 + 675 + 30 + 400
    # Products that are left three quarters of the device take 1,200.
    slowed = Overlap(chunks=4, compute_fraction_left=0.75)
    assert step_picoseconds(PARTS, slowed) == 500 + 900 + 30 + 400


def test_a_shared_expert_under_the_dispatch() -> None:
    """It is 100 longer than the dispatch."""
    hidden = Overlap(shared_expert=True)
    assert step_picoseconds(PARTS, hidden) == 10 + 400 + 900 + 500 + 20


SIZES = st.integers(0, 10**12)


@given(st.builds(LayerParts, *[SIZES] * 6), st.integers(1, 16))
def test_overlap_stays_between_its_bounds(parts: LayerParts, chunks: int) -> None:
    found = step_picoseconds(parts, Overlap(chunks=chunks))
    least = max(parts.exchange, parts.compute) + parts.pack + parts.unpack + parts.shared
    assert least <= found <= step_picoseconds(parts, Overlap())
    more = step_picoseconds(parts, Overlap(chunks=2 * chunks))
    assert more <= found + 1


RATE = 50e9


def star(ranks: int) -> FlowStudy:
    """Hosts of one GPU, each with `RATE` to one switch."""
    gpu = DeviceSpec(name="gpu0", kind=VertexKind.GPU)
    hosts = tuple(HostSpec(name=f"h{i}", devices=(gpu,), links=()) for i in range(ranks))
    links = tuple(
        LinkSpec(
            source=f"h{i}/gpu0",
            target="leaf",
            kind=LinkKind.NETWORK,
            bandwidth_bytes_per_second=RATE,
        )
        for i in range(ranks)
    )
    leaf = SwitchSpec(name="leaf", kind=VertexKind.LEAF)
    return FlowStudy(expand(ClusterSpec(hosts=hosts, switches=(leaf,), links=links)).cluster)


def test_the_published_form_of_fastermoe() -> None:
    """Forward and backward of a layer: 3 B 4 a h^2 / P + 4 B h 4 / W in fp32, B of the busiest.

    He et al., FasterMoE, PPoPP 2022, section 4: P is what a worker computes a second, W its
    bandwidth, a h the width of an expert; the factor 3 is forward and twice that backward, the
    factor 4 the two exchanges of each.
    """
    ranks, hidden, ratio, flops = 4, 1_024, 4, 10e12
    study = star(ranks)
    received = np.array([[0, 5, 2, 1], [300, 0, 1, 1], [200, 7, 0, 0], [123, 3, 3, 0]])
    busiest = int(received.sum(axis=0).max())
    experts = Experts(hidden, ratio * hidden, gated=False, dtype=DType.FP32)
    # Without a floor for reading weights, which the form does not have.
    products = Products(sustained=Roofline(flops, 1e30))
    rows = received.sum(axis=0)
    computed = expert_times(experts, products, rows, np.arange(ranks, dtype=np.int32), ranks)
    there = GroupExchange(study.network.gpus, (received * hidden * 4,))
    dispatch = price_exchange(study, [there]).picoseconds
    combine = price_exchange(study, [there.reversed()]).picoseconds
    forward, backward = (
        step_picoseconds(LayerParts(0, dispatch, int(of_ranks.max()), combine, 0), Overlap())
        for of_ranks in (computed.forward_picoseconds, computed.backward_picoseconds)
    )
    published = 3 * busiest * 4 * ratio * hidden**2 / flops + 4 * busiest * hidden * 4 / RATE
    assert (forward + backward) * 1e-12 == pytest.approx(published, rel=1e-9)


def test_what_goes_to_a_hot_rank_and_comes_from_it_may_overlap() -> None:
    """Each direction of its port has the bytes of one exchange, not of both."""
    study = star(3)
    there = GroupExchange(
        study.network.gpus, (np.array([[0, 0, 0], [10**9, 0, 0], [10**9, 0, 0]]),)
    )
    both = exchanged_together([there], [there.reversed()])
    bounds = bound_exchange(study, both)
    assert bounds.pinned[ExchangeLimit.NIC].exact_seconds == Fraction(2 * 10**9, int(RATE))
    exchange = bounds.picoseconds(FlowRouting.PINNED)
    assert exchange == 40 * 10**9
    assert overlapped_bound_picoseconds(exchange, 7) == exchange
    assert overlapped_bound_picoseconds(exchange, 2 * exchange) == 2 * exchange


def test_the_fewest_of_either_way_are_kept() -> None:
    study = star(2)
    full, least = np.array([[0, 8], [0, 0]]), np.array([[0, 6], [0, 0]])
    expected = GroupExchange(study.network.gpus, (full,), (least,))
    counted = GroupExchange(study.network.gpus, (full,))
    (both,) = exchanged_together([expected], [counted])
    assert both.least.tolist() == (least + full).tolist()
    (neither,) = exchanged_together([counted], [counted])
    assert neither.fewest is None
