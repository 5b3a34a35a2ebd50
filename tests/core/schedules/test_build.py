"""Named schedules: what is legal, recompute, edges, the cache."""

import numpy as np
import pytest

from service.core.errors import FaultCode, InvalidInput, WorkBudgetExceeded
from service.core.schedules.build import MAX_OPERATIONS, build_program, chain, count_operations
from service.core.schedules.catalogue import SCHEDULES
from service.core.schedules.program import OpKind, RecomputeMode, StageEdge
from tests.core.schedules.event_simulator import rank_orders
from tests.core.schedules.plans import order_of, write_order


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_orders_equal_those_told_another_way(schedule: str) -> None:
    for ranks in (1, 2, 3, 5, 8):
        for microbatches in (1, 2, 3, 7, 8, 20):
            program = build_program(schedule, ranks, microbatches)
            expected = [order_of(order) for order in rank_orders(schedule, ranks, microbatches)]
            assert np.array_equal(program.kind, np.concatenate([o.kind for o in expected]))
            assert np.array_equal(
                program.microbatch, np.concatenate([o.microbatch for o in expected])
            )
            assert program.operations == count_operations(schedule, ranks, microbatches)


def test_fewer_microbatches_than_ranks() -> None:
    program = build_program("1f1b", 4, 2)
    assert [write_order(program, r) for r in range(4)] == [
        "0F0 0F1 0B0 0B1",
        "1F0 1F1 1B0 1B1",
        "2F0 2F1 2B0 2B1",
        "3F0 3B0 3F1 3B1",
    ]


def test_recompute_stands_before_each_backward_and_may_carry_its_gradient() -> None:
    waits = {}
    for mode in (RecomputeMode.AFTER_GRADIENT, RecomputeMode.BEFORE_GRADIENT):
        program = build_program("gpipe", 2, 2, recompute=mode)
        assert write_order(program, 0) == "0F0 0F1 0R0 0B0 0R1 0B1"
        assert program.operations == count_operations("gpipe", 2, 2, recompute=mode)
        consumers = np.repeat(np.arange(program.operations), np.diff(program.input_offsets))
        waits[mode] = {OpKind(program.kind[i]).letter for i in consumers}
        producers = {OpKind(program.kind[i]).letter for i in program.inputs}
        assert producers == {"F", "B"}
    assert waits == {
        RecomputeMode.AFTER_GRADIENT: {"F", "R"},
        RecomputeMode.BEFORE_GRADIENT: {"F", "B"},
    }


def test_forward_only_has_nothing_to_recompute() -> None:
    program = build_program("forward_only", 2, 3, recompute=RecomputeMode.AFTER_GRADIENT)
    assert set(program.kind.tolist()) == {OpKind.FORWARD}


def test_skip_edges_go_straight_and_keep_their_place() -> None:
    edges = (StageEdge(0, 2), StageEdge(1, 2), StageEdge(0, 1))
    program = build_program("1f1b", 3, 4, stage_edges=edges)
    assert program.stage_edges == edges
    assert len(program.inputs) == 2 * 3 * 4
    assert np.bincount(program.input_edges).tolist() == [8, 8, 8]


def test_programs_are_shared() -> None:
    assert build_program("1f1b", 4, 8) is build_program("1f1b", 4, 8, stage_edges=chain(4))
    assert build_program("1f1b", 4, 8) is not build_program("1f1b", 4, 9)


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(InvalidInput) as refused:
        build_program("1f1b", 0, 0, chunks_per_rank=-1)
    assert [fault.path for fault in refused.value.faults] == [
        ("parallelism", "pipeline"),
        ("workload", "microbatches"),
        ("schedule", "chunks_per_rank"),
    ]
    with pytest.raises(InvalidInput) as refused:
        build_program(
            "gpipe", 2, 1, chunks_per_rank=2, stage_edges=(StageEdge(1, 1), StageEdge(0, 9))
        )
    assert [fault.code for fault in refused.value.faults] == [
        FaultCode.ILLEGAL_SCHEDULE,
        FaultCode.INCONSISTENT,
        FaultCode.INCONSISTENT,
    ]
    with pytest.raises(InvalidInput, match="given once"):
        build_program("gpipe", 2, 1, stage_edges=(StageEdge(0, 1), StageEdge(0, 1)))


def test_unknown_schedules_are_told_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="one of forward_only, gpipe, 1f1b; got 'g-pipe'"):
        build_program("g-pipe", 2, 1)


def test_too_much_work_is_refused_before_it_is_done() -> None:
    with pytest.raises(WorkBudgetExceeded) as refused:
        build_program("1f1b", 4, 10**9)
    assert refused.value.faults[0].path == ("workload", "microbatches")
    with pytest.raises(WorkBudgetExceeded):
        build_program("1f1b", MAX_OPERATIONS, 1)
