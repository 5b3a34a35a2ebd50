"""The cadence of a plan: that of its timeline, and what its links allow."""

from dataclasses import replace

from service.core.estimates.bounds import cadence_link_bound
from service.core.estimates.drained import is_drained
from service.core.estimates.least_times import least_times
from service.core.estimates.simulation import SimulatedPlan
from service.core.plans import statements
from service.core.plans.plan import Statement
from service.core.schedules.cadence import Cadence, measure_cadence
from service.core.schedules.no_steady import NoSteady
from service.core.schedules.stage_times import StageTimes
from service.core.schedules.transfers import TransferMode
from service.core.topology.bounds import LinkLoads

__all__ = ["cadence_left_out", "plan_cadence"]


_NO_STEADY = {
    NoSteady.ORDER_MADE_BY_TRYING: "the order of this schedule is found by trying, and there is no "
    "rule by which it would go on",
    NoSteady.ORDER_WRITTEN_OUT: "the order is written out, and nobody says how it would go on",
    NoSteady.ORDER_OF_WHOLE_ITERATIONS: "all microbatches of a chunk are one block, however many "
    "there are, so nothing in the order repeats itself within an iteration",
    NoSteady.PHASES_APART: "what a stage makes does not lead to the last one, so the slowest "
    "stages of the forwards and of the backwards need not follow one another",
    NoSteady.MICROBATCHES_DO_NOT_REPEAT: "the sizes of the microbatches do not repeat themselves "
    "within an iteration",
    NoSteady.GROUPS_DO_NOT_GO_ON: "the schedule allows no longer iteration with such groups of "
    "microbatches",
    NoSteady.TOO_LARGE: "there are too many stages, or too many microbatches and links until all "
    "repeats itself, to look for it",
    NoSteady.QUEUES_DO_NOT_REPEAT: "with queues on links a long simulated iteration did not come "
    "to repeat itself",
}


def plan_cadence(
    simulated: SimulatedPlan, loads: LinkLoads | None = None, least: StageTimes | None = None
) -> Cadence:
    """As `measure_cadence`; in link mode no order repeats faster than the busiest link allows.

    `loads` are those of `plan_link_loads` and `least` those of `least_times`, for who has them.
    """
    least = least_times(simulated) if least is None else least
    cadence = measure_cadence(simulated.timeline, least)
    of_link = cadence_link_bound(simulated, loads)
    if of_link is None or of_link[0] <= cadence.bound:
        return cadence
    return replace(cadence, bound=of_link[0], bound_by=of_link[1])


def cadence_left_out(simulated: SimulatedPlan, cadence: Cadence) -> tuple[Statement, ...]:
    """What an answer must say when the pace of the steady state, or its cycle, is absent."""
    queues = simulated.timeline.mode is TransferMode.LINK
    if cadence.steady is not None:
        if not queues:
            return ()
        detail = (
            "the cycle that sets the pace: with queues on links there is no cycle of waits; the "
            "pace is that of a long simulated iteration which came to repeat itself"
        )
        return (Statement("steady_cycle", detail),)
    if cadence.no_steady is None:
        raise RuntimeError("there is neither a pace nor a reason why not")
    reason = _NO_STEADY[cadence.no_steady]
    left_out = [Statement("steady_cadence", f"the pace of the steady state: {reason}")]
    if not is_drained(simulated):
        left_out.append(statements.ITERATION)
    return tuple(left_out)
