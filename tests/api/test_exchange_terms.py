"""What answers say of experts and stages that use the same links: two stages of two replicas.

Their times are worked out in `tests/core/estimates/test_exchange_links`.
"""

import msgspec

from service.api.schemas.critical_path import critical_path_terms
from service.api.schemas.shared_links import shared_link_terms
from service.api.schemas.timelines import timeline_answer
from service.core.plans.moe.results import ExchangePart, Pass
from service.core.schedules.critical_path import find_critical_path
from service.core.schedules.selection import EVERYTHING, Selection
from service.core.schedules.transfers import TransferMode
from tests.core.estimates.exchanging_plans import simulated_exchanging
from tests.core.estimates.test_exchange_links import two_stages

MEGA = 10**6


def test_a_timeline_says_who_held_each_link_and_what_waited() -> None:
    simulated = simulated_exchanging(*two_stages())
    answer = timeline_answer("d", simulated, EVERYTHING)
    assert answer.exchange_wait_seconds == [0, 0.001, 0, 0]
    assert not isinstance(answer.links, msgspec.UnsetType)
    (link,) = [one for one in answer.links if one.link == "d0->s"]
    assert link.busy_seconds == 0.01
    assert [
        (one.source_stage, one.target_stage, one.microbatch, one.start_seconds, one.exchange_of)
        for one in link.intervals
    ] == [
        (0, 0, 0, 0.0, "forward"),
        (0, 1, 0, 0.006, msgspec.UNSET),
        (0, 0, 1, 0.007, "forward"),
        (0, 1, 1, 0.013, msgspec.UNSET),
    ]
    part = timeline_answer("d", simulated, Selection(ranks=frozenset({1})))
    assert part.exchange_wait_seconds == [0, 0]


def test_without_exchanges_on_links_nothing_is_said_of_them() -> None:
    simulated = simulated_exchanging(*two_stages(TransferMode.LATENCY))
    assert timeline_answer("d", simulated, EVERYTHING).exchange_wait_seconds is msgspec.UNSET


def test_a_path_goes_over_what_an_exchange_waited_for() -> None:
    simulated = simulated_exchanging(*two_stages())
    terms = critical_path_terms(simulated, find_critical_path(simulated.timeline))
    first, late, last = terms.steps
    for step in (first, last):
        assert (step.exchange_link, step.exchange_wait_seconds) == (msgspec.UNSET, msgspec.UNSET)
    assert (late.start_seconds, late.end_seconds) == (0.006, 0.013)
    assert (late.exchange_link, late.exchange_wait_seconds) == ("d0->s", 0.001)
    assert terms.stage_seconds == [0.012, 0.006]


def test_shared_links_list_what_experts_exchange_beside_pairs() -> None:
    found = {one.link: one for one in shared_link_terms(simulated_exchanging(*two_stages()))}
    assert set(found) == {"d0->s", "d1->s", "s->d2", "s->d3"}
    link = found["d0->s"]
    assert link.pairs == ["0->2"]
    assert not isinstance(link.exchanges, msgspec.UnsetType)
    assert [
        (one.stage, one.operation, one.part, one.exchanges_per_microbatch, one.bytes_per_microbatch)
        for one in link.exchanges
    ] == [(0, Pass.FORWARD, part, 1, 2 * MEGA) for part in ExchangePart]
    assert link.bytes_per_microbatch == 5 * MEGA
    assert link.lower_bound_seconds == 5 * MEGA / 2e9
