"""What a plan has to know of its schedule: how many stages, where they live, which backwards."""

from service.core.errors import Fault, FaultCode
from service.core.plans.plan import Plan
from service.core.schedules.catalogue import (
    SCHEDULES,
    ScheduleFamily,
    check_shape,
    schedule_family,
)
from service.core.schedules.program import PairMode
from service.core.schedules.shape import Backward, Placement, Shape

__all__ = [
    "check_schedule",
    "has_backward",
    "multiple_of_chunks",
    "pair_mode",
    "plan_family",
    "plan_shape",
    "splits_backward",
    "stage_count",
    "stage_ranks",
]


def plan_family(plan: Plan) -> ScheduleFamily:
    """The plan's row of the table of schedules. Raises `InvalidInput` on an unknown name."""
    return schedule_family(plan.schedule.kind)


def plan_shape(plan: Plan) -> Shape:
    """The counts of the plan's schedule."""
    return Shape(
        ranks=plan.degrees.pipeline,
        microbatches=plan.workload.microbatches,
        chunks_per_rank=plan.schedule.chunks_per_rank,
        group_size=plan.schedule.group_size,
        order=plan.schedule.order,
        memory_limit_activations=plan.schedule.memory_limit_activations,
    )


def check_schedule(plan: Plan) -> list[Fault]:
    """Every reason why the schedule is not legal with the plan's counts."""
    family = plan_family(plan)
    faults = check_shape(family, plan_shape(plan))
    if plan.schedule.pair_mode is not None and not family.has_pairs:
        paired = " or ".join(other.name for other in SCHEDULES.values() if other.has_pairs)
        detail = f"{family.name} has no pairs of operations: leave this out, or use {paired}"
        path = ("schedule", "pair_mode")
        faults.append(Fault(FaultCode.EXCLUSIVE_FIELDS, path, detail))
    return faults


def has_backward(plan: Plan) -> bool:
    """Whether the schedule of the plan runs backwards."""
    return plan_family(plan).backward(plan_shape(plan)) is not Backward.NONE


def splits_backward(plan: Plan) -> bool:
    """Whether the schedule runs the halves of a backward apart, so that both must be known."""
    return plan_family(plan).backward(plan_shape(plan)) is Backward.SPLIT


def stage_ranks(plan: Plan) -> Placement | None:
    """The pipeline rank of each stage in each direction; None without a legal schedule."""
    family, shape = plan_family(plan), plan_shape(plan)
    return None if check_shape(family, shape) else family.placement(shape)


def stage_count(plan: Plan) -> int:
    """How many stages the schedule runs: pipeline x chunks_per_rank, or those of a given order."""
    ranks = stage_ranks(plan) if plan_family(plan).takes_order else None
    if ranks is None:
        return plan.degrees.pipeline * plan.schedule.chunks_per_rank
    return len(ranks[0])


def multiple_of_chunks(plan: Plan, stages: int) -> str:
    """What to say of a number of stages that no number of ranks could hold; nothing elsewhere."""
    chunks = plan.schedule.chunks_per_rank
    return f" (for {plan.schedule.kind} a multiple of {chunks})" if stages % chunks else ""


def pair_mode(plan: Plan) -> PairMode:
    """As the plan says; else fused where its stages say how long pairs take, and serial if not."""
    if plan.schedule.pair_mode is not None:
        return plan.schedule.pair_mode
    timed = any(stage.pair_seconds is not None for stage in plan.stages or ())
    return PairMode.FUSED if timed and plan_family(plan).has_pairs else PairMode.SERIAL
