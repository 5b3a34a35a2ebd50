"""Whole estimates of every schedule: bounds below, sums exact, what is never drained."""

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from service.core.errors import WorkBudgetExceeded
from service.core.estimates.bounds import boundary_transfers, iteration_lower_bounds
from service.core.estimates.estimate import Estimate, estimate_plan, plan_live_activations
from service.core.estimates.simulation import SimulatedPlan, simulate_plan
from service.core.estimates.work import work_of
from service.core.plans.plan import (
    ActivationChange,
    Degrees,
    GivenStage,
    Placement,
    Plan,
    Schedule,
    Workload,
)
from service.core.plans.resolve import resolve
from service.core.schedules.catalogue import SCHEDULES
from service.core.schedules.program import PairMode
from tests.core.plans.worlds import cluster
from tests.core.schedules.reference_orders import shapes_of

NAMED = [name for name, family in SCHEDULES.items() if not family.takes_order]
MILLI = 10**9


def random_stage(rng: random.Random, *, last: bool, paired: bool) -> GivenStage:
    i, w, f = (rng.randint(1, 30) / 1000 for _ in range(3))
    return GivenStage(
        forward_seconds=f,
        backward_input_seconds=i,
        backward_weight_seconds=w,
        recompute_seconds=rng.choice([None, 0.003]),
        pair_seconds=0.09 if paired else None,
        activation_bytes=rng.randint(0, 100),
        transfer_seconds=None if last else rng.choice([0.0, 0.002, 0.01]),
    )


def random_plan(rng: random.Random, kind: str) -> Plan:
    ranks, microbatches, chunks, _ = rng.choice(shapes_of(kind))
    stages = ranks * chunks
    paired = rng.random() < 0.5
    return Plan(
        degrees=Degrees(ranks),
        workload=Workload(microbatches, microbatch_size=1),
        schedule=Schedule(
            kind,
            chunks,
            recompute_before_gradient=rng.random() < 0.5,
            pair_mode=rng.choice([None, *PairMode]) if SCHEDULES[kind].has_pairs else None,
        ),
        stages=tuple(random_stage(rng, last=s == stages - 1, paired=paired) for s in range(stages)),
    )


def simulated(plan: Plan) -> SimulatedPlan:
    return simulate_plan(resolve(plan))


@pytest.mark.parametrize("kind", NAMED)
def test_all_terms_of_random_plans(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(25):
        plan = random_plan(rng, kind)
        estimate = estimate_plan(simulated(plan))
        assert_consistent(estimate)
        operations = estimate.simulated.timeline.program.operations
        assert operations <= work_of(plan).operations


def assert_consistent(estimate: Estimate) -> None:
    timeline = estimate.simulated.timeline
    for bound in estimate.lower_bounds:
        assert 0 <= bound.picoseconds <= estimate.iteration, bound
    bubble = estimate.bubble
    assert bubble.excess.total == bubble.makespan - bubble.ideal
    for rank in bubble.ranks:
        waits = rank.fill + rank.drain + rank.dependency_wait + rank.transfer_wait
        assert rank.busy + waits == bubble.makespan
    path = estimate.critical_path
    assert sum(path.by_stage) + path.transfer == timeline.makespan
    assert len(estimate.live) == timeline.program.ranks
    assert all(rank.peak_bytes is not None for rank in estimate.live)
    if estimate.cadence.steady is not None:
        assert estimate.cadence.steady.per_microbatch >= estimate.cadence.bound
    for transfer in estimate.transfers:
        assert 0 <= transfer.exposed_picoseconds <= transfer.total_picoseconds


def two_rank_plan(kind: str, microbatches: int, **workload: int) -> Plan:
    stage = GivenStage(0.010, backward_seconds=0.020)
    return Plan(
        degrees=Degrees(4),
        workload=Workload(microbatches, **workload),
        schedule=Schedule(kind),
        stages=(stage,) * 4,
    )


def test_an_iteration_that_is_never_drained_takes_the_steady_pace() -> None:
    for kind in ("pipedream", "pipedream_2bw"):
        asynchronous = estimate_plan(simulated(two_rank_plan(kind, 8, microbatch_size=1)))
        drained = estimate_plan(simulated(two_rank_plan("1f1b", 8, microbatch_size=1)))
        assert drained.iteration == drained.bubble.makespan == (8 + 3) * 30 * MILLI
        assert asynchronous.bubble.makespan == drained.bubble.makespan
        assert asynchronous.iteration == 8 * 30 * MILLI
        assert [bound.name for bound in asynchronous.lower_bounds] == ["busiest_device"]
        assert asynchronous.other_microbatch_counts is None
        left_out = {said.code for said in asynchronous.not_represented}
        assert "other_microbatch_counts" in left_out
        assert asynchronous.weight_versions is not None
        assert drained.weight_versions is None


def test_a_pace_that_is_not_searched_for_is_no_prediction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("service.core.schedules.cadence.MOST_PERIODIC_OPERATIONS", 1)
    with pytest.raises(WorkBudgetExceeded, match="pace of so many stages"):
        estimate_plan(simulated(two_rank_plan("pipedream", 8)))
    assert estimate_plan(simulated(two_rank_plan("1f1b", 8))).cadence.steady is None


def test_deltas_decide_the_peak_of_bytes() -> None:
    def peaks(*deltas: ActivationChange | None, size: int | None = None) -> list[int | None]:
        stages = tuple(
            GivenStage(
                1.0,
                backward_input_seconds=1.0,
                backward_weight_seconds=1.0,
                activation_deltas=delta,
                activation_bytes=size if delta is None else None,
            )
            for delta in deltas
        )
        plan = Plan(Degrees(2), Workload(4), Schedule("zb_h1"), stages)
        return [rank.peak_bytes for rank in plan_live_activations(simulated(plan))]

    at_input, at_weight = ActivationChange(10, -10, 0), ActivationChange(10, 0, -10)
    assert peaks(at_weight, at_weight) == peaks(None, None, size=10) == [20, 20]
    assert peaks(at_input, at_input) == [20, 10]
    assert peaks(at_input, None, size=10) == [20, 20]
    assert peaks(at_input, None) == [None, None]


def test_links_carry_one_microbatch_of_each_direction_at_a_time() -> None:
    """Two hosts, 1 MB over the middle boundary for each microbatch, either way."""
    stage = GivenStage(1e-3, backward_seconds=1e-3, boundary_bytes=1_000_000)
    plan = Plan(
        degrees=Degrees(4),
        workload=Workload(8),
        schedule=Schedule("chimera"),
        stages=(stage, stage, stage, replace(stage, boundary_bytes=None)),
        topology="two@1",
        placement=Placement(devices=("host0/gpu[0-1]", "host1/gpu[0-1]")),
    )
    result = simulate_plan(resolve(plan, cluster=cluster()))
    assert len(boundary_transfers(result)) == 2 * 2 * 3
    bounds = {bound.name: bound for bound in iteration_lower_bounds(result)}
    # A NIC sends activations of one direction and gradients of the other: 8 MB at 10 GB/s.
    assert bounds["busiest_link"].picoseconds == 8 * 100_000_000
    assert "carries 8000000 bytes" in bounds["busiest_link"].witness


def test_the_chain_of_fused_pairs_goes_from_microbatch_to_microbatch() -> None:
    stage = GivenStage(
        1.0, backward_input_seconds=1.0, backward_weight_seconds=1.0, pair_seconds=3.0
    )
    plan = Plan(Degrees(2), Workload(32), Schedule("dualpipe_v", 2), (stage,) * 4)
    estimate = estimate_plan(simulated(plan))
    path = next(b for b in estimate.lower_bounds if b.name == "dependency_path")
    assert path.witness.startswith("each waits for the one before: 0F")
    assert "&" in path.witness
    assert path.picoseconds <= estimate.iteration
    assert estimate.iteration == Fraction(estimate.bubble.makespan)
