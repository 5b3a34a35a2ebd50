"""Calculations that answer at once and store nothing: projections of the one estimate."""

from collections.abc import Callable, Sequence

import msgspec
from litestar import Response, post
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody

from service.api.injection import InjectedServices
from service.api.plan_questions import patched_plan, plan_question
from service.api.schemas.answers import answer
from service.api.schemas.boundary_transfers import (
    BoundaryTransfersAnswer,
    boundary_transfers_terms,
)
from service.api.schemas.bubble import BubbleAnswer, bubble_terms
from service.api.schemas.cadence import CadenceAnswer, cadence_terms
from service.api.schemas.live_activations import LiveActivationsAnswer, live_activations_terms
from service.api.schemas.requests import PlanRequest
from service.app.ports import Scope
from service.app.pricing import Priced, calculate
from service.core.estimates.cadence import cadence_left_out, plan_cadence
from service.core.estimates.estimate import memory_assumptions, plan_live_activations
from service.core.estimates.simulation import SimulatedPlan
from service.core.estimates.transfers import transfer_exposure
from service.core.plans.plan import Statement
from service.core.schedules.bubble import measure_bubble
from service.web.access import needs
from service.web.openapi import EXAMPLE

__all__ = ["calculations"]

# The terms of an answer, and what they assume and leave out besides what resolving the plan did.
Terms = tuple[msgspec.Struct, Sequence[Statement], Sequence[Statement]]

_EXAMPLE = {
    "plan": {
        "costs": {
            "stages": [
                {"forward_seconds": 0.006, "backward_seconds": 0.012},
                {"forward_seconds": 0.006, "backward_seconds": 0.012},
            ]
        },
        "schedule": {"kind": "1f1b"},
        "workload": {"microbatches": 8},
    }
}


def _calculation(
    path: str,
    summary: str,
    answer_type: type[msgspec.Struct],
    measure: Callable[[SimulatedPlan], Terms],
    description: str,
) -> HTTPRouteHandler:
    def render(priced: Priced) -> bytes:
        terms, assumed, left_out = measure(priced.simulated)
        content = answer(answer_type, terms, priced, also_assumed=assumed, also_left_out=left_out)
        return msgspec.json.encode(content)

    @post(
        f"/v1/{path}",
        operation_id=path.replace("-", "_"),
        summary=summary,
        description=description,
        tags=["calculations"],
        status_code=200,
        opt={**needs(Scope.READ), EXAMPLE: _EXAMPLE},
        responses={200: ResponseSpec(answer_type, description="The answer")},
    )
    async def calculation(
        services: InjectedServices, data: JSONBody[PlanRequest]
    ) -> Response[bytes]:
        content = await calculate(services, plan_question(data), patched_plan, render)
        return Response(content, media_type="application/json")

    return calculation


def _cadence(simulated: SimulatedPlan) -> Terms:
    cadence = plan_cadence(simulated)
    return cadence_terms(simulated, cadence), (), cadence_left_out(simulated, cadence)


def _bubble(simulated: SimulatedPlan) -> Terms:
    return bubble_terms(measure_bubble(simulated.timeline)), (), ()


def _boundary_transfers(simulated: SimulatedPlan) -> Terms:
    return boundary_transfers_terms(simulated, transfer_exposure(simulated.timeline)), (), ()


def _live_activations(simulated: SimulatedPlan) -> Terms:
    live = plan_live_activations(simulated)
    terms = live_activations_terms(simulated.timeline, live)
    return terms, memory_assumptions(simulated, live), ()


calculations = (
    _calculation(
        "cadence",
        "Cadence of each stage",
        CadenceAnswer,
        _cadence,
        "What one microbatch costs each stage, the slowest stage, the lower bound that it sets, "
        "and the predicted pace of the steady state with the cycle of waits that sets it.",
    ),
    _calculation(
        "bubble",
        "Idle time and its causes",
        BubbleAnswer,
        _bubble,
        "Where the time of each rank goes, and what the makespan owes to the structure of the "
        "order, to unequal stages and to transfers.",
    ),
    _calculation(
        "boundary-transfers",
        "What crosses between stages",
        BoundaryTransfersAnswer,
        _boundary_transfers,
        "Tensors and bytes of each boundary, the physical path of each pair of ranks, its lower "
        "bound and prediction, and how much of it delays anyone on the simulated timeline.",
    ),
    _calculation(
        "live-activations",
        "Peak live activations",
        LiveActivationsAnswer,
        _live_activations,
        "How many activations each rank holds at most, when, and of which microbatches.",
    ),
)
