"""Tokens, device-hours and utilisation of an iteration, by hand."""

from dataclasses import replace

import pytest

from service.core.estimates.efficiency import Efficiency
from service.core.models.dtypes import DType
from service.core.plans.plan import Plan, Workload
from service.core.plans.training import Optimizer, Training
from service.core.topology.cluster import Cluster, VertexKind
from tests.core.estimates.reducing_plans import estimated, plan_of, world

PEAK = 100e12
TOKENS = 2 * 2 * 1000  # microbatches, samples of each, tokens of each

PLAN = replace(
    plan_of([10**9, 10**9], data=1, training=Training(Optimizer.SGD, DType.BF16, tokens=10_000)),
    workload=Workload(2, microbatch_size=2, sequence_length=1000),
)


def with_peak(made: Cluster, flops: float | None = PEAK) -> Cluster:
    """The same devices, all but the first of which have a peak where `flops` is None."""
    vertices = dict(made.vertices)
    gpus = [name for name, vertex in vertices.items() if vertex.kind is VertexKind.GPU]
    for name in gpus if flops else gpus[1:]:
        vertices[name] = replace(vertices[name], peak_flops={"bf16": flops or PEAK})
    return Cluster(vertices, made.links)


def efficiency(plan: Plan, flops: float | None = PEAK) -> Efficiency:
    return estimated(plan, with_peak(world(plan), flops)).efficiency


def test_two_operations_a_parameter_and_token_and_twice_that_back() -> None:
    """9 s for 4,000 tokens of 2e9 parameters: 6 x 2e9 x 4,000 operations on two devices."""
    found = efficiency(PLAN)
    assert found.flops is not None
    assert found.flops.model == found.flops.hardware == 6 * 2 * 10**9 * TOKENS
    assert found.device_seconds == 18
    assert found.tokens_per_second_per_device == pytest.approx(TOKENS / 18)
    assert found.utilisation(found.flops.model) == pytest.approx(4.8e13 / (18 * PEAK))
    assert [one.code for one in found.assumptions] == ["flops_from_parameters"]
    assert found.not_represented == ()


def test_more_than_the_peak_is_told() -> None:
    """4.8e13 operations on two devices in 9 s are 2.67e12 a second on each."""
    for peak, told in ((2.7e12, False), (2.6e12, True)):
        codes = {one.code for one in efficiency(PLAN, peak).assumptions}
        assert ("above_peak" in codes) is told


def test_what_is_computed_again_is_of_the_hardware_alone() -> None:
    again = replace((PLAN.stages or ())[0], recompute_seconds=1.0)
    found = efficiency(replace(PLAN, stages=(again, (PLAN.stages or ())[1])))
    assert found.flops is not None
    assert found.flops.hardware - found.flops.model == 2 * 10**9 * TOKENS


def test_a_run_has_as_many_iterations_as_its_tokens_take() -> None:
    run = efficiency(PLAN).run
    assert run is not None
    assert (run.iterations, run.seconds, run.device_seconds) == (3, 27, 54)


@pytest.mark.parametrize(
    ("plan", "flops", "missing"),
    [
        (PLAN, None, "the peak of every device"),
        (replace(PLAN, workload=Workload(2)), PEAK, "the tokens of an iteration"),
        (replace(PLAN, training=None), PEAK, "the type that layers compute with"),
    ],
)
def test_what_is_unknown_is_named(plan: Plan, flops: float | None, missing: str) -> None:
    found = efficiency(plan, flops)
    (statement,) = found.not_represented
    assert statement.code == "model_flops_utilisation"
    assert missing in statement.detail
    assert found.flops is None or found.utilisation(1) is None or found.compute_dtype is None
