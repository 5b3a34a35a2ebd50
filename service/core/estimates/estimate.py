"""One plan, one estimate: every term computed from the same timeline."""

from dataclasses import dataclass

from service.core.estimates.bounds import IterationBound, iteration_lower_bounds
from service.core.estimates.simulation import SimulatedPlan
from service.core.estimates.transfers import TransferExposure, transfer_exposure
from service.core.memory.live import LiveActivations, live_activations
from service.core.plans.plan import Statement
from service.core.schedules.bubble import Bubble, measure_bubble
from service.core.schedules.cadence import Cadence, measure_cadence
from service.core.schedules.critical_path import CriticalPath, find_critical_path
from service.core.schedules.effects import MicrobatchEffect, effects_of_microbatches
from service.core.units import PICOSECONDS_PER_SECOND

__all__ = ["Estimate", "estimate_plan", "plan_live_activations", "throughput"]


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """All terms of one plan. `other_microbatch_counts` is None where the count fixes the size."""

    simulated: SimulatedPlan
    cadence: Cadence
    bubble: Bubble
    transfers: tuple[TransferExposure, ...]
    live: tuple[LiveActivations, ...]
    lower_bounds: tuple[IterationBound, ...]
    critical_path: CriticalPath
    other_microbatch_counts: tuple[MicrobatchEffect, ...] | None
    not_represented: tuple[Statement, ...]


def estimate_plan(simulated: SimulatedPlan) -> Estimate:
    """Compute every term of a simulated plan."""
    resolved = simulated.resolved
    timeline = simulated.timeline
    effects, left_out = None, []
    if resolved.held_fixed == "global_batch_size":
        left_out.append(
            Statement(
                "other_microbatch_counts",
                "the global batch is held fixed, so another number of microbatches has another "
                "size, whose stage times these are not",
            )
        )
    else:
        effects = effects_of_microbatches(timeline)
    return Estimate(
        simulated=simulated,
        cadence=measure_cadence(timeline),
        bubble=measure_bubble(timeline),
        transfers=transfer_exposure(timeline),
        live=plan_live_activations(simulated),
        lower_bounds=iteration_lower_bounds(simulated),
        critical_path=find_critical_path(timeline),
        other_microbatch_counts=effects,
        not_represented=tuple(left_out),
    )


def plan_live_activations(simulated: SimulatedPlan) -> tuple[LiveActivations, ...]:
    """Live activations of each pipeline rank, in bytes too where every stage's are known."""
    sizes = [stage.activation_bytes for stage in simulated.resolved.stages]
    known = [size for size in sizes if size is not None]
    complete = known if len(known) == len(sizes) else None
    return live_activations(simulated.timeline.program, complete)


def throughput(simulated: SimulatedPlan) -> tuple[float | None, float | None]:
    """Samples and tokens per second of the predicted iteration; None where a size is unknown."""
    resolved = simulated.resolved
    if resolved.global_batch_size is None:
        return None, None
    samples = resolved.global_batch_size * PICOSECONDS_PER_SECOND / simulated.timeline.makespan
    if resolved.sequence_length is None:
        return samples, None
    return samples, samples * resolved.sequence_length
