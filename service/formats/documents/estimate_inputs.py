"""Everything an estimate depends on, as one document: its digest is the estimate's identity."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from service.formats.documents.plan import PlanDocument

__all__ = ["EstimateInputs", "PinnedDocument"]


class PinnedDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A stored document at one revision, and the digest of its content."""

    kind: str
    reference: str
    digest: str


class EstimateInputs(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """The patched plan with every reference pinned, what it pins, and the cost model's version."""

    model_version: str
    plan: PlanDocument
    pins: list[PinnedDocument]
    asserted_iteration_seconds: (
        Annotated[float, Meta(description="A claimed iteration time to be judged")] | UnsetType
    ) = UNSET
