"""The OpenAPI 3.1 document, generated from the routes and the msgspec types they name.

The framework can generate one too, but it loses the constraints of list items and map values, the
discriminators of unions and `additionalProperties: false`, and knows nothing of problem responses.
msgspec's own schemas have all of the first, and the table of problem types has the rest.

What a route can't say by its signature it says in `opt`:

    **CONDITIONAL     the answer has an ETag, and the conditional headers work
    **IDEMPOTENT      an Idempotency-Key is taken (`service.web.idempotency`)
    EXAMPLE: value    an example of the body
    MULTIPART: type   the body is a form: a `file` and the fields of this msgspec type
    FILES: number     the form holds up to so many `files` in place of one `file`
    PROBLEMS: types   problem types it can answer with, besides those that follow from the rest
    ANSWER_HEADERS: names  headers that its answers have, besides those that follow from the rest

and `service.web.access` reads there what a caller needs.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from inspect import Parameter, cleandoc
from typing import Any, get_origin

import msgspec
from litestar import Litestar, Response
from litestar.handlers.http_handlers import HTTPRouteHandler
from litestar.params import QueryParameter
from litestar.routes import HTTPRoute

from service.web import problem_types
from service.web.access import required_scope
from service.web.cursors import CURSOR
from service.web.forms import MULTIPART_MEDIA_TYPE, form_type
from service.web.guards import answer_media_type, declared_type, query_parameters
from service.web.idempotency import REPLAYED_HEADER, takes_key
from service.web.openapi_headers import (
    HEADERS,
    KEY_PARAMETER,
    answer_headers,
    conditional_parameters,
    problem_headers,
)
from service.web.problem_types import ProblemType
from service.web.problems import PROBLEM_MEDIA_TYPE, ProblemDocument
from service.web.rate_limit import is_limited

__all__ = [
    "ANSWER_HEADERS",
    "CONDITIONAL",
    "EXAMPLE",
    "FILES",
    "MULTIPART",
    "PROBLEMS",
    "ApiInfo",
    "build_document",
    "render",
]

ANSWER_HEADERS = "answer_headers"
CONDITIONAL: Mapping[str, Any] = {"conditional": True}
EXAMPLE = "example"
FILES = "files"
MULTIPART = "multipart"
PROBLEMS = "problems"

JSON = "application/json"
_REFERENCE = "#/components/schemas/{name}"
_NO_CONTENT_STATUSES = {204, 304}


@dataclass(frozen=True, slots=True)
class ApiInfo:
    """What the document says of the API as a whole."""

    title: str
    version: str
    description: str
    tags: Mapping[str, str]


def build_document(app: Litestar, info: ApiInfo) -> dict[str, Any]:
    """The OpenAPI document of an application's routes."""
    operations = sorted(_operations(app), key=lambda operation: (operation.path, operation.method))
    _require_unique_ids(operations)
    types = list(dict.fromkeys(type_ for o in operations for type_ in o.types()))
    schemas, components = msgspec.json.schema_components(
        [*types, ProblemDocument], ref_template=_REFERENCE
    )
    schema_of = dict(zip(types, schemas, strict=False))
    problem_schema = schemas[-1]
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method] = operation.render(schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": info.title,
            "version": info.version,
            "description": info.description,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "The service that serves this document"}],
        "tags": [{"name": tag, "description": text} for tag, text in info.tags.items()],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "headers": HEADERS,
            "securitySchemes": {_BEARER: _BEARER_SCHEME},
            "examples": {
                problem_type.slug: {
                    "summary": problem_type.title,
                    "value": _problem_example(problem_type),
                }
                for problem_type in problem_types.PROBLEM_TYPES
            },
            "responses": {
                problem_type.slug: _problem_response(problem_type, problem_schema)
                for problem_type in problem_types.PROBLEM_TYPES
            },
        },
    }


def render(document: Mapping[str, Any]) -> bytes:
    """The document as bytes that do not change from run to run."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


@dataclass(frozen=True, slots=True)
class _Operation:
    path: str
    method: str
    route: HTTPRoute
    handler: HTTPRouteHandler

    def types(self) -> Iterator[Any]:
        """The msgspec types its schemas are made from."""
        if (body := self._body()) is not None:
            yield body
        if (form := self._form()) is not None:
            yield form
        for container, _ in self._answers().values():
            if container is not None:
                yield container
        for _, annotation in self._parameters():
            yield annotation

    def render(self, schema_of: Mapping[Any, Any]) -> dict[str, Any]:
        """The operation object."""
        # A handler made by a factory is told its description, any other has it as its docstring.
        told = self.handler.description
        description = told if isinstance(told, str) else cleandoc(self.handler.fn.__doc__ or "")
        rendered: dict[str, Any] = {
            "operationId": self.handler.operation_id,
            "tags": sorted(self.handler.resolve_tags()),
            "summary": self.handler.summary or description.partition("\n")[0],
            "description": description,
        }
        parameters = [
            {
                "name": name,
                "in": place,
                "required": place == "path",
                **_described_schema({**schema_of[annotation], **self._default(name)}),
            }
            for (name, place), annotation in self._parameters()
        ]
        if self.handler.opt.get("conditional"):
            parameters += conditional_parameters(self.method)
        if takes_key(self.handler.opt):
            parameters.append(KEY_PARAMETER)
        if parameters:
            rendered["parameters"] = parameters
        if (request_body := self._request_body(schema_of)) is not None:
            rendered["requestBody"] = request_body
        rendered["responses"] = self._responses(schema_of)
        scope = required_scope(self.handler)
        rendered["security"] = [] if scope is None else [{_BEARER: [scope.value]}]
        return rendered

    def _body(self) -> Any | None:
        field = self.handler.parsed_data_field
        return None if field is None or MULTIPART in self.handler.opt else field.annotation

    def _form(self) -> Any | None:
        """The type of the form that is sent, where the body is one."""
        fields_type = self.handler.opt.get(MULTIPART)
        return fields_type and form_type(fields_type, self.handler.opt.get(FILES))

    def _parameters(self) -> Iterator[tuple[tuple[str, str], Any]]:
        """(name, place) and type of each parameter in the path and the query."""
        fields = self.handler.parsed_fn_signature.parameters
        for name in self.route.path_parameters:
            yield (name, "path"), declared_type(fields[name])
        for name, annotation in query_parameters(self.handler).items():
            yield (name, "query"), annotation

    def _default(self, name: str) -> dict[str, Any]:
        """What a query parameter that is left out counts as, where that is a value."""
        for field in self.handler.parsed_fn_signature.parameters.values():
            if isinstance(field.kwarg_definition, QueryParameter):
                is_meant = (field.kwarg_definition.query or field.name) == name
                if is_meant and field.default not in (None, Parameter.empty):
                    return {"default": field.default}
        return {}

    def _request_body(self, schema_of: Mapping[Any, Any]) -> dict[str, Any] | None:
        body, media_type = self._body(), JSON
        if (form := self._form()) is not None:
            body, media_type = form, MULTIPART_MEDIA_TYPE
        if body is None:
            return None
        media: dict[str, Any] = {"schema": schema_of[body]}
        if EXAMPLE in self.handler.opt:
            media["example"] = self.handler.opt[EXAMPLE]
        return {"required": True, "content": {media_type: media}}

    def _answers(self) -> dict[int, tuple[Any, str]]:
        """Type and description by status: as listed, or as the return annotation says."""
        listed = {
            status: (spec.data_container, spec.description)
            for status, spec in (self.handler.responses or {}).items()
        }
        if listed:
            return listed
        annotation = self.handler.parsed_return_field.annotation
        is_opaque = annotation in {None, type(None), bytes, str}
        if is_opaque or get_origin(annotation) is Response or annotation is Response:
            annotation = None
        return {self.handler.status_code: (annotation, "The answer")}

    def _responses(self, schema_of: Mapping[Any, Any]) -> dict[str, Any]:
        media_type = answer_media_type(self.handler)
        responses: dict[str, Any] = {}
        for status, (container, description) in sorted(self._answers().items()):
            names = self._header_names()
            if self.handler.opt.get("conditional") and status != 204:
                names.append("ETag")
            if takes_key(self.handler.opt):
                names.append(REPLAYED_HEADER)
            headers = answer_headers(*names)
            response: dict[str, Any] = {"description": description, "headers": headers}
            if container is not None:
                response["content"] = {media_type: {"schema": schema_of[container]}}
            elif status not in _NO_CONTENT_STATUSES:
                schema = {} if media_type == JSON else {"type": "string"}
                response["content"] = {media_type: {"schema": schema}}
            responses[str(status)] = response
        if self.handler.opt.get("conditional") and self.method == "get":
            headers = answer_headers(*self._header_names(), "ETag")
            responses["304"] = {"description": "The caller has this version", "headers": headers}
        by_status: dict[int, list[ProblemType]] = {}
        for problem_type in self._problems():
            by_status.setdefault(problem_type.status, []).append(problem_type)
        for status, types in sorted(by_status.items()):
            responses[str(status)] = _problem_reference(types)
        return responses

    def _header_names(self) -> list[str]:
        """The headers that each answer with what was asked for has."""
        limits = ["RateLimit-Policy", "RateLimit"] if self._is_limited() else []
        return [*limits, *self.handler.opt.get(ANSWER_HEADERS, ())]

    def _is_limited(self) -> bool:
        return required_scope(self.handler) is not None and is_limited(self.handler)

    def _problems(self) -> Iterator[ProblemType]:
        """The problem types an operation can answer with, from what it reads."""
        if required_scope(self.handler) is not None:
            yield problem_types.UNAUTHENTICATED
            yield problem_types.INSUFFICIENT_SCOPE
            yield problem_types.FOREIGN_ORIGIN
            yield problem_types.MISDIRECTED_REQUEST
        if self._is_limited():
            yield problem_types.RATE_LIMIT_EXCEEDED
            yield problem_types.TOO_MANY_AT_ONCE
            yield problem_types.OVERLOADED
        yield problem_types.INVALID_PARAMETERS
        yield problem_types.NOT_ACCEPTABLE
        yield problem_types.INTERNAL_ERROR
        yield problem_types.UNAVAILABLE
        if self.route.path_parameters and self.method != "put":
            yield problem_types.NOT_FOUND
        if self.handler.opt.get("conditional"):
            yield problem_types.PRECONDITION_FAILED
            if self.method == "delete":
                yield problem_types.PRECONDITION_REQUIRED
        if takes_key(self.handler.opt):
            yield problem_types.IDEMPOTENCY_KEY_IN_USE
            yield problem_types.IDEMPOTENCY_KEY_REUSED
        if CURSOR in query_parameters(self.handler):
            yield problem_types.INVALID_INPUT
        is_form = MULTIPART in self.handler.opt
        if self._body() is not None or is_form:
            yield problem_types.MALFORMED_REQUEST if is_form else problem_types.MALFORMED_BODY
            yield problem_types.INVALID_BODY
            yield problem_types.PAYLOAD_TOO_LARGE
            yield problem_types.UNSUPPORTED_MEDIA_TYPE
            yield problem_types.INVALID_INPUT
            yield problem_types.WORK_BUDGET_EXCEEDED
        yield from self.handler.opt.get(PROBLEMS, ())


def _operations(app: Litestar) -> Iterator[_Operation]:
    for route in app.routes:
        if not isinstance(route, HTTPRoute):
            continue
        path = route.path_format
        for handler in route.route_handlers:
            if not handler.resolve_include_in_schema() or handler.http_methods == {"OPTIONS"}:
                continue
            for method in handler.http_methods:
                yield _Operation(path, method.lower(), route, handler)


def _require_unique_ids(operations: list[_Operation]) -> None:
    """Clients name their methods by operation ids, so each is stated and stated once."""
    seen: set[Any] = set()
    for operation in operations:
        operation_id = operation.handler.operation_id
        if not isinstance(operation_id, str) or operation_id in seen:
            where = f"{operation.method.upper()} {operation.path}"
            raise ValueError(f"{where} needs an operation_id of its own; it has {operation_id!r}")
        seen.add(operation_id)


def _described_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter's schema with its description where readers look for it."""
    rest = {key: value for key, value in schema.items() if key != "description"}
    described = {"description": schema["description"]} if "description" in schema else {}
    return {**described, "schema": rest}


def _problem_response(problem_type: ProblemType, schema: dict[str, Any]) -> dict[str, Any]:
    examples = {problem_type.slug: {"$ref": f"#/components/examples/{problem_type.slug}"}}
    return {
        "description": f"{problem_type.title}. {problem_type.meaning}",
        "headers": problem_headers([problem_type]),
        "content": {PROBLEM_MEDIA_TYPE: {"schema": schema, "examples": examples}},
    }


def _problem_example(problem_type: ProblemType) -> dict[str, Any]:
    return {
        "type": problem_type.uri,
        "title": problem_type.title,
        "status": problem_type.status,
        "detail": problem_type.meaning,
        "instance": "/v1/plans/example",
        "request_id": "0123456789abcdef0123456789abcdef",
    }


def _problem_reference(types: list[ProblemType]) -> dict[str, Any]:
    """The response of a status: one problem type by reference, several by their titles."""
    if len(types) == 1:
        return {"$ref": f"#/components/responses/{types[0].slug}"}
    schema = {"$ref": _REFERENCE.format(name="ProblemDocument")}
    examples = {t.slug: {"$ref": f"#/components/examples/{t.slug}"} for t in types}
    return {
        "description": "; ".join(f"{t.title} ({t.uri})" for t in types),
        "headers": problem_headers(types),
        "content": {PROBLEM_MEDIA_TYPE: {"schema": schema, "examples": examples}},
    }


_BEARER = "bearer"
_BEARER_SCHEME = {
    "type": "http",
    "scheme": "bearer",
    "description": "A token of the caller's team. Each operation names the scope it needs: `read`, "
    "`write` or `admin`; none holds another one. While no token has been made, the service answers "
    "without one, on its own machine only.",
}
