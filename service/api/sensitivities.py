"""Sensitivities: what the makespan of a plan follows, and the exact gain of given changes."""

import msgspec
from litestar import Response, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody

from service.api.injection import InjectedServices
from service.api.plan_questions import patched_plan, plan_question
from service.api.schemas.answers import answer
from service.api.schemas.sensitivities import (
    SensitivitiesAnswer,
    SensitivitiesRequest,
    core_changes,
    sensitivities_terms,
)
from service.app.ports import Scope
from service.app.pricing import Priced, calculate
from service.core.plans import statements
from service.core.schedules.critical_path import find_critical_path
from service.core.schedules.gains import exact_gains
from service.core.schedules.sensitivity import measure_sensitivity
from service.core.schedules.transfers import TransferMode
from service.web.access import needs
from service.web.openapi import EXAMPLE

__all__ = ["sensitivities"]

_EXAMPLE = {
    "plan": "equal-stages-1f1b",
    "changes": [
        {"changed": "operation", "stage": 2, "kind": "backward", "factor": 0.9},
        {
            "changed": "transfer",
            "source_stage": 1,
            "target_stage": 2,
            "direction": "forward",
            "seconds": 0.002,
        },
    ],
}


@post(
    "/v1/sensitivities",
    operation_id="sensitivities",
    summary="What the makespan follows",
    tags=["calculations"],
    status_code=200,
    opt={**needs(Scope.READ), EXAMPLE: _EXAMPLE},
    responses={200: ResponseSpec(SensitivitiesAnswer, description="The answer")},
)
async def sensitivities(
    services: InjectedServices, data: JSONBody[SensitivitiesRequest]
) -> Response[bytes]:
    """Derivatives of the makespan by stage and transfer, and the exact gain of each given change.

    A derivative bounds what a faster operation gains; there is none in link mode. The exact gain
    comes from the same timeline run again with the change, every rank's order held fixed; each
    change is tried alone.
    """

    def render(priced: Priced) -> bytes:
        timeline = priced.simulated.timeline
        path = find_critical_path(timeline)
        queues = timeline.mode is TransferMode.LINK
        terms = sensitivities_terms(
            timeline,
            None if queues else measure_sensitivity(timeline, path),
            data,
            exact_gains(timeline, path, core_changes(data)),
        )
        left_out = (statements.SENSITIVITY,) if queues else ()
        return msgspec.json.encode(
            answer(SensitivitiesAnswer, terms, priced, also_left_out=left_out)
        )

    content = await calculate(
        services, plan_question(data), patched_plan, render, replays=len(data.changes)
    )
    return Response(content, media_type="application/json")
