"""The report of a plan's expert layers: what is looked at for how many of them."""

from dataclasses import replace

import pytest

from service.core.errors import WorkBudgetExceeded
from service.core.estimates.experts import layers
from service.core.estimates.experts.advice import expert_advice
from service.core.estimates.experts.layers import expert_report
from service.core.estimates.experts.repricing import totals_of
from service.core.estimates.experts.sweep import capacity_sweep
from service.core.moe.exchange_bounds import ExchangeLimit
from service.core.topology.flows.results import Method
from tests.core.plans.moe.expert_worlds import RATES, document, hot, resolved, seen


def test_concurrent_flows_are_looked_for_in_so_many_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two layers in two steps are four runs; those beyond the third keep their cuts."""
    monkeypatch.setattr(layers, "MOST_FLOW_RUNS", 3)
    routing = seen([hot(0), hot(1)], [hot(1), hot(0)], top_k=2)
    plan = resolved(document([1, 1]), routing)
    assert plan.moe is not None
    found = [run.forward.dispatch.bounds for run in expert_report(plan, plan.moe).runs]
    assert [one and one.method for one in found] == [*[Method.LINEAR_PROGRAM] * 3, Method.CUTS]
    for one in found:
        assert one is not None
        flow = ExchangeLimit.CONCURRENT_FLOW in one.any_route
        assert flow == (one.method is Method.LINEAR_PROGRAM)
        assert ExchangeLimit.CUT in one.any_route


def test_a_report_of_very_many_layers_or_factors_is_refused() -> None:
    plan = resolved(document([2]), seen([hot(0)], top_k=2))
    assert plan.moe is not None
    with pytest.raises(WorkBudgetExceeded) as refused:
        expert_report(plan, replace(plan.moe, layers=plan.moe.layers * 2001))
    assert refused.value.faults[0].path == ("moe",)
    with pytest.raises(WorkBudgetExceeded) as refused:
        capacity_sweep(plan, plan.moe, [1.0] * 1001)
    assert refused.value.faults[0].path == ("capacity_factors",)


def test_no_step_is_below_what_bounds_it_with_and_without_overlap() -> None:
    """Products at nominal rates, and what both exchanges put on any link; chunks overlap them."""
    for changes in ({}, {"overlap": {"chunks": 4}}, {"compute": {**RATES, "peak_flops": 1e9}}):
        plan = resolved(document([2], **changes), seen([hot(0), hot(1)], top_k=2))
        assert plan.moe is not None
        for run in expert_report(plan, plan.moe).runs:
            for step in (run.forward, run.backward):
                assert step is not None
                assert step.bounds is not None
                assert 0 < step.bounds.any_route <= step.bounds.pinned <= step.step
                assert step.step <= step.in_turn


def test_totals_are_those_of_all_layers_and_microbatches_and_factors_only_drop_less() -> None:
    """All of 512 tokens ask for two experts of one rank: 1,024 rows there, none on the other."""
    plan = resolved(document([1, 1]), seen([hot(0), hot(1)], top_k=2))
    assert plan.moe is not None
    totals = totals_of(plan, plan.moe)
    count = plan.plan.workload.microbatches
    assert (totals.asked, totals.dropped, totals.rows) == (2 * count * 1024, 0, 2 * count * 1024)
    assert totals.most_rank_rows == 1024
    steps = sum(run.picoseconds for run in expert_report(plan, plan.moe).runs)
    assert totals.picoseconds == count * steps
    points, _ = capacity_sweep(plan, plan.moe, [0.5, 1.0, 2.0, 4.0])
    # A source's 512 assignments are 64 for each of eight experts: factor 1 serves 2 of 8 of them.
    assert [point.totals.dropped_fraction for point in points] == [0.875, 0.75, 0.5, 0.0]
    assert points[-1].totals.picoseconds == totals.picoseconds


def test_two_hot_experts_are_advised_to_stand_apart() -> None:
    """On one rank they are 1,024 rows, one on each 512, and no placement does better."""
    plan = resolved(document([1]), seen([hot(0)], top_k=2))
    assert plan.moe is not None
    best = expert_advice(plan, plan.moe).for_all
    assert best is not None
    assert best.proposal.ranks.max_over_mean == 1.0
    assert best.before.max_over_mean == 2.0
    assert {0, 1} & set(best.experts_by_rank[0]) != {0, 1}
    assert best.gain == best.picoseconds_before - best.picoseconds_after
