"""From a resolved plan to its simulated timeline."""

from dataclasses import dataclass

import numpy as np

from service.core.plans.plan import ResolvedPlan, Statement
from service.core.schedules.build import build_program
from service.core.schedules.catalogue import schedule_family
from service.core.schedules.program import RecomputeMode, StageEdge
from service.core.schedules.stage_times import StageTimes
from service.core.schedules.timeline import Timeline, simulate_timeline

__all__ = ["SimulatedPlan", "represented", "simulate_plan"]


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedPlan:
    """A resolved plan and one run of its schedule; every projection reads these two."""

    resolved: ResolvedPlan
    timeline: Timeline

    @property
    def has_backward(self) -> bool:
        """Whether the schedule runs backwards at all."""
        return schedule_family(self.resolved.plan.schedule.kind).has_backward


def simulate_plan(resolved: ResolvedPlan) -> SimulatedPlan:
    """Build (or find) the plan's program and run it once, transfers charged as latencies.

    All replicas run the same times, so one pipeline stands for them. Raises `InvalidInput` for a
    schedule that is not legal with these counts, and for times the kernel can't represent.
    """
    plan = resolved.plan
    program = build_program(
        plan.schedule.kind,
        plan.degrees.pipeline,
        plan.workload.microbatches,
        chunks_per_rank=plan.schedule.chunks_per_rank,
        recompute=_recompute_mode(resolved),
        stage_edges=tuple(StageEdge(b.source, b.target) for b in resolved.boundaries),
    )
    times = StageTimes.of(
        [stage.forward_picoseconds for stage in resolved.stages],
        [stage.backward_picoseconds for stage in resolved.stages],
        [stage.recompute_picoseconds for stage in resolved.stages],
    )
    timeline = simulate_timeline(
        program,
        times,
        np.array([b.forward_picoseconds for b in resolved.boundaries], dtype=np.int64),
        np.array([b.backward_picoseconds for b in resolved.boundaries], dtype=np.int64),
    )
    return SimulatedPlan(resolved, timeline)


def _recompute_mode(resolved: ResolvedPlan) -> RecomputeMode:
    if not any(stage.recompute_picoseconds for stage in resolved.stages):
        return RecomputeMode.NONE
    if resolved.plan.schedule.recompute_before_gradient:
        return RecomputeMode.BEFORE_GRADIENT
    return RecomputeMode.AFTER_GRADIENT


def represented(simulated: SimulatedPlan) -> tuple[Statement, ...]:
    """The operations and resources that the numbers of a simulated plan include."""
    names = ["forward"]
    if simulated.has_backward:
        if simulated.timeline.program.recompute is not RecomputeMode.NONE:
            names.append("recompute")
        names.append("backward")
    operations = f"{', '.join(names)} of every microbatch on every stage, one after another"
    transfers = "each boundary's transfer delays its consumer by its latency and holds nobody"
    return (
        Statement(
            "operations", f"{operations} in the order of {simulated.timeline.program.schedule}"
        ),
        Statement("devices", "each rank runs one operation at a time"),
        Statement("transfers", transfers),
    )
