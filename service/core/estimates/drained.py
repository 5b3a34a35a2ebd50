"""Whether the pipeline of a plan is empty between iterations."""

from service.core.estimates.simulation import SimulatedPlan
from service.core.plans.schedule import plan_family

__all__ = ["is_drained"]


def is_drained(simulated: SimulatedPlan) -> bool:
    """Whether it is, as in all but asynchronous schedules."""
    return plan_family(simulated.resolved.plan).update is None
