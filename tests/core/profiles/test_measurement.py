"""Tensor-parallel communication of a measurement: counted once, and told apart where it hides."""

from dataclasses import replace

import pytest

from service.core.errors import FaultCode
from service.core.profiles.measurement import (
    Communication,
    LayerCost,
    Measurement,
    Point,
    Recompute,
    check_measurement,
    measured_cost,
)

MILLISECOND = 10**9
SPLIT = Point(1, None, 2)
AGAIN = replace(SPLIT, recompute=Recompute.FULL)


def measured(point: Point = SPLIT, **fields: float) -> Measurement:
    return replace(Measurement("l", point, 1e-3, backward_seconds=2e-3), **fields)  # type: ignore[arg-type]


def cost(point: Point = SPLIT, **fields: float) -> LayerCost:
    measurement = measured(point, **fields)
    assert check_measurement(measurement) == []
    return measured_cost(measurement)


def test_only_what_is_exposed_lengthens_a_pass() -> None:
    """1 ms of work with 0.6 ms of collectives of which 0.2 ms show, and so on."""
    found = cost(
        AGAIN,
        recompute_seconds=1e-3,
        tensor_parallel_forward_communication_seconds=0.6e-3,
        tensor_parallel_forward_exposed_seconds=0.2e-3,
        tensor_parallel_backward_communication_seconds=0.9e-3,
        tensor_parallel_backward_exposed_seconds=0.0,
        tensor_parallel_recompute_communication_seconds=0.5e-3,
    )
    assert found.forward_picoseconds == 1_200_000_000
    assert found.backward_picoseconds == 2 * MILLISECOND
    assert found.recompute_picoseconds == 1_500_000_000
    assert found.communication == Communication(
        forward_exposed=200_000_000,
        forward_hidden=400_000_000,
        backward_exposed=0,
        backward_hidden=900_000_000,
        recompute_exposed=500_000_000,
        recompute_hidden=0,
    )
    assert found.communication_known


def test_of_one_number_for_all_passes_nobody_knows_what_is_hidden() -> None:
    found = cost(tensor_parallel_communication_seconds=0.5e-3)
    assert found.communication == Communication(
        forward_exposed=MILLISECOND // 2, backward_exposed=MILLISECOND // 2, recompute_exposed=0
    )
    assert found.communication_known


def test_the_communication_of_a_backward_is_in_the_half_of_the_inputs() -> None:
    found = cost(
        backward_seconds=None,  # type: ignore[arg-type]
        backward_input_seconds=1e-3,
        backward_weight_seconds=1e-3,
        tensor_parallel_backward_communication_seconds=0.5e-3,
    )
    halves = found.backward_input_picoseconds, found.backward_weight_picoseconds
    assert halves == (1_500_000_000, MILLISECOND)
    assert found.backward_picoseconds == sum(halves)


@pytest.mark.parametrize(
    ("point", "fields", "known"),
    [
        (Point(1), {}, True),
        (SPLIT, {}, False),
        (SPLIT, {"tensor_parallel_forward_communication_seconds": 0.0}, False),
        (
            SPLIT,
            {
                "tensor_parallel_forward_communication_seconds": 0.0,
                "tensor_parallel_backward_communication_seconds": 0.0,
            },
            True,
        ),
        (
            AGAIN,
            {
                "recompute_seconds": 1e-3,
                "tensor_parallel_forward_communication_seconds": 0.0,
                "tensor_parallel_backward_communication_seconds": 0.0,
            },
            False,
        ),
    ],
)
def test_a_pass_whose_communication_nobody_says_is_not_called_known(
    point: Point, fields: dict[str, float], known: bool
) -> None:
    assert cost(point, **fields).communication_known is known


@pytest.mark.parametrize(
    ("point", "fields", "faults"),
    [
        (
            SPLIT,
            {"tensor_parallel_forward_exposed_seconds": 1e-3},
            [(FaultCode.MISSING_FIELD, "tensor_parallel_forward_communication_seconds")],
        ),
        (
            SPLIT,
            {
                "tensor_parallel_forward_communication_seconds": 1e-3,
                "tensor_parallel_forward_exposed_seconds": 2e-3,
            },
            [(FaultCode.INCONSISTENT, "tensor_parallel_forward_exposed_seconds")],
        ),
        (
            SPLIT,
            {"tensor_parallel_recompute_communication_seconds": 1e-3},
            [(FaultCode.INCONSISTENT, "tensor_parallel_recompute_communication_seconds")],
        ),
        (
            SPLIT,
            {
                "tensor_parallel_communication_seconds": 1e-3,
                "tensor_parallel_backward_communication_seconds": 1e-3,
            },
            [(FaultCode.EXCLUSIVE_FIELDS, "tensor_parallel_communication_seconds")],
        ),
        (
            Point(1),
            {
                "tensor_parallel_forward_communication_seconds": 1e-3,
                "tensor_parallel_forward_exposed_seconds": 0.0,
            },
            [(FaultCode.INCONSISTENT, "tensor_parallel_forward_communication_seconds")],
        ),
    ],
)
def test_parts_that_do_not_go_together_are_refused(
    point: Point, fields: dict[str, float], faults: list[tuple[FaultCode, str]]
) -> None:
    found = check_measurement(measured(point, **fields))
    assert [(fault.code, *fault.path) for fault in found] == faults
