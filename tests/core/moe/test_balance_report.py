"""What a routing does to ranks, layer by layer, worked by hand."""

from dataclasses import replace

import numpy as np
import pytest

from service.core.errors import FaultCode, WorkBudgetExceeded
from service.core.moe.assignments import RoutingLevel
from service.core.moe.balance_question import (
    MAX_BALANCE_UNITS,
    BalanceQuestion,
    balance_units,
    exact_steps,
)
from service.core.moe.balance_report import answer_balance
from service.core.moe.balance_statements import balance_assumptions, balance_gaps
from service.core.moe.imbalance import Imbalance, Tails
from service.core.moe.overflow import Capacity, CapacityScope, OverflowPolicy
from service.core.moe.routing import Routing, RoutingRecord
from service.core.moe.skews import Skew, SkewKind
from tests.core.refusals import refusals

DROP = Capacity(OverflowPolicy.DROP, 1.0, CapacityScope.SOURCE)


def routing_of(
    records: dict[tuple[int, int], list[list[int]]], top_k: int | None = 1, level: str = "sources"
) -> Routing:
    """Counts by layer and step, for four experts."""
    return Routing(
        4,
        top_k,
        RoutingLevel[level.upper()],
        layers=tuple(sorted({layer for layer, _ in records})),
        step_numbers=tuple(sorted({step for _, step in records})),
        records={place: RoutingRecord(np.array(rows)) for place, rows in records.items()},
    )


TWO_STEPS = routing_of(
    {
        (3, 0): [[4, 0, 0, 0], [2, 2, 0, 0]],
        (3, 1): [[0, 0, 2, 2], [0, 0, 0, 4]],
    }
)


def test_ranks_wait_in_each_step_though_they_are_even_over_all() -> None:
    report = answer_balance(TWO_STEPS, BalanceQuestion(2))
    (layer,) = report.layers
    assert layer.layer == 3
    assert layer.experts == Imbalance(0, 6, 4)
    assert layer.ranks == Imbalance(0, 8, 8)
    assert (layer.slowest, layer.mean, layer.uniform_slowest) == (16, 8, 8)
    assert layer.tails == Tails(0, 8, 8, 8)
    assert layer.step == 0
    assert layer.nodes is None
    assert layer.fates is not None
    assert layer.fates.assigned == 16


def test_a_capacity_drops_and_factors_are_tried_beside_it() -> None:
    question = BalanceQuestion(2, capacity=DROP, swept=DROP, factors=(1.0, 2.0, 4.0))
    (layer,) = answer_balance(TWO_STEPS, question).layers
    # One row of each source for an expert: of 4 tokens 3, 2, 2 and 3 are beyond it.
    assert layer.fates is not None
    assert (layer.fates.dropped, layer.capacity_rows) == (10, 1)
    assert [point.fates.dropped for point in layer.sweep] == [10, 4, 0]
    assert [point.capacity_rows for point in layer.sweep] == [1, 2, 4]
    assert [point.most_rank_rows for point in layer.sweep] == [3, 6, 8]


def test_rerouted_tokens_have_two_ends_where_hosts_are_known() -> None:
    rerouting = replace(DROP, overflow=OverflowPolicy.REROUTE, factor=2.0)
    routing = routing_of({(0, 0): [[4, 0, 0, 0], [0, 0, 0, 4]]})
    (layer,) = answer_balance(routing, BalanceQuestion(2, 1, capacity=rerouting)).layers
    assert layer.fates is not None
    assert layer.fates.rerouted == 4
    # Of two beyond each capacity: to experts 1 and 2, and 0 and 1; or to the other one at home.
    assert layer.ranks == Imbalance(0, 5, 4)
    assert layer.near == Imbalance(0, 4, 4)
    assert layer.nodes == layer.ranks


def test_layers_add_up_and_may_be_chosen() -> None:
    routing = routing_of({(0, 0): [[4, 0, 0, 0]], (1, 0): [[1, 1, 1, 1]]}, level="counts")
    report = answer_balance(routing, BalanceQuestion(2, capacity=DROP))
    assert report.fates is not None
    assert (report.fates.assigned, report.fates.dropped) == (8, 2)
    assert report.tails == Tails(2, 2, 2, 2)
    assert [one.code for one in report.notes] == ["routing_sources_alike"]
    chosen = answer_balance(routing, BalanceQuestion(2, layers=(1,)))
    assert [layer.layer for layer in chosen.layers] == [1]


def test_each_rank_may_bring_other_numbers_of_tokens_than_were_recorded() -> None:
    report = answer_balance(TWO_STEPS, BalanceQuestion(4, tokens_per_rank=8))
    assert report.fates is not None
    assert report.fates.assigned == 64


def test_loads_in_a_unit_of_their_own_are_balanced_and_nothing_else() -> None:
    routing = routing_of({(0, 0): [[9, 1, 1, 1]]}, top_k=None, level="counts")
    question = BalanceQuestion(2, extra_slots=2)
    (layer,) = answer_balance(routing, question).layers
    assert layer.ranks == Imbalance(0, 10, 6)
    assert layer.uniform_slowest == 6
    assert layer.fates is None
    plain, replicated = layer.advice
    assert (plain.slots, plain.advice.proposals[0].ranks.most_rows) == (4, 10)
    assert (replicated.slots, replicated.advice.proposals[0].ranks.most_rows) == (6, 6)
    told = [one.code for one in balance_assumptions(routing, question)]
    assert told == ["replicas_share_evenly", "contiguous_placement", "loads_in_their_own_unit"]
    assert [one.code for one in balance_gaps(routing)] == ["exchange", "moving_experts", "capacity"]


def test_a_skew_is_one_layer_of_the_tokens_that_are_stated() -> None:
    skew = Skew(SkewKind.EMPTY_RANK, rank=1)
    routing = Routing(4, 1, RoutingLevel.SKEW, skew=skew)
    (layer,) = answer_balance(routing, BalanceQuestion(2, tokens_per_rank=4)).layers
    assert layer.ranks == Imbalance(0, 8, 4)
    assert refusals(lambda: answer_balance(routing, BalanceQuestion(1))) == [
        (FaultCode.OUT_OF_RANGE, ("ranks",)),
        (FaultCode.MISSING_FIELD, ("tokens_per_rank",)),
    ]


def test_replicas_on_one_rank_are_pointed_out() -> None:
    question = BalanceQuestion(2, experts_by_rank=((0, 0, 1), (2, 2, 3)))
    (warning,) = answer_balance(TWO_STEPS, question).warnings
    assert warning.code == "replicas_share_rank"
    assert "rank 0 has 2 replicas of expert 0" in warning.detail
    assert "2 pairs" in warning.detail


def test_every_fault_of_a_question_is_told() -> None:
    question = BalanceQuestion(
        2,
        3,
        experts_by_rank=((0, 9),),
        capacity=Capacity(OverflowPolicy.DROP),
        swept=Capacity(OverflowPolicy.DROP, 1.0),
        factors=(1.0,),
        extra_slots=5,
        layers=(7,),
    )
    assert refusals(lambda: answer_balance(TWO_STEPS, question)) == [
        (FaultCode.OUT_OF_RANGE, ("ranks_per_node",)),
        (FaultCode.OUT_OF_RANGE, ("extra_slots",)),
        (FaultCode.MISSING_FIELD, ("capacity_factor",)),
        (FaultCode.MISSING_FIELD, ("capacity_scope",)),
        (FaultCode.WRONG_LENGTH, ("placement",)),
        (FaultCode.UNKNOWN_REFERENCE, ("placement", 0, 1)),
        (FaultCode.INCONSISTENT, ("placement",)),
        (FaultCode.UNKNOWN_REFERENCE, ("layers", 0)),
    ]
    dropless = Capacity(OverflowPolicy.DROPLESS)
    swept = BalanceQuestion(2, capacity=dropless, swept=replace(dropless, factor=1.0), factors=(1,))
    assert refusals(lambda: answer_balance(TWO_STEPS, swept)) == [
        (FaultCode.EXCLUSIVE_FIELDS, ("capacity_factors",))
    ]
    loads = routing_of({(0, 0): [[9, 1, 1, 1]]}, top_k=None, level="counts")
    limited = BalanceQuestion(2, tokens_per_rank=1, capacity=DROP, swept=DROP, factors=(1.0,))
    assert refusals(lambda: answer_balance(loads, limited)) == [
        (FaultCode.NOT_SUPPORTED, ("tokens_per_rank",)),
        (FaultCode.NOT_SUPPORTED, ("overflow",)),
        (FaultCode.NOT_SUPPORTED, ("capacity_factors",)),
    ]


def test_what_takes_too_long_is_refused_before_it_is_done() -> None:
    records = {(0, step): [[1, 1, 1, 1]] for step in range(256)}
    routing = routing_of(records, level="counts")
    question = BalanceQuestion(4096, capacity=DROP, swept=DROP, factors=(1.0,) * 64)
    assert balance_units(routing, question) > MAX_BALANCE_UNITS
    with pytest.raises(WorkBudgetExceeded, match="ask for fewer layers or factors"):
        answer_balance(routing, question)
    assert balance_units(TWO_STEPS, BalanceQuestion(4)) < MAX_BALANCE_UNITS / 10


def test_layers_and_experts_of_large_models_fit_one_request() -> None:
    records = {(layer, 0): RoutingRecord(np.ones((1, 256), np.int64)) for layer in range(60)}
    routing = Routing(256, 8, RoutingLevel.COUNTS, layers=tuple(range(60)), records=records)
    factors = (1.0, 1.25, 1.5, 2.0)
    question = BalanceQuestion(
        64, 8, capacity=DROP, swept=DROP, factors=factors, extra_slots=64, expert_groups=8
    )
    assert balance_units(routing, question) < MAX_BALANCE_UNITS / 2


def test_layers_share_the_steps_of_the_search_for_the_best_placement() -> None:
    many = routing_of({(layer, 0): [[1, 1, 1, 1]] for layer in range(100)}, level="counts")
    one, hundred = exact_steps(TWO_STEPS, BalanceQuestion(2)), exact_steps(many, BalanceQuestion(2))
    assert hundred < one
    assert 100 * hundred <= 160_000
