"""Short ways to price a plan of given stages."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from service.core.estimates.simulation import SimulatedPlan, simulate_plan
from service.core.plans.plan import Degrees, GivenStage, Plan, Schedule, Workload
from service.core.plans.resolve import resolve
from service.core.schedules.bubble import Bubble, measure_bubble

__all__ = ["bubble_of", "equal_stages", "simulated"]

# Times of published tables are small whole numbers of some unit: a millisecond stands for it.
UNIT_SECONDS = 1e-3


def simulated(
    kind: str, stages: Sequence[GivenStage], microbatches: int, **schedule: Any
) -> SimulatedPlan:
    """One run of a plan of these stages, on as many ranks as its chunks leave."""
    chunks = int(schedule.get("chunks_per_rank", 1))
    plan = Plan(
        degrees=Degrees(len(stages) // chunks),
        workload=Workload(microbatches),
        schedule=Schedule(kind, **schedule),
        stages=tuple(stages),
    )
    return simulate_plan(resolve(plan))


def equal_stages(
    count: int, times: Sequence[float], unit_seconds: float = UNIT_SECONDS, **given: Any
) -> list[GivenStage]:
    """Stages alike: times are those of a forward and a backward, or of its two halves apart."""
    forward, *rest = (time * unit_seconds for time in times)
    names = ["backward_seconds"] if len(rest) == 1 else ["backward_input_seconds"]
    names += ["backward_weight_seconds"] * (len(rest) - 1)
    backward: dict[str, Any] = dict(zip(names, rest, strict=True))
    stage = GivenStage(forward, **backward, **given)
    return [stage] * (count - 1) + [replace(stage, transfer_seconds=None)]


def bubble_of(of: SimulatedPlan) -> Bubble:
    """Where the time of its timeline goes."""
    return measure_bubble(of.timeline)
