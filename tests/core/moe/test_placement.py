"""Where experts stand, and which replica serves whom."""

import numpy as np
import pytest

from service.core.errors import FaultCode
from service.core.moe.assignments import Assignments, RoutingLevel
from service.core.moe.capacity import admit
from service.core.moe.overflow import Capacity, CapacityScope, OverflowPolicy
from service.core.moe.placement import contiguous, given, shared_ranks, stands_near
from service.core.moe.served import ExpertPlacement, Served
from service.core.moe.serving import serve
from service.core.moe.settings import ReplicaSplitting
from tests.core.refusals import refusal_text, refusals

DROPLESS = Capacity(OverflowPolicy.DROPLESS)


def served_by(
    placement: ExpertPlacement,
    counts: list[list[int]],
    splitting: ReplicaSplitting = ReplicaSplitting.EVEN,
    *,
    ranks_per_host: int = 1,
    expert_tensor: int = 1,
    capacity: Capacity = DROPLESS,
) -> Served:
    """What each slot serves of sources that ask as listed."""
    table = np.array(counts, dtype=np.int64)
    assignments = Assignments(table, table.sum(axis=1), 1, RoutingLevel.SOURCES)
    return serve(
        admit(assignments, capacity),
        assignments,
        placement,
        splitting,
        expert_tensor=expert_tensor,
        node_of_source=np.arange(len(counts)) // ranks_per_host,
    )


def test_experts_that_do_not_divide_go_to_the_first_ranks() -> None:
    assert contiguous(10, 4).slot_rank.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 3, 3]
    assert contiguous(2, 3).slot_rank.tolist() == [0, 1]


def test_a_rank_without_experts_computes_nothing() -> None:
    served = served_by(contiguous(2, 3), [[1, 2], [3, 0], [0, 5]])
    assert served.rank_rows.tolist() == [4, 7, 0]


def test_listed_experts_stand_where_they_are_listed() -> None:
    placement = given(3, 2, [[2, 0], [1, 2]])
    assert placement.slot_expert.tolist() == [2, 0, 1, 2]
    assert placement.slot_rank.tolist() == [0, 0, 1, 1]
    assert shared_ranks(placement) == ()


def test_every_fault_of_a_list_is_told() -> None:
    assert refusals(lambda: given(4, 3, [[0, 7], [-1, 1]])) == [
        (FaultCode.WRONG_LENGTH, ()),
        (FaultCode.UNKNOWN_REFERENCE, (0, 1)),
        (FaultCode.UNKNOWN_REFERENCE, (1, 0)),
        (FaultCode.INCONSISTENT, ()),
    ]
    assert "experts 2, 3 are on no rank" in refusal_text(lambda: given(4, 1, [[0, 1]]))
    assert "expert 1 is on no rank" in refusal_text(lambda: given(2, 1, [[0]]))


def test_replicas_that_share_a_rank_are_found_and_spread_nothing() -> None:
    together, apart = given(2, 2, [[0, 0, 1], []]), given(2, 2, [[0, 1], [0]])
    assert shared_ranks(together) == ((0, 0, 2),)
    assert served_by(together, [[8, 1], [8, 1]]).rank_rows.tolist() == [18, 0]
    assert served_by(apart, [[8, 1], [8, 1]]).rank_rows.tolist() == [10, 8]


def test_replicas_take_rows_in_turn_and_sources_begin_with_different_ones() -> None:
    placement = given(1, 3, [[0], [0], [0]])
    served = served_by(placement, [[4], [4], [1]])
    assert served.rows.tolist() == [[2, 1, 1], [1, 2, 1], [0, 0, 1]]


def test_by_source_a_replica_has_all_rows_of_its_sources() -> None:
    placement = given(2, 3, [[0, 1], [0], []])
    served = served_by(placement, [[4, 1], [2, 1], [3, 1]], ReplicaSplitting.BY_SOURCE)
    assert served.rows.tolist() == [[4, 1, 0], [0, 1, 2], [3, 1, 0]]


def test_local_first_prefers_the_rank_then_the_host_then_divides() -> None:
    placement = given(1, 6, [[0], [0], [], [], [], []])
    served = served_by(
        placement, [[4]] * 4 + [[5]] * 2, ReplicaSplitting.LOCAL_FIRST, ranks_per_host=3
    )
    # Ranks 0 and 1 serve themselves, rank 2 has both on its host, the others have none on theirs.
    assert served.rows.tolist() == [[4, 0], [0, 4], [2, 2], [2, 2], [3, 2], [2, 3]]


def test_ranks_that_share_experts_are_one_place_and_each_reaches_its_own_shard() -> None:
    # Hosts of three ranks cut the second pair of expert-tensor ranks apart.
    placement, hosts = given(2, 3, [[0], [1], [0]]), np.array([0, 0, 0, 1, 1, 1])
    assert stands_near(placement, hosts, 2).tolist() == [
        [True, True],
        [True, False],
        [True, True],
        [True, True],
        [True, False],
        [True, True],
    ]
    served = served_by(
        placement,
        [[2, 0]] * 6,
        ReplicaSplitting.LOCAL_FIRST,
        ranks_per_host=3,
        expert_tensor=2,
    )
    assert served.rows[:, [0, 2]].tolist() == [[2, 0], [2, 0], [2, 0], [0, 2], [0, 2], [0, 2]]


def test_padding_is_divided_as_rows_are_and_kept_ones_are_among_them() -> None:
    padded = Capacity(OverflowPolicy.PAD, 1.0, CapacityScope.SOURCE)
    served = served_by(given(2, 2, [[0], [0, 1]]), [[6, 0], [1, 5]], capacity=padded)
    assert served.rows.tolist() == [[2, 1, 3], [1, 2, 3]]
    assert served.kept.tolist() == [[2, 1, 0], [0, 1, 3]]


def test_as_many_sources_as_ranks_are_needed() -> None:
    with pytest.raises(ValueError, match="3 sources are not 1 for each of 2 ranks"):
        served_by(contiguous(2, 2), [[1, 1]] * 3)
