"""Plans: the document routes. What a plan costs is asked of the calculations."""

from service.api.documents import document_router
from service.app.ports import DocumentKind

__all__ = ["plans"]

plans = document_router(DocumentKind.PLAN, "equal-stages-1f1b")
