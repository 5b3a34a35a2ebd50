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
from service.api.schemas.requests import LiveActivationsRequest, PlanRequest
from service.app.ports import Scope
from service.app.pricing import Answerable, Priced, calculate, calculate_from_order
from service.core.estimates.cadence import cadence_left_out, plan_cadence
from service.core.estimates.estimate import memory_assumptions, plan_live_activations
from service.core.estimates.simulation import SimulatedPlan
from service.core.estimates.transfers import transfer_exposure
from service.core.plans.plan import Statement
from service.core.schedules.bubble import measure_bubble
from service.core.schedules.program import Program
from service.core.schedules.timeline import Timeline
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


def _live_answer(found: Answerable, program: Program, timeline: Timeline | None) -> bytes:
    live = plan_live_activations(found.resolved, program)
    terms = live_activations_terms(found.resolved, program, live, timeline)
    assumed = memory_assumptions(found.resolved, live)
    content = answer(LiveActivationsAnswer, terms, found, also_assumed=assumed)
    return msgspec.json.encode(content)


@post(
    "/v1/live-activations",
    operation_id="live_activations",
    summary="Peak live activations",
    description="How many activations each rank holds at most, when, and of which microbatches. "
    "The peaks follow from the order of each rank alone: with `simulate` false only that is made, "
    "and the answer is the same but for the seconds, which are the only predictions in it.",
    tags=["calculations"],
    status_code=200,
    opt={**needs(Scope.READ), EXAMPLE: _EXAMPLE},
    responses={200: ResponseSpec(LiveActivationsAnswer, description="The answer")},
)
async def live_activations(
    services: InjectedServices, data: JSONBody[LiveActivationsRequest]
) -> Response[bytes]:
    """The peaks of a plan, with or without their instants."""
    question = plan_question(data)
    if data.simulate:
        content = await calculate(
            services,
            question,
            patched_plan,
            lambda priced: _live_answer(
                priced, priced.simulated.timeline.program, priced.simulated.timeline
            ),
        )
    else:
        content = await calculate_from_order(
            services,
            question,
            patched_plan,
            lambda ordered: _live_answer(ordered, ordered.program, None),
        )
    return Response(content, media_type="application/json")


calculations = (
    _calculation(
        "cadence",
        "Cadence of each stage",
        CadenceAnswer,
        _cadence,
        "What one microbatch costs each stage, the slowest stage, the lower bound that it sets, "
        "and the predicted pace of the steady state with the cycle of waits that sets it, all of "
        "the schedule alone.",
    ),
    _calculation(
        "bubble",
        "Idle time and its causes",
        BubbleAnswer,
        _bubble,
        "Where the time of each rank goes, and what the makespan owes to the structure of the "
        "order, to unequal stages and to transfers. The makespan is that of the schedule; what "
        "follows it in an iteration, gradient reduction and optimizer's step, estimates have.",
    ),
    _calculation(
        "boundary-transfers",
        "What crosses between stages",
        BoundaryTransfersAnswer,
        _boundary_transfers,
        "Tensors and bytes of each boundary, the physical path of each pair of ranks, its lower "
        "bound and prediction, and how much of it delays anyone on the simulated timeline.",
    ),
    live_activations,
)
