"""Microbatches that take different times: by hand, against what is known of equal ones, by rule.

The slow reference of `test_simulate` runs unequal microbatches too, in every schedule.
"""

import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from service.core.schedules.bounds import makespan_lower_bounds
from service.core.schedules.bubble import Excess, measure_bubble
from service.core.schedules.build import build_program
from service.core.schedules.cadence import measure_cadence, microbatch_repeat
from service.core.schedules.catalogue import SCHEDULES
from service.core.schedules.critical_path import find_critical_path
from service.core.schedules.gains import OperationChange, TransferChange
from service.core.schedules.no_steady import NoSteady
from service.core.schedules.program import OpKind, PairMode
from service.core.schedules.stage_times import StageTimes
from service.core.schedules.timeline import Timeline
from tests.core.schedules.plans import (
    exact_gain,
    simulate_timeline,
    timeline,
)
from tests.core.schedules.random_cases import random_cases

HOPS = ([[1, 2]], [[0, 1]])  # of the two microbatches, there and back


def short_then_long(*hops: npt.ArrayLike) -> Timeline:
    """1F1B of two stages: a short microbatch, then one that takes two to three times as long."""
    times = StageTimes.of([[1, 3], [2, 4]], [[2, 6], [3, 5]])
    return simulate_timeline(build_program("1f1b", 2, 2), times, *hops)


def test_by_hand() -> None:
    """Rank 0: F0 0-1, F1 1-4, B0 6-8, B1 15-21. Rank 1: F0 1-3, B0 3-6, F1 6-10, B1 10-15."""
    line = short_then_long()
    assert line.run.start.tolist() == [0, 1, 6, 15, 1, 3, 6, 10]
    assert line.run.end.tolist() == [1, 4, 8, 21, 3, 6, 10, 15]
    assert line.busy.tolist() == [12, 14]


def test_by_hand_with_hops() -> None:
    """F0 arrives after 1, F1 after 2; B1 takes 1 back: each makes the path longer."""
    line = short_then_long(*HOPS)
    assert line.run.end.tolist() == [1, 4, 9, 23, 4, 7, 11, 16]
    assert find_critical_path(line).by_transfer == {(0, False): 1, (0, True): 1}


def test_each_microbatch_is_replayed_at_its_own_mean() -> None:
    """Means are 1.5 and 2.5, then 3.5 and 5.5, which take 20; all ranks only working, 13."""
    excess = measure_bubble(short_then_long(*HOPS)).excess
    assert excess == Excess(Fraction(0), Fraction(2), Fraction(1), Fraction(7))


def test_work_is_a_mean_and_has_ends() -> None:
    cadence = measure_cadence(short_then_long())
    assert [s.work for s in cadence.stages] == [6, 7]
    spreads = [stage.work_spread for stage in cadence.stages]
    assert [(spread.least, spread.most) for spread in spreads] == [(3, 9), (5, 9)]
    assert [s.forward for s in cadence.stages] == [2, 3]
    assert cadence.bound == 7
    assert cadence.slowest_stage == 1
    assert cadence.no_steady is NoSteady.MICROBATCHES_DO_NOT_REPEAT


def test_lower_bounds_are_of_the_microbatches_there_are() -> None:
    """The long microbatch alone: 3 + 2 + 4 + 5 + 1 + 6; rank 1 works 14, after 2 and before 2."""
    line = short_then_long(*HOPS)
    path, device, between = makespan_lower_bounds(line.program, line.times, *HOPS)
    assert path.picoseconds == 21
    assert [step.microbatch for step in path.chain] == [1, 1, 1, 1]
    assert (device.picoseconds, device.rank) == (14, 1)
    assert (between.picoseconds, between.rank) == (2 + 14 + 2, 1)


def test_a_change_is_of_every_microbatch() -> None:
    line = short_then_long(*HOPS)
    path = find_critical_path(line)
    halved = exact_gain(line, path, OperationChange(1, OpKind.FORWARD, factor=0.5))
    assert (halved.before, halved.after, halved.gain) == (4, 2, 3)
    same = exact_gain(line, path, OperationChange(1, OpKind.FORWARD, seconds=4e-12))
    assert (same.before, same.after, same.gain) == (4, 4, -2)
    hop = exact_gain(line, path, TransferChange(0, 1, gradient=False, factor=0))
    assert (hop.before, hop.after, hop.gain) == (2, 0, 1)


def test_the_closed_form_says_why_it_does_not_hold() -> None:
    line = timeline("gpipe", 2, [[1, 2]] * 2, [[2, 2]] * 2)
    failure = measure_bubble(line).closed_form_fails
    assert failure is not None
    assert failure.reason == "microbatches are not equal"


def repeated(line: Timeline, microbatches: int) -> Timeline:
    """The same times written out for each microbatch."""
    once = np.zeros(microbatches, dtype=np.int64)
    names = [name for name in line.times.__slots__ if getattr(line.times, name) is not None]
    times = replace(line.times, **{n: getattr(line.times, n)[:, once] for n in names})
    hops = line.forward_latencies[:, once], line.backward_latencies[:, once]
    return simulate_timeline(line.program, times, *hops)


def test_equal_microbatches_are_the_same_however_they_are_written(seed: int) -> None:
    rng = random.Random(seed)
    for schedule in SCHEDULES:
        if schedule == "explicit":
            continue
        line = random_line(rng, schedule, alike=True)
        other = repeated(line, line.program.microbatches)
        assert np.array_equal(line.run.start, other.run.start)
        assert np.array_equal(line.run.binding, other.run.binding)
        assert measure_bubble(line) == measure_bubble(other)
        assert find_critical_path(line) == find_critical_path(other)
        assert measure_cadence(line) == measure_cadence(other)
        bounds = [
            makespan_lower_bounds(x.program, x.times, x.forward_latencies, x.backward_latencies)
            for x in (line, other)
        ]
        assert bounds[0] == bounds[1]


def random_line(rng: random.Random, schedule: str, *, alike: bool) -> Timeline:
    """A legal shape of 2 or 4 ranks with 8 microbatches."""
    family = SCHEDULES[schedule]
    ranks, chunks = rng.choice([2, 4]), family.chunks or rng.choice([1, 2])
    stages, width = ranks * chunks, 1 if alike else 8

    def rows(count: int, largest: int) -> list[list[int]]:
        return [[rng.randint(1, largest) for _ in range(width)] for _ in range(count)]

    program = build_program(
        schedule, ranks, 8, chunks_per_rank=chunks, pair_mode=rng.choice(list(PairMode))
    )
    times = StageTimes.of(rows(stages, 20), backward_halves=(rows(stages, 20), rows(stages, 20)))
    hops = [rows(len(program.stage_edges), 9) for _ in range(2)]
    return simulate_timeline(program, times, *hops)


def test_scaled_times_scale_the_timeline(seed: int) -> None:
    rng = random.Random(seed)
    for schedule in SCHEDULES:
        if schedule == "explicit":
            continue
        line = random_line(rng, schedule, alike=False)
        names = [name for name in line.times.__slots__ if getattr(line.times, name) is not None]
        times = replace(line.times, **{n: 7 * getattr(line.times, n) for n in names})
        hops = 7 * line.forward_latencies, 7 * line.backward_latencies
        scaled = simulate_timeline(line.program, times, *hops)
        assert np.array_equal(scaled.run.start, 7 * line.run.start)
        assert np.array_equal(scaled.run.binding, line.run.binding)


def test_a_longer_microbatch_ends_nothing_sooner(seed: int) -> None:
    rng = random.Random(seed)
    for plan, line in random_cases(rng, 200):
        letter = rng.choice([letter for letter in plan.durations if letter != "F&B"])
        kind = next(kind for kind in OpKind if kind.letter == letter)
        stage, microbatch = rng.randrange(plan.stages), rng.randrange(line.program.microbatches)
        name = kind.name.lower()
        given = getattr(line.times, name)
        longer = np.repeat(given, line.program.microbatches // given.shape[1], axis=1)
        longer[stage, microbatch] += rng.randint(1, 9)
        times = replace(line.times, **{name: longer})
        hops = line.forward_latencies, line.backward_latencies
        other = simulate_timeline(line.program, times, *hops)
        assert (other.run.end >= line.run.end).all()


def test_gpipe_without_hops_is_a_permutation_flow_shop_of_unequal_jobs(seed: int) -> None:
    """One direction of jobs that are alike on all machines: sum + (P - 1) x the longest."""
    rng = random.Random(seed)
    for _ in range(100):
        ranks, jobs = rng.randint(1, 5), [rng.randint(0, 30) for _ in range(rng.randint(1, 8))]
        if not any(jobs):
            continue
        line = timeline("forward_only", len(jobs), [jobs] * ranks)
        assert line.makespan == sum(jobs) + (ranks - 1) * max(jobs)


@pytest.mark.parametrize(
    ("sizes", "repeat"),
    [
        ([3, 3, 3, 3], 1),
        ([1, 2, 1, 2], 2),
        ([1, 2, 1, 2, 1], None),
        ([1, 2, 3, 1, 2, 3], 3),
        ([1, 1, 2, 1, 1, 1], None),
        ([1, 2, 3, 4], None),
        ([1, 2], None),
    ],
)
def test_microbatches_repeat_when_held_twice(sizes: list[int], repeat: int | None) -> None:
    assert microbatch_repeat(timeline("1f1b", len(sizes), [sizes] * 2, [[1]] * 2)) == repeat
    hops = [sizes]
    assert microbatch_repeat(timeline("1f1b", len(sizes), [1, 1], [1, 1], hops)) == repeat


def test_without_a_drain_the_next_iteration_follows() -> None:
    assert microbatch_repeat(timeline("pipedream", 3, [[1, 2, 3]] * 2, [[1]] * 2)) == 3
    assert microbatch_repeat(timeline("pipedream", 3, [[1, 2, 1]] * 2, [[1]] * 2)) == 3
    assert microbatch_repeat(timeline("pipedream", 4, [[1, 2, 1, 2]] * 2, [[1]] * 2)) == 2


@pytest.mark.parametrize(
    "schedule", [name for name, f in SCHEDULES.items() if f.period and f.directions == 1]
)
def test_the_pace_of_repeating_microbatches_is_the_slope_of_long_simulations(
    schedule: str, seed: int
) -> None:
    rng = random.Random(seed)
    chunks = SCHEDULES[schedule].chunks or 1
    for repeat in (2, 3):
        stages = 2 * chunks
        once = [
            [[rng.randint(1, 30) for _ in range(repeat)] for _ in range(rows)]
            for rows in (stages, stages, stages, stages - 1, stages - 1)
        ]
        short, long = (
            going_on(schedule, chunks, once, microbatches) for microbatches in (2520, 5040)
        )
        cadence = measure_cadence(short)
        assert cadence.steady is not None
        assert Fraction(long.makespan - short.makespan, 2520) == cadence.steady.per_microbatch
        assert cadence.steady.per_microbatch >= cadence.bound


def going_on(
    schedule: str, chunks: int, once: list[list[list[int]]], microbatches: int
) -> Timeline:
    """Two ranks; rows of forward, of both halves of the backward and of the hops, repeated."""
    forward, of_inputs, of_weights, there, back = (
        [[row[m % len(row)] for m in range(microbatches)] for row in rows] for rows in once
    )
    program = build_program(schedule, 2, microbatches, chunks_per_rank=chunks)
    times = StageTimes.of(forward, backward_halves=(of_inputs, of_weights))
    return simulate_timeline(program, times, there, back)
