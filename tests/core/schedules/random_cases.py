"""Random plans of every schedule, and of orders nobody would think of, with their timelines."""

import random
from collections.abc import Iterator

from service.core.schedules.catalogue import SCHEDULES
from service.core.schedules.timeline import Timeline
from tests.core.schedules.event_simulator import Plan, random_legal_plan, random_plan
from tests.core.schedules.plans import named_program, plan_program, plan_timeline

__all__ = ["random_cases"]


def random_cases(
    rng: random.Random, count: int, *, unit: int = 1
) -> Iterator[tuple[Plan, Timeline]]:
    """So many reference plans with the service's timeline of each; times are multiples of `unit`.

    Small programs with uneven times, many ties and zeros; fused pairs where the schedule has them.
    """
    while count > 0:
        schedule = rng.choice([*SCHEDULES, ""])
        if schedule:
            plan = random_plan(rng, schedule, fused=rng.random() < 0.5)
        else:
            plan = random_legal_plan(rng)
        plan.durations = {k: scaled(rows, unit) for k, rows in plan.durations.items()}
        plan.forward, plan.backward = scaled(plan.forward, unit), scaled(plan.backward, unit)
        program = named_program(plan, schedule) if schedule else plan_program(plan)
        line = plan_timeline(plan, program)
        if line is not None:
            count -= 1
            yield plan, line


def scaled(rows: list[list[int]], unit: int) -> list[list[int]]:
    return [[time * unit for time in row] for row in rows]
