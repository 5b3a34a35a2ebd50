"""Experts and stages that share links: what occupies them, who waits, what it adds."""

import random
from dataclasses import astuple, replace
from fractions import Fraction

import numpy as np
import pytest

from service.core.errors import WorkBudgetExceeded
from service.core.estimates.bounds import iteration_lower_bounds, plan_link_loads
from service.core.estimates.cadence import plan_cadence
from service.core.estimates.estimate import estimate_plan
from service.core.estimates.shared_links import Interference, LinkWaits, SharedLink, shared_links
from service.core.estimates.simulation import SimulatedPlan, represented, simulate_plan
from service.core.plans.moe.results import ExchangePart, Pass
from service.core.plans.plan import GivenStage, ResolvedPlan
from service.core.plans.resolve import resolve
from service.core.schedules.link_use import link_busy
from service.core.schedules.transfers import TransferMode
from tests.core.estimates.exchanging_plans import Bytes, Exchanges, simulated_exchanging
from tests.core.estimates.test_transfer_modes import MEGA, MILLI, plan_on, star

BOTH = (ExchangePart.DISPATCH, ExchangePart.COMBINE)


def among(devices: str, size: int) -> Bytes:
    """Each of these devices sends and gets so many bytes."""
    names = devices.split()
    return {ends: size for one in names for ends in ((one, "s"), ("s", one))}


def alike(carried: Bytes, home: int, *, passes: tuple[Pass, ...] = (Pass.FORWARD,)) -> Exchanges:
    """Every part of every pass puts the same on links, in the one size class there is."""
    return {(home, 0): {way: dict.fromkeys(BOTH, carried) for way in passes}}


def two_stages(
    mode: TransferMode | None = None,
) -> tuple[ResolvedPlan, list[tuple[int, Exchanges]]]:
    """Two stages of two replicas on a star of 1 GB/s effective, 1 MB a replica between them.

    Forwards take 6 ms, in which each device exchanges 2 MB there and 2 MB back.
    """
    stages = [GivenStage(6e-3, boundary_bytes=MEGA), GivenStage(6e-3)]
    plan = plan_on(["d0", "d1", "d2", "d3"], stages, 2, kind="forward_only", data=2, mode=mode)
    layers = [(0, alike(among("d0 d1", 2 * MEGA), 0)), (1, alike(among("d2 d3", 2 * MEGA), 1))]
    return resolve(plan, cluster=star(4, 2e9)), layers


def by_name(simulated: SimulatedPlan) -> dict[str, SharedLink]:
    return {one.link.name: one for one in shared_links(simulated).links}


def test_an_exchange_waits_for_the_transfer_before_it() -> None:
    # 0F0 0-6 exchanges 0-4. At 6 its transfer goes first on d0->s (the lower microbatch), 6-7; the
    # exchange of 0F1 is on s->d0 6-10, on d0->s 7-11, and there 2 later: 0F1 6-13. 1F0 7-13
    # exchanges 7-11, just behind the transfer on s->d2. 1F1 14-20.
    simulated = simulated_exchanging(*two_stages())
    line = simulated.timeline
    assert line.mode is TransferMode.LINK
    assert (line.run.start // MILLI).tolist() == [0, 6, 7, 14]
    assert (line.run.end // MILLI).tolist() == [6, 13, 13, 20]
    assert (line.exchange_waits // MILLI).tolist() == [0, 1, 0, 0]
    busy = dict(zip((one.name for one in simulated.links), link_busy(line), strict=True))
    assert busy["d0->s"] == busy["s->d2"] == 2 * (1 + 4) * MILLI
    assert busy["s->d0"] == busy["d2->s"] == 2 * 4 * MILLI
    assert "exchanges" in {said.code for said in represented(simulated)}


def test_shared_links_say_who_how_often_and_what_it_adds() -> None:
    found = shared_links(simulated_exchanging(*two_stages()))
    links = {one.link.name: one for one in found.links}
    assert set(links) == {"d0->s", "d1->s", "s->d2", "s->d3"}
    assert all(one.mixed for one in found.links)
    users = [
        (user.source, user.target, user.part, user.way, user.times, user.bytes, user.occupied)
        for user in links["d0->s"].users
    ]
    assert users == [
        (0, 1, None, None, 1, MEGA, MILLI),
        (0, 0, ExchangePart.DISPATCH, Pass.FORWARD, 1, 2 * MEGA, 2 * MILLI),
        (0, 0, ExchangePart.COMBINE, Pass.FORWARD, 1, 2 * MEGA, 2 * MILLI),
    ]
    assert (links["d0->s"].bytes, links["d0->s"].occupied) == (5 * MEGA, 5 * MILLI)
    assert links["d0->s"].waits == LinkWaits(0, MILLI, 0)
    assert links["s->d2"].waits == LinkWaits(0, 0, 0)
    # Without waiting for each other 0F1 is done at 12, its transfer there at 13, 1F1 at 19.
    whole = Interference(*(Fraction(time * MILLI) for time in (20, 19, 19, 19)))
    assert found.interference == whole
    assert whole.contention == whole.between == Fraction(MILLI)
    assert whole.among_transfers == whole.among_exchanges == Fraction(0)


def test_without_queues_who_shares_is_told_and_what_it_adds_is_not() -> None:
    simulated = simulated_exchanging(*two_stages(TransferMode.LATENCY))
    assert simulated.timeline.makespan == 19 * MILLI
    found = shared_links(simulated)
    assert found.interference is None
    assert [one.waits for one in found.links] == [None] * 4
    assert "exchanges" not in {said.code for said in represented(simulated)}


def test_two_layers_are_counted_and_efficiency_is_the_share_of_a_link() -> None:
    resolved, layers = two_stages()
    simulated = simulated_exchanging(resolved, [*layers, layers[0]], efficiency=0.5)
    users = by_name(simulated)["d0->s"].users[1:]
    assert [(user.times, user.bytes, user.occupied) for user in users] == [
        (2, 4 * MEGA, 8 * MILLI)
    ] * 2
    # 16 ms on the link are longer than the 6 of the operation: the link decides.
    assert (simulated.timeline.durations // MILLI).tolist() == [16, 16, 8, 8]


def test_backwards_and_recomputations_exchange_too() -> None:
    stages = [
        GivenStage(6e-3, 12e-3, recompute_seconds=6e-3, boundary_bytes=MEGA),
        GivenStage(6e-3, 12e-3, recompute_seconds=6e-3),
    ]
    plan = plan_on(["d0", "d1", "d2", "d3"], stages, 4, data=2)
    there, back = among("d0 d1", MEGA), among("d0 d1", 3 * MEGA)
    exchanges: Exchanges = {
        (0, 0): {
            Pass.FORWARD: {ExchangePart.DISPATCH: there},
            Pass.BACKWARD: dict.fromkeys(BOTH, back),
        }
    }
    for repeats in (False, True):
        simulated = simulated_exchanging(
            resolve(plan, cluster=star(4, 2e9)), [(0, exchanges)], repeats=repeats
        )
        busy = dict(
            zip((one.name for one in simulated.links), link_busy(simulated.timeline), strict=True)
        )
        assert busy["d0->s"] == 4 * (1 + 1 + repeats + 6) * MILLI
        loads = {load.name: load.total_bytes for load in plan_link_loads(simulated).loads}
        assert loads["d0->s"] == 4 * (1 + 1 + repeats + 6) * MEGA
        assert loads["s->d2"] == 4 * MEGA
        users = by_name(simulated)["d0->s"].users
        assert {user.way for user in users} == {None, Pass.FORWARD, Pass.BACKWARD} | (
            {Pass.RECOMPUTE} if repeats else set()
        )


def test_each_direction_exchanges_on_links_of_its_own() -> None:
    """Two stages on two ranks both ways: rank 0 has stage 0 of one, stage 1 of the other."""
    stages = [GivenStage(4e-3, 8e-3, boundary_bytes=MEGA), GivenStage(4e-3, 8e-3)]
    plan = plan_on(["d0", "d1"], stages, 4, kind="chimera")
    resolved = resolve(plan, cluster=star(2, 2e9))
    assert [stage.ranks for stage in resolved.stages] == [(0, 1), (1, 0)]
    exchanges: Exchanges = {
        (home, 0): {Pass.FORWARD: {ExchangePart.DISPATCH: {(f"d{home}", "s"): (home + 1) * MEGA}}}
        for home in (0, 1)
    }
    simulated = simulated_exchanging(resolved, [(0, exchanges)])
    busy = dict(
        zip((one.name for one in simulated.links), link_busy(simulated.timeline), strict=True)
    )
    # Of four microbatches two go each way: both exchange on their own device's link.
    assert (busy["d0->s"], busy["d1->s"]) == ((2 * 1 + 2 + 2) * MILLI, (2 * 2 + 2 + 2) * MILLI)


def random_exchanging(rng: random.Random, kind: str) -> SimulatedPlan:
    chunks = 2 if kind in ("zb_v", "dualpipe_v", "interleaved_1f1b") else 1
    ranks, microbatches = rng.choice([2, 4]), rng.choice([8, 16])
    world = star(ranks, 2e9)
    stages = []
    for stage in range(ranks * chunks):
        forward = rng.uniform(1e-4, 2e-3)
        stages.append(
            GivenStage(
                forward,
                backward_input_seconds=forward,
                backward_weight_seconds=forward / 2,
                recompute_seconds=rng.choice([None, forward]) if kind == "1f1b" else None,
                boundary_bytes=rng.randint(1, MEGA) if stage < ranks * chunks - 1 else None,
            )
        )
    plan = plan_on([f"d{n}" for n in range(ranks)], stages, microbatches, kind=kind)
    plan = replace(
        plan,
        degrees=replace(plan.degrees, pipeline=ranks),
        schedule=replace(plan.schedule, chunks_per_rank=chunks),
    )
    resolved = resolve(plan, cluster=world)
    ends = list(world.links)

    def carried() -> Bytes:
        return {one: rng.randint(0, MEGA) for one in rng.sample(ends, rng.randint(0, len(ends)))}

    layers: list[tuple[int, Exchanges]] = [
        (
            stage.stage,
            {
                (home, 0): {
                    way: {part: carried() for part in BOTH} for way in (Pass.FORWARD, Pass.BACKWARD)
                }
                for home in stage.ranks
            },
        )
        for stage in resolved.stages
        for _ in range(rng.randint(0, 2))
    ]
    return simulated_exchanging(resolved, layers, repeats=True, efficiency=rng.choice([1.0, 0.7]))


@pytest.mark.parametrize(
    "kind",
    ["gpipe", "1f1b", "interleaved_1f1b", "zb_h1", "zb_v", "dualpipe", "dualpipe_v", "chimera"],
)
def test_bounds_stay_below_and_shares_add_up(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(6):
        simulated = random_exchanging(rng, kind)
        line = simulated.timeline
        for bound in iteration_lower_bounds(simulated):
            assert bound.picoseconds <= line.makespan, bound.name
        steady = plan_cadence(simulated).steady
        assert steady is None or plan_cadence(simulated).bound <= steady.per_microbatch
        loads = {load.name: load.total_bytes for load in plan_link_loads(simulated).loads}
        busy = link_busy(line).tolist()
        for link, time in zip(simulated.links, busy, strict=True):
            # At half the nominal rate, exchanges at a share of that, all rounded up.
            assert time >= loads[link.resource] * 1000
        shared = shared_links(simulated)
        assert shared.interference is not None
        assert shared.interference.together == line.makespan
        directions = line.program.directions
        for one in shared.links:
            assert one.waits is not None
            assert min(astuple(one.waits)) >= 0
            assert isinstance(one.bytes, int)
            of_iteration = loads[one.link.resource] * directions
            assert one.bytes * line.program.microbatches == of_iteration


def test_bounds_have_exchanges_at_nominal_rates_and_no_more_of_what_is_predicted() -> None:
    """Of 6 ms a forward 5 are predicted of its experts, of which products are 1.

    2 + 2 MB on the fullest link are 2 ms at the nominal 2 GB/s: 3 ms at least.
    """
    resolved, layers = two_stages()
    for products, least in ((1, 3), (4, 5)):
        simulated = simulated_exchanging(resolved, layers, times=(products * MILLI, 5 * MILLI))
        bounds = {bound.name: bound for bound in iteration_lower_bounds(simulated)}
        assert bounds["busiest_device"].picoseconds == 2 * least * MILLI
        assert plan_cadence(simulated).bound == least * MILLI
        # And half a millisecond for the megabyte between the stages.
        assert bounds["dependency_path"].picoseconds == (2 * least + 0.5) * MILLI
        assert any("nominal" in said for said in bounds["busiest_device"].assumes)
        assert simulated.timeline.durations.tolist() == [6 * MILLI] * 4


def test_too_many_links_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.core.estimates.link_times.MAX_LINK_ENTRIES", 10)
    resolved, layers = two_stages()
    simulate_plan(resolved)  # four of them are transfers
    with pytest.raises(WorkBudgetExceeded, match="fewer steps"):
        simulated_exchanging(resolved, layers)


def test_a_whole_estimate_has_the_waits_in_it() -> None:
    found = estimate_plan(simulated_exchanging(*two_stages()))
    assert found.iteration == 20 * MILLI
    assert found.bubble.excess.contention == MILLI
    assert sum(rank.contention_wait for rank in found.bubble.ranks) == MILLI
    assert found.critical_path.queue == MILLI
    assert np.count_nonzero(found.slack.operations == 0) == 3
