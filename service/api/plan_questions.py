"""From the body of a calculation to the question the use cases answer."""

from typing import Any

from msgspec import UNSET

from service.api.schemas.requests import EstimateBatchRequest, EstimateRequest, PlanRequest
from service.app.estimates import EstimateQuestion
from service.app.pricing import PlanDecoder, PlanQuestion
from service.core.errors import Fault, FaultCode, InvalidInput
from service.formats.documents.plan import PlanDocument
from service.web.strict_json import check_value

__all__ = [
    "batched_questions",
    "estimate_question",
    "patched_plan",
    "patched_plan_at",
    "plan_question",
]


def plan_question(request: PlanRequest) -> PlanQuestion:
    """The plan that is asked about."""
    return PlanQuestion(request.plan, None if request.patch is UNSET else request.patch)


def estimate_question(request: EstimateRequest) -> EstimateQuestion:
    """The plan that is asked about, and the time that is claimed for it."""
    asserted = request.asserted_iteration_seconds
    return EstimateQuestion(plan_question(request), None if asserted is UNSET else asserted)


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
        patch, asserted = entry.patch, entry.asserted_iteration_seconds
        questions.append(
            EstimateQuestion(
                PlanQuestion(plan, None if patch is UNSET else patch),
                None if asserted is UNSET else asserted,
            )
        )
    if request.plan is not UNSET and all(entry.plan is not UNSET for entry in request.plans):
        detail = "every entry of plans has a plan of its own: leave this out"
        faults.append(Fault(FaultCode.INCONSISTENT, ("plan",), detail))
    if faults:
        raise InvalidInput(faults)
    return questions


def patched_plan(value: Any) -> PlanDocument:
    """A patched plan, read as strictly as one that was sent. Raises `Problem` (422)."""
    plan: PlanDocument = check_value(value, PlanDocument, at=("patch",))
    return plan


def patched_plan_at(*at: str | int) -> PlanDecoder:
    """The same where what it was patched with stands at another place of the request."""

    def decode(value: Any) -> PlanDocument:
        plan: PlanDocument = check_value(value, PlanDocument, at=at)
        return plan

    return decode
