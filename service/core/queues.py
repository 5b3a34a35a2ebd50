"""The fluid backlog: work arrives and is served at constant rates, like water in a tank."""

from dataclasses import dataclass
from fractions import Fraction
from math import isfinite

from service.core.errors import Fault, FaultCode, InvalidInput

__all__ = ["MAX_STEPS", "NOT_REPRESENTED", "FluidBacklog", "fluid_backlog"]

MAX_STEPS = 10_000
_MAX_NUMBER = 1e15

NOT_REPRESENTED = (
    ("discrete_items", "items are not counted one by one: the backlog is a continuous amount"),
    ("randomness", "arrivals and service do not vary: the rates are constant"),
    ("waiting_time", "the time an item spends in the queue, and the order of items"),
    ("queue_limit", "a limit of the queue's length"),
)


@dataclass(frozen=True, slots=True)
class FluidBacklog:
    """The backlog after each step, in items, and what the model leaves out (code, sentence)."""

    levels: tuple[float, ...]
    not_represented: tuple[tuple[str, str], ...] = NOT_REPRESENTED


def fluid_backlog(
    initial_backlog: float,
    arrival_rate: float,
    service_rate: float,
    step_seconds: float,
    steps: int,
) -> FluidBacklog:
    """q <- max(0, q + (arrival_rate - service_rate) x step_seconds), `steps` times.

    The backlog is in items, rates in items a second. Sums are exact; each level is rounded once.

    Raises `InvalidInput` with every fault: numbers are finite, between 0 and 1e15, the step longer
    than 0, and steps from 1 to `MAX_STEPS`.
    """
    faults = [
        Fault(FaultCode.OUT_OF_RANGE, (name,), f"{name} lies between 0 and 1e15; got {number!r}")
        for name, number in (
            ("initial_backlog", initial_backlog),
            ("arrival_rate", arrival_rate),
            ("service_rate", service_rate),
            ("step_seconds", step_seconds),
        )
        if not isfinite(number) or not 0 <= number <= _MAX_NUMBER
    ]
    if step_seconds == 0:
        detail = "step_seconds is longer than 0"
        faults.append(Fault(FaultCode.OUT_OF_RANGE, ("step_seconds",), detail))
    if not 1 <= steps <= MAX_STEPS:
        detail = f"steps lies between 1 and {MAX_STEPS}; got {steps}"
        faults.append(Fault(FaultCode.OUT_OF_RANGE, ("steps",), detail))
    if faults:
        raise InvalidInput(faults)
    backlog = Fraction(initial_backlog)
    change = (Fraction(arrival_rate) - Fraction(service_rate)) * Fraction(step_seconds)
    levels = []
    for _ in range(steps):
        backlog = max(Fraction(0), backlog + change)
        levels.append(float(backlog))
    return FluidBacklog(tuple(levels))
