"""Estimates: the worked example, bounds against predictions, throughput, work."""

import random
import re
from dataclasses import replace

import msgspec
import pytest

from service.core.amounts import largest
from service.core.errors import WorkBudgetExceeded
from service.core.estimates.bounds import iteration_lower_bounds
from service.core.estimates.estimate import estimate_plan
from service.core.estimates.iteration import schedule_picoseconds, throughput
from service.core.estimates.simulation import simulate_plan
from service.core.estimates.work import INLINE_WORK_BUDGET, Work, check_batch, check_work, work_of
from service.core.plans.plan import Degrees, GivenStage, Plan, Schedule
from service.core.plans.resolve import resolve
from service.core.plans.schedule import check_schedule
from service.core.schedules.cadence import measure_cadence
from service.core.schedules.transfers import TransferMode
from service.core.topology.expand import expand
from service.core.topology.spec import ClusterSpec
from service.core.units import exact_seconds, to_picoseconds, to_seconds
from service.formats.documents.topology import TopologyDocument, to_core
from tests.core.estimates.made_plans import given_plan, live_of, simulated


def cluster_spec(document: object) -> ClusterSpec:
    return to_core(msgspec.convert(document, TopologyDocument))


TWO_HOSTS = cluster_spec(
    {
        "hosts": [{"name": "host", "count": 2, "design": "dgx-h100"}],
        "fabric": {"kind": "rail_optimised", "spines": 2},
    }
)


def cadence_stages(*milliseconds: float) -> list[GivenStage]:
    """One third forward, two thirds backward."""
    return [GivenStage(m / 3000, m / 1500) for m in milliseconds]


def test_the_worked_example_before_and_after_moving_a_block() -> None:
    for milliseconds, slowest, bound, makespans, idle in (
        ((18, 18, 25, 18), 2, 25, {8: 247, 16: 447, 32: 847}, (0.3603, 0.2931, 0.2538)),
        ((18, 21, 20, 18), 1, 21, {8: 220, 16: 388, 32: 724}, (0.3000, 0.2062, 0.1492)),
    ):
        for (microbatches, makespan), fraction in zip(makespans.items(), idle, strict=True):
            plan = given_plan(cadence_stages(*milliseconds), microbatches=microbatches)
            estimate = estimate_plan(simulated(plan))
            assert estimate.cadence.slowest_stage == slowest
            assert exact_seconds(estimate.cadence.bound) == pytest.approx(bound / 1000, abs=1e-12)
            seconds = to_seconds(estimate.bubble.makespan)
            assert seconds == pytest.approx(makespan / 1000, abs=1e-10)
            assert round(estimate.bubble.idle_fraction, 4) == fraction
            assert [live.peak_activations for live in estimate.live] == [4, 3, 2, 1]


def test_no_prediction_is_below_a_bound_of_its_own_mode(seed: int) -> None:
    rng = random.Random(seed)
    cluster = expand(TWO_HOSTS).cluster
    for _ in range(100):
        stages = [
            GivenStage(
                forward_seconds=rng.uniform(0, 0.01) + 1e-6,
                backward_seconds=rng.uniform(0, 0.01),
                recompute_seconds=rng.choice([None, 0.002]),
                boundary_bytes=None if s == 3 else rng.choice([0, 10**6, 10**9]),
            )
            for s in range(4)
        ]
        placed = ("host0/gpu[0-1]", "host1/gpu[0-1]") if rng.random() < 0.5 else None
        plan = given_plan(
            stages,
            microbatches=rng.randint(1, 9),
            schedule=rng.choice(["forward_only", "gpipe", "1f1b"]),
            devices=placed,
            topology="two-hosts@1",
        )
        result = simulate_plan(resolve(plan, cluster=cluster))
        for bound in iteration_lower_bounds(result):
            if bound.mode == "latency":
                assert bound.picoseconds <= result.timeline.makespan, bound
        for boundary in result.resolved.boundaries:
            bounds = boundary.forward_bound_picoseconds, boundary.backward_bound_picoseconds
            assert largest(bounds[0]) <= largest(boundary.forward_picoseconds)
            assert largest(bounds[1]) <= largest(boundary.backward_picoseconds)


def shared_nic_plan(mode: TransferMode) -> Plan:
    """Two replicas whose first boundaries leave one host by the same NIC of 12.5 GB/s."""
    stages = [
        GivenStage(1e-3, 2e-3, boundary_bytes=125_000_000),
        GivenStage(1e-3, 2e-3),
    ]
    return given_plan(
        stages,
        microbatches=4,
        data=2,
        devices=("host0/gpu[0-1]", "host1/gpu[0-1]"),
        topology="p4d@1",
        transfer_mode=mode,
    )


def test_a_link_bound_may_lie_above_a_latency_prediction() -> None:
    """8 messages of 125 MB over one NIC of 12.5 GB/s take 80 ms each way, whatever is predicted."""
    spec = cluster_spec(
        {
            "hosts": [{"name": "host", "count": 2, "design": "p4d"}],
            "fabric": {"kind": "leaf_spine", "hosts_per_leaf": 2, "spines": 1},
        }
    )
    plan = shared_nic_plan(TransferMode.LATENCY)
    result = simulate_plan(resolve(plan, cluster=expand(spec).cluster))
    bounds = {bound.name: bound for bound in iteration_lower_bounds(result)}
    link = bounds["busiest_link"]
    assert link.mode == "link"
    assert to_seconds(link.picoseconds) == pytest.approx(0.080)
    assert link.picoseconds > result.timeline.makespan
    queued = simulate_plan(
        resolve(shared_nic_plan(TransferMode.LINK), cluster=expand(spec).cluster)
    )
    bounds = {bound.name: bound for bound in iteration_lower_bounds(queued)}
    # After a forward of 1 ms; then a forward of 1 ms, a backward of 2, 10 back, a backward of 2.
    assert to_seconds(bounds["busiest_link_with_path"].picoseconds) == pytest.approx(0.096)
    assert bounds["busiest_link_with_path"].picoseconds <= queued.timeline.makespan


def rates(plan: Plan) -> tuple[float | None, float | None]:
    result = simulated(plan)
    return throughput(result, schedule_picoseconds(result, measure_cadence(result.timeline)))


def test_throughput_needs_a_batch_and_a_sequence() -> None:
    stages = [GivenStage(0.5, 0.5)]
    assert rates(given_plan(stages, microbatches=4)) == (None, None)
    assert rates(given_plan(stages, microbatches=4, microbatch_size=2, data=3)) == (6.0, None)
    long = given_plan(stages, microbatches=4, microbatch_size=2, sequence_length=100)
    assert rates(long) == (2.0, 200.0)


def test_other_counts_are_left_out_when_the_global_batch_is_held_fixed() -> None:
    stages = [GivenStage(0.5, 0.5)]
    fixed = estimate_plan(simulated(given_plan(stages, microbatches=4, global_batch_size=8)))
    assert fixed.other_microbatch_counts is None
    assert [statement.code for statement in fixed.not_represented] == [
        "model_flops_utilisation",
        "critical_path_links",
        "other_microbatch_counts",
    ]
    free = estimate_plan(simulated(given_plan(stages, microbatches=4, microbatch_size=2)))
    assert free.other_microbatch_counts is not None
    assert [count.microbatches for count in free.other_microbatch_counts] == [2, 4, 8]


def test_a_steady_state_that_is_absent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = given_plan([GivenStage(0.1, 0.1)] * 8, microbatches=2)
    there = estimate_plan(simulated(plan)).not_represented
    always = {"model_flops_utilisation", "critical_path_links"}
    assert {statement.code for statement in there} == always
    monkeypatch.setattr("service.core.schedules.build.MAX_OPERATIONS", 500)
    left_out = estimate_plan(simulated(plan)).not_represented
    assert {said.code for said in left_out} == {"steady_cadence", *always}


def test_bytes_of_activations_need_every_stage() -> None:
    known = [GivenStage(0.1, 0.1, activation_bytes=100), GivenStage(0.1, 0.1, activation_bytes=7)]
    live = live_of(given_plan(known))
    assert [rank.peak_bytes for rank in live] == [200, 7]
    partly = [known[0], GivenStage(0.1, 0.1)]
    live = live_of(given_plan(partly))
    assert [rank.peak_bytes for rank in live] == [None, None]


def test_work_is_known_before_it_is_done() -> None:
    plan = given_plan([GivenStage(0.1, 0.1)] * 2, microbatches=10**9)
    assert work_of(plan).total > INLINE_WORK_BUDGET
    with pytest.raises(WorkBudgetExceeded) as refused:
        work_of(plan).check()
    assert refused.value.faults[0].path == ("workload", "microbatches")
    Work(operations=INLINE_WORK_BUDGET, runs=1).check()


def test_the_largest_part_of_the_work_is_pointed_at() -> None:
    for work, path in (
        (Work(operations=10**8, runs=8), ("workload", "microbatches")),
        (Work(operations=1, runs=8, steady_operations=10**8), ("parallelism", "pipeline")),
        (Work(operations=1, runs=8, paths=10**6), ("topology",)),
        (Work(operations=1, runs=8, ranks=10**6), ("parallelism",)),
    ):
        with pytest.raises(WorkBudgetExceeded) as refused:
            work.check()
        assert [fault.path for fault in refused.value.faults] == [path]


@pytest.mark.parametrize(
    ("kind", "ranks", "chunks", "multiple"),
    [("1f1b", 4, 1, 1), ("chimera", 6, 1, 6), ("interleaved_1f1b", 4, 2, 1), ("zb_auto", 4, 1, 1)],
)
def test_the_microbatches_that_would_fit_are_named(
    kind: str, ranks: int, chunks: int, multiple: int
) -> None:
    plan = given_plan([GivenStage(0.1, 0.1)] * (ranks * chunks), microbatches=10**8 * multiple)
    schedule = replace(plan.schedule, kind=kind, chunks_per_rank=chunks)
    plan = replace(plan, schedule=schedule, degrees=Degrees(ranks))
    with pytest.raises(WorkBudgetExceeded) as refused:
        check_work(plan)
    (fault,) = refused.value.faults
    found = re.search(r"; (\d+) microbatches fit$", fault.detail)
    assert found is not None
    most = int(found[1])
    assert most % multiple == 0

    def workable(microbatches: int) -> Plan:
        return replace(plan, workload=replace(plan.workload, microbatches=microbatches))

    assert check_work(workable(most)).total <= INLINE_WORK_BUDGET
    assert not check_schedule(workable(most))
    for more in range(most + 1, most + 2 * ranks + 1):
        too_many = work_of(workable(more)).total > INLINE_WORK_BUDGET
        assert too_many or check_schedule(workable(more))


def test_no_number_of_microbatches_is_named_where_none_would_fit() -> None:
    plan = given_plan([GivenStage(0.1, 0.1)] * 4)
    with pytest.raises(WorkBudgetExceeded) as refused:
        check_work(plan, budget=10)
    assert "fit" not in refused.value.faults[0].detail


def test_an_order_that_is_too_long_is_pointed_at_itself() -> None:
    schedule = Schedule("explicit", order=("0F0 0B0",))
    plan = replace(given_plan([GivenStage(0.1, 0.1)], microbatches=1), schedule=schedule)
    with pytest.raises(WorkBudgetExceeded) as refused:
        check_work(plan, budget=10)
    (fault,) = refused.value.faults
    assert fault.path == ("schedule", "order")
    assert fault.detail.startswith("an order of 2 operations: ")


def test_ranks_are_work_too() -> None:
    """Each is placed and written into the answer, however little is simulated."""
    plan = given_plan([GivenStage(0.1, 0.1)])
    few, many = (replace(plan, degrees=Degrees(1, tensor=8, data=data)) for data in (1, 1024))
    assert work_of(many).total - work_of(few).total == 8 * 1023 * 200


def test_a_batch_is_held_to_a_budget_of_its_own() -> None:
    one = Work(operations=INLINE_WORK_BUDGET, runs=1)
    check_batch([one, one])
    check_batch([])
    with pytest.raises(WorkBudgetExceeded) as refused:
        check_batch([one, one, Work(operations=1, runs=1)])
    assert [fault.path for fault in refused.value.faults] == [("plans",)]


def test_one_long_rank_is_not_cheap() -> None:
    """Its critical path is the whole iteration."""
    work_of(given_plan([GivenStage(0.1, 0.1)], microbatches=100_000)).check()
    with pytest.raises(WorkBudgetExceeded):
        work_of(given_plan([GivenStage(0.1, 0.1)], microbatches=400_000)).check()


def test_plans_of_the_usual_sizes_fit_the_budget() -> None:
    for stages, microbatches in ((64, 4096), (512, 256), (8, 100_000)):
        plan = given_plan([GivenStage(0.1, 0.1)] * stages, microbatches=microbatches)
        work_of(plan).check()


def test_work_covers_what_is_simulated() -> None:
    for schedule in ("forward_only", "gpipe", "1f1b"):
        plan = given_plan([GivenStage(0.1, 0.1)] * 3, microbatches=5, schedule=schedule)
        assert simulated(plan).timeline.program.operations <= work_of(plan).operations


def test_picoseconds_of_bounds_are_exact() -> None:
    plan = given_plan(cadence_stages(18, 18, 18, 18), microbatches=16)
    bounds = {b.name: b.picoseconds for b in iteration_lower_bounds(simulated(plan))}
    assert bounds == {
        "dependency_path": to_picoseconds(0.072),
        "busiest_device": to_picoseconds(0.288),
        "busiest_device_with_path": to_picoseconds(0.342),
    }
