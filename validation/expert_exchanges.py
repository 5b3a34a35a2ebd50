"""Exchanges of tokens on real links beside what the authors of DeepEP printed."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from service.core.models.dtypes import DType
from service.core.moe.capacity import admit
from service.core.moe.copies import dispatch
from service.core.moe.distinct import distinct_groups
from service.core.moe.exchange import GroupExchange
from service.core.moe.exchange_bounds import bound_exchange
from service.core.moe.overflow import Capacity, OverflowPolicy
from service.core.moe.placement import contiguous
from service.core.moe.serving import serve
from service.core.moe.settings import Deduplication, Dispatcher, Payload, ReplicaSplitting
from service.core.moe.skews import uniform
from service.core.moe.traffic import Traffic
from service.core.topology.expand import expand
from service.core.topology.flows.bounds import FlowRouting
from service.core.topology.flows.study import FlowStudy
from service.core.topology.spec import ClusterSpec, HostSpec, LeafSpine
from validation.rows import Row, Section, at_least, at_most

__all__ = ["LOW_LATENCY", "SECTIONS", "low_latency_exchange", "study_of"]

_DEEPEP = "https://github.com/deepseek-ai/DeepEP"
_HIDDEN, _RANKS_OF_HOST, _EXPERTS, _TOP_K, _TOKENS = 7168, 8, 256, 8, 4096
# 128 tokens x 8, of which 10 are masked.
MESSAGES = 128 * 8 - 10
DISPATCH = Payload(DType.FP8, scale_block=128, metadata_bytes=16)
COMBINE = Payload(DType.BF16)
# Ranks, and microseconds of dispatch and of combine.
LOW_LATENCY = (
    (8, "77", "114"),
    (16, "118", "195"),
    (32, "155", "273"),
    (64, "173", "314"),
    (128, "192", "369"),
    (256, "194", "360"),
)
# Ranks, what was run, and GB/s as printed.
_NORMAL = (
    (16, "v1, 16 ranks", "43"),
    (32, "v1, 32 ranks", "58"),
    (64, "v1, 64 ranks", "51"),
    (16, "v2, 16 ranks", "90"),
    (32, "v2, 32 ranks", "61"),
)


@lru_cache(maxsize=8)
def study_of(ranks: int) -> FlowStudy:
    """Hosts of eight H100 with a NIC of 50 GB/s each, behind one switch: no fabric is narrow."""
    hosts = ranks // _RANKS_OF_HOST
    own = HostSpec(name="h", count=hosts, design="dgx-h100")
    fabric = LeafSpine(hosts_per_leaf=hosts, spines=1)
    return FlowStudy(expand(ClusterSpec(hosts=(own,), fabric=fabric)).cluster)


def low_latency_exchange(ranks: int, payload: Payload) -> GroupExchange:
    """Each rank's messages to all ranks evenly: in whole ones, whose remainder goes round."""
    every = np.full((ranks, ranks), MESSAGES // ranks, dtype=np.int64)
    for source in range(ranks):
        every[source, (source + np.arange(MESSAGES % ranks)) % ranks] += 1
    return GroupExchange(study_of(ranks).network.gpus, (every * payload.bytes_of(_HIDDEN),))


def times() -> list[Row]:
    """Microseconds of the bound of pinned paths, dispatch and combine."""
    rows = []
    for ranks, dispatched, combined in LOW_LATENCY:
        for what, printed, payload in (
            ("dispatch", dispatched, DISPATCH),
            ("combine", combined, COMBINE),
        ):
            exchange = low_latency_exchange(ranks, payload)
            exchange = exchange if what == "dispatch" else exchange.reversed()
            ours = _bound(study_of(ranks), [exchange]) / 1e6
            rows.append(Row(f"{ranks} ranks, {what}", printed, ours))
    return rows


def rates() -> list[Row]:
    """GB/s as printed: bytes of all copies by host, the own one included, over the bound."""
    rows = []
    for ranks, what, printed in _NORMAL:
        study = study_of(ranks)
        hosts = ranks // _RANKS_OF_HOST
        logical = float(distinct_groups(_EXPERTS, _TOP_K, hosts)) * _TOKENS
        copies = GroupExchange.of_copies(study.network.gpus, _by_host(ranks).stages, 1)
        seconds = _bound(study, [copies]) / 1e12
        rows.append(Row(what, printed, logical / seconds / 1e9))
    return rows


def _by_host(ranks: int) -> Traffic:
    """Copies that are spared by host, of tokens that choose evenly."""
    tokens = np.full(ranks, _TOKENS, dtype=np.int64)
    asked = uniform(tokens, _TOP_K, _EXPERTS)
    host, place = np.divmod(np.arange(ranks), _RANKS_OF_HOST)
    served = serve(
        admit(asked, Capacity(OverflowPolicy.DROPLESS)),
        asked,
        contiguous(_EXPERTS, ranks),
        ReplicaSplitting.EVEN,
        node_of_source=host,
    )
    return dispatch(
        served,
        dispatcher=Dispatcher.ALL_TO_ALL,
        deduplication=Deduplication.NODE,
        node_of_source=host,
        place_in_node=place,
        expert_tensor=1,
        top_k=_TOP_K,
        tokens=tokens,
    )


def _bound(study: FlowStudy, groups: Sequence[GroupExchange]) -> int:
    return bound_exchange(study, groups, with_flow=False).picoseconds(FlowRouting.PINNED)


SECTIONS = (
    Section(
        name="expert_exchanges",
        title="Exchanges of small batches among up to 256 ranks",
        source=f"{_DEEPEP}, docs/legacy.md: low-latency kernels, and "
        "tests/legacy/test_low_latency.py",
        text="128 tokens of each rank ask for 8 experts each, 10 of these choices are masked: "
        "1,014 messages of 7,408 bytes (fp8 with scales, and 16 bytes) there and of 14,336 (bf16) "
        "back, evenly to all ranks. Ours is the lower bound of pinned paths on hosts of eight H100 "
        "with a NIC of 50 GB/s each, behind one switch; the machines were H800, whose NVLinks are "
        "slower. Latencies and what kernels take are not in it.",
        what="ranks and exchange",
        unit="us",
        rule=at_most("no exchange is quicker than its bound"),
        rows=times,
    ),
    Section(
        name="expert_exchange_rates",
        title="Rates of exchanges with one copy to each host",
        source=f"{_DEEPEP}, docs/legacy.md and README: normal kernels, RDMA",
        text="8 of 256 experts, one copy of a token to each host that has any. What is printed "
        "counts the copy to the own host, which crosses no NIC, so that it may be above the 50 "
        "GB/s of the line. Ours are as many bytes over the lower bound of pinned paths, for tokens "
        "that choose evenly.",
        what="version and ranks",
        unit="GB/s",
        rule=at_least("no rate is above that of the bound"),
        rows=rates,
        is_bound=True,
    ),
)
