"""From the body of a calculation to the question the use cases answer."""

from typing import Any

from msgspec import UNSET

from service.api.schemas.requests import EstimateRequest, PlanRequest
from service.app.estimates import EstimateQuestion
from service.app.pricing import PlanQuestion
from service.formats.documents.plan import PlanDocument
from service.web.strict_json import check_value

__all__ = ["estimate_question", "patched_plan", "plan_question"]


def plan_question(request: PlanRequest) -> PlanQuestion:
    """The plan that is asked about."""
    return PlanQuestion(request.plan, None if request.patch is UNSET else request.patch)


def estimate_question(request: EstimateRequest) -> EstimateQuestion:
    """The plan that is asked about, and the time that is claimed for it."""
    asserted = request.asserted_iteration_seconds
    return EstimateQuestion(plan_question(request), None if asserted is UNSET else asserted)


def patched_plan(value: Any) -> PlanDocument:
    """A patched plan, read as strictly as one that was sent. Raises `Problem` (400)."""
    plan: PlanDocument = check_value(value, PlanDocument, at=("patch",))
    return plan
