"""One plan judged on several workloads."""

from typing import Any

import msgspec
from litestar import Response, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody

from service.api.injection import InjectedServices
from service.api.plan_questions import patched_plan, patched_plan_at, plan_question
from service.api.schemas.workloads import (
    WorkloadEstimatesAnswer,
    WorkloadEstimatesRequest,
    named_workloads,
    workload_estimates_answer,
)
from service.app.ports import Scope
from service.app.workloads import Weighed, judge
from service.web.access import needs
from service.web.openapi import EXAMPLE

__all__ = ["workload_estimates"]

_EXAMPLE: dict[str, Any] = {
    "plan": {
        "costs": {
            "stages": [
                {"forward_seconds": 0.006, "backward_seconds": 0.012},
                {"forward_seconds": 0.006, "backward_seconds": 0.012},
            ]
        },
        "schedule": {"kind": "1f1b"},
        "workload": {"microbatches": 8},
    },
    "workloads": [
        {"name": "usual", "weight": 3, "workload": {}},
        {"name": "many", "workload": {"microbatches": 32}},
    ],
}


@post(
    "/v1/workload-estimates",
    operation_id="workload_estimates",
    summary="Judge a plan on several workloads",
    tags=["calculations"],
    status_code=200,
    opt={**needs(Scope.READ), EXAMPLE: _EXAMPLE},
    responses={200: ResponseSpec(WorkloadEstimatesAnswer, description="The answer")},
)
async def workload_estimates(
    services: InjectedServices, data: JSONBody[WorkloadEstimatesRequest]
) -> Response[bytes]:
    """The same plan under each workload and under their mix: several sequence lengths, or mixes of
    them, each with its share of the iterations.

    For each the main numbers of its estimate, which stage is the slowest, and what is held fixed;
    of all together the weighted mean, the worst, and how often each stage is the slowest. A
    workload that the plan can't be priced under refuses the request, with a pointer to it.
    """

    def render(weighed: Weighed) -> bytes:
        return msgspec.json.encode(workload_estimates_answer(weighed))

    content = await judge(
        services,
        plan_question(data),
        named_workloads(data.workloads),
        patched_plan,
        lambda place: patched_plan_at("workloads", place),
        render,
    )
    return Response(content, media_type="application/json")
