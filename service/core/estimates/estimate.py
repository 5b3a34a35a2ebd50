"""One plan, one estimate: every term computed from the same timeline."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from service.core.errors import InvalidInput
from service.core.estimates.activations import activation_deltas, recomputing_stages
from service.core.estimates.bounds import (
    IterationBound,
    iteration_lower_bounds,
    plan_link_loads,
)
from service.core.estimates.cadence import cadence_left_out, plan_cadence
from service.core.estimates.drained import is_drained
from service.core.estimates.efficiency import Efficiency, plan_efficiency
from service.core.estimates.iteration import Iteration, plan_iteration
from service.core.estimates.iteration_bounds import bounds_beyond_schedule
from service.core.estimates.least_times import least_times
from service.core.estimates.memory import PlanMemory, plan_memory
from service.core.estimates.memory_statements import NOTHING_SAID, MemorySays, memory_says
from service.core.estimates.simulation import SimulatedPlan
from service.core.estimates.transfers import TransferExposure, transfer_exposure
from service.core.memory.live import LiveActivations, live_activations
from service.core.plans import memory_statements, statements
from service.core.plans.plan import ResolvedPlan, Statement
from service.core.plans.schedule import plan_family
from service.core.schedules.bubble import Bubble, measure_bubble
from service.core.schedules.cadence import Cadence
from service.core.schedules.critical_path import CriticalPath, find_critical_path
from service.core.schedules.effects import MicrobatchEffect, effects_of_all
from service.core.schedules.program import Program
from service.core.schedules.sensitivity import Sensitivity, measure_sensitivity
from service.core.schedules.slack import Slack, measure_slack
from service.core.schedules.transfers import TransferMode
from service.core.schedules.weight_versions import RankVersions, weight_versions

__all__ = [
    "Estimate",
    "estimate_plan",
    "estimate_plans",
    "memory_assumptions",
    "other_microbatch_counts",
    "plan_live_activations",
    "told_memory",
]


# What other numbers of microbatches would do, and what can't be said of them.
OtherCounts = tuple[tuple[MicrobatchEffect, ...] | None, tuple[Statement, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """All terms of one plan.

    `weight_versions` is None where all microbatches of an iteration
    meet the same weights. `sensitivity` is None in link mode. `other_microbatch_counts` is None
    where the count fixes the size, where microbatches differ, and where the pipeline is never
    drained. `memory` is None where no rank's weights are known. `assumptions` are those that follow
    from the terms, beside those of the resolved plan; `represented_here` are codes of what
    resolving the plan left out and the terms do not.
    """

    simulated: SimulatedPlan
    iteration_parts: Iteration
    efficiency: Efficiency
    weight_versions: tuple[RankVersions, ...] | None
    cadence: Cadence
    bubble: Bubble
    transfers: tuple[TransferExposure, ...]
    live: tuple[LiveActivations, ...]
    memory: PlanMemory | None
    lower_bounds: tuple[IterationBound, ...]
    critical_path: CriticalPath
    slack: Slack
    sensitivity: Sensitivity | None
    other_microbatch_counts: tuple[MicrobatchEffect, ...] | None
    assumptions: tuple[Statement, ...]
    represented: tuple[Statement, ...]
    not_represented: tuple[Statement, ...]
    represented_here: frozenset[str]

    @property
    def iteration(self) -> Fraction | None:
        """The predicted time of one iteration in picoseconds.

        None where the pipeline is never drained and no steady pace was found.
        """
        return self.iteration_parts.picoseconds


def estimate_plan(simulated: SimulatedPlan) -> Estimate:
    """Compute every term of a simulated plan."""
    (outcome,) = estimate_plans([simulated])
    if isinstance(outcome, InvalidInput):
        raise outcome
    return outcome


def estimate_plans(simulated: Sequence[SimulatedPlan]) -> list[Estimate | InvalidInput]:
    """`estimate_plan` of each, or what is wrong with it.

    What other numbers of microbatches would do is simulated together for plans of one program.
    """
    of_program: dict[Program, list[int]] = {}
    for index, one in enumerate(simulated):
        of_program.setdefault(one.timeline.program, []).append(index)
    outcomes: dict[int, Estimate | InvalidInput] = {}
    for members in of_program.values():
        outcomes |= zip(members, _estimates([simulated[i] for i in members]), strict=True)
    return [outcomes[index] for index in range(len(simulated))]


def _estimates(simulated: Sequence[SimulatedPlan]) -> list[Estimate | InvalidInput]:
    """Those of plans of one program."""
    try:
        counts = _other_microbatch_counts(simulated)
        return [_estimate(*terms) for terms in zip(simulated, counts, strict=True)]
    except InvalidInput as error:
        if len(simulated) == 1:
            return [error]
        # Which of them it was is found by asking for each alone.
        return [outcome for one in simulated for outcome in _estimates([one])]


def _estimate(simulated: SimulatedPlan, counts: OtherCounts) -> Estimate:
    resolved = simulated.resolved
    timeline = simulated.timeline
    # Every rank pair is in it, so it is the dearest term of a plan on many ranks.
    loads, least = plan_link_loads(simulated), least_times(simulated)
    cadence = plan_cadence(simulated, loads, least)
    iteration = plan_iteration(simulated, cadence)
    efficiency = plan_efficiency(simulated, iteration.picoseconds)
    queues = timeline.mode is TransferMode.LINK
    path = find_critical_path(timeline)
    effects, counts_left_out = counts
    live = plan_live_activations(resolved, timeline.program)
    update = plan_family(resolved.plan).update
    memory, says = told_memory(simulated)
    return Estimate(
        simulated=simulated,
        iteration_parts=iteration,
        efficiency=efficiency,
        weight_versions=None if update is None else weight_versions(timeline.program, update),
        cadence=cadence,
        bubble=measure_bubble(timeline),
        transfers=transfer_exposure(timeline),
        live=live,
        memory=memory,
        lower_bounds=(
            *iteration_lower_bounds(simulated, loads, least),
            *bounds_beyond_schedule(simulated, iteration, least),
        ),
        critical_path=path,
        slack=measure_slack(timeline),
        sensitivity=None if queues else measure_sensitivity(timeline, path),
        other_microbatch_counts=effects,
        assumptions=(
            *iteration.assumptions,
            *efficiency.assumptions,
            *memory_assumptions(resolved, live),
            *says.assumptions,
        ),
        represented=says.represented,
        represented_here=says.represented_here,
        not_represented=(
            *efficiency.not_represented,
            *cadence_left_out(simulated, cadence),
            statements.SENSITIVITY if queues else statements.PATH_LINKS,
            *counts_left_out,
            *says.not_represented,
        ),
    )


def told_memory(simulated: SimulatedPlan) -> tuple[PlanMemory | None, MemorySays]:
    """The memory of a plan and what it says of itself.

    None where no rank's weights are known, and then nothing.
    """
    resolved, timeline = simulated.resolved, simulated.timeline
    if all(weights is None for weights in resolved.rank_weights):
        return None, NOTHING_SAID
    memory = plan_memory(resolved, timeline.program, timeline)
    return memory, memory_says(resolved, memory)


def other_microbatch_counts(simulated: SimulatedPlan) -> OtherCounts:
    """What other numbers of microbatches would do, and what can't be said of them.

    None where the count fixes the size of a microbatch, where microbatches differ, and where the
    pipeline is never drained.
    """
    return _other_microbatch_counts([simulated])[0]


def _other_microbatch_counts(simulated: Sequence[SimulatedPlan]) -> list[OtherCounts]:
    """Those of plans of one program, simulated together."""
    found = {index: _fixed_count(one) for index, one in enumerate(simulated)}
    free = [index for index, fixed in found.items() if fixed is None]
    counts: dict[int, OtherCounts] = {i: fixed for i, fixed in found.items() if fixed is not None}
    effects = effects_of_all([simulated[index].timeline for index in free]) if free else []
    for index, of_plan in zip(free, effects, strict=True):
        has_twice = of_plan[-1].microbatches > simulated[index].timeline.program.microbatches
        counts[index] = (
            of_plan,
            ()
            if has_twice
            else _counts_left_out(
                "twice as many microbatches: the schedule refuses that count, or it is too much to "
                "simulate"
            ),
        )
    return [counts[index] for index in range(len(simulated))]


def _fixed_count(simulated: SimulatedPlan) -> OtherCounts | None:
    """Why there is no other number of microbatches, if there is none."""
    if simulated.resolved.held_fixed == "global_batch_size":
        return None, _counts_left_out(
            "the global batch is held fixed, so another number of microbatches has another "
            "size, whose stage times these are not"
        )
    if simulated.resolved.sizes.count > 1:
        return None, _counts_left_out(
            "the microbatches differ, and nobody says of what size further ones would be"
        )
    if not is_drained(simulated):
        return None, _counts_left_out(
            "the pipeline is never drained, so a microbatch takes the pace of the steady state "
            "however many an iteration has"
        )
    return None


def _counts_left_out(detail: str) -> tuple[Statement, ...]:
    return (Statement("other_microbatch_counts", detail),)


def plan_live_activations(resolved: ResolvedPlan, program: Program) -> tuple[LiveActivations, ...]:
    """Live activations of each pipeline rank, in bytes too where every stage's are known.

    They follow from the order of the plan's program alone.
    """
    deltas = activation_deltas(resolved)
    return live_activations(program, deltas, recomputing=recomputing_stages(resolved))


def memory_assumptions(
    resolved: ResolvedPlan, live: Sequence[LiveActivations]
) -> tuple[Statement, ...]:
    """Where live activations alone are more than a device holds; says nothing where they are less.

    Less is no verdict: weights, optimizer state and buffers are not counted.
    """
    above = [
        (one.rank, one.peak_bytes, memory)
        for one, memory in zip(live, resolved.memory_bytes, strict=True)
        if one.peak_bytes is not None and memory is not None and one.peak_bytes > memory
    ]
    if not above:
        return ()
    return (memory_statements.live_above_memory(*above[0], ranks=len(above)),)
