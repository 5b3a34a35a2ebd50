"""Imbalance, tails and what a capacity factor trades."""

from dataclasses import replace

import numpy as np
import pytest

from service.core.errors import FaultCode
from service.core.moe.assignments import Assignments, RoutingLevel
from service.core.moe.imbalance import Imbalance, Tails, imbalance, rows_by_node, tails
from service.core.moe.overflow import Capacity, CapacityScope, OverflowPolicy
from service.core.moe.placement import contiguous, given
from service.core.moe.settings import ReplicaSplitting
from service.core.moe.sweep import sweep
from tests.core.refusals import refusals

DROP = Capacity(OverflowPolicy.DROP, 1.0, CapacityScope.SOURCE)


def test_the_first_of_equals_is_the_busiest() -> None:
    found = imbalance(np.array([2, 6, 6, 2]))
    assert found == Imbalance(1, 6, 4)
    assert found.max_over_mean == 1.5
    assert found.straggler_loss_fraction == pytest.approx(1 / 3)


def test_of_no_rows_nobody_waits_and_no_ratio_is_made_up() -> None:
    found = imbalance(np.zeros(3, dtype=np.int64))
    assert (found.max_over_mean, found.straggler_loss_fraction) == (None, 0)


def test_more_experts_on_a_rank_even_out() -> None:
    experts = np.array([9, 1, 3, 3, 1, 1, 3, 3])
    assert imbalance(experts).max_over_mean == 3
    ranks = contiguous(8, 2)
    assert imbalance(rows_by_node(experts, ranks.slot_rank)).max_over_mean == pytest.approx(4 / 3)


def test_hosts_have_the_rows_of_their_ranks() -> None:
    assert rows_by_node(np.array([1, 2, 3, 4]), [0, 1, 1, 0]).tolist() == [5, 5]
    assert rows_by_node(np.array([0.5, 0.25]), [0, 0]).tolist() == [0.75]


def test_percentiles_are_rows_that_occurred() -> None:
    assert tails(np.arange(1, 101).reshape(4, 25)) == Tails(50, 90, 99, 100)
    assert tails([7, 1, 4]) == Tails(4, 7, 7, 7)
    assert tails([5]) == Tails(5, 5, 5, 5)
    assert tails(np.arange(1, 11)) == Tails(5, 9, 10, 10)


def test_a_sweep_by_hand() -> None:
    counts = np.array([[6, 2, 0, 0], [4, 4, 0, 0]])
    assignments = Assignments(counts, np.array([8, 8]), 1, RoutingLevel.SOURCES)
    points = sweep(
        assignments,
        DROP,
        [1.0, 2.0, 3.0],
        contiguous(4, 2),
        ReplicaSplitting.EVEN,
        node_of_source=np.zeros(2, dtype=np.int64),
    )
    assert [point.capacity_rows for point in points] == [2, 4, 6]
    assert [point.fates.dropped_fraction for point in points] == [8 / 16, 2 / 16, 0]
    assert [point.most_rank_rows for point in points] == [8, 14, 16]
    padded = sweep(
        assignments,
        replace(DROP, overflow=OverflowPolicy.PAD),
        [1.0, 2.0],
        contiguous(4, 2),
        ReplicaSplitting.EVEN,
        node_of_source=np.zeros(2, dtype=np.int64),
    )
    assert [point.most_rank_rows for point in padded] == [8, 16]
    assert [point.fates.padded_fraction for point in padded] == [0.5, 1 - 14 / 32]


def test_a_sweep_tells_who_goes_elsewhere_from_who_is_dropped() -> None:
    assignments = Assignments(np.array([[6, 2]]), np.array([8]), 1, RoutingLevel.SOURCES)
    for policy, fractions in (
        (OverflowPolicy.FALLBACK, (0, 0.25, 0)),
        (OverflowPolicy.REROUTE, (0, 0, 0.25)),
        (OverflowPolicy.DROP, (0.25, 0, 0)),
    ):
        (point,) = sweep(
            assignments,
            replace(DROP, overflow=policy),
            [1.0],
            given(2, 1, [[0, 1]]),
            ReplicaSplitting.EVEN,
            node_of_source=np.zeros(1, dtype=np.int64),
        )
        fates = point.fates
        found = fates.dropped_fraction, fates.fallback_fraction, fates.rerouted_fraction
        assert found == fractions


def test_a_policy_without_capacity_has_no_sweep() -> None:
    assignments = Assignments(np.array([[1]]), np.array([1]), 1, RoutingLevel.SOURCES)
    dropless = Capacity(OverflowPolicy.DROPLESS)
    assert refusals(
        lambda: sweep(
            assignments,
            dropless,
            [1.0],
            contiguous(1, 1),
            ReplicaSplitting.EVEN,
            node_of_source=np.zeros(1, dtype=np.int64),
        )
    ) == [(FaultCode.EXCLUSIVE_FIELDS, ("capacity_factor",))]
