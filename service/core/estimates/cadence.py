"""The cadence of a plan: that of its timeline, and what its links allow."""

from dataclasses import replace

from service.core.estimates.bounds import cadence_link_bound
from service.core.estimates.simulation import SimulatedPlan
from service.core.plans.plan import Statement
from service.core.schedules.cadence import Cadence, measure_cadence
from service.core.schedules.transfers import TransferMode
from service.core.topology.bounds import LinkLoads

__all__ = ["cadence_left_out", "plan_cadence"]


def plan_cadence(simulated: SimulatedPlan, loads: LinkLoads | None = None) -> Cadence:
    """As `measure_cadence`; in link mode no order repeats faster than the busiest link allows.

    `loads` are those of `plan_link_loads`, for who has them.
    """
    cadence = measure_cadence(simulated.timeline)
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
    detail = (
        "the pace of the steady state: the order or the sizes of the microbatches do not repeat "
        "themselves, the slowest stages of two phases need not follow one another, or the stages "
        "and boundaries are too many"
    )
    if queues:
        detail += "; or with queues on links a long simulated iteration did not repeat itself"
    return (Statement("steady_cadence", detail),)
