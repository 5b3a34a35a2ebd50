"""Two plans side by side: what each takes, where they differ, what that did to the iteration."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from service.core.errors import Fault, FaultCode, WorkBudgetExceeded
from service.core.estimates.attribution import Attribution, attribute, replays_of
from service.core.estimates.cadence import cadence_left_out, plan_cadence
from service.core.estimates.differences import (
    CutDifference,
    LifetimeDifference,
    LinkDifference,
    StageDifference,
    cut_differences,
    lifetime_differences,
    link_differences,
    stage_differences,
)
from service.core.estimates.estimate import memory_assumptions, plan_live_activations
from service.core.estimates.iteration import schedule_picoseconds
from service.core.estimates.simulation import SimulatedPlan
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
    """The terms of one plan that are compared; `iteration` in picoseconds, None where unknown."""

    simulated: SimulatedPlan
    cadence: Cadence
    iteration: Fraction | None
    transfers: tuple[TransferExposure, ...]
    live: tuple[LiveActivations, ...]
    assumptions: tuple[Statement, ...]
    not_represented: tuple[Statement, ...]

    @property
    def idle_fraction(self) -> float:
        """The idle share of makespan x ranks."""
        timeline = self.simulated.timeline
        busy: int = sum(timeline.busy.tolist())
        return 1 - busy / (timeline.makespan * timeline.program.ranks)


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """What differs between two plans; `attribution` is None where nothing can be shared out."""

    before: ComparedTerms
    after: ComparedTerms
    attribution: Attribution | None
    stages: tuple[StageDifference, ...]
    cuts: tuple[CutDifference, ...]
    links: tuple[LinkDifference, ...]
    lifetimes: tuple[LifetimeDifference, ...]


def compared_terms(simulated: SimulatedPlan) -> ComparedTerms:
    """The terms of one plan."""
    cadence = plan_cadence(simulated)
    live = plan_live_activations(simulated.resolved, simulated.timeline.program)
    return ComparedTerms(
        simulated=simulated,
        cadence=cadence,
        iteration=schedule_picoseconds(simulated, cadence),
        transfers=transfer_exposure(simulated.timeline),
        live=live,
        assumptions=memory_assumptions(simulated.resolved, live),
        not_represented=cadence_left_out(simulated, cadence),
    )


def compare_terms(before: ComparedTerms, after: ComparedTerms) -> Comparison:
    """Set a plan against the one before it."""
    one, other = before.simulated.resolved, after.simulated.resolved
    return Comparison(
        before,
        after,
        attribute(before.simulated, after.simulated),
        stage_differences(one, other),
        cut_differences(before.simulated, after.simulated, (before.transfers, after.transfers)),
        link_differences(before.simulated, after.simulated),
        lifetime_differences(before.live, after.live),
    )


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
