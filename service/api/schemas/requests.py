"""What the calculations are asked with."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from service.formats.documents.plan import PlanDocument

__all__ = [
    "BatchedPlan",
    "EstimateBatchRequest",
    "EstimateRequest",
    "LiveActivationsRequest",
    "PlanRequest",
]

MAX_BATCHED_PLANS = 256


PlanGiven = Annotated[
    Annotated[
        str,
        Meta(
            pattern=r"^[a-z][a-z0-9-]{0,62}(@[1-9][0-9]{0,8})?$(?!\n)",
            examples=["equal-stages-1f1b@1"],
        ),
    ]
    | PlanDocument,
    Meta(description="A stored plan (`name` or `name@revision`), or a plan itself."),
]
Patch = Annotated[
    dict[str, Any],
    Meta(
        description=(
            "JSON merge patch (RFC 7396) applied to the plan before it is priced, for what-if "
            "questions. A null removes a field. It may not keep what it invalidates: a changed "
            "microbatch size makes inline stage times stale."
        ),
        max_length=64,
        examples=[{"workload": {"microbatches": 32}}],
    ),
]
AssertedIterationSeconds = Annotated[
    float,
    Meta(
        gt=0,
        le=1e9,
        description="An iteration time to be judged against the bounds and the prediction.",
        examples=[0.25],
    ),
]

Unset = msgspec.UnsetType


class PlanRequest(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A plan to calculate with."""

    plan: PlanGiven
    patch: Patch | Unset = msgspec.UNSET


class LiveActivationsRequest(PlanRequest, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A plan to count activations of."""

    simulate: Annotated[
        bool,
        Meta(
            description="Whether to simulate the plan, for when each peak is reached. Everything "
            "else follows from the order of its ranks alone, and is the same without."
        ),
    ] = True


class EstimateRequest(PlanRequest, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A plan to estimate, with an iteration time somebody claims for it."""

    asserted_iteration_seconds: AssertedIterationSeconds | Unset = msgspec.UNSET


class BatchedPlan(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One of many plans to estimate."""

    plan: Annotated[
        PlanGiven | Unset,
        Meta(
            description="A stored plan (`name` or `name@revision`), or a plan itself; without it, "
            "the `plan` beside the list."
        ),
    ] = msgspec.UNSET
    patch: Patch | Unset = msgspec.UNSET
    asserted_iteration_seconds: AssertedIterationSeconds | Unset = msgspec.UNSET


class EstimateBatchRequest(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Plans to estimate together, each perhaps patched."""

    plan: Annotated[
        PlanGiven | Unset,
        Meta(
            description="The plan of all entries that name none, so that many patches of one plan "
            "need not repeat it."
        ),
    ] = msgspec.UNSET
    plans: Annotated[
        list[BatchedPlan],
        Meta(min_length=1, max_length=MAX_BATCHED_PLANS, description="Answered in this order."),
    ]
