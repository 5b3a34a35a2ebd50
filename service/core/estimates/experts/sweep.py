"""What other capacity factors would make of a plan's layers with experts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from service.core.errors import Fault, FaultCode, WorkBudgetExceeded
from service.core.estimates.experts.repricing import ExpertTotals, Repriced, totals_of
from service.core.moe.overflow import Capacity, CapacityScope, OverflowPolicy
from service.core.plans.moe.results import PlanMoe
from service.core.plans.moe.work import MOST_EXPERT_UNITS, MOST_RUNS, expert_units, run_keys
from service.core.plans.plan import ResolvedPlan, Statement

__all__ = ["FactorPoint", "capacity_sweep"]


@dataclass(frozen=True, slots=True)
class FactorPoint:
    """A factor and what all layers come to under it."""

    factor: float
    totals: ExpertTotals


def capacity_sweep(
    resolved: ResolvedPlan, moe: PlanMoe, factors: Sequence[float]
) -> tuple[tuple[FactorPoint, ...], tuple[Statement, ...]]:
    """The plan's layers with each factor in place of its own, and what was assumed for it.

    A plan that limits nothing is taken to drop what is beyond each source's capacity. Raises
    `WorkBudgetExceeded` where pricing all of them is too much work.
    """
    runs = len(run_keys(moe.inputs)) * len(factors)
    if runs > MOST_RUNS:
        detail = (
            f"pricing the experts of this plan under {len(factors)} factors is {runs} different "
            f"runs of layers; one answer may take {MOST_RUNS}: ask for fewer factors at a time"
        )
        raise WorkBudgetExceeded([Fault(FaultCode.WORK_BUDGET, ("capacity_factors",), detail)])
    units = expert_units(moe.inputs) * len(factors)
    if units > MOST_EXPERT_UNITS:
        detail = (
            f"pricing the experts of this plan under {len(factors)} factors is {units} units of "
            f"work; one answer may take {MOST_EXPERT_UNITS}: ask for fewer factors at a time"
        )
        raise WorkBudgetExceeded([Fault(FaultCode.WORK_BUDGET, ("capacity_factors",), detail)])
    settings = moe.inputs.settings
    capacity = settings.capacity
    assumed: tuple[Statement, ...] = ()
    if not capacity.limits:
        capacity = Capacity(
            OverflowPolicy.DROP, 1.0, CapacityScope.SOURCE, capacity.minimum, capacity.alignment
        )
        assumed = (
            Statement(
                "capacity_factors_dropped",
                "the plan limits no expert: under each of the capacity factors what is beyond a "
                "source's own capacity is taken to be dropped",
            ),
        )
    return tuple(
        FactorPoint(factor, _totals(resolved, moe, replace(capacity, factor=factor)))
        for factor in factors
    ), assumed


def _totals(resolved: ResolvedPlan, moe: PlanMoe, capacity: Capacity) -> ExpertTotals:
    settings = replace(moe.inputs.settings, capacity=capacity)
    return totals_of(resolved, moe, Repriced.with_settings(resolved, moe, settings).all_runs())
