"""Derivatives of the makespan along the critical path."""

import random

from service.core.schedules.build import build_program
from service.core.schedules.critical_path import find_critical_path
from service.core.schedules.program import OpKind, PairMode, StageEdge
from service.core.schedules.sensitivity import (
    Derivative,
    Sensitivity,
    measure_sensitivity,
    timed_kinds,
)
from service.core.schedules.stage_times import StageTimes
from service.core.schedules.timeline import Timeline
from tests.core.schedules.plans import (
    simulate_timeline,
    thirds,
    timeline,
)
from tests.core.schedules.random_cases import random_cases


def sensitivity(line: Timeline) -> Sensitivity:
    return measure_sensitivity(line, find_critical_path(line))


def test_by_hand() -> None:
    """The path is 0F0 1F0 1B0 1F1 1B1 0B1."""
    found = sensitivity(timeline("1f1b", 2, [2, 3], [4, 5], latency=1))
    assert found.operations == {
        (0, OpKind.FORWARD): Derivative(1, 2),
        (0, OpKind.BACKWARD): Derivative(1, 4),
        (1, OpKind.FORWARD): Derivative(2, 6),
        (1, OpKind.BACKWARD): Derivative(2, 10),
    }
    assert found.transfers == {(0, False): Derivative(1, 1), (0, True): Derivative(1, 1)}


def test_the_slow_stage_is_what_the_makespan_follows() -> None:
    """18/18/25/18 ms, 16 microbatches: all but the second one pass stage 2 on the path."""
    found = sensitivity(timeline("1f1b", 16, *thirds([18, 18, 25, 18])))
    for kind in (OpKind.FORWARD, OpKind.BACKWARD):
        assert [found.operations[stage, kind].on_path for stage in range(4)] == [1, 1, 15, 2]


def test_what_is_off_the_path_is_there_with_zeros() -> None:
    """Stage 0 feeds 1 and 2, and 2 takes longer."""
    edges = (StageEdge(0, 1), StageEdge(0, 2))
    program = build_program("forward_only", 3, 1, stage_edges=edges)
    found = sensitivity(simulate_timeline(program, StageTimes.of([5, 1, 9]), [3, 2]))
    assert found.operations == {
        (0, OpKind.FORWARD): Derivative(1, 5),
        (1, OpKind.FORWARD): Derivative(0, 0),
        (2, OpKind.FORWARD): Derivative(1, 9),
    }
    assert found.transfers == {(0, False): Derivative(0, 0), (1, False): Derivative(1, 2)}


def test_one_stage_has_no_transfers() -> None:
    found = sensitivity(timeline("forward_only", 2, [4]))
    assert found.operations == {(0, OpKind.FORWARD): Derivative(2, 8)}
    assert found.transfers == {}


def test_a_fused_pair_counts_as_the_forward_and_the_backward_that_it_is() -> None:
    """DualPipeV on one rank, all on the path: four of each, and one backward of stage 0 is split.

    0F0 1F0 0F1 1B0 1F1&0B0 0F2&1B1 1F2&0B1 0F3&1B2 1F3&0B2 1B3 0I3 0W3
    """
    found = sensitivity(dual_pipe_v(pair=None))
    assert found.operations == {
        (0, OpKind.FORWARD): Derivative(4, 40),
        (0, OpKind.BACKWARD): Derivative(3, 18),
        (0, OpKind.BACKWARD_INPUT): Derivative(1, 2),
        (0, OpKind.BACKWARD_WEIGHT): Derivative(1, 4),
        (1, OpKind.FORWARD): Derivative(4, 80),
        (1, OpKind.BACKWARD): Derivative(4, 32),
    }


def test_a_fused_pair_with_a_time_of_its_own_is_a_kind_of_its_own() -> None:
    """The same order; a pair stands with the stage of its forward."""
    found = sensitivity(dual_pipe_v(pair=[7, 9]))
    assert found.operations == {
        (0, OpKind.FORWARD): Derivative(2, 20),
        (0, OpKind.BACKWARD_INPUT): Derivative(1, 2),
        (0, OpKind.BACKWARD_WEIGHT): Derivative(1, 4),
        (0, OpKind.FORWARD_BACKWARD): Derivative(2, 14),
        (1, OpKind.FORWARD): Derivative(1, 20),
        (1, OpKind.BACKWARD): Derivative(2, 16),
        (1, OpKind.FORWARD_BACKWARD): Derivative(3, 27),
    }


def test_each_direction_of_a_schedule_has_its_own_transfers() -> None:
    """DualPipe on two ranks: the boundary of stage 0 to 1 lies between them both ways."""
    line = timeline(
        "dualpipe", 4, [10, 20], latency=1, halves=([2, 3], [4, 5]), pair_mode=PairMode.FUSED
    )
    found = sensitivity(line)
    assert found.transfers.keys() == {(0, False), (0, True), (1, False), (1, True)}


def test_shares_are_those_of_the_critical_path(seed: int) -> None:
    for _, line in random_cases(random.Random(seed), 400):
        program, path = line.program, find_critical_path(line)
        found = measure_sensitivity(line, path)
        for stage in range(program.stages):
            of_stage = [d.picoseconds for (s, _), d in found.operations.items() if s == stage]
            assert path.by_stage[stage] == sum(of_stage) or has_pairs(line)
        assert sum(d.picoseconds for d in found.operations.values()) == sum(path.by_stage)
        on_path = {key: d.picoseconds for key, d in found.transfers.items() if d.on_path}
        assert on_path == path.by_transfer
        for (stage, kind), derivative in found.operations.items():
            each = line.times.of_kind(kind)[stage].tolist()
            assert_a_sum_of(derivative, each)
        for (edge, gradient), derivative in found.transfers.items():
            given = line.backward_latencies if gradient else line.forward_latencies
            assert_a_sum_of(derivative, given[edge].tolist())
        crossing = zip(program.input_edges.tolist(), program.input_gradient.tolist(), strict=True)
        assert found.transfers.keys() == set(crossing)


def assert_a_sum_of(derivative: Derivative, times: list[int]) -> None:
    """As many of these times as are counted, exactly so where they are all the same."""
    assert derivative.on_path * min(times) <= derivative.picoseconds
    assert derivative.picoseconds <= derivative.on_path * max(times)


def test_every_stage_and_kind_that_is_run_is_there_in_order(seed: int) -> None:
    for plan, line in random_cases(random.Random(seed + 1), 200):
        operations = [op for order in plan.orders for op in order]
        if "F&B" not in plan.durations:
            operations = [part for op in operations for part in plan.parts(op)]
        run = {(stage, kind) for kind, stage, _ in operations}
        found = [(stage, kind) for stage, kind in sensitivity(line).operations]
        assert {(stage, kind.letter) for stage, kind in found} == run
        assert found == sorted(found)
        assert {kind for _, kind in found} == set(timed_kinds(line))


def dual_pipe_v(pair: list[int] | None) -> Timeline:
    """Four microbatches through the two stages of one rank."""
    return timeline(
        "dualpipe_v",
        4,
        [10, 20],
        chunks=2,
        halves=([2, 3], [4, 5]),
        pair=pair,
        pair_mode=PairMode.FUSED,
    )


def has_pairs(line: Timeline) -> bool:
    return bool((line.program.kind == OpKind.FORWARD_BACKWARD).any())
