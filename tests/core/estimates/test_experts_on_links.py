"""Whole plans with experts, in every transfer mode, from their documents."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from service.core.estimates.bounds import iteration_lower_bounds
from service.core.estimates.shared_links import shared_links
from service.core.estimates.simulation import SimulatedPlan, late_work, represented, simulate_plan
from service.core.estimates.work import expert_work
from service.core.moe.assignments import RoutingLevel
from service.core.moe.routing import Routing, RoutingRecord
from service.core.plans.moe.results import Pass
from service.core.plans.plan import ResolvedPlan
from service.core.schedules.transfers import TransferMode
from tests.core.plans.moe.expert_worlds import STAGE, document, hot, resolved, seen

MODES = ("latency", "blocking", "link")
# Two steps: all tokens of both sources to the experts of one rank, and of the other.
ROUTING = seen([hot(0), hot(0)], [hot(1), hot(1)], top_k=2)


def plan_of(mode: str | None = None, **stage: Any) -> ResolvedPlan:
    """Two stages with an expert layer each; what they hand on is large, as what tokens weigh."""
    asked = document([1, 1])
    given = STAGE | {"boundary_bytes": 8_000_000} | stage
    last = {name: value for name, value in given.items() if "boundary" not in name}
    given, last = (
        {name: value for name, value in each.items() if value is not None}
        for each in (given, {**last, "transfer_seconds": None})
    )
    asked["costs"] = {"stages": [given, last]}
    asked["moe"]["payloads"] = {"forward_dispatch": {"metadata_bytes": 20_000}}
    if mode is not None:
        asked["schedule"] |= {"transfer_mode": mode}
    return resolved(asked, ROUTING)


def codes(said: Any) -> set[str]:
    return {statement.code for statement in said}


def test_alone_operations_take_the_same_in_every_mode() -> None:
    found: dict[str, SimulatedPlan] = {mode: simulate_plan(plan_of(mode)) for mode in MODES}
    lines = {mode: simulated.timeline for mode, simulated in found.items()}
    for mode in MODES:
        assert np.array_equal(lines[mode].durations, lines["latency"].durations)
        assert lines[mode].exchange_waits.any() == (mode == "link")
        resolved_plan = found[mode].resolved
        queues = mode == "link"
        assert ("exchange_queues" in codes(resolved_plan.assumptions)) == queues
        assert ("exchange_contention" in codes(resolved_plan.not_represented)) != queues
        assert ("exchanges" in codes(represented(found[mode]))) == queues
        for bound in iteration_lower_bounds(found[mode]):
            if bound.mode in ("latency", mode):
                assert bound.picoseconds <= lines[mode].makespan
    alone = lines["link"].transfers.without_contention()
    again = alone.run(lines["link"].program, lines["link"].durations).makespan
    assert again <= lines["link"].makespan
    # The slowest pair of a boundary alone takes what it takes in latency mode.
    assert again == lines["latency"].makespan


def test_it_is_link_mode_where_only_experts_are_on_links() -> None:
    given = plan_of(transfer_seconds=1e-3, boundary_bytes=None)
    assert given.transfer_mode is TransferMode.LINK
    simulated = simulate_plan(given)
    assert simulated.timeline.links is not None
    assert simulated.timeline.links.own
    # Both stages exchange over the NICs of the two hosts, so they wait for each other alone.
    assert simulated.timeline.exchange_waits.any()
    interference = shared_links(simulated).interference
    assert interference is not None
    assert interference.contention == interference.among_exchanges
    assert interference.among_transfers == interference.between == Fraction(0)


def test_each_step_of_a_routing_is_a_size_of_its_own() -> None:
    found = shared_links(simulate_plan(plan_of("link")))
    mixed = [one for one in found.links if one.mixed]
    assert mixed
    exchanges = [user for one in mixed for user in one.users if user.way is Pass.FORWARD]
    # All go to the one host in one step, and to the other in the other.
    per_step = 2 * 256 * (128 + 20_000)
    assert {user.bytes for user in exchanges if isinstance(user.bytes, tuple)} >= {
        (per_step, 0),
        (0, per_step),
    }


def test_the_work_of_experts_is_counted_twice_where_tokens_do_not_choose_evenly() -> None:
    measured = simulate_plan(plan_of("latency"))
    even = simulate_plan(resolved(document([1, 1])))
    assert measured.resolved.moe is not None
    assert even.resolved.moe is not None
    assert expert_work(None) == 0
    assert 0 < expert_work(even.resolved.moe) < expert_work(measured.resolved.moe)
    assert late_work(measured) == expert_work(measured.resolved.moe)


@pytest.mark.parametrize("mode", MODES)
def test_stage_times_are_those_of_the_experts_in_them(mode: str) -> None:
    simulated = simulate_plan(plan_of(mode))
    program = simulated.timeline.program
    table = simulated.resolved.sizes.table(
        [stage.forward_picoseconds for stage in simulated.resolved.stages]
    )
    forwards = np.flatnonzero(program.kind == 0)
    expected = table[program.stage[forwards], program.microbatch[forwards] % table.shape[1]]
    assert simulated.timeline.durations[forwards].tolist() == expected.tolist()


@pytest.mark.parametrize("mode", MODES)
def test_bounds_have_the_fewest_copies_where_tokens_are_not_known(mode: str) -> None:
    """Half of the tokens ask for two experts of one rank, half for two of the other.

    So one copy of each is enough. Who knows only how often experts are asked for expects more, but
    must not say that there is no way with fewer.
    """
    chosen = np.array([[0, 1], [4, 5]] * 256, dtype=np.int32)
    counts = np.array([[128, 128, 0, 0] * 2] * 2, dtype=np.int64)
    record = RoutingRecord(counts, chosen)
    known = Routing(8, 2, RoutingLevel.TOKENS, (0,), (0,), {(0, 0): record})
    asked = document([1, 1], deduplication="rank")
    asked["schedule"] |= {"transfer_mode": mode}
    asked["moe"]["payloads"] = {"forward_dispatch": {"metadata_bytes": 1_000_000}}
    exact, expected = (
        simulate_plan(resolved(asked, routing))
        for routing in (known, seen([counts.tolist()], top_k=2))
    )
    assert expected.timeline.makespan > exact.timeline.makespan
    least = [(each.name, each.picoseconds) for each in iteration_lower_bounds(exact)]
    assert [(each.name, each.picoseconds) for each in iteration_lower_bounds(expected)] == least
    assert max(bound for _, bound in least) <= exact.timeline.makespan
