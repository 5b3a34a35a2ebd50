"""Routings: the document routes."""

from service.api.documents import document_router
from service.app.ports import DocumentKind

__all__ = ["routings"]

routings = document_router(DocumentKind.ROUTING, "four-ranks-eight-experts")
