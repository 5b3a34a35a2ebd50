"""Whole estimates of every schedule: bounds below, sums exact, what is never drained."""

import random
from collections.abc import Callable
from dataclasses import fields, replace
from fractions import Fraction

import pytest

from service.core.estimates.bounds import boundary_transfers, iteration_lower_bounds
from service.core.estimates.estimate import Estimate, estimate_plan
from service.core.estimates.iteration import throughput
from service.core.estimates.simulation import SimulatedPlan, simulate_plan
from service.core.estimates.work import work_of
from service.core.memory.live import LiveActivations
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
from service.core.schedules.no_steady import NoSteady
from service.core.schedules.program import PairMode
from service.core.schedules.transfers import TransferMode
from tests.core.estimates.made_plans import live_of
from tests.core.plans.worlds import cluster
from tests.core.schedules.reference_orders import shapes_of

NAMED = [name for name, family in SCHEDULES.items() if not family.takes_order]
MILLI = 10**9


def random_stage(
    rng: random.Random, microbatches: int, *, last: bool, paired: bool, alike: bool
) -> GivenStage:
    def seconds(draw: Callable[[], float]) -> float | tuple[float, ...]:
        """One time for all microbatches, or perhaps one for each."""
        if alike or rng.random() < 0.3:
            return draw()
        return tuple(draw() for _ in range(microbatches))

    def work() -> float:
        return rng.randint(1, 30) / 1000

    size = rng.randint(0, 100)
    return GivenStage(
        forward_seconds=seconds(work),
        backward_input_seconds=seconds(work),
        backward_weight_seconds=seconds(work),
        recompute_seconds=None if rng.random() < 0.5 else seconds(work),
        pair_seconds=seconds(lambda: 0.08 + work()) if paired else None,
        activation_bytes=size if alike else tuple(size + m for m in range(microbatches)),
        transfer_seconds=None if last else seconds(lambda: rng.choice([0.0, 0.002, 0.01])),
    )


def random_plan(rng: random.Random, kind: str, *, alike: bool = True) -> Plan:
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
        stages=tuple(
            random_stage(rng, microbatches, last=s == stages - 1, paired=paired, alike=alike)
            for s in range(stages)
        ),
    )


def simulated(plan: Plan) -> SimulatedPlan:
    return simulate_plan(resolve(plan))


@pytest.mark.parametrize("kind", NAMED)
def test_all_terms_of_random_plans(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    for alike in (True, False) * 15:
        plan = random_plan(rng, kind, alike=alike)
        estimate = estimate_plan(simulated(plan))
        assert_consistent(estimate)
        operations = estimate.simulated.timeline.program.operations
        assert operations <= work_of(plan).operations


def assert_consistent(estimate: Estimate) -> None:
    timeline = estimate.simulated.timeline
    assert estimate.iteration is not None
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


@pytest.mark.parametrize("kind", NAMED)
def test_equal_microbatches_give_the_same_estimate_however_they_are_written(
    kind: str, seed: int
) -> None:
    rng = random.Random(seed)
    plan = random_plan(rng, kind)
    count = plan.workload.microbatches
    listed = replace(
        plan,
        stages=tuple(
            replace(
                stage,
                **{  # type: ignore[arg-type]
                    field.name: (value,) * count
                    for field in fields(stage)
                    if (value := getattr(stage, field.name)) is not None
                },
            )
            for stage in plan.stages or ()
        ),
    )
    one, other = estimate_plan(simulated(plan)), estimate_plan(simulated(listed))
    assert (one.iteration, one.cadence, one.bubble) == (
        other.iteration,
        other.cadence,
        other.bubble,
    )
    assert (one.transfers, one.lower_bounds) == (other.transfers, other.lower_bounds)
    assert (one.critical_path, one.slack.least) == (other.critical_path, other.slack.least)
    assert (one.sensitivity, one.not_represented) == (other.sensitivity, other.not_represented)
    assert one.other_microbatch_counts == other.other_microbatch_counts
    peaks = [[(rank.peak_bytes, rank.alive) for rank in e.live] for e in (one, other)]
    assert peaks[0] == peaks[1]


def test_an_undrained_pipeline_of_unequal_microbatches_repeats_its_iteration() -> None:
    """Two stages alike: nothing waits, so an iteration takes the work of its microbatches."""
    stage = GivenStage((0.010, 0.030, 0.020), backward_seconds=(0.020, 0.060, 0.040))
    plan = Plan(Degrees(2), Workload(3), Schedule("pipedream"), (stage, stage))
    estimate = estimate_plan(simulated(plan))
    assert estimate.cadence.steady is not None
    assert estimate.cadence.bound == 60 * MILLI
    assert estimate.iteration is not None
    assert estimate.iteration >= 180 * MILLI
    assert estimate.iteration == 3 * estimate.cadence.steady.per_microbatch


def test_what_unequal_microbatches_take_away_is_named() -> None:
    stage = GivenStage((0.010, 0.030), backward_seconds=0.020)
    plan = Plan(Degrees(2), Workload(2, microbatch_size=1), Schedule("1f1b"), (stage, stage))
    estimate = estimate_plan(simulated(plan))
    assert estimate.other_microbatch_counts is None
    assert estimate.cadence.steady is None
    assert {said.code for said in estimate.not_represented} == {
        "critical_path_links",
        "model_flops_utilisation",
        "other_microbatch_counts",
        "steady_cadence",
    }


def test_tokens_are_those_of_all_microbatches() -> None:
    stage = GivenStage((0.010, 0.010), backward_seconds=(0.020, 0.020))
    workload = Workload(2, microbatch_size=3, microbatch_sequence_lengths=(100, 300))
    plan = Plan(Degrees(1, data=2), workload, Schedule("1f1b"), (stage,))
    result = simulated(plan)
    samples, tokens = throughput(result, Fraction(60 * MILLI))
    assert samples == pytest.approx(12 / 0.060)
    assert tokens == pytest.approx(3 * 2 * (100 + 300) / 0.060)


def test_the_busiest_link_carries_all_sizes() -> None:
    """8, 0 and 4 MB over a NIC of 10 GB/s, and as much back over the other way."""
    stage = GivenStage(1e-3, backward_seconds=1e-3)
    plan = Plan(
        degrees=Degrees(2),
        workload=Workload(3),
        schedule=Schedule("1f1b"),
        stages=(replace(stage, boundary_bytes=(8_000_000, 0, 4_000_000)), stage),
        topology="two@1",
        placement=Placement(devices=("host0/gpu0", "host1/gpu0")),
    )
    result = simulate_plan(resolve(plan, cluster=cluster()))
    bounds = {bound.name: bound for bound in iteration_lower_bounds(result)}
    assert bounds["busiest_link"].picoseconds == 12 * 100_000_000
    assert "carries 12000000 bytes" in bounds["busiest_link"].witness
    path = bounds["dependency_path"]
    assert path.witness.startswith("microbatch 0 alone")
    # 1 ms of each operation, 6 us + 8 MB / 10 GB/s each way.
    assert path.picoseconds == pytest.approx(4 * MILLI + 2 * 806_000_000, abs=2)


def two_rank_plan(kind: str, microbatches: int, microbatch_size: int | None = None) -> Plan:
    stage = GivenStage(0.010, backward_seconds=0.020)
    return Plan(
        degrees=Degrees(4),
        workload=Workload(microbatches, microbatch_size),
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
    estimate = estimate_plan(simulated(two_rank_plan("pipedream", 8)))
    assert estimate.iteration is None
    assert estimate.cadence.no_steady is NoSteady.TOO_LARGE
    left_out = {said.code for said in estimate.not_represented}
    assert {"iteration", "steady_cadence"} <= left_out
    # What does not need the pace is there: bounds, and the run that is drained.
    assert [bound.name for bound in estimate.lower_bounds] == ["busiest_device"]
    assert estimate.bubble.makespan > 0
    assert throughput(estimate.simulated, estimate.iteration) == (None, None)
    drained = estimate_plan(simulated(two_rank_plan("1f1b", 8)))
    assert drained.cadence.steady is None
    assert drained.iteration == drained.bubble.makespan
    assert "iteration" not in {said.code for said in drained.not_represented}


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
        return [rank.peak_bytes for rank in live_of(plan)]

    at_input, at_weight = ActivationChange(10, -10, 0), ActivationChange(10, 0, -10)
    assert peaks(at_weight, at_weight) == peaks(None, None, size=10) == [20, 20]
    assert peaks(at_input, at_input) == [20, 10]
    assert peaks(at_input, None, size=10) == [20, 20]
    assert peaks(at_input, None) == [None, None]


def test_a_recomputation_adds_its_bytes_until_the_backward() -> None:
    """1F1B on two ranks: the first keeps 10 of two microbatches, and makes 100 of one again."""

    def live(again: int | None) -> tuple[LiveActivations, ...]:
        stage = GivenStage(
            1.0,
            backward_seconds=2.0,
            recompute_seconds=1.0,
            activation_bytes=10,
            recomputed_activation_bytes=again,
        )
        other = replace(stage, recompute_seconds=None, recomputed_activation_bytes=None)
        plan = Plan(Degrees(2), Workload(4), Schedule("1f1b"), (stage, other))
        return live_of(plan)

    first, last = live(100)
    assert (first.peak_activations, first.peak_recomputed, first.peak_bytes) == (2, 1, 120)
    assert (last.peak_activations, last.peak_recomputed, last.peak_bytes) == (1, 0, 10)
    assert [one.peak_bytes for one in live(None)] == [20, 10]


@pytest.mark.parametrize(
    ("alike", "mode"),
    [
        (False, TransferMode.LATENCY),
        (True, TransferMode.BLOCKING),
        (False, TransferMode.BLOCKING),
    ],
)
def test_zb_auto_is_no_slower_than_by_hand(seed: int, alike: bool, mode: TransferMode) -> None:
    """Where its order was made for other times than these: for means, or without holding sends."""
    rng = random.Random(seed)
    taken = 0
    for _ in range(30):
        ranks, microbatches = rng.randint(2, 4), rng.randint(2, 10)
        stages = tuple(
            replace(
                random_stage(rng, microbatches, last=s == ranks - 1, paired=False, alike=alike),
                activation_bytes=10,
            )
            for s in range(ranks)
        )
        plan = Plan(Degrees(ranks), Workload(microbatches), Schedule("zb_auto"), stages)
        for times, name in ((1, "zb_h1"), (2, "zb_h2"), (1, "1f1b")):
            limited = Schedule(
                "zb_auto", memory_limit_activations=times * ranks, transfer_mode=mode
            )
            auto = simulated(replace(plan, schedule=limited)).timeline
            by_hand = Schedule(name, transfer_mode=mode)
            hand = simulated(replace(plan, schedule=by_hand)).timeline
            assert auto.makespan <= hand.makespan
            assert auto.program.costs is not None
            taken += auto.program.costs.taken is not None
    assert taken


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_zb_auto_keeps_its_limit_while_it_recomputes(limit: int) -> None:
    rng = random.Random(limit)
    for _ in range(40):
        stages, units = [], []
        for _ in range(3):
            kept, again = rng.randint(1, 20), rng.randint(1, 60)
            half = rng.choice([0, rng.randint(-kept - again, 5)])
            change = ActivationChange(kept, half, -kept - again - half, again)
            units.append(kept + again + max(half, 0))
            stages.append(
                GivenStage(
                    1.0,
                    backward_input_seconds=1.0,
                    backward_weight_seconds=rng.choice([0.5, 1.0]),
                    recompute_seconds=rng.choice([0.5, 1.0]),
                    activation_deltas=change,
                )
            )
        schedule = Schedule("zb_auto", memory_limit_activations=limit)
        found = live_of(Plan(Degrees(3), Workload(6), schedule, tuple(stages)))
        for one, unit in zip(found, units, strict=True):
            assert one.peak_bytes is not None
            assert one.peak_bytes <= limit * unit


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
    assert estimate.iteration is not None
    assert path.picoseconds <= estimate.iteration
    assert estimate.iteration == Fraction(estimate.bubble.makespan)
