"""What is wrong with what a plan says of training, experts, its parameters and memory."""

from service.core.errors import Fault, FaultCode
from service.core.models.dtypes import DType
from service.core.plans.gradient_reduction import check_reduction, check_seconds
from service.core.plans.memory_settings import CrossEntropy
from service.core.plans.plan import Degrees, Plan
from service.core.plans.schedule import stage_count
from service.core.plans.training import Training

__all__ = ["check_expert_degrees", "check_training"]

# Optimizers that keep eight bits a number do so in integers with a scale.
_STATE = tuple(d for d in DType if d.is_floating or d in (DType.INT8, DType.UINT8))


def check_training(plan: Plan) -> list[Fault]:
    """Every fault of these, whatever documents the plan refers to."""
    faults = check_expert_degrees(plan.degrees)
    if plan.training is not None:
        faults += _check_types(plan.training)
        faults += _check_times(plan, plan.training)
    for number, stage in enumerate(plan.stages or ()):
        path = ("costs", "stages", number)
        count, of_experts = stage.parameter_count, stage.expert_parameter_count
        if of_experts is not None and count is None:
            detail = "expert_parameter_count are some of parameter_count: give all of them too"
            faults.append(Fault(FaultCode.MISSING_FIELD, (*path, "parameter_count"), detail))
        elif of_experts is not None and count is not None and of_experts > count:
            detail = f"these are some of parameter_count, so at most {count}"
            here = (*path, "expert_parameter_count")
            faults.append(Fault(FaultCode.INCONSISTENT, here, detail))
    counted = any(stage.parameter_count is not None for stage in plan.stages or ())
    if counted and plan.training is not None and plan.training.weight_dtype is None:
        detail = "the parameters of these stages have no type of their own: say of which they are"
        path_to_type = ("training", "weight_dtype")
        faults.append(Fault(FaultCode.MISSING_FIELD, path_to_type, detail))
    settings = plan.memory
    is_fused = settings.cross_entropy is CrossEntropy.FUSED
    if settings.cross_entropy_chunk_tokens is not None and not is_fused:
        detail = "only a fused cross entropy makes some tokens at a time: say so, or leave this out"
        of_chunks = ("memory", "cross_entropy_chunk_tokens")
        faults.append(Fault(FaultCode.INCONSISTENT, of_chunks, detail))
    return faults


def check_expert_degrees(degrees: Degrees) -> list[Fault]:
    """Experts lie inside the ranks of a stage: expert x expert_tensor divides them."""
    ranks = degrees.tensor * degrees.context * degrees.data
    both = degrees.expert * degrees.expert_tensor
    if ranks % both == 0:
        return []
    field = "expert" if ranks % degrees.expert or degrees.expert_tensor == 1 else "expert_tensor"
    detail = (
        f"expert {degrees.expert} x expert_tensor {degrees.expert_tensor} = {both} must divide "
        f"tensor x context x data = {ranks}: experts lie inside the ranks of a stage"
    )
    return [Fault(FaultCode.INDIVISIBLE, ("parallelism", field), detail)]


def _check_times(plan: Plan, training: Training) -> list[Fault]:
    faults: list[Fault] = []
    if training.gradient_reduction is not None:
        faults += check_reduction(
            training.gradient_reduction,
            is_sharded=training.optimizer_sharding.splits_optimizer,
            stages=stage_count(plan),
            path=("training", "gradient_reduction"),
        )
    if training.optimizer_step_seconds is not None:
        path = ("training", "optimizer_step_seconds")
        faults += check_seconds(
            training.optimizer_step_seconds, plan.degrees.pipeline, "pipeline ranks", path
        )
    return faults


def _check_types(training: Training) -> list[Fault]:
    faults = []
    for field in ("weight_dtype", "gradient_dtype"):
        dtype = getattr(training, field)
        if dtype is not None and not dtype.is_floating:
            detail = f"what is trained has a floating type, not {dtype.value}"
            faults.append(Fault(FaultCode.INCONSISTENT, ("training", field), detail))
    one, each = training.optimizer_state_dtype, training.moment_dtypes
    moments, name = training.optimizer.moments, training.optimizer.value
    if one is not None and each is not None:
        detail = "give one type for all that the optimizer keeps, or a list with one for each"
        here = ("training", "optimizer_state_dtypes")
        faults.append(Fault(FaultCode.EXCLUSIVE_FIELDS, here, detail))
    if one is not None:
        if not moments:
            detail = f"{name} keeps nothing of a parameter: leave this out"
            here = ("training", "optimizer_state_dtype")
            faults.append(Fault(FaultCode.INCONSISTENT, here, detail))
        faults += _check_state(one, ("training", "optimizer_state_dtype"))
    if each is not None:
        here = ("training", "optimizer_state_dtypes")
        if len(each) != moments:
            detail = f"{name} keeps {moments} numbers of a parameter; {len(each)} types given"
            faults.append(Fault(FaultCode.WRONG_LENGTH, here, detail))
        for index, dtype in enumerate(each):
            faults += _check_state(dtype, (*here, index))
    return faults


def _check_state(dtype: DType, path: tuple[str | int, ...]) -> list[Fault]:
    if dtype in _STATE:
        return []
    allowed = ", ".join(each.value for each in _STATE)
    detail = f"an optimizer keeps numbers of one of {allowed}; got {dtype.value}"
    return [Fault(FaultCode.INCONSISTENT, path, detail)]
