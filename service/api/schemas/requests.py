"""What the calculations are asked with."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from service.formats.documents.plan import PlanDocument

__all__ = ["EstimateRequest", "PlanRequest"]

_PLAN = Meta(
    description="A stored plan (`name` or `name@revision`), or a plan itself.",
)
_PATCH = Meta(
    description=(
        "JSON merge patch (RFC 7396) applied to the plan before it is priced, for what-if "
        "questions. A null removes a field. It may not keep what it invalidates: a changed "
        "microbatch size makes inline stage times stale."
    ),
    max_length=64,
    examples=[{"workload": {"microbatches": 32}}],
)


class PlanRequest(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A plan to calculate with."""

    plan: Annotated[
        Annotated[
            str,
            Meta(
                pattern=r"^[a-z][a-z0-9-]{0,62}(@[1-9][0-9]{0,8})?$(?!\n)",
                examples=["four-stages-before@1"],
            ),
        ]
        | PlanDocument,
        _PLAN,
    ]
    patch: Annotated[dict[str, Any], _PATCH] | msgspec.UnsetType = msgspec.UNSET


class EstimateRequest(PlanRequest, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A plan to estimate, with an iteration time somebody claims for it."""

    asserted_iteration_seconds: (
        Annotated[
            float,
            Meta(
                gt=0,
                le=1e9,
                description="An iteration time to be judged against the bounds and the prediction.",
                examples=[0.25],
            ),
        ]
        | msgspec.UnsetType
    ) = msgspec.UNSET
