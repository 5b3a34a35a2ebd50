"""What one iteration takes: a run from empty to drained, or a part of one that never ends."""

from fractions import Fraction

from service.core.estimates.simulation import SimulatedPlan
from service.core.plans.schedule import plan_family
from service.core.schedules.cadence import Cadence
from service.core.units import PICOSECONDS_PER_SECOND

__all__ = ["is_drained", "iteration_picoseconds", "throughput"]


def is_drained(simulated: SimulatedPlan) -> bool:
    """Whether the pipeline is empty between iterations, as all but asynchronous schedules do."""
    return plan_family(simulated.resolved.plan).update is None


def iteration_picoseconds(simulated: SimulatedPlan, cadence: Cadence) -> Fraction | None:
    """The predicted time of one iteration, exact; None where nobody knows it.

    The makespan of the timeline where the pipeline is drained; else the microbatches times the pace
    of the steady state, as fill and drain come once in a whole training, and unknown without it.
    """
    if is_drained(simulated):
        return Fraction(simulated.timeline.makespan)
    if cadence.steady is None:
        return None
    return simulated.resolved.plan.workload.microbatches * cadence.steady.per_microbatch


def throughput(
    simulated: SimulatedPlan, iteration: Fraction | None
) -> tuple[float | None, float | None]:
    """Samples and tokens per second of an iteration; None where it or a size is unknown."""
    resolved = simulated.resolved
    if resolved.global_batch_size is None or iteration is None:
        return None, None
    samples = resolved.global_batch_size * PICOSECONDS_PER_SECOND / iteration
    if resolved.sequence_length is None:
        return float(samples), None
    # Every microbatch has as many samples, so a sample has the mean length of the microbatches.
    tokens_per_sample = resolved.sizes.spread(resolved.sequence_length).mean
    return float(samples), float(samples) * float(tokens_per_sample)
