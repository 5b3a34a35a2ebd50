"""Many estimates in one request: one answer or problem a plan."""

from typing import Any

import msgspec
from litestar import Request, Response, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody
from msgspec import UNSET

from service.api.estimates import render_estimate
from service.api.injection import InjectedServices
from service.api.plan_questions import batched_questions, patched_plan
from service.api.schemas.estimate_batches import (
    BatchedEstimate,
    BatchedRefusal,
    EstimateBatchAnswer,
)
from service.api.schemas.requests import EstimateBatchRequest
from service.app.estimate_batches import Outcomes, Refused, create_many
from service.app.estimates import EstimateOutcome
from service.app.idempotency import Answer, Record
from service.app.ports import Scope
from service.formats.documents.fields import or_unset
from service.web.access import needs
from service.web.conditional import entity_tag
from service.web.idempotency import IDEMPOTENT, respond_once
from service.web.openapi import EXAMPLE
from service.web.problems import Problem, ProblemError, problem_document, problem_for

__all__ = ["MAX_BATCH_BYTES", "create_estimates"]

# So that 256 plans of some sixty stages each fit, written out one by one.
MAX_BATCH_BYTES = 4 * 2**20

AnyRequest = Request[Any, Any, Any]

_EXAMPLE = {
    "plan": "equal-stages-1f1b",
    "plans": [
        {},
        {"patch": {"workload": {"microbatches": 32}}, "asserted_iteration_seconds": 0.9},
        {"plan": "four-stages-after"},
    ],
}


@post(
    "/v1/estimates/batches",
    operation_id="create_estimates",
    summary="Estimate up to 256 plans",
    tags=["estimates"],
    status_code=200,
    request_max_body_size=MAX_BATCH_BYTES,
    # What it stores follows from what is stored already, so reading is enough.
    opt={**needs(Scope.READ), **IDEMPOTENT, EXAMPLE: _EXAMPLE},
    responses={200: ResponseSpec(EstimateBatchAnswer, description="One outcome a plan, in order")},
)
async def create_estimates(
    request: AnyRequest, services: InjectedServices, data: JSONBody[EstimateBatchRequest]
) -> Response[bytes]:
    """For each plan what `POST /v1/estimates` answers, or the problem it would be refused with.

    A plan that can't be estimated does not touch the others. The request fails as a whole, and
    stores nothing, when its body does not match the schema, and when all plans together are more
    work than one request may ask for. Equal plans are computed once, known ones not at all, and
    those that share an order are simulated together; new estimates are stored in one transaction.
    The body may have 4 MiB.
    """

    async def create(record: Record[Outcomes]) -> Outcomes:
        questions = batched_questions(data)
        return await create_many(services, questions, patched_plan, render_estimate, record)

    def answer(outcomes: Outcomes) -> Answer:
        plans = [
            _refusal(request, outcome.error, index, has_own_plan=entry.plan is not UNSET)
            if isinstance(outcome, Refused)
            else _estimate(outcome)
            for index, (entry, outcome) in enumerate(zip(data.plans, outcomes, strict=True))
        ]
        return Answer(200, {}, msgspec.json.encode(EstimateBatchAnswer(plans=plans)))

    return await respond_once(request, services, data, create, answer)


def _estimate(outcome: EstimateOutcome) -> BatchedEstimate:
    stored = outcome.stored
    return BatchedEstimate(
        digest=stored.digest,
        etag=entity_tag(stored.digest),
        location=f"/v1/estimates/{stored.digest}",
        created=outcome.created,
        plan_reference=or_unset(outcome.plan_reference),
        # The stored bytes themselves, not read and written again.
        estimate=msgspec.Raw(stored.answer),
    )


def _refusal(
    request: AnyRequest, error: Exception, index: int, *, has_own_plan: bool
) -> BatchedRefusal:
    """The problem of one plan. Raises the error itself when it is not a refusal."""
    problem = problem_for(error)
    if problem is None:
        raise error

    def in_batch(fault: ProblemError) -> ProblemError:
        is_common = not has_own_plan and fault.pointer.split("/")[1:2] == ["plan"]
        if is_common:
            return fault
        return msgspec.structs.replace(fault, pointer=f"/plans/{index}{fault.pointer}")

    of_plan = Problem(problem.problem_type, problem.detail, map(in_batch, problem.errors))
    return BatchedRefusal(problem=problem_document(request, of_plan))
