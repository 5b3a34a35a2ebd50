"""The kernel against hand-checked cases and against the slow reference."""

import random

import numpy as np
import pytest

from service.core.errors import FaultCode, InvalidInput
from service.core.schedules.assemble import assemble_program
from service.core.schedules.bubble import measure_bubble
from service.core.schedules.build import build_program
from service.core.schedules.catalogue import SCHEDULES
from service.core.schedules.program import OpKind, Program, StageEdge
from service.core.schedules.simulate import MAX_PICOSECONDS, last_sends, simulate, warm_up
from service.core.schedules.stage_times import StageTimes, edge_latencies, operation_durations
from tests.core.schedules.event_simulator import (
    Plan,
    random_plan,
    simulate_by_events,
)
from tests.core.schedules.plans import (
    named_program,
    plan_hops,
    plan_timeline,
    plan_times,
    read_order,
    simulate_timeline,
    timeline,
)


def assert_equals_reference(plan: Plan, program: Program, *, blocking: bool = False) -> None:
    expected = simulate_by_events(plan, blocking=blocking)
    durations = operation_durations(program, plan_times(plan))
    latencies = edge_latencies(program, *plan_hops(plan))
    run = simulate(program, durations, latencies, blocking=blocking)
    found = {
        (OpKind(program.kind[i]).letter, int(program.stage[i]), int(program.microbatch[i])): (
            int(run.start[i]),
            int(run.end[i]),
        )
        for i in range(program.operations)
    }
    assert found == {op: (start, end) for op, (start, end, _) in expected.items()}
    line = plan_timeline(plan, program)
    if line is None or blocking:
        return
    waits = [rank.transfer_wait for rank in measure_bubble(line).ranks]
    assert waits == [sum(expected[op][2] for op in order) for order in plan.orders]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_equals_the_reference_on_random_plans(schedule: str, seed: int) -> None:
    rng = random.Random(seed)
    for number in range(700):
        plan = random_plan(rng, schedule, fused=number % 2 == 1)
        assert_equals_reference(plan, named_program(plan, schedule))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_blocking_sends_equal_the_reference_on_random_plans(schedule: str, seed: int) -> None:
    rng = random.Random(seed + 1)
    for number in range(700):
        plan = random_plan(rng, schedule, fused=number % 2 == 1)
        assert_equals_reference(plan, named_program(plan, schedule), blocking=True)


def test_a_blocking_send_holds_its_rank() -> None:
    program = build_program("forward_only", 2, 2)
    durations, latencies = np.array([2, 2, 3, 3]), np.array([4, 4])
    run = simulate(program, durations, latencies, blocking=True)
    # rank 0: 0-2, held until 6, 6-8, held until 12; rank 1: 6-9, 12-15
    assert run.start.tolist() == [0, 6, 6, 12]
    held, last = last_sends(program, latencies)
    assert (held.tolist(), last.tolist()) == ([4, 4, 0, 0], [0, 1, -1, -1])


def test_two_ranks_by_hand() -> None:
    line = timeline("1f1b", 2, [2, 3], [4, 5], latency=1)
    # rank 0: F0 0-2, F1 2-4, B0 when 1B0 (6..11) has arrived at 12, B1 (14..19) at 20
    # rank 1: F0 when 0F0 has arrived at 3, B0 6-11, F1 11-14, B1 14-19
    assert line.run.start.tolist() == [0, 2, 12, 20, 3, 6, 11, 14]
    assert line.run.end.tolist() == [2, 4, 16, 24, 6, 11, 14, 19]
    waited_for = [
        line.label(int(line.program.inputs[b])) if b >= 0 else None for b in line.run.binding
    ]
    assert waited_for == [None, None, "1B0", "1B1", "0F0", None, None, None]


def binding_of_last(latencies: list[int], ends: list[int]) -> int:
    """Stage 2 on a rank of its own takes values of stages 0 and 1; who bound it?"""
    program = assemble_program(
        "explicit",
        [read_order("0F0"), read_order("1F0"), read_order("2F0")],
        stages=3,
        microbatches=1,
        stage_edges=(StageEdge(0, 2), StageEdge(1, 2)),
    )
    run = simulate(program, np.array([*ends, 1]), np.array(latencies))
    return int(run.binding[2])


def test_of_equal_arrivals_the_smaller_latency_binds_then_the_lower_index() -> None:
    assert binding_of_last([3, 1], [5, 7]) == 1
    assert binding_of_last([1, 3], [7, 5]) == 0
    assert binding_of_last([2, 2], [5, 5]) == 0
    assert binding_of_last([2, 9], [5, 5]) == 1
    assert binding_of_last([0, 0], [0, 0]) == -1  # nothing came after time 0


def test_rank_binds_before_an_equal_arrival() -> None:
    line = timeline("forward_only", 2, [5, 4], latency=0)
    assert line.run.binding.tolist() == [-1, -1, 0, 1]
    line = timeline("forward_only", 2, [5, 5], latency=0)
    assert line.run.binding.tolist() == [-1, -1, 0, -1]


def test_batches_equal_single_runs() -> None:
    rng = np.random.default_rng(7)
    program = build_program("1f1b", 4, 6)
    forward = rng.integers(0, 50, (3, 5, 4, 1))
    backward = rng.integers(0, 50, (3, 5, 4, 6))  # a time for each microbatch
    times = StageTimes(forward, backward, np.zeros_like(forward))
    hops = rng.integers(0, 9, (2, 5, 3, 1))
    durations = operation_durations(program, times)
    latencies = edge_latencies(program, hops[0], hops[1])
    assert durations.shape == (3, 5, program.operations)
    assert latencies.shape == (5, len(program.inputs))
    run = simulate(program, durations, latencies)
    assert run.makespan.shape == (3, 5)
    for a in range(3):
        for b in range(5):
            alone = simulate(program, durations[a, b], latencies[b])
            assert np.array_equal(alone.start, run.start[a, b])
            assert np.array_equal(alone.end, run.end[a, b])
            assert np.array_equal(alone.binding, run.binding[a, b])


def test_negative_times_and_wrong_lengths_are_refused_together() -> None:
    program = build_program("gpipe", 2, 2)
    with pytest.raises(InvalidInput) as refused:
        simulate(program, np.full(program.operations, -1), np.zeros(1, dtype=np.int64))
    assert [(fault.path, fault.code) for fault in refused.value.faults] == [
        (("durations",), FaultCode.OUT_OF_RANGE),
        (("latencies",), FaultCode.WRONG_LENGTH),
    ]


def test_stage_and_edge_times_have_the_right_length() -> None:
    program = build_program("gpipe", 2, 2)
    with pytest.raises(InvalidInput, match="one a stage: 2; got 3"):
        operation_durations(program, StageTimes.of([1, 2, 3]))
    with pytest.raises(InvalidInput, match="one an edge: 1; got 2"):
        edge_latencies(program, *(np.zeros((edges, 1), dtype=np.int64) for edges in (2, 1)))
    with pytest.raises(InvalidInput, match=r"forward times .* one for each of 2; got 3"):
        operation_durations(program, StageTimes.of([[1, 2, 3], [1, 2, 3]]))
    with pytest.raises(InvalidInput, match=r"backward transfer times .* one for each of 2; got 3"):
        edge_latencies(program, *(np.zeros((1, width), dtype=np.int64) for width in (2, 3)))


def test_what_could_leave_int64_is_refused() -> None:
    program = build_program("gpipe", 2, 8)
    with pytest.raises(InvalidInput, match="53 days"):
        simulate_timeline(program, StageTimes.of([2**60] * 2, [2**60] * 2))
    # The sum of all operations is beyond the limit, yet no chain of them is.
    longest = MAX_PICOSECONDS // 18
    line = simulate_timeline(program, StageTimes.of([longest] * 2, [longest] * 2))
    assert line.makespan == 18 * longest
    assert longest * program.operations > MAX_PICOSECONDS


def test_a_plan_without_any_time_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at least one operation takes time"):
        timeline("gpipe", 2, [0, 0], [0, 0])
    with pytest.raises(InvalidInput, match="at least one operation takes time"):
        timeline("forward_only", 2, [0, 0], [1, 1])


def test_warm_up_can_be_called_again() -> None:
    warm_up()
    warm_up()


def test_a_backward_does_not_wait_for_a_gradient_that_is_not_sent() -> None:
    """F0 0-2, B0 2-6 at once, where with a gradient it would wait for 1B0, which ends at 12."""
    trained = build_program("gpipe", 2, 1)
    frozen = build_program("gpipe", 2, 1, stage_edges=(StageEdge(0, 1, gradient=False),))
    times = StageTimes.of([2, 3], [4, 5])
    ends = [simulate_timeline(p, times, 1).run.end.tolist() for p in (trained, frozen)]
    assert ends == [[2, 16, 6, 11], [2, 6, 6, 11]]
    assert len(frozen.inputs) == 1
    assert not frozen.input_gradient.any()
