"""Lower bounds: hand-checked, and below every simulated run."""

import random

from service.core.schedules.bounds import LowerBound, makespan_lower_bounds
from service.core.schedules.build import build_program
from service.core.schedules.catalogue import SCHEDULES
from service.core.schedules.program import RecomputeMode, StageEdge
from service.core.schedules.stage_times import StageTimes
from tests.core.schedules.event_simulator import random_legal_plan, random_plan
from tests.core.schedules.plans import (
    named_program,
    plan_hops,
    plan_program,
    plan_timeline,
    plan_times,
    timeline,
)


def by_name(bounds: tuple[LowerBound, ...]) -> dict[str, LowerBound]:
    return {bound.name: bound for bound in bounds}


def chain_of(bound: LowerBound) -> str:
    return " ".join(f"{step.stage}{step.kind.letter}" for step in bound.chain)


def test_by_hand() -> None:
    program = build_program("1f1b", 3, 4)
    times = StageTimes.of([1, 2, 3], [4, 5, 6])
    bounds = by_name(makespan_lower_bounds(program, times, [10, 20], [30, 40]))
    path = bounds["dependency_path"]
    assert path.picoseconds == 1 + 10 + 2 + 20 + 3 + 6 + 40 + 5 + 30 + 4
    assert chain_of(path) == "0F 1F 2F 2B 1B 0B"
    assert (bounds["busiest_device"].picoseconds, bounds["busiest_device"].rank) == (36, 2)
    best = bounds["busiest_device_with_path"]
    # before rank 2: 1 + 10 + 2 + 20; after its last backward: 40 + 5 + 30 + 4
    assert (best.rank, best.head, best.tail) == (2, 33, 79)
    assert best.picoseconds == 33 + 36 + 79


def test_recompute_after_the_gradient_lengthens_the_way_back() -> None:
    times = StageTimes.of([1, 1], [1, 1], [7, 5])
    lengths = {}
    for mode in (RecomputeMode.AFTER_GRADIENT, RecomputeMode.BEFORE_GRADIENT):
        program = build_program("gpipe", 2, 1, recompute=mode)
        bound = makespan_lower_bounds(program, times, [0], [0])[0]
        lengths[mode] = (bound.picoseconds, chain_of(bound))
    assert lengths == {
        RecomputeMode.AFTER_GRADIENT: (16, "0F 1F 1R 1B 0R 0B"),
        RecomputeMode.BEFORE_GRADIENT: (9, "0F 0R 0B"),
    }


def test_a_skip_edge_can_be_the_longest_way() -> None:
    program = build_program(
        "gpipe", 3, 1, stage_edges=(StageEdge(0, 1), StageEdge(1, 2), StageEdge(0, 2))
    )
    bound = makespan_lower_bounds(program, StageTimes.of([1] * 3, [1] * 3), [1, 1, 9], [1, 1, 0])[0]
    assert chain_of(bound) == "0F 2F 2B 1B 0B"
    assert bound.picoseconds == 5 + 9 + 2


def test_never_above_a_simulated_run(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(500):
        schedule = rng.choice([*SCHEDULES, ""])
        plan = random_plan(rng, schedule) if schedule else random_legal_plan(rng)
        program = named_program(plan, schedule) if schedule else plan_program(plan)
        line = plan_timeline(plan, program)
        if line is None:
            continue
        floors = [hops * rng.randint(0, 4) // 4 for hops in plan_hops(plan)]
        bounds = makespan_lower_bounds(program, plan_times(plan), *floors)
        assert len({bound.name for bound in bounds}) == 3
        for bound in bounds:
            assert 0 <= bound.picoseconds <= line.makespan, bound
        assert bounds[2].picoseconds >= bounds[1].picoseconds


def test_met_exactly_by_equal_stages() -> None:
    """(M + P - 1)(F + B) of 1F1B and gpipe is the best that any order can do."""
    for schedule in ("gpipe", "1f1b"):
        line = timeline(schedule, 8, [10] * 4, [20] * 4)
        bounds = makespan_lower_bounds(line.program, line.times, [0] * 3, [0] * 3)
        assert max(bound.picoseconds for bound in bounds) == line.makespan
