"""Comparisons: plans that do the same work, each against the first of them."""

import msgspec
from litestar import Response, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody
from msgspec import UNSET

from service.api.injection import InjectedServices
from service.api.plan_questions import patched_plan_at, plan_question
from service.api.schemas.comparisons import (
    ComparisonRequest,
    ComparisonsAnswer,
    comparisons_answer,
)
from service.api.schemas.workloads import named_workloads
from service.app.comparisons import Compared, ComparisonQuestion, NamedQuestion, compare
from service.app.ports import Scope
from service.web import problem_types
from service.web.access import needs
from service.web.openapi import EXAMPLE, PROBLEMS

__all__ = ["comparisons"]

_EXAMPLE = {
    "plans": [
        {"name": "as-it-is", "plan": "equal-stages-1f1b"},
        {
            "name": "all-forwards-first",
            "plan": "equal-stages-1f1b",
            "patch": {"schedule": {"kind": "gpipe"}},
        },
        {
            "name": "longer",
            "plan": "equal-stages-1f1b",
            "patch": {"workload": {"microbatches": 32}},
        },
    ],
    "allow_unlike": ["global_batch_size", "global_batch_construction"],
}


@post(
    "/v1/comparisons",
    operation_id="comparisons",
    summary="Compare plans that do the same work",
    tags=["calculations"],
    status_code=200,
    opt={**needs(Scope.READ), EXAMPLE: _EXAMPLE, PROBLEMS: (problem_types.UNLIKE_PLANS,)},
    responses={200: ResponseSpec(ComparisonsAnswer, description="The answer")},
)
async def comparisons(
    services: InjectedServices, data: JSONBody[ComparisonRequest]
) -> Response[bytes]:
    """What differs between plans, and what that does to the time of an iteration.

    The contracts of the plans are compared term by term: batch, sequence lengths, model, precision,
    when weights change, and what else a plan states in its `contract`. Plans that differ in any, or
    of which only some say it, are refused unless `allow_unlike` names the term; then the answer
    says so first. Each later plan is set against the first: which stages, cuts and lifetimes
    differ, with what they were and are, and what of the difference is due to compute, transfers,
    the order or queues on links, found by simulating with one change at a time. With `workloads`
    all of that is told under each of them and under their mix.
    """

    def render(compared: Compared) -> bytes:
        return msgspec.json.encode(comparisons_answer(compared))

    question = ComparisonQuestion(
        [NamedQuestion(one.name, plan_question(one)) for one in data.plans],
        [] if data.workloads is UNSET else named_workloads(data.workloads),
        frozenset(data.allow_unlike),
    )
    content = await compare(services, question, patched_plan_at, render)
    return Response(content, media_type="application/json")
