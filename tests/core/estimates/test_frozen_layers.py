"""Layers that are not trained: no gradient comes back to them, and nothing waits for one."""

from service.core.estimates.estimate import estimate_plan
from service.core.estimates.simulation import simulate_plan
from service.core.models.graph import Layer, RecordedSize, Tensor, build_model
from service.core.plans.plan import Degrees, Partition, Workload
from service.core.plans.resolve import resolve
from tests.core.plans.worlds import chain_profile, profiled_plan


def test_backwards_before_frozen_layers_wait_for_nothing() -> None:
    """l0 hands on what needs no gradient: its backward of 2 ms follows its forward of 1 ms."""
    model = build_model(
        [Layer(f"l{i}", "x") for i in range(3)],
        [
            Tensor("t0", "l0", ("l1",), recorded=RecordedSize(8, 2), requires_gradient=False),
            Tensor("t1", "l1", ("l2",), recorded=RecordedSize(8, 2)),
        ],
    )
    plan = profiled_plan(
        Partition(cuts=(1, 2)), degrees=Degrees(3), workload=Workload(1, microbatch_size=2)
    )
    resolved = resolve(plan, model=model, profile=chain_profile(3))
    assert [boundary.returns for boundary in resolved.boundaries] == [False, True]
    assert "no_gradient" in {said.code for said in resolved.assumptions}
    result = simulate_plan(resolved)
    milli = 10**9
    # F0 0-1, B0 1-3; F1 1-3, B1 12-16; F2 3-6, B2 6-12.
    assert result.timeline.run.end.tolist() == [time * milli for time in (1, 3, 3, 16, 6, 12)]
    for bound in estimate_plan(result).lower_bounds:
        assert bound.picoseconds <= result.timeline.makespan
