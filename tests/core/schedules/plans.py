"""Short ways to build what the schedule tests need."""

from collections.abc import Sequence

import numpy as np

from service.core.schedules.assemble import assemble_program
from service.core.schedules.build import build_program
from service.core.schedules.orders import RankOrder
from service.core.schedules.program import OpKind, Program, RecomputeMode, StageEdge
from service.core.schedules.stage_times import StageTimes
from service.core.schedules.timeline import Timeline, simulate_timeline
from tests.core.schedules.event_simulator import Operation, Plan

MILLISECOND = 10**9


def order_of(operations: Sequence[Operation]) -> RankOrder:
    """A rank's order from (letter, stage, microbatch)."""
    return RankOrder(
        np.array(["FBIWR".index(letter) for letter, _, _ in operations], dtype=np.int8),
        np.array([stage for _, stage, _ in operations], dtype=np.int32),
        np.array([microbatch for _, _, microbatch in operations], dtype=np.int32),
    )


def read_order(text: str) -> RankOrder:
    """A rank's order from `0F0 0F1 0B0`."""
    operations = []
    for word in text.split():
        letter = next(letter for letter in word if letter.isalpha())
        stage, microbatch = word.split(letter)
        operations.append((letter, int(stage), int(microbatch)))
    return order_of(operations)


def write_order(program: Program, rank: int) -> str:
    """`0F0 0F1 0B0` from a program."""
    operations = range(program.rank_offsets[rank], program.rank_offsets[rank + 1])
    return " ".join(
        f"{program.stage[i]}{OpKind(program.kind[i]).letter}{program.microbatch[i]}"
        for i in operations
    )


def timeline(
    schedule: str,
    microbatches: int,
    forward: Sequence[int],
    backward: Sequence[int] | None = None,
    latency: int = 0,
    *,
    recompute: Sequence[int] | None = None,
    mode: RecomputeMode = RecomputeMode.NONE,
) -> Timeline:
    """A chain of stages, one a rank, the same latency on every hop."""
    program = build_program(schedule, len(forward), microbatches, recompute=mode)
    return simulate_timeline(program, StageTimes.of(forward, backward, recompute), latency)


def thirds(cadences: Sequence[int], unit: int = 3) -> tuple[list[int], list[int]]:
    """Each cadence split into one third forward and two thirds backward, in whole units."""
    return [c * unit // 3 for c in cadences], [2 * c * unit // 3 for c in cadences]


def plan_program(plan: Plan, schedule: str = "explicit") -> Program:
    """The service's program of a reference plan."""
    return assemble_program(
        schedule,
        [order_of(order) for order in plan.orders],
        stages=len(plan.durations["F"]),
        microbatches=1 + max(m for order in plan.orders for _, _, m in order),
        recompute=RecomputeMode(plan.recompute),
        stage_edges=tuple(StageEdge(*edge) for edge in plan.edges),
    )


def plan_times(plan: Plan) -> StageTimes:
    """The service's stage times of a reference plan."""
    return StageTimes.of(plan.durations["F"], plan.durations["B"], plan.durations["R"])


def named_program(plan: Plan, schedule: str) -> Program:
    """The program that the service builds by itself for a plan of a named schedule."""
    return build_program(
        schedule,
        len(plan.orders),
        1 + max(m for _, _, m in plan.orders[0]),
        recompute=RecomputeMode(plan.recompute),
        stage_edges=tuple(StageEdge(*edge) for edge in plan.edges),
    )


def plan_timeline(plan: Plan, program: Program) -> Timeline | None:
    """The timeline of a reference plan, or None where no operation takes time."""
    kinds = "F" if len(set(program.kind.tolist())) == 1 else "FB"
    kinds += "R" if plan.recompute != "none" else ""
    if not any(any(plan.durations[kind]) for kind in kinds):
        return None
    return simulate_timeline(
        program, plan_times(plan), np.array(plan.forward, int), np.array(plan.backward, int)
    )
