"""The fluid queue in front of a stage."""

from litestar import Response, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody

from service.api.schemas.answers import StatementOut
from service.api.schemas.queues import BacklogAnswer, BacklogRequest
from service.app.apart import run_apart
from service.app.ports import Scope
from service.core.queues import fluid_backlog
from service.web.access import needs
from service.web.openapi import EXAMPLE
from service.web.responses import json_response

__all__ = ["backlog"]


@post(
    "/v1/queues/backlog",
    operation_id="queue_backlog",
    summary="Backlog of a fluid queue",
    tags=["queues"],
    status_code=200,
    opt={
        **needs(Scope.READ),
        EXAMPLE: {
            "initial_backlog": 4.0,
            "arrival_rate": 4.0,
            "service_rate": 3.0,
            "step_seconds": 0.5,
            "steps": 2,
        },
    },
    responses={200: ResponseSpec(BacklogAnswer, description="The backlog after each step")},
)
async def backlog(data: JSONBody[BacklogRequest]) -> Response[bytes]:
    """Work that arrives and is served at constant rates: q <- max(0, q + (a - s) dt)."""
    result = await run_apart(
        data.steps,
        fluid_backlog,
        data.initial_backlog,
        data.arrival_rate,
        data.service_rate,
        data.step_seconds,
        data.steps,
    )
    return json_response(
        BacklogAnswer(
            backlog=list(result.levels),
            final_backlog=result.levels[-1],
            assumptions=[StatementOut(code="fluid", detail="rates are constant over all steps")],
            not_represented=[
                StatementOut(code=code, detail=detail) for code, detail in result.not_represented
            ],
        )
    )
