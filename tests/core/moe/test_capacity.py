"""Capacities and policies worked by hand."""

from dataclasses import replace

import numpy as np
import pytest

from service.core.errors import FaultCode
from service.core.moe.assignments import Assignments, RoutingLevel
from service.core.moe.capacity import admit, capacity_rows, reroute_bounds
from service.core.moe.overflow import Capacity, CapacityScope, DropOrder, OverflowPolicy
from tests.core.refusals import refusals

DROP = Capacity(OverflowPolicy.DROP, 1.0, CapacityScope.SOURCE)
POLICIES = [
    Capacity(policy)
    if policy.value.startswith("dropless")
    else Capacity(policy, 1.25, scope, minimum=1)
    for policy in OverflowPolicy
    for scope in CapacityScope
]


def asked(*counts: list[int], top_k: int = 1) -> Assignments:
    """Sources that ask for experts as often as listed."""
    table = np.array(counts, dtype=np.int64)
    return Assignments(table, table.sum(axis=1) // top_k, top_k, RoutingLevel.SOURCES)


@pytest.mark.parametrize(
    ("factor", "assigned", "experts", "minimum", "alignment", "rows"),
    [
        (1.0, 16, 8, 0, 1, 2),
        (1.25, 16, 8, 0, 1, 3),  # 2.5 rounded up
        (1.25, 64, 8, 0, 1, 10),  # exactly 10
        (1.1, 100, 10, 0, 1, 11),  # 1.1 x 10.0 is 11.000000000000002 in floats
        (1.15, 100, 1, 0, 1, 115),  # and 1.15 x 100 is 114.99999999999999
        (2.0, 100, 7, 0, 1, 29),  # the experts do not divide: 28.57
        (1.0, 16, 8, 4, 1, 4),
        (1.0, 16, 8, 4, 8, 8),  # the minimum first, then the multiple
        (1.0, 0, 8, 0, 16, 0),
        (1.0, 0, 8, 4, 1, 4),
    ],
)
def test_rows_by_hand(
    factor: float, assigned: int, experts: int, minimum: int, alignment: int, rows: int
) -> None:
    capacity = Capacity(OverflowPolicy.DROP, factor, CapacityScope.SOURCE, minimum, alignment)
    assert capacity_rows(capacity, [assigned], experts).tolist() == [rows]


def test_each_source_has_the_capacity_of_its_own_tokens() -> None:
    admitted = admit(asked([6, 1, 1], [1, 1, 0]), DROP)
    assert admitted.kept.tolist() == [[3, 1, 1], [1, 1, 0]]
    assert admitted.dropped.tolist() == [3, 0]
    assert admitted.dropped_fraction == pytest.approx(0.3)
    assert admitted.capacity == 3


def test_over_all_sources_a_quiet_one_leaves_its_places_to_a_busy_one() -> None:
    assignments = asked([6, 0], [0, 6])
    assert admit(assignments, DROP).dropped.tolist() == [3, 3]
    assert admit(assignments, replace(DROP, scope=CapacityScope.GLOBAL)).dropped.tolist() == [0, 0]


def test_rounding_up_for_each_source_can_drop_less_than_over_all() -> None:
    # Each of four sources may send an expert ceil(3 / 2) = 2; together they may send ceil(12 / 2).
    assignments = asked(*[[2, 1]] * 4)
    assert admit(assignments, DROP).dropped.sum() == 0
    globally = admit(assignments, replace(DROP, scope=CapacityScope.GLOBAL))
    assert globally.kept.sum(axis=0).tolist() == [6, 4]
    assert globally.dropped.sum() == 2


def test_a_minimum_for_each_source_can_drop_less_than_over_all() -> None:
    assignments, least = asked(*[[4, 0]] * 3), replace(DROP, minimum=4)
    assert admit(assignments, least).dropped.sum() == 0
    assert admit(assignments, replace(least, scope=CapacityScope.GLOBAL)).dropped.sum() == 6


def test_over_all_sources_the_places_of_an_expert_go_by_what_they_ask() -> None:
    admitted = admit(asked([9, 0], [2, 0], [1, 0]), replace(DROP, scope=CapacityScope.GLOBAL))
    assert admitted.capacity == 6
    # 4.5, 1 and 0.5 of 6 places: of the two halves the first goes first.
    assert admitted.kept[:, 0].tolist() == [5, 1, 0]
    assert admitted.dropped.tolist() == [4, 1, 1]


def test_nothing_is_dropped_where_the_capacity_exceeds_the_tokens() -> None:
    # Top-4 of 4 tokens: 2 x 16 / 6 = 5.3 rows, and no expert can be asked for more than 4 times.
    assignments = asked([4, 4, 4, 4, 0, 0], top_k=4)
    admitted = admit(assignments, replace(DROP, factor=2.0))
    assert admitted.capacity == 6
    assert admitted.dropped.sum() == 0


def test_padded_rows_do_not_depend_on_who_asks() -> None:
    padded = replace(DROP, overflow=OverflowPolicy.PAD, factor=1.25)
    even = admit(asked([4, 4], [2, 2]), padded)
    uneven = admit(asked([8, 0], [0, 4]), padded)
    assert even.wire.tolist() == uneven.wire.tolist() == [[5, 5], [3, 3]]
    assert uneven.kept.tolist() == [[5, 0], [0, 3]]
    assert uneven.dropped.tolist() == [3, 1]


def test_padding_of_an_expert_comes_from_sources_by_their_tokens() -> None:
    padded = Capacity(OverflowPolicy.PAD, 1.0, CapacityScope.GLOBAL)
    admitted = admit(asked([6, 0], [2, 0]), padded)
    assert admitted.kept.tolist() == [[3, 0], [1, 0]]
    assert admitted.wire.tolist() == [[3, 3], [1, 1]]


def test_dropless_padded_takes_the_largest_block_of_the_group() -> None:
    admitted = admit(asked([5, 0], [1, 2]), Capacity(OverflowPolicy.DROPLESS_PADDED))
    assert admitted.wire.tolist() == [[5, 5], [5, 5]]
    assert admitted.kept.tolist() == [[5, 0], [1, 2]]
    assert admitted.capacity == 5


def test_rerouted_tokens_fill_the_emptiest_experts() -> None:
    rerouting = replace(DROP, overflow=OverflowPolicy.REROUTE)
    admitted = admit(asked([9, 2, 1, 0]), rerouting)
    # Capacity 3; 6 are beyond it and there is room for 1, 2 and 3 of them.
    assert admitted.kept.tolist() == [[3, 3, 3, 3]]
    assert (admitted.rerouted.tolist(), admitted.dropped.tolist()) == ([6], [0])


def test_rerouted_tokens_are_no_more_than_there_is_room_for() -> None:
    rerouting = replace(DROP, overflow=OverflowPolicy.REROUTE, factor=0.5)
    admitted = admit(asked([9, 1, 1, 1]), rerouting)
    # Capacity 2: 7 beyond it, room for 3.
    assert admitted.kept.tolist() == [[2, 2, 2, 2]]
    assert (admitted.rerouted.tolist(), admitted.dropped.tolist()) == ([3], [4])


def test_where_rerouted_tokens_land_has_two_ends() -> None:
    near = np.array([[True, True, False, False]])
    rerouting = replace(DROP, overflow=OverflowPolicy.REROUTE, factor=1.5)
    emptiest, own_host = reroute_bounds(asked([5, 2, 1, 0]), rerouting, near)
    # Capacity 3 and 2 beyond it: the emptiest is 3 and then 2, the own host has one place left.
    assert emptiest.kept.tolist() == [[3, 2, 2, 1]]
    assert own_host.kept.tolist() == [[3, 3, 1, 1]]


def test_no_source_gives_an_expert_a_token_twice() -> None:
    # Two places are free, but the only token of the busy source already goes to both experts.
    assignments = asked([1, 1, 0, 0], [0, 0, 0, 0], top_k=2)
    rerouting = Capacity(OverflowPolicy.REROUTE, 0.5, CapacityScope.GLOBAL)
    admitted = admit(assignments, rerouting)
    assert admitted.kept.max() <= 1
    crowded = asked([2, 2, 2], [1, 1, 1], top_k=3)
    admitted = admit(crowded, replace(rerouting, factor=0.5))
    assert (admitted.kept <= crowded.tokens[:, None]).all()


def test_a_fallback_serves_what_is_beyond_a_capacity() -> None:
    admitted = admit(asked([6, 2]), replace(DROP, overflow=OverflowPolicy.FALLBACK))
    assert admitted.kept.tolist() == [[4, 2]]
    assert (admitted.fallback.tolist(), admitted.dropped.tolist()) == ([2], [0])
    assert admitted.dropped_fraction == 0


@pytest.mark.parametrize("capacity", POLICIES)
def test_every_assignment_has_one_fate(capacity: Capacity) -> None:
    random = np.random.default_rng(3)
    assignments = asked(*random.integers(0, 30, (6, 5)).tolist(), [0] * 5)
    admitted = admit(assignments, capacity)
    fates = admitted.kept.sum(axis=1) + admitted.dropped + admitted.fallback
    assert fates.tolist() == assignments.counts.sum(axis=1).tolist()
    assert (admitted.wire >= admitted.kept).all()


@pytest.mark.parametrize("capacity", POLICIES)
def test_without_tokens_nothing_is_dropped_and_no_fraction_is_undefined(capacity: Capacity) -> None:
    admitted = admit(asked([0, 0], [0, 0]), replace(capacity, minimum=0))
    assert admitted.wire.sum() == 0
    assert admitted.dropped_fraction == 0


@pytest.mark.parametrize("scope", CapacityScope)
def test_more_capacity_never_drops_more_and_enough_is_dropless(scope: CapacityScope) -> None:
    assignments = asked([20, 3, 1, 0], [2, 9, 9, 4])
    factors = [0.25, 0.5, 1.0, 1.25, 1.5, 2.0, 4.0]
    admitted = [admit(assignments, replace(DROP, factor=f, scope=scope)) for f in factors]
    fractions = [one.dropped_fraction for one in admitted]
    assert fractions == sorted(fractions, reverse=True)
    assert np.array_equal(
        admitted[-1].kept, admit(assignments, Capacity(OverflowPolicy.DROPLESS)).kept
    )


def test_the_last_tokens_of_a_source_are_beyond_its_capacity() -> None:
    choices = np.array([[0, 1], [0, 2], [0, 1]], dtype=np.int32)
    counts = np.array([[3, 2, 1]], dtype=np.int64)
    assignments = Assignments(counts, np.array([3]), 2, RoutingLevel.TOKENS, choices)
    admitted = admit(assignments, DROP)
    assert admitted.kept_choices is not None
    assert admitted.kept_choices.tolist() == [[True, True], [True, True], [False, True]]
    by_weight = admit(assignments, replace(DROP, order=DropOrder.PROBABILITY))
    assert by_weight.kept_choices is None
    assert by_weight.kept.tolist() == admitted.kept.tolist()


def test_what_contradicts_itself_is_refused() -> None:
    nothing = asked([1, 1])
    assert refusals(lambda: admit(nothing, Capacity(OverflowPolicy.DROP))) == [
        (FaultCode.MISSING_FIELD, ("capacity_factor",)),
        (FaultCode.MISSING_FIELD, ("capacity_scope",)),
    ]
    dropless = Capacity(OverflowPolicy.DROPLESS, 1.25, CapacityScope.SOURCE)
    assert refusals(lambda: admit(nothing, dropless)) == [
        (FaultCode.EXCLUSIVE_FIELDS, ("capacity_factor",)),
        (FaultCode.EXCLUSIVE_FIELDS, ("capacity_scope",)),
    ]
    assert refusals(lambda: capacity_rows(Capacity(OverflowPolicy.DROPLESS), [1], 1)) == [
        (FaultCode.NOT_SUPPORTED, ("overflow",))
    ]
    assert refusals(lambda: reroute_bounds(nothing, DROP, np.ones((1, 2), dtype=bool))) == [
        (FaultCode.NOT_SUPPORTED, ("overflow",))
    ]


@pytest.mark.parametrize(
    ("capacity", "field"),
    [
        (replace(DROP, factor=1e6), "capacity_factor"),
        (replace(DROP, minimum=2**53 + 1), "capacity_minimum"),
        (replace(DROP, alignment=2**60), "capacity_alignment"),
    ],
)
def test_a_capacity_beyond_what_is_counted_is_refused(capacity: Capacity, field: str) -> None:
    assert refusals(lambda: capacity_rows(capacity, [2**50], 1)) == [
        (FaultCode.OUT_OF_RANGE, (field,))
    ]
    assert capacity_rows(DROP, [2**53], 1).tolist() == [2**53]
