"""The critical path has no gap and sums to the makespan."""

import random
from itertools import pairwise

from service.core.schedules.catalogue import SCHEDULES
from service.core.schedules.critical_path import find_critical_path
from service.core.schedules.program import OpKind
from tests.core.schedules.event_simulator import random_legal_plan, random_plan
from tests.core.schedules.plans import named_program, plan_program, plan_timeline, timeline


def test_by_hand() -> None:
    line = timeline("1f1b", 2, [2, 3], [4, 5], latency=1)
    path = find_critical_path(line)
    assert [line.label(step.operation) for step in path.operations] == [
        "0F0", "1F0", "1B0", "1F1", "1B1", "0B1",
    ]  # fmt: skip
    assert path.by_stage == (6, 16)
    assert path.by_kind == {OpKind.FORWARD: 8, OpKind.BACKWARD: 14}
    assert path.by_transfer == {(0, False): 1, (0, True): 1}
    assert path.transfer == 2


def test_sums_to_the_makespan_without_a_gap(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(300):
        schedule = rng.choice([*SCHEDULES, ""])
        plan = random_plan(rng, schedule) if schedule else random_legal_plan(rng)
        program = named_program(plan, schedule) if schedule else plan_program(plan)
        line = plan_timeline(plan, program)
        if line is None:
            continue
        path = find_critical_path(line)
        assert sum(path.by_stage) + path.transfer == line.makespan
        assert sum(path.by_kind.values()) == sum(path.by_stage)
        assert path.operations[0].start == 0
        assert path.operations[0].after is None
        assert path.operations[-1].end == line.makespan
        for before, after in pairwise(path.operations):
            assert after.start == before.end + (after.after.latency if after.after else 0)
