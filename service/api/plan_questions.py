"""From the body of a calculation to the question the use cases answer."""

from typing import Any

from msgspec import UNSET

from service.api.schemas.comparisons import ComparisonPlan
from service.api.schemas.requests import EstimateBatchRequest, EstimateRequest, PlanRequest
from service.app.estimates import EstimateQuestion
from service.app.pricing import PlanDecoder, PlanQuestion
from service.core.errors import Fault, FaultCode, InvalidInput
from service.formats.documents.fields import or_none
from service.formats.documents.plan import PlanDocument
from service.web.strict_json import check_value

__all__ = [
    "batched_questions",
    "estimate_question",
    "patched_plan",
    "patched_plan_at",
    "plan_question",
]


def plan_question(request: PlanRequest | ComparisonPlan) -> PlanQuestion:
    """The plan that is asked about."""
    return PlanQuestion(request.plan, or_none(request.patch))


def estimate_question(request: EstimateRequest) -> EstimateQuestion:
    """The plan that is asked about, and the time that is claimed for it."""
    return EstimateQuestion(plan_question(request), or_none(request.asserted_iteration_seconds))


def batched_questions(request: EstimateBatchRequest) -> list[EstimateQuestion]:
    """What is asked of each plan of a batch.

    Raises `InvalidInput` where an entry has no plan, or none needs the common one.
    """
    faults = []
    questions = []
    for index, entry in enumerate(request.plans):
        plan = request.plan if entry.plan is UNSET else entry.plan
        if plan is UNSET:
            detail = "give a plan here, or one beside the list for all entries that have none"
            faults.append(Fault(FaultCode.MISSING_FIELD, ("plans", index, "plan"), detail))
            continue
        questions.append(
            EstimateQuestion(
                PlanQuestion(plan, or_none(entry.patch)), or_none(entry.asserted_iteration_seconds)
            )
        )
    if request.plan is not UNSET and all(entry.plan is not UNSET for entry in request.plans):
        detail = "every entry of plans has a plan of its own: leave this out"
        faults.append(Fault(FaultCode.INCONSISTENT, ("plan",), detail))
    if faults:
        raise InvalidInput(faults)
    return questions


def patched_plan_at(*at: str | int) -> PlanDecoder:
    """Reads a plan that was patched with what stands at a place of the request.

    As strictly as one that was sent: what it makes raises `Problem` (422).
    """

    def decode(value: Any) -> PlanDocument:
        plan: PlanDocument = check_value(value, PlanDocument, at=at)
        return plan

    return decode


patched_plan = patched_plan_at("patch")
