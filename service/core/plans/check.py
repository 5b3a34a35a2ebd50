"""What is wrong with a plan whatever documents it refers to."""

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.plans.check_moe import check_moe
from service.core.plans.check_training import check_training
from service.core.plans.contract import check_contract
from service.core.plans.costs import given_stages
from service.core.plans.partition import check_partition
from service.core.plans.placement import check_order
from service.core.plans.plan import Plan
from service.core.plans.schedule import (
    check_schedule,
    pair_mode,
    plan_family,
    plan_shape,
    stage_count,
)
from service.core.plans.workload import resolve_batch, size_classes
from service.core.schedules.build import build_program
from service.core.schedules.explicit import has_recompute
from service.core.schedules.program import RecomputeMode
from service.core.schedules.transfers import TransferMode

__all__ = ["check_form", "check_plan"]


def check_plan(plan: Plan) -> list[Fault]:
    """Every fault that can be told without topology, model and profile."""
    of_schedule = check_schedule(plan)
    faults = [*check_form(plan), *of_schedule, *check_order(plan.placement, plan.degrees)]
    sizes = size_classes(plan)
    try:
        resolve_batch(plan, sizes)
    except InvalidInput as invalid:
        faults += invalid.faults
    if plan.schedule.order is not None and not of_schedule:
        faults += _check_order_runs(plan)
    if plan.stages is not None and not (of_schedule and plan.schedule.order):
        try:
            given_stages(plan, sizes)
        except InvalidInput as invalid:
            faults += invalid.faults
    return faults


def _check_order_runs(plan: Plan) -> list[Fault]:
    """What keeps an order that is written out from running on a chain of stages.

    A model that is cut may have other boundaries, so its order is judged when the plan is priced.
    """
    if plan.stages is None or plan.schedule.order is None:
        return []
    mode = RecomputeMode.NONE
    if has_recompute(plan_shape(plan)):
        early = plan.schedule.recompute_before_gradient
        mode = RecomputeMode.BEFORE_GRADIENT if early else RecomputeMode.AFTER_GRADIENT
    try:
        build_program(
            plan.schedule.kind,
            plan.degrees.pipeline,
            plan.workload.microbatches,
            chunks_per_rank=plan.schedule.chunks_per_rank,
            pair_mode=pair_mode(plan),
            recompute=mode,
            order=plan.schedule.order,
        )
    except InvalidInput as invalid:
        return list(invalid.faults)
    return []


def check_form(plan: Plan) -> list[Fault]:
    """Which parts of a plan are missing, or exclude each other."""
    faults = [*_check_costs(plan), *check_training(plan), *check_moe(plan)]
    if plan.partition is not None and plan.stages is None:
        faults += check_partition(plan.partition, stage_count(plan), plan.schedule.chunks_per_rank)
    if plan.placement.devices is not None and plan.topology is None:
        detail = "devices are those of a topology: name one in `topology`"
        faults.append(Fault(FaultCode.MISSING_FIELD, ("topology",), detail))
    if plan.schedule.transfer_mode is TransferMode.LINK and plan.topology is None:
        detail = (
            "link mode needs links: name the topology they are in, or use latency or blocking mode"
        )
        faults.append(Fault(FaultCode.MISSING_FIELD, ("schedule", "transfer_mode"), detail))
    return [*faults, *check_contract(plan.contract, plan_family(plan), plan_shape(plan), plan.moe)]


def _check_costs(plan: Plan) -> list[Fault]:
    named = [name for name in ("model", "profile", "assumed") if getattr(plan, name) is not None]
    faults = []
    if plan.unmeasured_shapes is not None and plan.profile is None:
        detail = "only a profile has shapes that were measured: name one, or leave this out"
        path = ("costs", "unmeasured_shapes")
        faults.append(Fault(FaultCode.EXCLUSIVE_FIELDS, path, detail))
    if plan.stages is not None:
        if named:
            detail = f"give either stages, or model and profile; got stages and {named[0]}"
            faults.append(Fault(FaultCode.EXCLUSIVE_FIELDS, ("costs",), detail))
        if plan.partition is not None:
            detail = "the stages are given: there is no model to cut, so leave partition out"
            faults.append(Fault(FaultCode.EXCLUSIVE_FIELDS, ("partition",), detail))
        if plan.recompute_layers:
            detail = "the stages are given: their recompute_seconds say what each computes again"
            faults.append(Fault(FaultCode.EXCLUSIVE_FIELDS, ("recompute", "layers"), detail))
        return faults
    if not named:
        detail = "give stages, or model and profile"
        return [*faults, Fault(FaultCode.MISSING_FIELD, ("costs",), detail)]
    if plan.model is None:
        detail = f"{named[0]} alone gives no costs: name a model too"
        faults.append(Fault(FaultCode.MISSING_FIELD, ("costs", "model"), detail))
    elif len(named) == 1:
        detail = (
            "a model alone gives no costs: name a profile too, or give assumed (it may be empty) "
            "for costs from FLOPs and bytes"
        )
        faults.append(Fault(FaultCode.MISSING_FIELD, ("costs", "profile"), detail))
    if plan.profile is not None and plan.assumed is not None:
        detail = "the profile says what layers cost: leave assumed out, or the profile"
        faults.append(Fault(FaultCode.EXCLUSIVE_FIELDS, ("costs", "assumed"), detail))
    if plan.partition is None:
        detail = "say which layers each stage holds: layers_per_stage, cuts or stages"
        faults.append(Fault(FaultCode.MISSING_FIELD, ("partition",), detail))
    return faults
