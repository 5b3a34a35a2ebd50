"""What imports of nouns share: how large a file may be, and how they answer."""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from litestar import Request, Response
from msgspec import Struct

from service.app.document_kinds import MAX_LARGE_DOCUMENT_BYTES
from service.app.documents import Change
from service.app.idempotency import Answer, Record
from service.app.imports import Imported
from service.app.services import Services
from service.web.forms import SentFile
from service.web.idempotency import respond_once

__all__ = ["MAX_IMPORT_BYTES", "digests_of", "respond_to_import"]

MAX_IMPORT_BYTES = MAX_LARGE_DOCUMENT_BYTES


async def respond_to_import(
    request: Request[Any, Any, Any],
    services: Services,
    content: bytes,
    fields: Struct,
    create: Callable[[Record[Imported]], Awaitable[Imported]],
    answer: Callable[[Imported], Struct],
) -> Response[bytes]:
    """The response to an import, done once for a key: 201 where a document is a new revision."""

    def rendered(imported: Imported) -> Answer:
        stored = [each.stored for each in imported.documents.values() if each.stored is not None]
        is_new = any(each.change is not Change.UNCHANGED for each in stored)
        return Answer(201 if is_new else 200, {}, msgspec.json.encode(answer(imported)))

    # Forms of equal parts differ in their boundaries, so the parts are what is asked for.
    asked = (await services.executor.run(_digest, content), fields)
    return await respond_once(request, services, asked, create, rendered)


def digests_of(files: Sequence[SentFile]) -> list[tuple[str, str]]:
    """What several files are known by: their names, and digests of their contents."""
    return [(file.name, _digest(file.content)) for file in files]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
