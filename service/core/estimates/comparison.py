"""Two plans side by side: what each takes, where they differ, what that did to the iteration."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from service.core.errors import Fault, FaultCode, WorkBudgetExceeded
from service.core.estimates.attribution import Attribution, attribute, laid_out, replays_of
from service.core.estimates.cadence import cadence_left_out, plan_cadence
from service.core.estimates.differences import (
    CutDifference,
    LifetimeDifference,
    LinkDifference,
    MemoryDifference,
    StageDifference,
    UpdateDifference,
    cut_differences,
    lifetime_differences,
    link_differences,
    memory_differences,
    stage_differences,
    update_differences,
)
from service.core.estimates.drained import is_drained
from service.core.estimates.estimate import (
    memory_assumptions,
    plan_live_activations,
    told_memory,
)
from service.core.estimates.expert_differences import ExpertDifferences, expert_differences
from service.core.estimates.iteration import (
    Iteration,
    plan_iteration,
    schedule_picoseconds,
    still_left_out,
)
from service.core.estimates.memory import PlanMemory
from service.core.estimates.simulation import SimulatedPlan, represented
from service.core.estimates.transfers import TransferExposure, transfer_exposure
from service.core.estimates.work import BATCH_WORK_BUDGET, Work, work_of
from service.core.memory.live import LiveActivations
from service.core.plans.plan import Plan, Statement
from service.core.plans.schedule import plan_family
from service.core.schedules.cadence import Cadence

__all__ = [
    "ComparedTerms",
    "Comparison",
    "check_comparison",
    "compare_terms",
    "compared_terms",
]


@dataclass(frozen=True, slots=True, eq=False)
class ComparedTerms:
    """The terms of one plan that are compared.

    `memory` is None where the weights of no rank are known. Statements are all that an answer with
    these terms makes, `assumptions` beside those of the plan and its documents.
    """

    simulated: SimulatedPlan
    cadence: Cadence
    iteration_parts: Iteration
    transfers: tuple[TransferExposure, ...]
    live: tuple[LiveActivations, ...]
    memory: PlanMemory | None
    assumptions: tuple[Statement, ...]
    represented: tuple[Statement, ...]
    not_represented: tuple[Statement, ...]

    @property
    def iteration(self) -> Fraction | None:
        """The predicted time of one iteration in picoseconds; None where it is unknown."""
        return self.iteration_parts.picoseconds

    @property
    def update(self) -> Fraction | None:
        """What the iteration takes beyond its schedule, in picoseconds.

        None where nothing is known of it, and where the iteration is unknown.
        """
        parts = self.iteration_parts
        schedule = schedule_picoseconds(self.simulated, self.cadence)
        nothing = not parts.reductions and parts.steps is None and not any(parts.exchanges)
        if nothing or parts.picoseconds is None or schedule is None:
            return None
        return parts.picoseconds - schedule

    @property
    def idle_fraction(self) -> float:
        """The idle share of makespan x ranks."""
        return self.simulated.timeline.idle_fraction


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """What differs between two plans.

    `attribution` is None where nothing can be shared out; `not_represented` says why then.
    """

    before: ComparedTerms
    after: ComparedTerms
    attribution: Attribution | None
    stages: tuple[StageDifference, ...]
    cuts: tuple[CutDifference, ...]
    links: tuple[LinkDifference, ...]
    lifetimes: tuple[LifetimeDifference, ...]
    updates: tuple[UpdateDifference, ...]
    memory: tuple[MemoryDifference, ...]
    experts: ExpertDifferences
    not_represented: tuple[Statement, ...]


def compared_terms(simulated: SimulatedPlan) -> ComparedTerms:
    """The terms of one plan."""
    cadence = plan_cadence(simulated)
    iteration = plan_iteration(simulated, cadence)
    memory, says = told_memory(simulated)
    live = plan_live_activations(simulated.resolved, simulated.timeline.program)
    return ComparedTerms(
        simulated=simulated,
        cadence=cadence,
        iteration_parts=iteration,
        transfers=transfer_exposure(simulated.timeline),
        live=live,
        memory=memory,
        assumptions=(
            *iteration.assumptions,
            *memory_assumptions(simulated.resolved, live),
            *says.assumptions,
        ),
        represented=(*represented(simulated), *says.represented),
        not_represented=(
            *(
                said
                for said in still_left_out(iteration, simulated.resolved.not_represented)
                if said.code not in says.represented_here
            ),
            *cadence_left_out(simulated, cadence),
            *says.not_represented,
        ),
    )


def compare_terms(before: ComparedTerms, after: ComparedTerms) -> Comparison:
    """Set a plan against the one before it."""
    one, other = before.simulated.resolved, after.simulated.resolved
    attribution = _attribution(before, after)
    return Comparison(
        before,
        after,
        attribution,
        stage_differences(one, other),
        cut_differences(before.simulated, after.simulated, (before.transfers, after.transfers)),
        link_differences(before.simulated, after.simulated),
        lifetime_differences(before.live, after.live),
        update_differences(before.iteration_parts, after.iteration_parts),
        memory_differences(before.memory, after.memory),
        expert_differences(one, other),
        (_MOVING, *(() if attribution else (_no_attribution(before, after),))),
    )


_MOVING = Statement(
    "moving",
    "what it takes to go from the one plan to the other: saving, moving, rebuilding and reloading "
    "its state",
)


def _attribution(before: ComparedTerms, after: ComparedTerms) -> Attribution | None:
    """Of the difference of the iterations; None where one is unknown, or it can't be shared out."""
    if before.iteration is None or after.iteration is None:
        return None
    found = attribute(before.simulated, after.simulated)
    if found is None or (before.update is None and after.update is None):
        return found
    return found.of_iterations(after.iteration - before.iteration)


def _no_attribution(before: ComparedTerms, after: ComparedTerms) -> Statement:
    """Why no cause is told."""
    drained = all(is_drained(terms.simulated) for terms in (before, after))
    one, other = (terms.simulated.timeline.program for terms in (before, after))
    if before.iteration is None or after.iteration is None:
        why = "one of the iterations is not known"
    elif not drained and laid_out(one) != laid_out(other):
        why = (
            "a pipeline is never drained, and only plans with the same stages, ranks and number of "
            "microbatches can exchange their operations then"
        )
    elif not drained:
        why = "a pipeline is never drained, and no steady pace was found with times of the other"
    else:
        why = "the times of one plan are too long to be counted exactly in the other"
    return Statement("attribution", f"what causes the difference: {why}")


def check_comparison(cases: Sequence[Sequence[Plan]], budget: int = BATCH_WORK_BUDGET) -> int:
    """The work of comparing in each case every later plan with the first, in units.

    Raises `WorkBudgetExceeded`, pointing at `plans`, when it is above the budget. Variants of plans
    are simulated without queues on links, in the order of either plan.
    """
    alone = variants = 0
    for plans in cases:
        works = [work_of(plan) for plan in plans]
        alone += sum(work.total for work in works)
        variants += sum(
            _variants(plans[0], works[0], second, other).total
            for second, other in zip(plans[1:], works[1:], strict=True)
        )
    if alone + variants > budget:
        what = f"these {len(cases[0])} plans"
        if len(cases) > 1:
            what += f" under {len(cases)} workloads"
        detail = (
            f"comparing {what} is {alone + variants} units of work, simulating them {alone}; one "
            f"request may take {budget}: compare fewer at a time, or with fewer microbatches"
        )
        raise WorkBudgetExceeded([Fault(FaultCode.WORK_BUDGET, ("plans",), detail)])
    return alone + variants


def _variants(first: Plan, work: Work, second: Plan, other: Work) -> Work:
    stages = max(plan.degrees.pipeline * plan.schedule.chunks_per_rank for plan in (first, second))
    replays = replays_of(stages)
    families = [plan_family(plan) for plan in (first, second)]
    # An order that is made by trying may have to be made again for the edges of the other plan.
    made = sum(family.passes for family in families)
    # Where a pipeline is never drained, the steady state is looked for in every variant.
    paced = any(family.update is not None for family in families)
    steady = max(work.steady_operations, other.steady_operations) * replays * paced
    operations = max(work.operations, other.operations)
    return Work(operations=operations, runs=replays + made, steady_operations=steady)
