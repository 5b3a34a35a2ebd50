"""Models: the document routes."""

from service.api.documents import document_router
from service.app.ports import DocumentKind

__all__ = ["models"]

models = document_router(DocumentKind.MODEL, "gpt-24-blocks")
