"""What expert exchanges cost by size: routing, capacity, copies, paths, loads, bounds.

    python -m benchmarks.moe

Hosts of eight H100, rail by rail with spines above, all ranks one expert group of 256 experts whose
tokens are listed one by one and of which each rank gets one copy; on more ranks experts are
replicated, so that each rank has one at least. Times are CPU time of this process. Paths are found
once for a group and kept. For the smallest group the same is done token by token and pair by pair
in plain Python in the same run. The last column says what one more price costs in operations of a
schedule that is run once, of which the budget of a request holds about ten million for a second.
"""

import platform
from collections import Counter
from itertools import pairwise

import numpy as np

from benchmarks.topology import best, timed
from service.core.moe.assignments import RoutingLevel
from service.core.moe.capacity import admit
from service.core.moe.copies import dispatch
from service.core.moe.exchange import GroupExchange, exchange_paths, price_exchange
from service.core.moe.exchange_bounds import bound_exchange
from service.core.moe.overflow import Capacity, CapacityScope, OverflowPolicy
from service.core.moe.placement import contiguous, given
from service.core.moe.routing import Routing, RoutingRecord, assignments
from service.core.moe.serving import serve
from service.core.moe.settings import Deduplication, Dispatcher, ReplicaSplitting
from service.core.moe.traffic import Traffic
from service.core.topology.expand import expand
from service.core.topology.flows.study import FlowStudy, flow_study
from service.core.topology.spec import ClusterSpec, HostSpec, RailOptimised

EXPERTS, TOP_K, COPY_BYTES, HOST = 256, 8, 14_336, 8
OPERATIONS_PER_SECOND = 10e6
# Ranks, and tokens of each.
SIZES = ((64, 4_096), (512, 4_096), (4_096, 512))


def study_of(ranks: int) -> FlowStudy:
    """Groups of 32 hosts on their rail switches, 16 spines above."""
    own = HostSpec(name="host", count=ranks // HOST, design="dgx-h100")
    fabric = RailOptimised(hosts_per_leaf=32, spines=16)
    return flow_study(expand(ClusterSpec(hosts=(own,), fabric=fabric)).cluster)


def recorded(ranks: int, tokens: int) -> Routing:
    """Lists of tokens: each asks for experts that differ, some far more often than others."""
    draw = np.random.default_rng(0)
    popular = 1.0 / np.arange(1, EXPERTS + 1) ** 0.5
    choices = np.empty((ranks * tokens, TOP_K), dtype=np.int32)
    for first in range(0, len(choices), 65_536):
        part = choices[first : first + 65_536]
        # The largest of exponential races are a draw without replacement.
        races = draw.exponential(size=(len(part), EXPERTS)) / popular
        part[:] = np.argpartition(races, TOP_K, axis=1)[:, :TOP_K]
    source = np.repeat(np.arange(ranks), tokens)
    counts = np.zeros((ranks, EXPERTS), dtype=np.int64)
    np.add.at(counts, (source[:, np.newaxis], choices), 1)
    record = RoutingRecord(counts, choices)
    return Routing(EXPERTS, TOP_K, RoutingLevel.TOKENS, layers=(0,), records={(0, 0): record})


def copies_of(routing: Routing, ranks: int, tokens: int) -> tuple[Traffic, list[float]]:
    """The copies of a dispatch, and the seconds of routing, capacity, placement and copies."""
    host, place = np.divmod(np.arange(ranks), HOST)
    of_each = np.full(ranks, tokens, dtype=np.int64)
    routed, routing_seconds = timed(lambda: assignments(routing, 0, 0, of_each).assignments)
    one_each = [[rank % EXPERTS] for rank in range(ranks)]
    placement = given(EXPERTS, ranks, one_each) if ranks > EXPERTS else contiguous(EXPERTS, ranks)
    capacity = Capacity(OverflowPolicy.DROP, factor=2.0, scope=CapacityScope.SOURCE)
    admitted, admitting = timed(lambda: admit(routed, capacity))
    served, serving = timed(
        lambda: serve(
            admitted,
            routed,
            placement,
            ReplicaSplitting.EVEN,
            node_of_source=host,
        )
    )
    traffic, counting = timed(
        lambda: dispatch(
            served,
            dispatcher=Dispatcher.ALL_TO_ALL,
            deduplication=Deduplication.RANK,
            node_of_source=host,
            place_in_node=place,
            expert_tensor=1,
            top_k=TOP_K,
            tokens=of_each,
        )
    )
    return traffic, [routing_seconds, admitting, serving, counting]


def slow_loads(study: FlowStudy, routing: Routing, ranks: int, tokens: int) -> dict[str, int]:
    """Bytes on each link, token by token and pair by pair, by nothing of the above."""
    choices = routing.records[0, 0].choices
    assert choices is not None  # noqa: S101
    capacity = -(-2 * TOP_K * tokens // EXPERTS)
    sizes = [EXPERTS // ranks + (rank < EXPERTS % ranks) for rank in range(ranks)]
    rank_of = [rank for rank, size in enumerate(sizes) for _ in range(size)]
    between: Counter[tuple[int, int]] = Counter()
    for source in range(ranks):
        taken = [0] * EXPERTS
        for token in choices[source * tokens : (source + 1) * tokens].tolist():
            ranks_of_token = set()
            for expert in token:
                taken[expert] += 1
                if taken[expert] <= capacity:
                    ranks_of_token.add(rank_of[expert])
            for rank in ranks_of_token:
                between[source, rank] += 1
    names = [study.network.names[device] for device in study.network.gpus.tolist()]
    loads: Counter[str] = Counter()
    for (source, target), copies in between.items():
        path = study.finder.path(names[source], names[target])
        assert path is not None  # noqa: S101
        for one, other in pairwise(path.vertices):
            loads[f"{one}->{other}"] += copies * COPY_BYTES
    return dict(loads)


def row(ranks: int, tokens: int) -> None:
    """One size."""
    study = study_of(ranks)
    network = study.network
    routing = recorded(ranks, tokens)
    # Compiled loops are loaded by their first call.
    for few in (8, 512):
        copies_of(recorded(few, 16), few, 16)
    traffic, seconds = copies_of(routing, ranks, tokens)
    groups = [GroupExchange.of_copies(network.gpus, traffic.stages, COPY_BYTES)]
    _, finding = timed(lambda: exchange_paths(study, groups))
    cost = price_exchange(study, groups)
    price_seconds = best(lambda: price_exchange(study, groups), 3)
    bound_exchange(study, groups, with_flow=False)
    bounding = best(lambda: bound_exchange(study, groups, with_flow=False), 3)
    parts = (*seconds, finding, price_seconds, bounding)
    total = sum(parts)
    operations = round(price_seconds * OPERATIONS_PER_SECOND)
    columns = " ".join(f"{1e3 * one:9.2f}" for one in parts)
    print(f"{ranks:6} {tokens:7} {columns} {total:9.3f} s {operations / ranks**2:8.2f}")
    if ranks == SIZES[0][0]:
        expected, slow = timed(lambda: slow_loads(study, routing, ranks, tokens))
        found = zip(cost.loads.links.tolist(), cost.loads.bytes.tolist(), strict=True)
        same = {network.links[link].name: amount for link, amount in found} == expected
        fast = total - bounding
        print(f"   in plain Python {slow:8.2f} s, {slow / fast:.0f} times as long; equal: {same}")


def main() -> None:
    """Print all of it."""
    print(f"python {platform.python_version()}, {platform.machine()}; milliseconds\n")
    print(
        " ranks  tokens   routing  capacity     serve    copies     paths     price    bounds"
        "       total  operations a pair"
    )
    for ranks, tokens in SIZES:
        row(ranks, tokens)


if __name__ == "__main__":
    main()
