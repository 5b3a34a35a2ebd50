"""The steady state: exact, witnessed, and what long simulations converge to."""

import random
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from service.core.errors import InvalidInput
from service.core.schedules.build import build_program
from service.core.schedules.cadence import Cadence, SteadyState, measure_cadence
from service.core.schedules.catalogue import SCHEDULES
from service.core.schedules.cycle_ratio import maximum_cycle_ratio
from service.core.schedules.no_steady import NoSteady
from service.core.schedules.periodic import periodic_graph
from service.core.schedules.program import OpKind, PairMode, Program, RecomputeMode, StageEdge
from service.core.schedules.stage_times import StageTimes
from service.core.schedules.timeline import Timeline
from tests.core.schedules.plans import (
    simulate_timeline,
    thirds,
    timeline,
)

# Cycles of few ranks pass 1 to 9 periods of 1 to 4 microbatches, so all pulses repeat within this;
# what the beginning and the end add has long stopped changing by the first count.
REPEATS_WITHIN = 2520
BEGINNING = 2520

STEADY = [name for name, family in SCHEDULES.items() if family.period is not None]


def steady(line: Timeline) -> SteadyState:
    found = measure_cadence(line).steady
    assert found is not None
    return found


def assert_witnessed(cadence: Cadence) -> None:
    assert cadence.steady is not None
    for phase in cadence.steady.phases:
        total = sum(step.duration + step.latency for step in phase.cycle)
        assert phase.per_microbatch == Fraction(total, sum(s.microbatches for s in phase.cycle))
        for step, following in pairwise((*phase.cycle, phase.cycle[0])):
            if step.edge is None:
                assert step.rank == following.rank
            else:
                for end in (step, following):
                    own = {end.stage, end.backward_stage}
                    assert own & {step.edge.source, step.edge.target}


def test_work_of_stages_and_the_slowest() -> None:
    cadence = measure_cadence(timeline("1f1b", 16, *thirds([18, 18, 25, 18])))
    assert [stage.work for stage in cadence.stages] == [54, 54, 75, 54]
    assert [stage.forward for stage in cadence.stages] == [18, 18, 25, 18]
    assert [stage.backward for stage in cadence.stages] == [36, 36, 50, 36]
    assert [stage.rank for stage in cadence.stages] == [0, 1, 2, 3]
    assert cadence.slowest_stage == 2
    assert cadence.bound == 75
    after = measure_cadence(timeline("1f1b", 16, *thirds([18, 21, 20, 18])))
    assert after.slowest_stage == 1
    assert after.bound == 63


def test_what_a_schedule_does_not_run_is_no_work() -> None:
    cadence = measure_cadence(timeline("forward_only", 3, [2, 3], [9, 9], recompute=[9, 9]))
    assert cadence.bound == 3
    assert all(s.backward == s.recompute == 0 for s in cadence.stages)


def test_latency_does_not_add_to_the_slowest_stage() -> None:
    """18/18/25/18 ms with 2 ms a hop stays at 25 ms: the hops fit beside the work."""
    assert steady(timeline("1f1b", 16, *thirds([18, 18, 25, 18]), 2 * 3)).per_microbatch == 75


def test_a_cycle_between_inner_stages_can_set_the_pace() -> None:
    line = timeline("1f1b", 10, [17, 5, 17, 18, 7], [14, 2, 16, 28, 12], 15)
    cadence = measure_cadence(line)
    assert cadence.steady is not None
    assert cadence.steady.per_microbatch == Fraction("54.5")
    assert {step.stage for step in cadence.steady.phases[0].cycle} == {2, 3}
    assert_witnessed(cadence)


@pytest.mark.parametrize("latency", [0, 1, 10, 50])
def test_equal_stages_with_latency(latency: int) -> None:
    """F + B + 2c(P-1)/P per microbatch."""
    for ranks in (2, 3, 4, 8, 16):
        line = timeline("1f1b", 4, [10] * ranks, [20] * ranks, latency)
        assert steady(line).per_microbatch == 30 + Fraction(2 * latency * (ranks - 1), ranks)


def test_gpipe_has_two_phases() -> None:
    line = timeline("gpipe", 4, [5, 9, 2], [7, 3, 8], 100)
    cadence = measure_cadence(line)
    assert cadence.steady is not None
    assert [phase.per_microbatch for phase in cadence.steady.phases] == [9, 8]
    assert [phase.kinds for phase in cadence.steady.phases] == [
        (OpKind.FORWARD,),
        (OpKind.BACKWARD,),
    ]
    assert cadence.bound == 12
    assert_witnessed(cadence)


@pytest.mark.parametrize("schedule", STEADY)
def test_is_the_slope_of_long_simulations(schedule: str, seed: int) -> None:
    rng = random.Random(seed)
    family = SCHEDULES[schedule]
    for _ in range(20):
        ranks = rng.choice([2, 4]) if family.directions == 2 else rng.randint(1, 4)
        chunks = family.chunks or rng.randint(1, 3)
        stages = ranks * chunks
        mode, pair_mode = rng.choice(list(RecomputeMode)), rng.choice(list(PairMode))
        latest = rng.choice([0, 5, 40])
        edges = random_skips(rng, stages, family.directions)
        f, i, w, r = ([rng.randint(1, 30) for _ in range(stages)] for _ in range(4))
        pair = [rng.randint(1, 60) for _ in range(stages)] if rng.random() < 0.5 else None
        times = StageTimes.of(f, None, r, backward_halves=(i, w), forward_backward=pair)
        hops = [[rng.randint(0, latest) for _ in edges] for _ in range(2)]
        short, long = (
            simulate_timeline(
                build_program(
                    schedule,
                    ranks,
                    microbatches,
                    chunks_per_rank=chunks,
                    pair_mode=pair_mode,
                    recompute=mode,
                    stage_edges=edges,
                ),
                times,
                *hops,
            )
            for microbatches in (BEGINNING, BEGINNING + REPEATS_WITHIN)
        )
        cadence = measure_cadence(short)
        assert cadence.steady is not None
        slope = Fraction(long.makespan - short.makespan, REPEATS_WITHIN)
        assert slope == cadence.steady.per_microbatch
        assert cadence.steady.per_microbatch >= cadence.bound
        assert_witnessed(cadence)


def random_skips(rng: random.Random, stages: int, directions: int) -> tuple[StageEdge, ...]:
    """The chain and some edges past it, the same in each direction."""
    skips = [(a, b) for a in range(stages) for b in range(a + 2, stages) if rng.random() < 0.1]
    return tuple(
        StageEdge(a, b, direction)
        for direction in range(directions)
        for a, b in [*((s, s + 1) for s in range(stages - 1)), *skips]
    )


def test_an_order_without_a_rhythm_has_no_steady_state() -> None:
    def why(program: Program) -> NoSteady | None:
        ones = [1] * program.stages
        times = StageTimes.of(ones, backward_halves=(ones, ones))
        cadence = measure_cadence(simulate_timeline(program, times))
        assert cadence.steady is None
        return cadence.no_steady

    blocks = build_program("looped_bfs", 4, 4, chunks_per_rank=2)
    assert why(blocks) is NoSteady.ORDER_OF_WHOLE_ITERATIONS
    written = build_program("explicit", 1, 2, order=("0F0 0F1 0B0 0B1",))
    assert why(written) is NoSteady.ORDER_WRITTEN_OUT
    for name in ("zb_auto", "v_half", "v_min"):
        chunks = SCHEDULES[name].chunks or 1
        tried = build_program(name, 4, 8, chunks_per_rank=chunks)
        assert why(tried) is NoSteady.ORDER_MADE_BY_TRYING


def test_a_schedule_without_a_steady_state_is_one_of_three_kinds() -> None:
    """So that no new row is told to have an order made by trying that is not."""
    without = {name for name, family in SCHEDULES.items() if family.period is None}
    assert without == {"looped_bfs", "zb_auto", "v_half", "v_min", "explicit"}
    tried = {name for name, family in SCHEDULES.items() if family.passes}
    assert tried == {"zb_auto", "v_half", "v_min"}


def test_groups_repeat_as_a_whole() -> None:
    """Equal chunks with a hop latency c: 2 c for each of v P - 1 hops once, none in the rhythm."""
    line = timeline("interleaved_1f1b", 8, [10] * 8, [20] * 8, 5, chunks=2)
    assert steady(line).per_microbatch == 2 * 30
    uneven = timeline("interleaved_1f1b", 4, [10, 10, 30, 10], [20] * 4, 5, chunks=2)
    # rank 0 holds stages 0 and 2 and is never idle
    assert steady(uneven).per_microbatch == measure_cadence(uneven).bound == 80


def test_a_rank_of_two_directions_works_half_the_time_for_each() -> None:
    line = timeline("chimera", 2, [10, 30], [20, 40])
    cadence = measure_cadence(line)
    assert [stage.ranks for stage in cadence.stages] == [(0, 1), (1, 0)]
    assert cadence.bound == Fraction(30 + 70, 2)
    assert cadence.steady is not None
    assert cadence.steady.per_microbatch >= cadence.bound


def test_pairs_can_be_quicker_than_their_halves() -> None:
    f, halves = [10] * 4, ([10] * 4, [10] * 4)
    for pair, bound in ((20, 40), (30, 60), (45, 60)):
        line = timeline(
            "dualpipe_v", 8, f, halves=halves, chunks=2, pair=[pair] * 4, pair_mode=PairMode.FUSED
        )
        cadence = measure_cadence(line)
        assert cadence.bound == bound
        assert cadence.steady is not None
        assert cadence.steady.per_microbatch == 2 * pair


def test_is_at_least_the_cycles_through_the_last_rank(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        ranks, c = rng.randint(1, 8), rng.randint(0, 20)
        f, b = ([rng.randint(1, 30) for _ in range(ranks)] for _ in range(2))
        work = [Fraction(x + y) for x, y in zip(f, b, strict=True)]
        floor = max((sum(work[r:]) + 2 * c * (ranks - 1 - r)) / (ranks - r) for r in range(ranks))
        assert steady(timeline("1f1b", 2, f, b, c)).per_microbatch >= max(floor, *work)


def test_does_not_depend_on_how_many_microbatches_there_are() -> None:
    f, b = [4, 9, 3], [8, 7, 13]
    found = {steady(timeline("1f1b", m, f, b, 6)).per_microbatch for m in (1, 2, 3, 10, 50)}
    assert len(found) == 1


def test_a_period_taken_twice_has_the_same_pace() -> None:
    program = build_program("1f1b", 4, 40)
    line = simulate_timeline(program, StageTimes.of([17, 5, 17, 18], [14, 2, 16, 28]), 15)
    kinds = SCHEDULES["1f1b"].phases[0]
    paces = []
    for period in (1, 2, 3):
        graph = periodic_graph(program, kinds, period, line.durations, line.latencies)
        assert len(graph.nodes) == 8 * period
        paces.append(maximum_cycle_ratio(len(graph.nodes), graph.arcs).ratio / period)
    assert paces[0] == paces[1] == paces[2]


def test_an_order_that_is_not_steady_in_its_middle_is_refused() -> None:
    program = build_program("1f1b", 8, 10)
    with pytest.raises(InvalidInput, match="does not repeat itself every 1 microbatches"):
        periodic_graph(
            program,
            SCHEDULES["1f1b"].phases[0],
            1,
            np.ones(program.operations, dtype=np.int64),
            np.zeros(len(program.inputs), dtype=np.int64),
        )


def test_two_phases_need_every_stage_to_lead_to_the_last() -> None:
    program = build_program("gpipe", 2, 8, stage_edges=())
    line = simulate_timeline(program, StageTimes.of([9, 1], [1, 9]))
    assert measure_cadence(line).no_steady is NoSteady.PHASES_APART
    # Without gradients the backwards of stage 0 follow its forwards at once.
    frozen = build_program("gpipe", 2, 8, stage_edges=(StageEdge(0, 1, gradient=False),))
    line = simulate_timeline(frozen, StageTimes.of([9, 1], [1, 9]))
    assert measure_cadence(line).no_steady is NoSteady.PHASES_APART
    one_phase = build_program("1f1b", 2, 8, stage_edges=())
    line = simulate_timeline(one_phase, StageTimes.of([9, 1], [1, 9]))
    assert steady(line).per_microbatch == 10


def test_steady_state_of_very_many_ranks_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    line = timeline("1f1b", 2, [1] * 8, [1] * 8)
    assert measure_cadence(line).steady is not None
    monkeypatch.setattr("service.core.schedules.build.MAX_OPERATIONS", 500)
    cadence = measure_cadence(line)
    assert (cadence.steady, cadence.no_steady) == (None, NoSteady.TOO_LARGE)
    assert cadence.bound == 2
