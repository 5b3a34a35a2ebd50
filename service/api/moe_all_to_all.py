"""The experts of a plan: what they exchange on real links, compute, and wait for."""

from dataclasses import replace

import msgspec
from litestar import Response, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody
from msgspec import UNSET

from service.api.injection import InjectedServices
from service.api.plan_questions import patched_plan, plan_question
from service.api.schemas.answers import answer
from service.api.schemas.exchange_links import shared_links_out
from service.api.schemas.moe_all_to_all import (
    MoeAllToAllAnswer,
    MoeAllToAllRequest,
    lists_left_out,
    moe_all_to_all_terms,
)
from service.app.patching import locate
from service.app.ports import Scope
from service.app.pricing import Priced, calculate
from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.estimates.experts.advice import ExpertAdvice, expert_advice
from service.core.estimates.experts.layers import expert_report
from service.core.estimates.experts.repricing import Repriced, totals_of
from service.core.estimates.experts.sweep import capacity_sweep
from service.core.estimates.shared_links import INTERFERENCE_RUNS, shared_links
from service.core.plans.moe.results import PlanMoe
from service.core.plans.plan import ResolvedPlan
from service.formats.documents.fields import or_none
from service.web.access import needs
from service.web.openapi import EXAMPLE

__all__ = ["moe_all_to_all"]

_STAGE = {"forward_seconds": 0.006, "backward_seconds": 0.012}
_EXAMPLE = {
    "plan": {
        "costs": {"stages": [_STAGE, _STAGE]},
        "workload": {"microbatches": 8},
        "parallelism": {"data": 4, "expert": 4},
        "schedule": {"kind": "1f1b"},
        "moe": {
            "skew": {"kind": "hot_expert", "fraction": 0.5},
            "shape": {
                "layers_per_stage": [2, 2],
                "hidden_size": 4096,
                "experts": 16,
                "top_k": 2,
                "width": 14336,
                "tokens_per_rank": 4096,
            },
            "compute": {
                "curve": [{"rows": 1024, "seconds": 0.0004}],
                "memory_bytes_per_second": 3350000000000,
            },
            "layer_costs_include": "nothing",
        },
    },
    "capacity_factors": [1.0, 1.5, 2.0],
    "advice": {},
}


@post(
    "/v1/moe-all-to-all",
    operation_id="moe_all_to_all",
    summary="What the experts of a plan exchange and wait for",
    description="For each layer with experts: bytes of dispatch and combine by rank, on the wire "
    "and logical, forward and backward; lower bounds by what may limit, pinned to stated paths and "
    "by any route apart; what is expected; rows of experts, ranks and hosts, drops; and the step "
    "with and without overlap. Beside a routing that is not even stands what even choice would "
    "take. `capacity_factors` prices the layers under other factors, `advice` looks for better "
    "placements.",
    tags=["calculations"],
    status_code=200,
    opt={**needs(Scope.READ), EXAMPLE: _EXAMPLE},
    responses={200: ResponseSpec(MoeAllToAllAnswer, description="The answer")},
)
async def moe_all_to_all(
    services: InjectedServices, data: JSONBody[MoeAllToAllRequest]
) -> Response[bytes]:
    """The layers with experts of a plan, and what else is asked of them."""

    def render(priced: Priced) -> bytes:
        return _render(priced, data)

    content = await calculate(
        services, plan_question(data), patched_plan, render, replays=INTERFERENCE_RUNS
    )
    return Response(content, media_type="application/json")


def _render(priced: Priced, data: MoeAllToAllRequest) -> bytes:
    resolved, asked = priced.resolved, priced.prepared.pinned.question
    with locate(asked.plan, asked.patch):
        moe = _experts(resolved)
        report = expert_report(resolved, moe)
    even = None
    if not moe.inputs.is_uniform:
        even = totals_of(resolved, moe, Repriced.evenly(resolved, moe).all_runs())
    factors = or_none(data.capacity_factors)
    sweep, assumed = (None, ()) if factors is None else capacity_sweep(resolved, moe, factors)
    terms = moe_all_to_all_terms(
        resolved,
        report,
        totals_of(resolved, moe),
        even,
        sweep=sweep,
        advice=_advice(resolved, moe, data),
        shared=shared_links_out(priced.simulated, shared_links(priced.simulated)),
        matrices=data.matrices,
    )
    content = answer(
        MoeAllToAllAnswer,
        terms,
        priced,
        also_assumed=assumed,
        also_left_out=lists_left_out(report, matrices=data.matrices),
    )
    return msgspec.json.encode(content)


def _experts(resolved: ResolvedPlan) -> PlanMoe:
    if resolved.moe is None:
        detail = "the plan says nothing of experts: give it a moe, which says how they run"
        raise InvalidInput([Fault(FaultCode.MISSING_FIELD, ("moe",), detail)])
    return resolved.moe


def _advice(resolved: ResolvedPlan, moe: PlanMoe, data: MoeAllToAllRequest) -> ExpertAdvice | None:
    if data.advice is UNSET:
        return None
    try:
        return expert_advice(resolved, moe, data.advice.extra_slots)
    except InvalidInput as error:
        path = ("advice", "extra_slots")
        raise InvalidInput(replace(fault, path=path) for fault in error.faults) from None
