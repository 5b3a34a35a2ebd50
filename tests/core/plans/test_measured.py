"""What sums over the layers of a stage rest on."""

from dataclasses import replace
from math import isclose

import pytest

from service.core.plans.plan import CostSources, Degrees, Partition, ResolvedPlan
from service.core.plans.resolve import resolve
from service.core.profiles.measurement import Communication, Measurement, Point
from service.core.profiles.profile import build_profile
from service.core.profiles.provenance import Provenance, weakest
from tests.core.plans.worlds import chain, profiled_plan

MILLISECOND = 10**9


def resolved(*measurements: Measurement, tensor: int = 1) -> ResolvedPlan:
    layers = len(measurements)
    plan = profiled_plan(Partition(layers_per_stage=(layers,)), degrees=Degrees(1, tensor=tensor))
    return resolve(plan, model=chain(layers), profile=build_profile(None, None, measurements))


def sources(*measurements: Measurement, tensor: int = 1) -> CostSources:
    (stage,) = resolved(*measurements, tensor=tensor).stages
    assert stage.sources is not None
    return stage.sources


def measured(number: int, seconds: float = 1e-3, tensor: int = 1, **fields: float) -> Measurement:
    made = Measurement(f"l{number}", Point(2, tensor_parallel=tensor), seconds, 2 * seconds)
    return replace(made, **fields)  # type: ignore[arg-type]


def test_the_spread_of_a_stage_has_two_ends() -> None:
    """3 ms with 10 % and 6 ms with 5 %: 0.3 ms each, so 0.6 of 9 ms together, 0.424 apart."""
    found = sources(
        measured(0, 1e-3, relative_deviation=0.1, samples=100),
        measured(1, 2e-3, relative_deviation=0.05, samples=20),
    )
    assert found.relative_deviation_at_most == pytest.approx(0.6 / 9)
    assert found.relative_deviation_if_independent == pytest.approx(0.3 * 2**0.5 / 9)
    assert found.samples == 20


def test_equal_layers_average_out_only_where_they_deviate_apart() -> None:
    found = sources(*(measured(i, relative_deviation=0.1) for i in range(4)))
    assert found.relative_deviation_at_most is not None
    assert isclose(found.relative_deviation_at_most, 0.1)
    assert found.relative_deviation_if_independent is not None
    assert isclose(found.relative_deviation_if_independent, 0.05)


def test_a_spread_that_one_layer_lacks_is_unknown() -> None:
    found = sources(measured(0, relative_deviation=0.1, samples=3), measured(1))
    assert (found.relative_deviation_at_most, found.relative_deviation_if_independent) == (
        None,
        None,
    )
    assert found.samples is None


def test_layers_without_a_spread_are_counted_among_what_is_left_out() -> None:
    rows = (measured(0, relative_deviation=0.1), measured(1), measured(2))
    (said,) = [one for one in resolved(*rows).not_represented if one.code == "cost_spread"]
    assert said.detail.startswith("how much the time of 2 layers that were measured without")
    known = resolved(measured(0, relative_deviation=0.0)).not_represented
    assert "cost_spread" not in {one.code for one in known}


def test_the_workspace_is_that_of_the_largest_layer() -> None:
    assert (
        sources(measured(0, workspace_bytes=7), measured(1, workspace_bytes=5)).workspace_bytes == 7
    )
    assert sources(measured(0, workspace_bytes=7), measured(1)).workspace_bytes is None


def test_communication_is_in_the_times_once_and_shown_apart() -> None:
    each = {
        "tensor_parallel_forward_communication_seconds": 0.5e-3,
        "tensor_parallel_forward_exposed_seconds": 0.1e-3,
        "tensor_parallel_backward_communication_seconds": 0.4e-3,
    }
    plan = resolved(measured(0, tensor=2, **each), measured(1, tensor=2, **each), tensor=2)
    (stage,) = plan.stages
    assert stage.forward_picoseconds == 2_200_000_000
    assert stage.backward_picoseconds == 4_800_000_000
    assert stage.sources is not None
    assert stage.sources.communication == Communication(
        forward_exposed=200_000_000,
        forward_hidden=800_000_000,
        backward_exposed=800_000_000,
        backward_hidden=0,
        recompute_exposed=0,
        recompute_hidden=0,
    )
    assert "tensor_communication" not in {said.code for said in plan.not_represented}


def test_layers_are_counted_by_where_their_costs_are_from() -> None:
    assert sources(measured(0), measured(1)).layers == ((Provenance.MEASURED, 2),)


def test_a_sum_is_as_sure_as_its_least_sure_part() -> None:
    assert weakest([]) is Provenance.GIVEN
    assert weakest([Provenance.MEASURED, Provenance.GIVEN]) is Provenance.MEASURED
    assert weakest(Provenance) is Provenance.ASSUMED
