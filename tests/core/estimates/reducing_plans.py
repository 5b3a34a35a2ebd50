"""Plans whose replicas reduce their gradients over a network, for the tests of iterations."""

from collections.abc import Sequence
from dataclasses import replace

from service.core.estimates.estimate import Estimate, estimate_plan
from service.core.estimates.simulation import simulate_plan
from service.core.models.dtypes import DType
from service.core.plans.gradient_reduction import GradientReduction
from service.core.plans.plan import (
    Degrees,
    Dimension,
    GivenStage,
    Placement,
    Plan,
    Schedule,
    Workload,
)
from service.core.plans.resolve import resolve
from service.core.plans.training import Optimizer, OptimizerSharding, Training
from service.core.topology.cluster import Cluster, VertexKind
from tests.core.plans.worlds import cluster

__all__ = ["LATENCY", "SECOND", "estimated", "plan_of", "trained", "with_memory", "world"]

SECOND = 10**12
# Six links of 2 us between GPUs of two hosts, whose NICs carry 8 GB/s.
LATENCY = 12 * 10**6
NIC = 8e9


def trained(
    reduction: GradientReduction | None = None,
    sharding: OptimizerSharding = OptimizerSharding.NONE,
    step_seconds: float | tuple[float, ...] | None = None,
) -> Training:
    """SGD in bf16: two bytes of gradient and of weight for each parameter."""
    return Training(
        Optimizer.SGD,
        weight_dtype=DType.BF16,
        optimizer_sharding=sharding,
        gradient_reduction=reduction,
        optimizer_step_seconds=step_seconds,
    )


def plan_of(
    parameters: Sequence[int | None],
    *,
    microbatches: int = 2,
    schedule: str = "1f1b",
    chunks: int = 1,
    data: int = 2,
    tensor: int = 1,
    training: Training | None = None,
    split: bool = False,
    topology: bool = True,
    times: tuple[float, float] = (1.0, 2.0),
) -> Plan:
    """Stages of a second forward and two backward; each replica is a host of its own."""
    forward, backward = times
    stage = GivenStage(forward, backward_seconds=backward)
    if split:
        half = backward / 2
        stage = GivenStage(forward, backward_input_seconds=half, backward_weight_seconds=half)
    return Plan(
        degrees=Degrees(pipeline=len(parameters) // chunks, data=data, tensor=tensor),
        workload=Workload(microbatches=microbatches),
        schedule=Schedule(kind=schedule, chunks_per_rank=chunks),
        stages=tuple(replace(stage, parameter_count=count) for count in parameters),
        topology="some@1" if topology else None,
        placement=Placement(order=(Dimension.TENSOR, Dimension.PIPELINE, Dimension.DATA)),
        training=training or trained(),
    )


def world(plan: Plan, *, latency: bool = True, rate: float = NIC) -> Cluster:
    """As many hosts as replicas, each with the devices of one."""
    degrees = plan.degrees
    return cluster(
        hosts=degrees.data,
        gpus=degrees.world_size // degrees.data,
        latency_seconds=2e-6 if latency else 0.0,
        effective=rate,
    )


def with_memory(made: Cluster, bytes_per_second: float) -> Cluster:
    """The same cluster whose devices have a known memory bandwidth."""
    vertices = {
        name: replace(vertex, memory_bytes_per_second=bytes_per_second)
        if vertex.kind is VertexKind.GPU
        else vertex
        for name, vertex in made.vertices.items()
    }
    return Cluster(vertices, made.links)


def estimated(
    plan: Plan, made: Cluster | None = None, *, latency: bool = True, rate: float = NIC
) -> Estimate:
    """The estimate of a plan on the hosts of `world`, or on a cluster."""
    found = None
    if plan.topology is not None:
        found = made or world(plan, latency=latency, rate=rate)
    return estimate_plan(simulate_plan(resolve(plan, cluster=found)))
