"""The same plan with tokens that choose their experts evenly, beside the plan as it is routed.

An average hides the expert that everybody waits for, so what rests on a routing is shown with what
an even one would have said. All of it is predicted, but for the bound of the cadence.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from service.core.estimates.cadence import plan_cadence
from service.core.estimates.estimate import plan_live_activations, told_memory
from service.core.estimates.iteration import plan_iteration
from service.core.estimates.simulation import SimulatedPlan
from service.core.memory.live import LiveActivations
from service.core.plans.plan import Plan, ResolvedPlan

__all__ = [
    "BesideUniform",
    "RoutedNumbers",
    "beside_uniform",
    "evenly_routed",
    "is_uneven",
    "known_peak",
]


@dataclass(frozen=True, slots=True)
class RoutedNumbers:
    """The main numbers of a plan under one routing, times in picoseconds.

    `iteration` is None where the pipeline is never drained and no steady pace was found. `steady`
    is what a microbatch adds in a long iteration, None where that is not known; `cadence_bound` is
    a lower bound of it, set by `bound_by`; `slowest_stage` has the most work.
    `peak_activation_bytes` are those of the fullest rank, and `peak_bytes` all that it holds; each
    is None where some of it is not known.
    """

    iteration: Fraction | None
    makespan: int
    steady: Fraction | None
    cadence_bound: Fraction
    bound_by: str
    slowest_stage: int
    peak_activation_bytes: int | None
    peak_bytes: int | None


@dataclass(frozen=True, slots=True)
class BesideUniform:
    """The plan as its tokens are routed, and with tokens that choose evenly."""

    routed: RoutedNumbers
    uniform: RoutedNumbers

    @property
    def iteration_difference(self) -> Fraction | None:
        """By how much the routing lengthens the iteration; None where either is unknown."""
        return _difference(self.routed.iteration, self.uniform.iteration)

    @property
    def steady_difference(self) -> Fraction | None:
        """By how much it lengthens what a microbatch adds; None where either is unknown."""
        return _difference(self.routed.steady, self.uniform.steady)


def _difference(routed: Fraction | None, uniform: Fraction | None) -> Fraction | None:
    return None if routed is None or uniform is None else routed - uniform


def is_uneven(resolved: ResolvedPlan) -> bool:
    """Whether a plan has experts whose tokens do not choose evenly."""
    return resolved.moe is not None and not resolved.moe.inputs.is_uniform


def evenly_routed(plan: Plan) -> Plan:
    """The plan with tokens that choose evenly; it needs no routing, and is itself without `moe`."""
    if plan.moe is None:
        return plan
    return replace(plan, moe=replace(plan.moe, routing=None, skew=None, routing_layers=None))


def beside_uniform(simulated: SimulatedPlan, uniform: SimulatedPlan) -> BesideUniform:
    """Both sets of numbers; `uniform` is the simulated `evenly_routed` plan."""
    return BesideUniform(_numbers(simulated), _numbers(uniform))


def known_peak(live: Sequence[LiveActivations]) -> int | None:
    """Bytes of the fullest rank; None where those of any are not known."""
    sizes = [one.peak_bytes for one in live]
    known = [size for size in sizes if size is not None]
    return max(known) if len(known) == len(sizes) else None


def _numbers(simulated: SimulatedPlan) -> RoutedNumbers:
    resolved, timeline = simulated.resolved, simulated.timeline
    cadence = plan_cadence(simulated)
    live = plan_live_activations(resolved, timeline.program)
    memory, _ = told_memory(simulated)
    return RoutedNumbers(
        iteration=plan_iteration(simulated, cadence).picoseconds,
        makespan=timeline.makespan,
        steady=None if cadence.steady is None else cadence.steady.per_microbatch,
        cadence_bound=cadence.bound,
        bound_by=cadence.bound_by,
        slowest_stage=cadence.slowest_stage,
        peak_activation_bytes=known_peak(live),
        peak_bytes=None
        if memory is None or memory.unknown
        else max(rank.verdict.total for rank in memory.ranks),
    )
