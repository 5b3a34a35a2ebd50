"""Gathering collectives on random clusters: the order of their bounds, and their witnesses.

What a witness says is added up again from the links of the cluster, by code of its own.
"""

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.topology.flows.bounds import FlowRouting, bound_gathering
from service.core.topology.flows.demands import CollectiveKind, Gathering
from service.core.topology.flows.prediction import predict
from service.core.topology.flows.results import BindingKind, BoundKind, Direction
from service.core.topology.flows.study import FlowStudy
from tests.core.topology.flows.slow_bounds import added_up
from tests.core.topology.flows.test_order_of_bounds import in_order
from tests.core.topology.random_clusters import random_cluster

SEEDS = st.integers(min_value=0, max_value=2**32 - 1)
GATHERINGS = [kind for kind in CollectiveKind if kind is not CollectiveKind.ALL_TO_ALL]
MESSAGE = Fraction(10**10, 7)


def drawn(number: int) -> tuple[FlowStudy, list[int]]:
    random = Random(number)
    study = FlowStudy(random_cluster(random))
    gpus = study.network.gpus.tolist()
    return study, sorted(random.sample(gpus, min(len(gpus), random.randint(2, 6))))


def least_demands(
    kind: CollectiveKind, names: list[str]
) -> Iterator[dict[tuple[str, str], Fraction]]:
    """What has to get from devices to others whatever is copied or added up on the way."""
    share = MESSAGE if kind is CollectiveKind.ALL_REDUCE else MESSAGE / len(names)
    for root in names:
        others = [name for name in names if name != root]
        if kind is CollectiveKind.ALL_GATHER:
            yield {(other, root): share for other in others}
        elif kind is CollectiveKind.REDUCE_SCATTER:
            yield {(root, other): share for other in others}
        else:
            yield from ({(root, other): share} for other in others)


@pytest.mark.parametrize("kind", GATHERINGS)
@given(number=SEEDS)
@settings(max_examples=15)
def test_bounds_and_their_witnesses(kind: CollectiveKind, number: int) -> None:
    study, devices = drawn(number)
    if len(devices) < 2:
        return
    gathering = Gathering(kind, np.array(devices, dtype=np.int32), MESSAGE)
    found = bound_gathering(study, gathering, FlowRouting.ANY, in_network_reduction=True)
    in_order(found)
    names = [study.network.names[device] for device in devices]
    demands = list(least_demands(kind, names))
    for bound in found.bounds:
        if any(part.copies > 1 for part in bound.parts):
            continue  # it names one of several links alike
        lengths = {study.network.resource_name(p.resource): p.length for p in bound.parts}
        # What crosses both ways is of two devices, one on each side.
        both = bound.binding.direction is Direction.BOTH
        asked = [one | other for one, other in combinations(demands, 2)] if both else demands
        again = max(added_up(study.network.cluster, one, lengths, names) for one in asked)
        assert again >= bound.exact_seconds
        if bound.binding.kind is BindingKind.LENGTHS:
            assert again == bound.exact_seconds


@given(SEEDS)
@settings(max_examples=15)
def test_fewer_routes_and_no_help_of_the_network_take_longer(number: int) -> None:
    study, devices = drawn(number)
    if len(devices) < 2:
        return
    for kind in GATHERINGS:
        gathering = Gathering(kind, np.array(devices, dtype=np.int32), MESSAGE)
        free, bare, pinned = (
            bound_gathering(study, gathering, routing, in_network_reduction=reduction)
            for routing, reduction in (
                (FlowRouting.ANY, True),
                (FlowRouting.ANY, False),
                (FlowRouting.PINNED, False),
            )
        )
        in_order(bare)
        in_order(pinned)
        if pinned.unreachable:
            continue
        for kind_of_bound in (BoundKind.PORT, BoundKind.CUT):
            values = [each.of(kind_of_bound) for each in (free, bare, pinned)]
            seconds = [Fraction(0) if one is None else one.exact_seconds for one in values]
            assert seconds == sorted(seconds)
        ring = predict(study, gathering)
        if ring is not None:
            floor = float(pinned.latency_floor)
            assert pinned.seconds <= ring.seconds * (1 + 1e-9) + floor
