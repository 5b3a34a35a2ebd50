"""Routings: the document routes, the import of loads that others recorded, and their balance."""

from typing import Any

import msgspec
from litestar import Request, Response, post
from litestar.openapi.datastructures import ResponseSpec

from service.api.documents import DocumentName, document_router, required_name
from service.api.imports import MAX_IMPORT_BYTES, digests_of
from service.api.injection import InjectedServices
from service.api.routing_balance import balance_routing
from service.api.schemas.routing_imports import (
    RoutingImportAnswer,
    RoutingImportFields,
    routing_import_answer,
    stated_routing,
)
from service.app.documents import Change
from service.app.idempotency import Answer, Record
from service.app.ports import DocumentKind
from service.app.routing_imports import ImportedRouting, import_routing
from service.formats.documents.fields import or_none
from service.web.forms import read_files_form
from service.web.idempotency import IDEMPOTENT, respond_once
from service.web.openapi import EXAMPLE, FILES, MULTIPART

__all__ = ["MAX_ROUTING_FILES", "routings"]

MAX_ROUTING_FILES = 48

_EXAMPLE_FILE = """layer,step,source,0,1,2,3
0,1,0,5,1,1,1
0,1,1,4,2,1,1
0,1001,0,6,0,1,1
0,1001,1,6,1,1,0
"""


@post(
    "/{name:str}/imports",
    operation_id="import_routing",
    summary="Import a routing",
    opt={
        **IDEMPOTENT,
        EXAMPLE: {"files": [_EXAMPLE_FILE], "top_k": 1},
        MULTIPART: RoutingImportFields,
        FILES: MAX_ROUTING_FILES,
    },
    request_max_body_size=MAX_IMPORT_BYTES,
    responses={
        201: ResponseSpec(RoutingImportAnswer, description="Stored as a new revision"),
        200: ResponseSpec(RoutingImportAnswer, description="A dry run, or it was known"),
    },
)
async def import_files(
    request: Request[Any, Any, Any], services: InjectedServices, name: DocumentName
) -> Response[bytes]:
    """Reads expert loads into one routing: JSON with `counts`, a `matrix` or `topk_ids` by layer,
    CSV in the same three ways, and JSON lines with a token each. Several files are other layers,
    other steps, or both; where they do not say which, each is a step. docs/routing-formats.md has
    each format.

    Assignments have to be such as tokens can ask for. Counts that stand for several replicas are
    refused unless `replicated` says so, and dummy tokens of a warm-up are told, or left out with
    `drop_warm_up`. The answer lists what was read, assumed and left out with file and line.
    Importing the same files again changes nothing.
    """
    routing_name = required_name(name)
    sent, fields = await read_files_form(request, RoutingImportFields, MAX_ROUTING_FILES)
    stated = stated_routing(fields)

    async def create(record: Record[ImportedRouting]) -> ImportedRouting:
        return await import_routing(
            services,
            [file.content for file in sent],
            stated,
            format=or_none(fields.format),
            name=routing_name,
            dry_run=fields.dry_run,
            record=record,
        )

    def answer(imported: ImportedRouting) -> Answer:
        stored = imported.stored
        is_new = stored is not None and stored.change is not Change.UNCHANGED
        return Answer(
            201 if is_new else 200, {}, msgspec.json.encode(routing_import_answer(imported, sent))
        )

    # Forms of equal parts differ in their boundaries, so the parts are what is asked for.
    asked = (await services.executor.run(digests_of, sent), fields)
    return await respond_once(request, services, asked, create, answer)


routings = document_router(
    DocumentKind.ROUTING, "four-ranks-eight-experts", [import_files, balance_routing]
)
