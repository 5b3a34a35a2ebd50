"""Comparisons: plans that do the same work, each against the first of them."""

from typing import Any

import msgspec
from litestar import Response, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody
from msgspec import UNSET

from service.api.injection import InjectedServices
from service.api.schemas.comparisons import (
    ComparisonRequest,
    ComparisonsAnswer,
    comparisons_answer,
)
from service.app.comparisons import Compared, NamedQuestion, compare
from service.app.ports import Scope
from service.app.pricing import PlanDecoder, PlanQuestion
from service.formats.documents.plan import PlanDocument
from service.web import problem_types
from service.web.access import needs
from service.web.openapi import EXAMPLE, PROBLEMS
from service.web.strict_json import check_value

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
            "plan": "equal-stages-1f1b@1",
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
    the order or queues on links, found by simulating with one change at a time.
    """

    def decode_at(place: int) -> PlanDecoder:
        def decode(value: Any) -> PlanDocument:
            plan: PlanDocument = check_value(value, PlanDocument, at=("plans", place, "patch"))
            return plan

        return decode

    def render(compared: Compared) -> bytes:
        return msgspec.json.encode(comparisons_answer(compared))

    questions = [
        NamedQuestion(one.name, PlanQuestion(one.plan, None if one.patch is UNSET else one.patch))
        for one in data.plans
    ]
    content = await compare(services, questions, frozenset(data.allow_unlike), decode_at, render)
    return Response(content, media_type="application/json")
