"""What one iteration takes: a run from empty to drained, or a part of one that never ends."""

from fractions import Fraction

from service.core.errors import Fault, FaultCode, WorkBudgetExceeded
from service.core.estimates.simulation import SimulatedPlan
from service.core.plans.schedule import plan_family
from service.core.schedules.cadence import Cadence
from service.core.schedules.transfers import TransferMode
from service.core.units import PICOSECONDS_PER_SECOND

__all__ = ["is_drained", "iteration_picoseconds", "throughput"]


def is_drained(simulated: SimulatedPlan) -> bool:
    """Whether the pipeline is empty between iterations, as all but asynchronous schedules do."""
    return plan_family(simulated.resolved.plan).update is None


def iteration_picoseconds(simulated: SimulatedPlan, cadence: Cadence) -> Fraction:
    """The predicted time of one iteration, exact.

    The makespan of the timeline where the pipeline is drained; else the microbatches times the pace
    of the steady state, as fill and drain come once in a whole training.

    Raises `WorkBudgetExceeded` where that pace is needed and there are too many stages to find it.
    """
    if is_drained(simulated):
        return Fraction(simulated.timeline.makespan)
    if cadence.steady is None:
        if simulated.timeline.mode is TransferMode.LINK:
            detail = (
                "the pipeline is never drained, and with queues on links no steady pace was found: "
                "use latency or blocking mode, or a drained schedule"
            )
            path = ("schedule", "transfer_mode")
            raise WorkBudgetExceeded([Fault(FaultCode.WORK_BUDGET, path, detail)])
        detail = (
            "the pace of so many stages, with microbatches that differ until the end, is not "
            "searched for: use fewer, or a drained schedule"
            if simulated.resolved.sizes.count > 1
            else "the pace of so many stages is not searched for: use fewer, or a drained schedule"
        )
        raise WorkBudgetExceeded(
            [Fault(FaultCode.WORK_BUDGET, ("parallelism", "pipeline"), detail)]
        )
    return simulated.resolved.plan.workload.microbatches * cadence.steady.per_microbatch


def throughput(simulated: SimulatedPlan, iteration: Fraction) -> tuple[float | None, float | None]:
    """Samples and tokens per second of the predicted iteration; None where a size is unknown."""
    resolved = simulated.resolved
    if resolved.global_batch_size is None:
        return None, None
    samples = resolved.global_batch_size * PICOSECONDS_PER_SECOND / iteration
    if resolved.sequence_length is None:
        return float(samples), None
    # Every microbatch has as many samples, so a sample has the mean length of the microbatches.
    tokens_per_sample = resolved.sizes.spread(resolved.sequence_length).mean
    return float(samples), float(samples) * float(tokens_per_sample)
