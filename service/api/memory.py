"""Memory: whether a plan fits on its devices, and what could be changed where it does not."""

import msgspec
from litestar import Response, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody

from service.api.injection import InjectedServices
from service.api.plan_questions import patched_plan, plan_question
from service.api.schemas.answers import answer
from service.api.schemas.memory import MemoryAnswer, MemoryRequest, memory_terms
from service.app.memory_options import price_options
from service.app.patching import locate
from service.app.ports import Scope
from service.app.pricing import Priced, calculate
from service.core.estimates.iteration import plan_iteration, still_left_out
from service.core.estimates.memory import plan_memory
from service.core.estimates.memory_options import MAX_OPTIONS
from service.core.estimates.memory_statements import memory_says
from service.web.access import needs
from service.web.openapi import EXAMPLE

__all__ = ["memory"]

_STAGE = {
    "forward_seconds": 0.006,
    "backward_seconds": 0.012,
    "activation_bytes": 3000000000,
    "parameter_count": 1300000000,
}
_EXAMPLE = {
    "plan": {
        "costs": {"stages": [{**_STAGE, "boundary_bytes": 67108864}, _STAGE]},
        "workload": {"microbatches": 8},
        "schedule": {"kind": "gpipe"},
        "parallelism": {"data": 2},
        "training": {"optimizer": "adam", "weight_dtype": "bf16"},
        "memory": {"device_memory_bytes": 40000000000},
    }
}


@post(
    "/v1/memory",
    operation_id="memory",
    summary="Whether a plan fits",
    description="What every rank holds at its fullest instant, term by term, against the memory of "
    "its device. What is not known is absent and named, and a plan is called feasible only where "
    "nothing is unknown. Where a rank does not fit, options are priced: their least headroom and "
    "their iteration.",
    tags=["calculations"],
    status_code=200,
    opt={**needs(Scope.READ), EXAMPLE: _EXAMPLE},
    responses={200: ResponseSpec(MemoryAnswer, description="The answer")},
)
async def memory(services: InjectedServices, data: JSONBody[MemoryRequest]) -> Response[bytes]:
    """Every rank of a plan, and the options where one does not fit."""

    def render(priced: Priced) -> bytes:
        simulated = priced.simulated
        timeline = simulated.timeline
        asked = priced.prepared.pinned.question
        with locate(asked.plan, asked.patch):
            found = plan_memory(simulated.resolved, timeline.program, timeline)
        iteration = plan_iteration(simulated)
        options = price_options(priced, found, patched_plan) if data.options else []
        terms = memory_terms(found, iteration.picoseconds, options)
        said = memory_says(priced.resolved, found)
        content = answer(
            MemoryAnswer,
            terms,
            priced,
            also_assumed=(*iteration.assumptions, *said.assumptions),
            also_represented=said.represented,
            also_left_out=said.not_represented,
            left_out=still_left_out(iteration, priced.not_represented),
            represented_here=said.represented_here,
        )
        return msgspec.json.encode(content)

    content = await calculate(
        services,
        plan_question(data),
        patched_plan,
        render,
        replays=MAX_OPTIONS if data.options else 0,
    )
    return Response(content, media_type="application/json")
