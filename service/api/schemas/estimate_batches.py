"""Wire types of many estimates at once."""

from typing import Annotated

import msgspec
from msgspec import Meta

from service.api.schemas.estimates import EstimateAnswer
from service.web.problems import ProblemDocument

__all__ = ["BatchedEstimate", "BatchedRefusal", "EstimateBatchAnswer"]


class BatchedEstimate(
    msgspec.Struct,
    kw_only=True,
    frozen=True,
    omit_defaults=True,
    tag_field="outcome",
    tag="estimate",
):
    """What asking for this plan alone answers."""

    digest: Annotated[str, Meta(description="Identity of the estimate.")]
    etag: Annotated[str, Meta(description="The ETag of the estimate's own URL.")]
    location: Annotated[str, Meta(description="The estimate's own URL.")]
    created: Annotated[
        bool, Meta(description="False when the estimate was stored before this request.")
    ]
    plan_reference: Annotated[
        str | msgspec.UnsetType,
        Meta(
            description="The revision of a plan that was asked for by name.",
            examples=["equal-stages-1f1b@1"],
        ),
    ] = msgspec.UNSET
    estimate: Annotated[
        EstimateAnswer,  # type: ignore[valid-type]  # put together when imported
        Meta(description="The answer, byte for byte as its own URL gives it."),
    ]


class BatchedRefusal(msgspec.Struct, kw_only=True, frozen=True, tag_field="outcome", tag="problem"):
    """Why this plan has no estimate; the others are not touched by it."""

    problem: Annotated[
        ProblemDocument,
        Meta(
            description="What asking for this plan alone is refused with. Pointers are into the "
            "body of this request, under `/plans/<index>` or the common `/plan`."
        ),
    ]


class EstimateBatchAnswer(msgspec.Struct, kw_only=True, frozen=True):
    """An estimate or a problem for each plan, in the order of the request."""

    plans: list[BatchedEstimate | BatchedRefusal]
