"""From a resolved plan to its simulated timeline."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.errors import InvalidInput
from service.core.estimates.activations import activation_deltas
from service.core.estimates.order_costs import order_costs
from service.core.plans.plan import ResolvedPlan, Statement
from service.core.plans.schedule import has_backward, pair_mode, plan_family, plan_shape
from service.core.schedules.build import build_program
from service.core.schedules.explicit import has_recompute
from service.core.schedules.program import OpKind, Program, RecomputeMode
from service.core.schedules.stage_times import StageTimes, operation_kinds
from service.core.schedules.timeline import Timeline, simulate_together
from service.core.schedules.transfers import TransferMode, Transfers

__all__ = ["SimulatedPlan", "represented", "simulate_plan", "simulate_plans"]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedPlan:
    """A resolved plan and one run of its schedule; every projection reads these two."""

    resolved: ResolvedPlan
    timeline: Timeline

    @property
    def has_backward(self) -> bool:
        """Whether the schedule runs backwards at all."""
        return has_backward(self.resolved.plan)


def simulate_plan(resolved: ResolvedPlan) -> SimulatedPlan:
    """Build (or find) the plan's program and run it once, transfers charged as latencies.

    All replicas run the same times, so one pipeline stands for them. Raises `InvalidInput` for a
    schedule that is not legal with these counts, and for times the kernel can't represent.
    """
    (outcome,) = simulate_plans([resolved])
    if isinstance(outcome, InvalidInput):
        raise outcome
    return outcome


def simulate_plans(resolved: Sequence[ResolvedPlan]) -> list[SimulatedPlan | InvalidInput]:
    """Each plan run once, or what is wrong with it; plans that share a program are run together."""
    outcomes: dict[int, SimulatedPlan | InvalidInput] = {}
    of_program: dict[Program, list[int]] = {}
    for index, one in enumerate(resolved):
        try:
            of_program.setdefault(_program(one), []).append(index)
        except InvalidInput as error:
            outcomes[index] = error
    for program, members in of_program.items():
        together = _timelines(program, [resolved[index] for index in members])
        outcomes |= zip(members, together, strict=True)
    return [outcomes[index] for index in range(len(resolved))]


def _timelines(
    program: Program, resolved: Sequence[ResolvedPlan]
) -> list[SimulatedPlan | InvalidInput]:
    try:
        timelines = simulate_together(
            program, [(_stage_times(one), _transfers(one)) for one in resolved]
        )
    except InvalidInput as error:
        if len(resolved) == 1:
            return [error]
        # Which of them it was is found by running each alone.
        return [outcome for one in resolved for outcome in _timelines(program, [one])]
    return [SimulatedPlan(one, timeline) for one, timeline in zip(resolved, timelines, strict=True)]


def _program(resolved: ResolvedPlan) -> Program:
    plan = resolved.plan
    edges = tuple(boundary.edge for boundary in resolved.boundaries)
    costs = None
    if plan_family(plan).follows_costs:
        times, transfers = _stage_times(resolved), _transfers(resolved)
        both_ways = transfers.forward, transfers.backward
        costs = order_costs(edges, times, both_ways, activation_deltas(resolved))
    return build_program(
        plan.schedule.kind,
        plan.degrees.pipeline,
        plan.workload.microbatches,
        chunks_per_rank=plan.schedule.chunks_per_rank,
        group_size=plan.schedule.group_size,
        pair_mode=pair_mode(plan),
        recompute=_recompute_mode(resolved),
        stage_edges=edges,
        order=plan.schedule.order,
        memory_limit_activations=plan.schedule.memory_limit_activations,
        costs=costs,
    )


def _transfers(resolved: ResolvedPlan) -> Transfers:
    table = resolved.sizes.table
    return Transfers(
        TransferMode.LATENCY,
        table([boundary.forward_picoseconds for boundary in resolved.boundaries]),
        table([boundary.backward_picoseconds for boundary in resolved.boundaries]),
    )


def _stage_times(resolved: ResolvedPlan) -> StageTimes:
    """Kinds that are not known on every stage are left out: where they are run that is a fault."""

    def every(field: str) -> Int64Array | None:
        found = [getattr(stage, field) for stage in resolved.stages]
        return None if None in found else resolved.sizes.table(found)

    table = resolved.sizes.table
    return StageTimes(
        forward=table([stage.forward_picoseconds for stage in resolved.stages]),
        backward=table([stage.backward_picoseconds for stage in resolved.stages]),
        recompute=table([stage.recompute_picoseconds for stage in resolved.stages]),
        backward_input=every("backward_input_picoseconds"),
        backward_weight=every("backward_weight_picoseconds"),
        forward_backward=every("pair_picoseconds"),
    )


def _recompute_mode(resolved: ResolvedPlan) -> RecomputeMode:
    written = has_recompute(plan_shape(resolved.plan))
    if not written and not any(stage.recompute_picoseconds for stage in resolved.stages):
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
    kinds = operation_kinds(simulated.timeline.program)
    how = "one after another"
    if OpKind.BACKWARD_INPUT in kinds:
        how += ", backwards in two halves where the schedule splits them"
    if OpKind.FORWARD_BACKWARD in kinds:
        how += ", fused pairs as one"
    operations = f"{', '.join(names)} of every microbatch on every stage, {how}"
    transfers = "each boundary's transfer delays its consumer by its latency and holds nobody"
    return (
        Statement(
            "operations", f"{operations} in the order of {simulated.timeline.program.schedule}"
        ),
        Statement("devices", "each rank runs one operation at a time"),
        Statement("transfers", transfers),
    )
