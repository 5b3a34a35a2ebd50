"""Exact gains: replays of the same order, held against the derivative along the critical path."""

import random

import pytest

from service.core.errors import FaultCode, InvalidInput
from service.core.schedules.build import build_program
from service.core.schedules.critical_path import find_critical_path
from service.core.schedules.gains import Change, Gain, OperationChange, TransferChange, exact_gains
from service.core.schedules.program import OpKind, PairMode
from service.core.schedules.sensitivity import measure_sensitivity
from service.core.schedules.stage_times import StageTimes
from service.core.schedules.timeline import Timeline
from tests.core.schedules.event_simulator import Plan, simulate_by_events
from tests.core.schedules.plans import (
    MILLISECOND,
    exact_gain,
    plan_timeline,
    simulate_timeline,
    timeline,
)
from tests.core.schedules.random_cases import random_cases

PICOSECOND = 1e-12


def gain(line: Timeline, change: Change) -> Gain:
    return exact_gain(line, find_critical_path(line), change)


def test_by_hand() -> None:
    """1F1B of two stages and two microbatches: 0F0 1F0 1B0 1F1 1B1 0B1 and two hops make 24."""
    line = timeline("1f1b", 2, [2, 3], [4, 5], latency=1)
    faster = gain(line, OperationChange(1, OpKind.BACKWARD, seconds=4 * PICOSECOND))
    assert faster == Gain(before=5, after=4, makespan=22, gain=2, bound=2)
    # Without backwards on stage 1 rank 0 is never idle in its drain: 0F0 1F0 0B0 0B1 and two hops.
    free = gain(line, OperationChange(1, OpKind.BACKWARD, factor=0))
    assert free == Gain(before=5, after=0, makespan=15, gain=9, bound=10)
    slower = gain(line, OperationChange(0, OpKind.FORWARD, factor=2.5))
    assert slower == Gain(before=2, after=5, makespan=27, gain=-3, bound=-3)
    hop = gain(line, TransferChange(0, 1, gradient=True, seconds=0))
    assert hop == Gain(before=1, after=0, makespan=23, gain=1, bound=1)


def test_a_factor_is_exact_and_rounds_to_the_nearest_picosecond() -> None:
    line = timeline("forward_only", 1, [3, 5])
    assert gain(line, OperationChange(0, OpKind.FORWARD, factor=0.5)).after == 2  # 1.5, to even
    assert gain(line, OperationChange(1, OpKind.FORWARD, factor=0.5)).after == 2  # 2.5, to even
    assert gain(line, OperationChange(1, OpKind.FORWARD, factor=1.0)).gain == 0
    long = timeline("forward_only", 1, [10**16 + 1])
    assert gain(long, OperationChange(0, OpKind.FORWARD, factor=3.0)).after == 3 * (10**16 + 1)


def test_balancing_by_hand_is_what_the_plan_with_other_times_takes() -> None:
    line = timeline("1f1b", 16, [6 * MILLISECOND] * 4, [12 * MILLISECOND] * 4, MILLISECOND)
    other = timeline(
        "1f1b",
        16,
        [6 * MILLISECOND] * 4,
        [12 * MILLISECOND, 12 * MILLISECOND, 9 * MILLISECOND, 12 * MILLISECOND],
        MILLISECOND,
    )
    found = gain(line, OperationChange(2, OpKind.BACKWARD, factor=0.75))
    assert found.makespan == other.makespan
    assert found.gain == line.makespan - other.makespan


def random_change(rng: random.Random, line: Timeline) -> Change:
    """A new time of up to 40 ps for a stage and kind, or for a boundary and direction."""
    found = measure_sensitivity(line, find_critical_path(line))
    seconds = rng.randint(0, 40) * PICOSECOND
    if found.transfers and rng.random() < 0.4:
        edge, gradient = rng.choice(list(found.transfers))
        boundary = line.program.stage_edges[edge]
        return TransferChange(boundary.source, boundary.target, gradient, seconds=seconds)
    stage, kind = rng.choice(list(found.operations))
    return OperationChange(stage, kind, seconds=seconds)


def bound_by_derivatives(line: Timeline, change: Change, after: int) -> int:
    """Derivative x change, over both directions where a schedule has the boundary twice."""
    found = measure_sensitivity(line, find_critical_path(line))
    if isinstance(change, OperationChange):
        derivative = found.operations[change.stage, change.kind]
        return derivative.picoseconds - derivative.on_path * after
    return sum(
        found.transfers[index, change.gradient].picoseconds
        - found.transfers[index, change.gradient].on_path * after
        for index, edge in enumerate(line.program.stage_edges)
        if (edge.source, edge.target) == (change.source, change.target)
        and (index, change.gradient) in found.transfers
    )


def change_plan(plan: Plan, change: Change, after: int) -> None:
    """The same change to the plan of the slow reference."""
    if isinstance(change, OperationChange):
        times = plan.durations[change.kind.letter][change.stage]
        times[:] = [after] * len(times)
        return
    for index, edge in enumerate(plan.edges):
        if edge[:2] == (change.source, change.target):
            hops = (plan.backward if change.gradient else plan.forward)[index]
            hops[:] = [after] * len(hops)


def path_of(line: Timeline) -> list[tuple[int, int]]:
    """The operations of the critical path and what each waited for."""
    path = find_critical_path(line)
    return [(step.operation, int(line.run.binding[step.operation])) for step in path.operations]


def test_against_the_slow_reference_and_the_derivative(seed: int) -> None:
    """Convexity: never more than the derivative says, and as much where the path does not move."""
    rng = random.Random(seed)
    stayed = moved = 0
    for plan, line in random_cases(rng, 600):
        change = random_change(rng, line)
        found = gain(line, change)
        assert found.gain == line.makespan - found.makespan
        assert found.bound == bound_by_derivatives(line, change, found.after)
        assert found.gain <= found.bound

        change_plan(plan, change, found.after)
        assert found.makespan == max(end for _, end, _ in simulate_by_events(plan).values())
        if (changed := plan_timeline(plan, line.program)) is None:
            continue
        if path_of(line) == path_of(changed):
            assert found.gain == found.bound
            stayed += 1
        else:
            moved += 1
    assert min(stayed, moved) > 100


def test_a_pair_is_changed_with_its_parts_or_by_itself() -> None:
    """DualPipeV on one rank: four of each, all on the path (see the test of sensitivities)."""

    def line(pair: list[int] | None) -> Timeline:
        return timeline(
            "dualpipe_v",
            4,
            [10, 20],
            chunks=2,
            halves=([2, 3], [4, 5]),
            pair=pair,
            pair_mode=PairMode.FUSED,
        )

    forward = OperationChange(1, OpKind.FORWARD, seconds=15 * PICOSECOND)
    assert gain(line(None), forward).gain == 4 * 5
    assert gain(line([7, 9]), forward).gain == 5
    pair = OperationChange(1, OpKind.FORWARD_BACKWARD, seconds=8 * PICOSECOND)
    assert gain(line([7, 9]), pair).gain == 3
    with pytest.raises(InvalidInput, match="backward_weight; got forward_backward"):
        gain(line(None), pair)


def test_a_boundary_of_two_directions_is_changed_in_both() -> None:
    program = build_program("dualpipe", 2, 4)
    times = StageTimes.of([10, 20], backward_halves=([2, 3], [4, 5]))
    line = simulate_timeline(program, times, [30, 50])
    found = gain(line, TransferChange(0, 1, gradient=False, factor=0.5))
    assert (found.before, found.after) == (50, 25)
    assert found.makespan == simulate_timeline(program, times, [15, 25], [30, 50]).makespan
    found = gain(line, TransferChange(0, 1, gradient=True, seconds=0))
    assert found.makespan == simulate_timeline(program, times, [30, 50], [0, 0]).makespan


def test_gains_come_in_the_order_of_their_changes() -> None:
    line = timeline("gpipe", 4, [20, 30], [40, 50], latency=10)
    changes: list[Change] = [
        OperationChange(0, OpKind.FORWARD, factor=0.5),
        TransferChange(0, 1, gradient=False, factor=0),
        OperationChange(1, OpKind.BACKWARD, seconds=60 * PICOSECOND),
    ]
    path = find_critical_path(line)
    together = exact_gains(line, path, changes)
    assert together == tuple(exact_gain(line, path, change) for change in changes)
    assert exact_gains(line, path, []) == ()


def test_all_faults_are_named_at_once() -> None:
    line = timeline("1f1b", 2, [2, 3, 4], [4, 5, 6], latency=1)
    changes: list[Change] = [
        OperationChange(3, OpKind.FORWARD, factor=0.5),
        OperationChange(0, OpKind.RECOMPUTE, seconds=1, factor=1),
        OperationChange(0, OpKind.FORWARD),
        OperationChange(-1, OpKind.FORWARD, factor=float("nan")),
        TransferChange(0, 2, gradient=False, factor=1),
        TransferChange(2, 3, gradient=False, factor=1),
        TransferChange(1, 2, gradient=True, seconds=1e6),
        OperationChange(1, OpKind.FORWARD, factor=0.1),
        OperationChange(1, OpKind.FORWARD, factor=1e300),
        OperationChange(1, OpKind.FORWARD, factor=1.5),
    ]
    with pytest.raises(InvalidInput) as refused:
        exact_gains(line, find_critical_path(line), changes)
    found = {(fault.path[1:], fault.code) for fault in refused.value.faults}
    assert all(fault.path[0] == "changes" for fault in refused.value.faults)
    assert found == {
        ((0, "stage"), FaultCode.OUT_OF_RANGE),
        ((1, "kind"), FaultCode.INCONSISTENT),
        ((1, "factor"), FaultCode.EXCLUSIVE_FIELDS),
        ((2, "seconds"), FaultCode.MISSING_FIELD),
        ((3, "stage"), FaultCode.OUT_OF_RANGE),
        ((3, "factor"), FaultCode.OUT_OF_RANGE),
        ((4, "target_stage"), FaultCode.INCONSISTENT),
        ((5, "source_stage"), FaultCode.INCONSISTENT),
        ((6, "seconds"), FaultCode.OUT_OF_RANGE),
        ((7, "factor"), FaultCode.TOO_SMALL_TO_REPRESENT),
        ((8, "factor"), FaultCode.OUT_OF_RANGE),
    }


def test_there_is_nothing_to_change_where_nothing_is_transferred() -> None:
    forward_only = timeline("forward_only", 2, [2, 3])
    with pytest.raises(InvalidInput, match="forward only"):
        gain(forward_only, TransferChange(0, 1, gradient=True, seconds=0))
    alone = timeline("forward_only", 2, [2])
    with pytest.raises(InvalidInput, match="no stage hands on"):
        gain(alone, TransferChange(0, 1, gradient=False, seconds=0))
    turn = timeline("zb_v", 4, [2, 3], halves=([1, 1], [1, 1]), chunks=2)
    with pytest.raises(InvalidInput, match="nothing is transferred"):
        gain(turn, TransferChange(0, 1, gradient=False, seconds=0))


def test_times_that_are_too_long_together_are_the_change_s_fault() -> None:
    line = timeline("forward_only", 2000, [2, 3])
    path = find_critical_path(line)
    changes = [OperationChange(0, OpKind.FORWARD, factor=f) for f in (1.0, 4e16)]
    with pytest.raises(InvalidInput, match="53 days") as refused:
        exact_gains(line, path, changes)
    assert [fault.path for fault in refused.value.faults] == [("changes", 1)]
