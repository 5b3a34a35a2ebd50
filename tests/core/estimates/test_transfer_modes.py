"""Plans on a cluster in every transfer mode: bounds, what occupies links, what answers say."""

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest

from service.core.errors import FaultCode, InvalidInput, WorkBudgetExceeded
from service.core.estimates.bounds import boundary_transfers, iteration_lower_bounds
from service.core.estimates.cadence import plan_cadence
from service.core.estimates.estimate import Estimate, estimate_plan
from service.core.estimates.links import plan_links
from service.core.estimates.simulation import SimulatedPlan, represented, simulate_plan
from service.core.estimates.transfers import transfer_exposure
from service.core.estimates.work import check_work
from service.core.plans.check import check_plan
from service.core.plans.plan import (
    Degrees,
    GivenStage,
    Placement,
    Plan,
    Schedule,
    TransferOrigin,
    Workload,
)
from service.core.plans.resolve import resolve
from service.core.schedules.catalogue import SCHEDULES
from service.core.schedules.link_use import link_busy
from service.core.schedules.transfers import TransferMode
from service.core.topology.cluster import Cluster, Link, LinkKind, Vertex, VertexKind
from service.core.units import to_picoseconds
from tests.core.plans.worlds import cluster
from tests.core.schedules.reference_orders import shapes_of

NAMED = [name for name, family in SCHEDULES.items() if not family.takes_order]
MILLI = 10**9
MEGA = 10**6


def pipe(pairs: Sequence[tuple[str, str, float]], *, latency: float = 0.0) -> Cluster:
    """Devices joined by links of their own rates, both ways; `s` is a switch."""
    names = sorted({name for one, other, _ in pairs for name in (one, other)})
    links = {}
    for one, other, rate in pairs:
        for source, target in ((one, other), (other, one)):
            links[source, target] = Link(
                source,
                target,
                LinkKind.OTHER,
                rate,
                effective_bytes_per_second=rate / 2,
                latency_seconds=latency,
            )
    vertices = {
        name: Vertex(name, VertexKind.SWITCH if name == "s" else VertexKind.GPU, host="h")
        for name in names
    }
    return Cluster(vertices, links)


def star(devices: int, rate: float, *, latency: float = 0.0) -> Cluster:
    return pipe([(f"d{n}", "s", rate) for n in range(devices)], latency=latency)


def plan_on(
    devices: Sequence[str],
    stages: Sequence[GivenStage],
    microbatches: int,
    *,
    kind: str = "1f1b",
    mode: TransferMode | None = None,
    data: int = 1,
) -> Plan:
    return Plan(
        degrees=Degrees(len(stages), data=data),
        workload=Workload(microbatches),
        schedule=Schedule(kind, transfer_mode=mode),
        stages=tuple(stages),
        topology="made@1",
        placement=Placement(devices=tuple(devices)),
    )


def on(plan: Plan, world: Cluster) -> SimulatedPlan:
    return simulate_plan(resolve(plan, cluster=world))


def test_two_boundaries_share_the_port_of_the_device_between_them() -> None:
    """Three stages on a star of 1 GB/s effective, 1 MB a boundary: 1 ms on every link.

    The middle device receives activations and sends gradients of stage 0 over one pair of links,
    and sends activations and receives gradients of stage 2 over the same: each of its directed
    links has two users.
    """
    stages = [GivenStage(1e-3, 2e-3, boundary_bytes=MEGA)] * 2 + [GivenStage(1e-3, 2e-3)]
    simulated = on(plan_on(["d0", "d1", "d2"], stages, 4), star(3, 2e9))
    assert simulated.timeline.mode is TransferMode.LINK
    users = {
        (simulated.links[link].name, kind)
        for kind in range(4)
        for link, _ in simulated.timeline.transfers.links.bundles.entries(kind)  # type: ignore[union-attr]
    }
    assert {kind for name, kind in users if name == "d1->s"} == {1, 2}
    assert {kind for name, kind in users if name == "s->d1"} == {0, 3}
    busy = dict(
        zip((link.name for link in simulated.links), link_busy(simulated.timeline), strict=True)
    )
    assert busy == {
        "d0->s": 4 * MILLI,
        "s->d1": 8 * MILLI,
        "d1->s": 8 * MILLI,
        "s->d0": 4 * MILLI,
        "s->d2": 4 * MILLI,
        "d2->s": 4 * MILLI,
    }


def half_duplex(world: Cluster) -> Cluster:
    """The same world with each pair of opposed links sharing one capacity."""
    return Cluster(
        world.vertices,
        {
            ends: replace(link, shared_capacity="<->".join(sorted(ends)))
            for ends, link in world.links.items()
        },
    )


def test_opposed_messages_of_a_half_duplex_link_wait_for_each_other() -> None:
    """Two stages on a star of 1 GB/s effective, 20 MB either way: 20 ms a message, work next to it
    is nothing. One queue then has both ways of all microbatches, and takes twice as long."""
    stages = [GivenStage(1e-6, 1e-6, boundary_bytes=20 * MEGA), GivenStage(1e-6, 1e-6)]
    plan, both = plan_on(["d0", "d1"], stages, 64), 64 * 20 * MILLI
    full, half = on(plan, star(2, 2e9)), on(plan, half_duplex(star(2, 2e9)))
    assert [link.resource for link in half.links] == ["d0<->s", "d1<->s"]
    assert link_busy(half.timeline).tolist() == [2 * both] * 2
    assert link_busy(full.timeline).tolist() == [both] * 4
    assert 2 * both <= half.timeline.makespan < 2.1 * both
    assert both <= full.timeline.makespan < 1.1 * both
    # At 2 GB/s nominal each of them takes half as long.
    for simulated, least in ((full, both // 2), (half, both)):
        bounds = {bound.name: bound for bound in iteration_lower_bounds(simulated)}
        assert bounds["busiest_link"].picoseconds == least
        assert plan_cadence(simulated).bound == least // 64
    assert bounds["busiest_link"].witness.startswith("d0<->s carries ")


def test_what_two_directions_of_one_capacity_take_differs_with_their_rates() -> None:
    """Both ways cross d0 -> s -> d1; back at half the effective rate of the way there."""
    world = half_duplex(star(2, 2e9))
    slower = {
        ends: replace(link, effective_bytes_per_second=5e8) if ends[0] > ends[1] else link
        for ends, link in world.links.items()
    }
    stages = [GivenStage(1e-6, 1e-6, boundary_bytes=MEGA), GivenStage(1e-6, 1e-6)]
    simulated = on(plan_on(["d0", "d1"], stages, 4), Cluster(world.vertices, slower))
    # d0->s at 1 GB/s and s->d0 at 0.5 take 1 and 2 ms; s->d1 at 0.5 and d1->s at 1 likewise.
    assert link_busy(simulated.timeline).tolist() == [4 * 3 * MILLI] * 2


def test_replicas_queue_together_as_one_bundle() -> None:
    """Two replicas of two stages over one link between two switches-like devices.

    Each sends 1 MB over the same 1 GB/s: alone the bundle takes 2 ms on the shared link.
    """
    world = star(4, 2e9)
    shared = Cluster(
        {**world.vertices, "t": Vertex("t", VertexKind.SWITCH, host="h")},
        {
            **{
                k: link
                for k, link in world.links.items()
                if k[0] in ("d0", "d1") or k[1] in ("d0", "d1")
            },
            **{
                (a, b): Link(
                    a, b, LinkKind.OTHER, 2e9, effective_bytes_per_second=1e9, latency_seconds=1e-4
                )
                for x, y in (("s", "t"), ("d2", "t"), ("d3", "t"))
                for a, b in ((x, y), (y, x))
            },
        },
    )
    stages = [GivenStage(1e-3, 2e-3, boundary_bytes=MEGA), GivenStage(1e-3, 2e-3)]
    simulated = on(plan_on(["d0", "d1", "d2", "d3"], stages, 4, data=2), shared)
    (boundary,) = simulated.resolved.boundaries
    # Alone in latency mode: 1 ms on the slowest link, and 0.2 ms of latency.
    assert boundary.forward_picoseconds == 1_200_000_000
    # All together 2 ms on the link between the switches, and the same latency.
    assert simulated.timeline.forward_latencies.tolist() == [[2_200_000_000]]
    busy = dict(
        zip((link.name for link in simulated.links), link_busy(simulated.timeline), strict=True)
    )
    assert busy["s->t"] == 4 * 2 * MILLI
    assert busy["d0->s"] == busy["d1->s"] == 4 * MILLI


def test_given_times_occupy_no_link_and_the_answer_says_so() -> None:
    first = GivenStage(1e-3, 2e-3, boundary_bytes=MEGA, transfer_seconds=5e-3)
    stages = [first, GivenStage(1e-3, 2e-3, boundary_bytes=MEGA), GivenStage(1e-3, 2e-3)]
    simulated = on(plan_on(["d0", "d1", "d2"], stages, 4), star(3, 2e9))
    one, other = simulated.resolved.boundaries
    assert (one.origin, other.origin) == (TransferOrigin.GIVEN, TransferOrigin.PATH)
    for latencies in (simulated.timeline.forward_latencies, simulated.timeline.backward_latencies):
        assert latencies.tolist() == [[5 * MILLI], [MILLI]]
    assert [link.name for link in simulated.links] == ["d1->s", "s->d2", "d2->s", "s->d1"]
    said = {statement.code: statement.detail for statement in simulated.resolved.assumptions}
    assert said["transfers_without_links"].startswith("transfers over 1 boundary take")


def test_the_default_follows_whether_paths_are_used() -> None:
    stage = GivenStage(1e-3, 2e-3, boundary_bytes=MEGA)
    paths = plan_on(["d0", "d1"], [stage, GivenStage(1e-3, 2e-3)], 4)
    given = replace(paths, stages=(replace(stage, transfer_seconds=1e-3), GivenStage(1e-3, 2e-3)))
    world = star(2, 2e9)
    assert resolve(paths, cluster=world).transfer_mode is TransferMode.LINK
    assert resolve(given, cluster=world).transfer_mode is TransferMode.LATENCY
    alone = replace(paths, topology=None, placement=Placement())
    assert resolve(alone).transfer_mode is TransferMode.LATENCY
    asked = replace(paths, schedule=Schedule("1f1b", transfer_mode=TransferMode.BLOCKING))
    assert resolve(asked, cluster=world).transfer_mode is TransferMode.BLOCKING


def test_links_need_a_topology() -> None:
    plan = replace(
        plan_on([], [GivenStage(1e-3, 2e-3)] * 2, 4, mode=TransferMode.LINK),
        topology=None,
        placement=Placement(),
    )
    (fault,) = check_plan(plan)
    assert (fault.code, fault.path) == (FaultCode.MISSING_FIELD, ("schedule", "transfer_mode"))
    assert "name the topology" in fault.detail
    with pytest.raises(InvalidInput, match="name the topology"):
        resolve(plan)


def test_what_each_mode_says_of_itself() -> None:
    stages = [GivenStage(1e-3, 2e-3, boundary_bytes=MEGA), GivenStage(1e-3, 2e-3)]
    world = star(2, 2e9)
    found = {
        mode: estimate_plan(on(plan_on(["d0", "d1"], stages, 4, mode=mode), world))
        for mode in TransferMode
    }
    for mode, estimate in found.items():
        resolved = estimate.simulated.resolved
        assumed = {said.code for said in resolved.assumptions}
        left_out = {said.code for said in (*resolved.not_represented, *estimate.not_represented)}
        queues = mode is TransferMode.LINK
        assert ("contention" in left_out) is not queues
        assert ("sensitivity" in left_out) is queues
        assert (estimate.sensitivity is None) is queues
        assert ("link_queues" in assumed) is queues
        assert ("slack_keeps_queues" in assumed) is queues
        assert ("blocking_sends" in assumed) is (mode is TransferMode.BLOCKING)
    how = [represented(estimate.simulated)[-1].detail for estimate in found.values()]
    assert len(set(how)) == 3


@pytest.mark.parametrize("replicas", [1, 2])
def test_what_ranks_of_a_stage_send_one_another_is_named_as_left_off_the_links(
    replicas: int,
) -> None:
    stages = [GivenStage(1e-3, 2e-3, boundary_bytes=MEGA), GivenStage(1e-3, 2e-3)]
    devices = [f"d{number}" for number in range(2 * replicas)]
    for mode in TransferMode:
        plan = plan_on(devices, stages, 4, mode=mode, data=replicas)
        left_out = {said.code for said in on(plan, star(4, 2e9)).resolved.not_represented}
        expected = mode is TransferMode.LINK and replicas > 1
        assert ("collectives_on_links" in left_out) is expected


def test_the_cadence_of_a_link_is_its_bytes_at_nominal_rate() -> None:
    """20 MB at 2 GB/s nominal are 10 ms for each microbatch, a stage works for 3."""
    stages = [GivenStage(1e-3, 2e-3, boundary_bytes=20 * MEGA), GivenStage(1e-3, 2e-3)]
    simulated = on(plan_on(["d0", "d1"], stages, 8), star(2, 2e9))
    cadence = plan_cadence(simulated)
    assert cadence.bound == 10 * MILLI
    assert cadence.bound_by == "d0->s"
    assert cadence.steady is not None
    # At the effective rate a message takes 20 ms. Two microbatches are under way: there, a forward
    # and a backward, and back, for each of which the next one waits.
    assert cadence.steady.per_microbatch >= 20 * MILLI
    assert cadence.steady.phases[0].cycle == ()
    in_latency_mode = plan_cadence(
        on(plan_on(["d0", "d1"], stages, 8, mode=TransferMode.LATENCY), star(2, 2e9))
    )
    assert in_latency_mode.bound == 3 * MILLI
    assert in_latency_mode.bound_by == "rank 0"


def test_queued_time_is_part_of_transfer_time() -> None:
    stages = [GivenStage(1e-3, 2e-3, boundary_bytes=20 * MEGA), GivenStage(1e-3, 2e-3)]
    simulated = on(plan_on(["d0", "d1"], stages, 8, kind="gpipe"), star(2, 2e9))
    for exposure in transfer_exposure(simulated.timeline):
        alone = 8 * 20 * MILLI
        assert exposure.total_picoseconds == alone + exposure.queued_picoseconds
        assert 0 <= exposure.exposed_picoseconds <= exposure.total_picoseconds
    there, back = transfer_exposure(simulated.timeline)
    # Ready at 1, 2, .. 8 ms and served every 20: the k-th waits for 19 k, and so back for 18 k.
    assert there.queued_picoseconds == sum(19 * k for k in range(8)) * MILLI
    assert back.queued_picoseconds == sum(18 * k for k in range(8)) * MILLI


def random_plan_on(rng: random.Random, kind: str, mode: TransferMode) -> Plan:
    """Uneven stages and sizes on devices of two hosts, replicas where there is room."""
    shapes = [shape for shape in shapes_of(kind) if shape[0] <= 4]
    ranks, microbatches, chunks, _ = rng.choice(shapes)
    stages = [
        GivenStage(
            forward_seconds=rng.randint(1, 30) / 1e4,
            backward_input_seconds=rng.randint(1, 30) / 1e4,
            backward_weight_seconds=rng.randint(1, 30) / 1e4,
            boundary_bytes=rng.choice([0, MEGA, 30 * MEGA]),
        )
        for _ in range(ranks * chunks)
    ]
    stages[-1] = replace(stages[-1], boundary_bytes=None)
    data = rng.choice([1, 2])
    half = max(ranks * data // 2, 1)
    devices = (f"host0/gpu[0-{half - 1}]", f"host1/gpu[0-{ranks * data - half - 1}]")
    return Plan(
        degrees=Degrees(ranks, data=data),
        workload=Workload(microbatches),
        schedule=Schedule(kind, chunks, transfer_mode=mode, pair_mode=None),
        stages=tuple(stages),
        topology="two@1",
        placement=Placement(devices=devices if ranks * data > 1 else devices[:1]),
    )


@pytest.mark.parametrize("kind", NAMED)
def test_all_terms_of_random_plans_in_every_mode(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    world = cluster(gpus=4)
    for _ in range(6):
        plans = random_plan_on(rng, kind, TransferMode.LATENCY)
        for mode in TransferMode:
            plan = replace(plans, schedule=replace(plans.schedule, transfer_mode=mode))
            simulated = on(plan, world)
            assert_consistent(estimate_plan(simulated), mode)


def assert_consistent(estimate: Estimate, mode: TransferMode) -> None:
    timeline = estimate.simulated.timeline
    for bound in estimate.lower_bounds:
        assert bound.picoseconds >= 0
        if bound.mode == "latency" or mode is TransferMode.LINK:
            assert estimate.iteration is None or bound.picoseconds <= estimate.iteration, bound
    if estimate.iteration is None:
        assert mode is TransferMode.LINK
        assert estimate.cadence.no_steady is not None
        left_out = {said.code for said in estimate.not_represented}
        assert {"iteration", "steady_cadence"} <= left_out
    names = {bound.name for bound in estimate.lower_bounds}
    drained = "dependency_path" in names
    used = bool(boundary_transfers(estimate.simulated))
    assert ("busiest_link_with_path" in names) == (drained and used and mode is TransferMode.LINK)
    bubble = estimate.bubble
    assert bubble.excess.total == bubble.makespan - bubble.ideal
    for rank in bubble.ranks:
        waits = rank.dependency_wait + rank.transfer_wait + rank.contention_wait + rank.send
        assert rank.busy + rank.fill + rank.drain + waits == bubble.makespan
    path = estimate.critical_path
    assert sum(path.by_stage) + path.transfer + path.queue == timeline.makespan
    if estimate.cadence.steady is not None:
        assert estimate.cadence.steady.per_microbatch >= estimate.cadence.bound
    for transfer in estimate.transfers:
        assert 0 <= transfer.exposed_picoseconds <= transfer.total_picoseconds
        assert 0 <= transfer.queued_picoseconds <= transfer.total_picoseconds
    for boundary, edge in zip(
        estimate.simulated.resolved.boundaries, timeline.forward_latencies, strict=True
    ):
        # A bundle alone is never quicker than its slowest pair in latency mode.
        assert edge[0] >= boundary.forward_picoseconds
        assert mode is TransferMode.LINK or edge[0] == boundary.forward_picoseconds


def test_links_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = [GivenStage(1e-3, 2e-3, boundary_bytes=MEGA), GivenStage(1e-3, 2e-3)]
    resolved = resolve(plan_on(["d0", "d1"], stages, 4), cluster=star(2, 2e9))
    assert len(plan_links(resolved).links) == 4
    monkeypatch.setattr("service.core.estimates.link_times.MAX_LINK_ENTRIES", 3)
    with pytest.raises(WorkBudgetExceeded, match="occupies 4 links") as refused:
        simulate_plan(resolved)
    assert refused.value.faults[0].path == ("schedule", "transfer_mode")
    monkeypatch.undo()
    monkeypatch.setattr("service.core.estimates.work.LINK_VISITS", Fraction(1, 10**8))
    with pytest.raises(WorkBudgetExceeded, match="turns of messages on links"):
        simulate_plan(resolved)


def test_the_microbatches_that_fit_with_their_turns_on_links_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("service.core.estimates.work.LINK_VISITS", Fraction(1, 10**4))
    stages = [GivenStage(1e-3, 2e-3, boundary_bytes=MEGA), GivenStage(1e-3, 2e-3)]

    def plan(microbatches: int) -> Plan:
        return plan_on(["d0", "d1"], stages, microbatches)

    world = star(2, 2e9)
    check_work(plan(400))  # the turns alone are too many
    with pytest.raises(WorkBudgetExceeded, match="turns of messages on links") as refused:
        simulate_plan(resolve(plan(400), cluster=world))
    (fault,) = refused.value.faults
    found = re.search(r"; (\d+) microbatches fit$", fault.detail)
    assert found is not None
    most = int(found[1])
    assert 1 < most < 400
    simulate_plan(resolve(plan(most), cluster=world))
    with pytest.raises(WorkBudgetExceeded):
        simulate_plan(resolve(plan(most + 1), cluster=world))
    # Before anyone knows who uses which link a number is no promise, and says so.
    with pytest.raises(WorkBudgetExceeded, match="microbatches fit, fewer where their messages"):
        check_work(plan(10**8))


def test_occupied_times_are_rounded_up_and_keep_to_the_bounds() -> None:
    """3 bytes a second: one byte takes a third of a second, which no picosecond divides."""
    stages = [GivenStage(1.0, 1.0, boundary_bytes=1), GivenStage(1.0, 1.0)]
    estimate = estimate_plan(on(plan_on(["d0", "d1"], stages, 7), star(2, 6.0)))
    (there,) = estimate.simulated.timeline.forward_latencies.tolist()
    assert there == [333_333_333_334]
    assert estimate.iteration is not None
    for bound in estimate.lower_bounds:
        assert bound.picoseconds <= estimate.iteration
    link = next(bound for bound in estimate.lower_bounds if bound.name == "busiest_link")
    assert link.picoseconds == 7 * to_picoseconds(1.0) // 6
