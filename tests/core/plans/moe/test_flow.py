"""What the groups of a stage are asked, from routings of fewer, as many and more sources."""

import numpy as np
import pytest

from service.core.errors import InvalidInput
from service.core.moe.overflow import Capacity, CapacityScope, OverflowPolicy
from service.core.moe.skews import Skew, SkewKind
from service.core.plans.moe.flow import stage_flow
from service.core.plans.moe.inputs import uniform_inputs
from service.core.plans.plan import Degrees
from tests.core.plans.moe.expert_worlds import inputs, seen

ONE = Degrees(pipeline=1, data=2, expert=2)
TWO = Degrees(pipeline=1, data=4, expert=2)


def test_tokens_that_choose_evenly_fill_all_experts() -> None:
    asked = inputs(TWO)
    flow = stage_flow(asked, asked.layers[0], 0, 0)
    first, second = flow.groups
    assert first is second
    assert first.assignments.counts.tolist() == [[2, 2, 2, 2], [2, 2, 2, 2]]
    assert first.served.rank_rows.tolist() == [8, 8]
    assert first.traffic.sent.tolist() == [4, 4]


def test_a_routing_of_as_many_sources_is_that_of_each_group() -> None:
    asked = inputs(TWO, routing=seen([[[8, 0, 0, 0], [0, 0, 8, 0]]]))
    first, second = stage_flow(asked, asked.layers[0], 0, 0).groups
    assert first is second
    assert first.served.rank_rows.tolist() == [8, 8]
    assert first.traffic.sent.tolist() == [0, 0]


def test_a_routing_of_all_sources_gives_each_group_its_own() -> None:
    rows = [[8, 0, 0, 0], [8, 0, 0, 0], [0, 0, 0, 8], [0, 0, 8, 0]]
    asked = inputs(TWO, routing=seen([rows]))
    first, second = stage_flow(asked, asked.layers[0], 0, 0).groups
    assert first.served.rank_rows.tolist() == [16, 0]
    assert second.served.rank_rows.tolist() == [0, 16]
    assert first.traffic.stages[0].between.tolist() == [[8, 0], [8, 0]]


def test_twice_as_many_sources_fold_into_those_of_all_groups() -> None:
    rows = [[4, 0, 0, 0]] * 4 + [[0, 0, 0, 4]] * 4
    asked = inputs(TWO, routing=seen([rows]))
    flow = stage_flow(asked, asked.layers[0], 0, 0)
    assert [one.served.rank_rows.tolist() for one in flow.groups] == [[16, 0], [0, 16]]
    assert [note.code for note in flow.notes] == ["routing_sources_folded"]


def test_a_step_is_read_by_its_size_class() -> None:
    even, hot = [[2, 2, 2, 2]] * 2, [[8, 0, 0, 0]] * 2
    asked = inputs(ONE, routing=seen([even], [hot]), steps=(0, 1))
    rows = [stage_flow(asked, asked.layers[0], n, 0).groups[0].served.rank_rows for n in (0, 1)]
    assert [one.tolist() for one in rows] == [[8, 8], [16, 0]]


def test_a_routing_without_tokens_is_told_where_it_is_named() -> None:
    asked = inputs(ONE, routing=seen([[[0, 0, 0, 0]] * 2]))
    with pytest.raises(InvalidInput) as refused:
        stage_flow(asked, asked.layers[0], 0, 0)
    assert [fault.path for fault in refused.value.faults] == [("routing",)]


def test_a_skew_has_its_hot_rank_where_the_experts_stand() -> None:
    asked = inputs(ONE, skew=Skew(SkewKind.HOT_RANK, fraction=1.0, rank=1))
    (group,) = stage_flow(asked, asked.layers[0], 0, 0).groups
    assert group.served.rank_rows.tolist() == [0, 16]
    assert not asked.is_uniform
    assert uniform_inputs(asked).is_uniform


def test_a_capacity_holds_back_what_is_beyond_it() -> None:
    capacity = Capacity(OverflowPolicy.DROP, 1.0, CapacityScope.SOURCE)
    routing = seen([[[8, 0, 0, 0], [2, 2, 2, 2]]])
    asked = inputs(ONE, routing=routing, capacity=capacity)
    (group,) = stage_flow(asked, asked.layers[0], 0, 0).groups
    assert group.admitted.dropped.tolist() == [6, 0]
    assert group.served.rank_rows.tolist() == [6, 4]


def test_padded_blocks_travel_whole() -> None:
    capacity = Capacity(OverflowPolicy.PAD, 1.0, CapacityScope.SOURCE)
    routing = seen([[[8, 0, 0, 0], [8, 0, 0, 0]]])
    asked = inputs(ONE, routing=routing, capacity=capacity)
    (group,) = stage_flow(asked, asked.layers[0], 0, 0).groups
    assert np.array_equal(group.traffic.stages[0].between, [[4, 4], [4, 4]])


def test_replicas_stand_where_the_plan_puts_them() -> None:
    asked = inputs(
        ONE, routing=seen([[[8, 0, 0, 0], [8, 0, 0, 0]]]), experts_by_rank=((0, 1), (0, 2, 3))
    )
    (group,) = stage_flow(asked, asked.layers[0], 0, 0).groups
    assert group.served.rank_rows.tolist() == [8, 8]
