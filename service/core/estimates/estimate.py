"""One plan, one estimate: every term computed from the same timeline."""

from dataclasses import dataclass
from fractions import Fraction

from service.core.estimates.activations import activation_deltas
from service.core.estimates.bounds import IterationBound, iteration_lower_bounds
from service.core.estimates.iteration import is_drained, iteration_picoseconds
from service.core.estimates.simulation import SimulatedPlan
from service.core.estimates.transfers import TransferExposure, transfer_exposure
from service.core.memory.live import LiveActivations, live_activations
from service.core.plans.plan import Statement
from service.core.plans.schedule import plan_family
from service.core.schedules.bubble import Bubble, measure_bubble
from service.core.schedules.cadence import Cadence, measure_cadence
from service.core.schedules.critical_path import CriticalPath, find_critical_path
from service.core.schedules.effects import MicrobatchEffect, effects_of_microbatches
from service.core.schedules.sensitivity import Sensitivity, measure_sensitivity
from service.core.schedules.slack import Slack, measure_slack
from service.core.schedules.weight_versions import RankVersions, weight_versions

__all__ = [
    "Estimate",
    "cadence_left_out",
    "estimate_plan",
    "other_microbatch_counts",
    "plan_live_activations",
]


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """All terms of one plan.

    `iteration` is in picoseconds. `weight_versions` is None where all microbatches of an iteration
    meet the same weights. `other_microbatch_counts` is None where the count fixes the size, where
    microbatches differ, and where the pipeline is never drained.
    """

    simulated: SimulatedPlan
    iteration: Fraction
    weight_versions: tuple[RankVersions, ...] | None
    cadence: Cadence
    bubble: Bubble
    transfers: tuple[TransferExposure, ...]
    live: tuple[LiveActivations, ...]
    lower_bounds: tuple[IterationBound, ...]
    critical_path: CriticalPath
    slack: Slack
    sensitivity: Sensitivity
    other_microbatch_counts: tuple[MicrobatchEffect, ...] | None
    not_represented: tuple[Statement, ...]


def estimate_plan(simulated: SimulatedPlan) -> Estimate:
    """Compute every term of a simulated plan."""
    resolved = simulated.resolved
    timeline = simulated.timeline
    cadence = measure_cadence(timeline)
    path = find_critical_path(timeline)
    counts, counts_left_out = other_microbatch_counts(simulated)
    update = plan_family(resolved.plan).update
    return Estimate(
        simulated=simulated,
        iteration=iteration_picoseconds(simulated, cadence),
        weight_versions=None if update is None else weight_versions(timeline.program, update),
        cadence=cadence,
        bubble=measure_bubble(timeline),
        transfers=transfer_exposure(timeline),
        live=plan_live_activations(simulated),
        lower_bounds=iteration_lower_bounds(simulated),
        critical_path=path,
        slack=measure_slack(timeline),
        sensitivity=measure_sensitivity(timeline, path),
        other_microbatch_counts=counts,
        not_represented=(*cadence_left_out(cadence), *counts_left_out),
    )


def other_microbatch_counts(
    simulated: SimulatedPlan,
) -> tuple[tuple[MicrobatchEffect, ...] | None, tuple[Statement, ...]]:
    """What other numbers of microbatches would do, and what can't be said of them.

    None where the count fixes the size of a microbatch, where microbatches differ, and where the
    pipeline is never drained.
    """
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
    effects = effects_of_microbatches(simulated.timeline)
    if effects[-1].microbatches > simulated.timeline.program.microbatches:
        return effects, ()
    return effects, _counts_left_out(
        "twice as many microbatches: the schedule refuses that count, or it is too much to simulate"
    )


def _counts_left_out(detail: str) -> tuple[Statement, ...]:
    return (Statement("other_microbatch_counts", detail),)


def cadence_left_out(cadence: Cadence) -> tuple[Statement, ...]:
    """What an answer must say when the pace of the steady state is absent."""
    if cadence.steady is not None:
        return ()
    detail = (
        "the pace of the steady state: the order or the sizes of the microbatches do not repeat "
        "themselves, the slowest stages of two phases need not follow one another, or the stages "
        "and boundaries are too many"
    )
    return (Statement("steady_cadence", detail),)


def plan_live_activations(simulated: SimulatedPlan) -> tuple[LiveActivations, ...]:
    """Live activations of each pipeline rank, in bytes too where every stage's are known."""
    deltas = activation_deltas(simulated.resolved)
    return live_activations(simulated.timeline.program, deltas)
