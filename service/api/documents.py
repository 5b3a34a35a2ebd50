"""The routes every kind of document has, made once for each kind.

`PUT`, `GET` one, `GET` its revisions, `GET` the list, `DELETE`: only the noun and the type of the
document differ, so each kind's file asks `document_router` for its routes and adds its own.
"""

from collections.abc import Sequence
from typing import Annotated, Any

from litestar import Request, Response, Router, delete, get, put
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, JSONBody
from litestar.types import ControllerRouterHandler
from msgspec import Meta

from service.api.injection import InjectedServices
from service.api.schemas.documents import (
    DocumentAnswer,
    Page,
    RevisionEntry,
    document_answer,
    revision_entry,
)
from service.app import documents
from service.app.document_kinds import DOCUMENT_TYPES
from service.app.documents import Change, version_tag
from service.app.errors import NotFound
from service.app.ports import DocumentKind, RevisionHeading
from service.app.references import NAME_RULE, parse_name, singular
from service.resources import example_document
from service.web import problem_types
from service.web.conditional import entity_tag, precondition, required_precondition
from service.web.cursors import DEFAULT_LIMIT, Cursor, Limit, page_of, read_cursor
from service.web.openapi import ANSWER_HEADERS, CONDITIONAL, EXAMPLE
from service.web.problems import Problem, RequestFaultCode, parameter_error
from service.web.responses import json_response, tagged_response

__all__ = [
    "DocumentName",
    "DocumentReference",
    "RoutingReference",
    "document_router",
    "required_name",
]

AnyRequest = Request[Any, Any, Any]

_NAME = r"[a-z][a-z0-9-]{0,62}"


def _name_like(example: str) -> Meta:
    return Meta(
        pattern=rf"^{_NAME}$(?!\n)", description=f"A name: {NAME_RULE}.", examples=[example]
    )


def _reference_like(example: str) -> Meta:
    return Meta(
        pattern=rf"^{_NAME}(@[1-9][0-9]{{0,8}})?$(?!\n)",
        description="A name for the newest revision, or name@revision.",
        examples=[f"{example}@1"],
    )


DocumentName = FromPath[Annotated[str, _name_like("two-dgx-h100")]]
DocumentReference = FromPath[Annotated[str, _reference_like("two-dgx-h100")]]
RoutingReference = FromPath[Annotated[str, _reference_like("four-ranks-eight-experts")]]


def required_name(text: str) -> str:
    """The name under which something is to be stored. Raises `Problem` (400) when it is none."""
    name = parse_name(text)
    if name is None:
        detail = f"a name is {NAME_RULE}"
        fault = parameter_error("path", "name", RequestFaultCode.PATTERN_MISMATCH, detail)
        raise Problem(problem_types.INVALID_PARAMETERS, detail, [fault])
    return name


def document_router(
    kind: DocumentKind, example: str, more: Sequence[ControllerRouterHandler] = ()
) -> Router:
    """The routes of one kind below `/v1/<kind>`, and `more` of its own.

    `example` is the name of the document of `examples/` that the contract shows.
    """
    noun, plural = singular(kind), kind.value
    document_type = DOCUMENT_TYPES[kind].struct
    most_bytes = DOCUMENT_TYPES[kind].most_bytes
    answer = DocumentAnswer[document_type]  # type: ignore[valid-type]
    named = FromPath[Annotated[str, _name_like(example)]]
    referenced = FromPath[Annotated[str, _reference_like(example)]]

    @put(
        "/{name:str}",
        operation_id=f"put_{noun}",
        summary=f"Store a {noun}",
        opt={
            **CONDITIONAL,
            EXAMPLE: example_document(kind.value, example),
            ANSWER_HEADERS: ("Content-Location",),
        },
        request_max_body_size=most_bytes,
        responses={
            201: ResponseSpec(
                answer, description="The first revision, or the first after archival"
            ),
            200: ResponseSpec(answer, description="A new revision, or the newest one if equal"),
        },
    )
    async def put_document(
        request: AnyRequest,
        services: InjectedServices,
        name: named,
        data: JSONBody[document_type],  # type: ignore[valid-type]
    ) -> Response[bytes]:
        """Compared with the newest revision only: equal content is that revision, other content
        is the next one. `If-None-Match: *` creates only; `If-Match` replaces a known version.
        What was read or imported can be stored again, whatever its size.
        """
        stored = await documents.put(
            services, kind, required_name(name), data, precondition(request)
        )
        status_code = 201 if stored.change is Change.CREATED else 200
        revision = stored.revision
        headers = {
            "ETag": entity_tag(version_tag(revision)),
            "Content-Location": f"/v1/{plural}/{revision.reference}",
        }
        return json_response(document_answer(revision), status_code, headers)

    @get(
        "/",
        operation_id=f"list_{plural}",
        summary=f"List {plural}",
        responses={200: ResponseSpec(Page[RevisionEntry], description="Newest revisions by name")},
    )
    async def list_documents(
        request: AnyRequest,
        services: InjectedServices,
        limit: Limit = DEFAULT_LIMIT,
        cursor: Cursor = None,
    ) -> Response[bytes]:
        """The newest revision of each name, in order of name, without archived documents."""
        found = await documents.page(services, kind, limit + 1, read_cursor(request, cursor, str))
        return _page(request, found, limit, lambda revision: revision.name)

    @get(
        "/{name:str}",
        operation_id=f"get_{noun}",
        summary=f"Read a {noun}",
        opt=CONDITIONAL,
        responses={200: ResponseSpec(answer, description="The revision with its content")},
    )
    async def get_document(
        request: AnyRequest,
        services: InjectedServices,
        name: referenced,
    ) -> Response[bytes]:
        """The newest revision of a name, or the one named; a numbered one also when archived."""
        revision = await documents.get(services, kind, name)
        return tagged_response(request, version_tag(revision), lambda: document_answer(revision))

    @get(
        "/{name:str}/revisions",
        operation_id=f"list_{noun}_revisions",
        summary=f"List the revisions of a {noun}",
        responses={200: ResponseSpec(Page[RevisionEntry], description="Newest first")},
    )
    async def list_revisions(
        request: AnyRequest,
        services: InjectedServices,
        name: named,
        limit: Limit = DEFAULT_LIMIT,
        cursor: Cursor = None,
    ) -> Response[bytes]:
        """The history of one name, newest first; an archived document keeps its history."""
        before = read_cursor(request, cursor, int)
        found = await documents.history(services, kind, _known_name(name, noun), limit + 1, before)
        return _page(request, found, limit, lambda revision: revision.number)

    @delete(
        "/{name:str}",
        operation_id=f"archive_{noun}",
        summary=f"Archive a {noun}",
        opt=CONDITIONAL,
        status_code=204,
        responses={204: ResponseSpec(None, description="Archived")},
    )
    async def archive_document(
        request: AnyRequest,
        services: InjectedServices,
        name: named,
    ) -> None:
        """Taken out of lists and new references; what pins a revision of it still resolves."""
        permits = required_precondition(request)
        await documents.archive(services, kind, _known_name(name, noun), permits)

    handlers: list[ControllerRouterHandler] = [
        put_document,
        list_documents,
        get_document,
        list_revisions,
        archive_document,
    ]
    return Router(f"/v1/{plural}", route_handlers=[*handlers, *more], tags=[plural])


def _known_name(text: str, noun: str) -> str:
    """A name that may be stored; what is no name can't be."""
    name = parse_name(text)
    if name is None:
        raise NotFound(f"no {noun} is named {text[:100]!r}; a name is {NAME_RULE}")
    return name


def _page(
    request: AnyRequest, found: Sequence[RevisionHeading], limit: int, position: Any
) -> Response[bytes]:
    items, following = page_of(request, found, limit, position)
    return json_response(Page.of([revision_entry(revision) for revision in items], following))
