"""Small plans made for the tests of estimates."""

from service.core.estimates.estimate import plan_live_activations
from service.core.estimates.simulation import SimulatedPlan, plan_program, simulate_plan
from service.core.memory.live import LiveActivations
from service.core.plans.plan import Degrees, GivenStage, Placement, Plan, Schedule, Workload
from service.core.plans.resolve import resolve
from service.core.schedules.transfers import TransferMode
from service.core.topology.cluster import Cluster

__all__ = ["given_plan", "live_of", "simulated"]


def given_plan(
    stages: list[GivenStage],
    *,
    microbatches: int = 8,
    schedule: str = "1f1b",
    devices: tuple[str, ...] | None = None,
    topology: str | None = None,
    microbatch_size: int | None = None,
    global_batch_size: int | None = None,
    sequence_length: int | None = None,
    data: int = 1,
    transfer_mode: TransferMode | None = None,
) -> Plan:
    """A plan that states its costs itself."""
    return Plan(
        degrees=Degrees(pipeline=len(stages), data=data),
        workload=Workload(
            microbatches=microbatches,
            microbatch_size=microbatch_size,
            global_batch_size=global_batch_size,
            sequence_length=sequence_length,
        ),
        schedule=Schedule(kind=schedule, transfer_mode=transfer_mode),
        stages=tuple(stages),
        topology=topology,
        placement=Placement(devices=devices),
    )


def simulated(plan: Plan, cluster: Cluster | None = None) -> SimulatedPlan:
    """The plan resolved and simulated."""
    return simulate_plan(resolve(plan, cluster=cluster))


def live_of(plan: Plan) -> tuple[LiveActivations, ...]:
    """Live activations of the plan's order, which is not simulated."""
    resolved = resolve(plan)
    return plan_live_activations(resolved, plan_program(resolved))
