"""What is wrong with a plan whatever documents it refers to."""

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.plans.costs import given_stages
from service.core.plans.partition import check_partition
from service.core.plans.placement import check_order
from service.core.plans.plan import Plan
from service.core.plans.workload import resolve_batch

__all__ = ["check_form", "check_plan"]


def check_plan(plan: Plan) -> list[Fault]:
    """Every fault that can be told without topology, model and profile."""
    faults = [*check_form(plan), *check_order(plan.placement, plan.degrees)]
    try:
        resolve_batch(plan)
    except InvalidInput as invalid:
        faults += invalid.faults
    if plan.stages is not None:
        try:
            given_stages(plan)
        except InvalidInput as invalid:
            faults += invalid.faults
    return faults


def check_form(plan: Plan) -> list[Fault]:
    """Which parts of a plan are missing, or exclude each other."""
    faults = _check_costs(plan)
    stages = plan.degrees.pipeline * plan.schedule.chunks_per_rank
    if plan.partition is not None and plan.stages is None:
        faults += check_partition(plan.partition, stages)
    if plan.placement.devices is not None and plan.topology is None:
        detail = "devices are those of a topology: name one in `topology`"
        faults.append(Fault(FaultCode.MISSING_FIELD, ("topology",), detail))
    return faults


def _check_costs(plan: Plan) -> list[Fault]:
    profiled = [name for name in ("model", "profile") if getattr(plan, name) is not None]
    faults = []
    if plan.stages is not None:
        if profiled:
            detail = f"give either stages, or model and profile; got stages and {profiled[0]}"
            faults.append(Fault(FaultCode.EXCLUSIVE_FIELDS, ("costs",), detail))
        if plan.partition is not None:
            detail = "the stages are given: there is no model to cut, so leave partition out"
            faults.append(Fault(FaultCode.EXCLUSIVE_FIELDS, ("partition",), detail))
        return faults
    if not profiled:
        detail = "give stages, or model and profile"
        return [Fault(FaultCode.MISSING_FIELD, ("costs",), detail)]
    if len(profiled) == 1:
        other = "profile" if profiled[0] == "model" else "model"
        detail = f"a {profiled[0]} alone gives no costs: name a {other} too"
        faults.append(Fault(FaultCode.MISSING_FIELD, ("costs", other), detail))
    if plan.partition is None:
        detail = "say which layers each stage holds: layers_per_stage, cuts or stages"
        faults.append(Fault(FaultCode.MISSING_FIELD, ("partition",), detail))
    return faults
