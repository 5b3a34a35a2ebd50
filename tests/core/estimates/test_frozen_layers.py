"""Layers that are not trained: no gradient comes back to them, and nothing waits for one."""

from dataclasses import replace

import pytest

from service.core.estimates.estimate import estimate_plan
from service.core.estimates.simulation import simulate_plan
from service.core.models.graph import Layer, RecordedSize, Tensor, build_model
from service.core.plans.plan import Degrees, Partition, Placement, Workload
from service.core.plans.resolve import resolve
from service.core.profiles.profile import Recompute, build_profile
from service.core.schedules.transfers import TransferMode
from service.core.schedules.waits import operation_waits
from tests.core.plans.worlds import chain_profile, cluster, profiled_plan


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


@pytest.mark.parametrize("mode", TransferMode)
@pytest.mark.parametrize("before", [False, True])
def test_in_no_mode_does_a_boundary_without_gradients_delay_a_backward(
    mode: TransferMode, before: bool
) -> None:
    """Over links of 1 GB/s that take 8 ms to cross: stage 0 hands on and goes back at once."""
    recorded = RecordedSize(4_000_000, 2)
    model = build_model(
        [Layer(f"l{i}", "x") for i in range(2)],
        [Tensor("t0", "l0", ("l1",), recorded=recorded, requires_gradient=False)],
    )
    again = [
        replace(m, point=replace(m.point, recompute=Recompute.FULL), recompute_seconds=5e-4)
        for m in chain_profile(2).measurements
    ]
    plan = profiled_plan(
        Partition(cuts=(1,)),
        degrees=Degrees(2),
        workload=Workload(2, microbatch_size=2),
        recompute="full",
    )
    plan = replace(
        plan,
        schedule=replace(plan.schedule, transfer_mode=mode, recompute_before_gradient=before),
        topology="two@1",
        placement=Placement(devices=("host0/gpu0", "host1/gpu0")),
    )
    profile = build_profile("gpu", None, again)
    result = simulate_plan(resolve(plan, model=model, profile=profile, cluster=cluster()))
    timeline = result.timeline
    assert not timeline.program.input_gradient.any()
    # F0 F1 R0 B0 R1 B1 on rank 0, which is held by what it sends in blocking mode alone.
    waits = operation_waits(timeline)
    own = timeline.rank_operations(0)
    assert not waits.dependency[own].any()
    assert not waits.transfer[own].any()
    assert not waits.contention[own].any()
    for bound in estimate_plan(result).lower_bounds:
        if bound.mode == "latency" or mode is TransferMode.LINK:
            assert bound.picoseconds <= timeline.makespan
