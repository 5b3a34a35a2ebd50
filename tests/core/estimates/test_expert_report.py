"""The report of a plan's expert layers: what is looked at for how many of them."""

import pytest

from service.core.estimates.experts import layers
from service.core.estimates.experts.layers import expert_report
from service.core.moe.exchange_bounds import ExchangeLimit
from service.core.topology.flows.results import Method
from tests.core.plans.moe.expert_worlds import document, hot, resolved, seen


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
