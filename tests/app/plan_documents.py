"""Documents that the tests of pricing store and send."""

from typing import Any

import msgspec

from service.app.document_kinds import DOCUMENT_TYPES
from service.app.documents import put
from service.app.ports import DocumentKind, Revision
from service.app.services import Services
from service.formats.documents.plan import PlanDocument
from tests.api.price_requests import DOCUMENTS, FOUR_LINES, two_host_plan

__all__ = ["INLINE_PLAN", "decode_plan", "inline_plan", "store_chain", "stored"]

# The smallest plan, as it is sent over HTTP as well.
INLINE_PLAN = FOUR_LINES


def decode_plan(value: Any) -> PlanDocument:
    """A plan from plain values."""
    return msgspec.convert(value, PlanDocument)


def inline_plan(**changes: Any) -> PlanDocument:
    """The smallest plan with some top-level fields replaced."""
    return decode_plan({**INLINE_PLAN, **changes})


async def stored(services: Services, kind: DocumentKind, name: str, document: Any) -> Revision:
    """Store plain values as a document."""
    struct = msgspec.convert(document, DOCUMENT_TYPES[kind].struct)
    return (await put(services, kind, name, struct)).revision


async def store_chain(services: Services) -> None:
    """A topology, a model of four layers, a profile of it and a plan that uses all three."""
    for path, document in DOCUMENTS.items():
        kind, _, name = path.partition("/")
        await stored(services, DocumentKind(kind), name, document)
    plan = two_host_plan("host0/gpu0", "host1/gpu0")
    await stored(services, DocumentKind.PLAN, "chain-plan", plan)
