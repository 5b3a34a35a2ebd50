"""Plans that are simulated and explained together: the same as each alone."""

import random
from dataclasses import replace

import numpy as np
import pytest

from service.core.errors import InvalidInput
from service.core.estimates.estimate import Estimate, estimate_plan, estimate_plans
from service.core.estimates.simulation import SimulatedPlan, simulate_plan, simulate_plans
from service.core.plans.plan import GivenStage, Plan, ResolvedPlan
from service.core.plans.resolve import resolve
from service.core.schedules import timeline as timelines
from service.core.schedules.program import Program, kept_with_program
from service.core.schedules.simulate import Run, simulate
from tests.core.estimates.made_plans import given_plan, simulated


def random_plan(rng: random.Random) -> Plan:
    """One of few orders, with times of its own."""
    count = rng.choice((2, 3))
    stages = [
        GivenStage(
            forward_seconds=rng.randint(1, 9) / 1000,
            backward_input_seconds=rng.randint(1, 9) / 1000,
            backward_weight_seconds=rng.randint(1, 9) / 1000,
            recompute_seconds=rng.choice((None, None, 0.001)),
            transfer_seconds=rng.randint(0, 3) / 1000 if stage + 1 < count else None,
        )
        for stage in range(count)
    ]
    fixed = rng.choice(("microbatch_size", "global_batch_size", None))
    kind = rng.choice(("forward_only", "gpipe", "1f1b", "zb_h1", "pipedream"))
    return given_plan(
        stages,
        microbatches=rng.choice((4, 8)),
        schedule=kind,
        microbatch_size=24 if fixed == "microbatch_size" else None,
        global_batch_size=24 if fixed == "global_batch_size" else None,
    )


def comparable(estimate: Estimate) -> object:
    """All terms but the arrays of the timeline, which are compared apart."""
    line = estimate.simulated.timeline
    live = [
        (rank.peak_activations, rank.peak_operation, rank.alive, rank.series_count.tolist())
        for rank in estimate.live
    ]
    return (
        estimate.iteration,
        repr(estimate.weight_versions),
        estimate.cadence,
        estimate.bubble,
        estimate.transfers,
        live,
        estimate.lower_bounds,
        estimate.critical_path,
        (estimate.slack.operations.tolist(), estimate.slack.least),
        estimate.sensitivity,
        estimate.other_microbatch_counts,
        estimate.not_represented,
        line.run.start.tolist(),
        line.run.end.tolist(),
        line.run.binding.tolist(),
        line.durations.tolist(),
        line.latencies.tolist(),
    )


def test_together_is_as_alone(seed: int) -> None:
    """Plans of several orders in any sequence; the estimates are those of each by itself."""
    rng = random.Random(seed)
    resolved = [resolve(random_plan(rng)) for _ in range(120)]
    runs = simulate_plans(resolved)
    found = [run for run in runs if isinstance(run, SimulatedPlan)]
    assert len(found) == len(resolved)
    programs = {run.timeline.program for run in found}
    assert 4 <= len(programs) < len(found) / 2, "several plans share an order"
    for one, estimate in zip(resolved, estimate_plans(found), strict=True):
        assert isinstance(estimate, Estimate)
        assert estimate.simulated.resolved is one
        assert comparable(estimate) == comparable(estimate_plan(simulate_plan(one)))


def long_plan(**changes: object) -> ResolvedPlan:
    """So long that its own run is just within what the kernel represents."""
    stages = [GivenStage(9e4, 9e4), GivenStage(9e4, 9e4)]
    return replace(resolve(given_plan(stages, microbatches=8)), **changes)  # type: ignore[arg-type]


def test_one_refusal_does_not_touch_those_beside_it() -> None:
    fine = resolve(given_plan([GivenStage(0.1, 0.2)] * 2))
    nothing = resolve(given_plan([GivenStage(0.1, 0.2)] * 2))
    nothing = replace(
        nothing,
        stages=tuple(
            replace(stage, forward_picoseconds=0, backward_picoseconds=0)
            for stage in nothing.stages
        ),
    )
    runs = simulate_plans([fine, nothing, long_plan(), fine])
    assert [type(run) for run in runs] == [
        SimulatedPlan,
        InvalidInput,
        SimulatedPlan,
        SimulatedPlan,
    ]
    with pytest.raises(InvalidInput, match="zero everywhere"):
        simulate_plan(nothing)


def test_a_term_that_is_refused_does_not_touch_those_beside_it() -> None:
    """Means over the stages are too long for the one plan, in whose unit they are told."""
    stages = [GivenStage(9e4 + stage / 1000, 9e4) for stage in range(7)]
    long = simulated(given_plan(stages, microbatches=4))
    fine = simulated(given_plan([GivenStage(0.1, 0.2)] * 7, microbatches=4))
    with pytest.raises(InvalidInput, match="means over the stages"):
        estimate_plan(long)
    outcomes = estimate_plans([fine, long, fine])
    assert [type(outcome) for outcome in outcomes] == [Estimate, InvalidInput, Estimate]


def test_plans_of_one_order_are_one_call_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []

    def counted(
        program: Program, durations: np.ndarray, latencies: np.ndarray, *, blocking: bool
    ) -> Run:
        rows.append(len(durations))
        return simulate(program, durations, latencies, blocking=blocking)

    monkeypatch.setattr(timelines, "simulate", counted)
    plans = [given_plan([GivenStage(0.1 * n, 0.2)] * 2) for n in range(1, 40)]
    simulate_plans([resolve(plan) for plan in plans])
    assert rows == [39]


def test_what_follows_from_an_order_is_found_once_and_lives_as_long() -> None:
    asked: list[tuple[str, int]] = []

    @kept_with_program
    def find(program: Program, number: int) -> int:
        asked.append((program.schedule, number))
        return number + program.ranks

    one = simulated(given_plan([GivenStage(0.1, 0.2)] * 2)).timeline.program
    other = simulated(given_plan([GivenStage(0.1, 0.2)] * 3)).timeline.program
    assert [find(one, 1), find(one, 1), find(other, 1), find(one, 2)] == [3, 3, 4, 4]
    assert asked == [("1f1b", 1), ("1f1b", 1), ("1f1b", 2)]
