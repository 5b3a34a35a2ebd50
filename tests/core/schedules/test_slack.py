"""Slack: exactly how much later an operation may end before the makespan moves."""

import random

import numpy as np

from service.core.schedules.critical_path import find_critical_path
from service.core.schedules.program import OpKind, RecomputeMode
from service.core.schedules.simulate import simulate
from service.core.schedules.slack import LeastSlack, measure_slack
from service.core.schedules.timeline import Timeline
from tests.core.schedules.plans import timeline
from tests.core.schedules.random_cases import random_cases


def makespans_with_each_longer(line: Timeline, by: np.ndarray) -> list[int]:
    """The makespan when one operation alone is longer, operation by operation."""
    durations = line.durations + np.diag(by)
    makespans: list[int] = simulate(line.program, durations, line.latencies).makespan.tolist()
    return makespans


def test_by_hand() -> None:
    """Rank 0 runs F0 0-2, F1 2-4, B0 12-16, B1 20-24; rank 1 is busy from 3 to 19."""
    line = timeline("1f1b", 2, [2, 3], [4, 5], latency=1)
    slack = measure_slack(line)
    labels = [line.label(operation) for operation in range(line.program.operations)]
    assert dict(zip(labels, slack.operations.tolist(), strict=True)) == {
        "0F0": 0, "0F1": 6, "0B0": 4, "0B1": 0, "1F0": 0, "1B0": 0, "1F1": 0, "1B1": 0,
    }  # fmt: skip
    assert slack.least == (
        LeastSlack(stage=0, kind=OpKind.FORWARD, microbatch=0, operation=0, picoseconds=0),
        LeastSlack(stage=0, kind=OpKind.BACKWARD, microbatch=1, operation=3, picoseconds=0),
        LeastSlack(stage=1, kind=OpKind.FORWARD, microbatch=0, operation=4, picoseconds=0),
        LeastSlack(stage=1, kind=OpKind.BACKWARD, microbatch=0, operation=5, picoseconds=0),
    )
    assert slack.by_stage == (slack.least[0], slack.least[2])
    assert slack.by_kind == (slack.least[0], slack.least[1])


def test_a_fast_stage_has_the_slack_that_the_slow_one_leaves() -> None:
    """Forwards of 1, 5 and 2: stage 0 is 4 ahead a microbatch, stage 2 waits 3 each time."""
    slack = measure_slack(timeline("forward_only", 3, [1, 5, 2]))
    assert slack.operations.tolist() == [0, 4, 8, 0, 0, 0, 6, 3, 0]
    assert [(least.microbatch, least.picoseconds) for least in slack.by_stage] == [
        (0, 0),
        (0, 0),
        (2, 0),
    ]


def test_recompute_that_waits_for_nothing_has_slack_until_its_gradient() -> None:
    """Rank 0 recomputes from 1 to 2 and gets its gradient at 8; rank 1 recomputes on the path."""
    line = timeline(
        "gpipe", 1, [1, 2], [3, 4], recompute=[1, 1], mode=RecomputeMode.BEFORE_GRADIENT
    )
    slack = measure_slack(line)
    least = {(entry.stage, entry.kind): entry.picoseconds for entry in slack.least}
    assert least[0, OpKind.RECOMPUTE] == 6
    assert least[1, OpKind.RECOMPUTE] == 0
    assert [entry.kind for entry in slack.by_kind] == [
        OpKind.FORWARD,
        OpKind.BACKWARD,
        OpKind.RECOMPUTE,
    ]
    assert slack.by_kind[0].operation == 0


def test_lengthening_one_operation_moves_the_makespan_beyond_its_slack_only(seed: int) -> None:
    for _, line in random_cases(random.Random(seed), 300):
        slack = measure_slack(line).operations
        assert makespans_with_each_longer(line, slack) == [line.makespan] * len(slack)
        assert makespans_with_each_longer(line, slack + 1) == [line.makespan + 1] * len(slack)


def test_the_critical_path_has_none_and_the_least_are_the_least(seed: int) -> None:
    for _, line in random_cases(random.Random(seed + 1), 200):
        program, slack = line.program, measure_slack(line)
        path = [step.operation for step in find_critical_path(line).operations]
        assert not slack.operations[path].any()
        keys = set(zip(program.stage.tolist(), program.kind.tolist(), strict=True))
        assert [(entry.stage, entry.kind) for entry in slack.least] == sorted(keys)
        for entry in slack.least:
            mine = np.flatnonzero((program.stage == entry.stage) & (program.kind == entry.kind))
            assert entry.picoseconds == slack.operations[mine].min()
            assert entry.operation == mine[slack.operations[mine].argmin()]
            assert entry.microbatch == program.microbatch[entry.operation]
        for stage, least in enumerate(slack.by_stage):
            assert least.picoseconds == slack.operations[program.stage == stage].min()
        assert min(entry.picoseconds for entry in slack.by_kind) == 0
