"""Refusals before a handler runs: query parameters that can't be used, formats nobody asked for.

The framework ignores unknown and repeated parameters and drops the msgspec constraints of the known
ones, so all of them are checked here, against the types the handler declares.

Guards are coroutines though they await nothing: the framework runs plain functions in a thread, and
the way there and back costs more than a small request.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, get_args

from litestar.connection import ASGIConnection
from litestar.handlers.base import BaseRouteHandler
from litestar.handlers.http_handlers import HTTPRouteHandler
from litestar.params import QueryParameter
from msgspec import Meta

from service.web import problem_types
from service.web.problems import Problem, ProblemError, RequestFaultCode, parameter_error
from service.web.texts import read_text

__all__ = [
    "accepts",
    "answer_media_type",
    "declared_type",
    "query_parameters",
    "refuse_bad_parameters",
    "refuse_unacceptable",
]

Connection = ASGIConnection[Any, Any, Any, Any]


@lru_cache(maxsize=512)
def query_parameters(handler: BaseRouteHandler) -> Mapping[str, Any]:
    """The msgspec type of each query parameter a handler declares, by the name on the wire."""
    return {
        field.kwarg_definition.query or field.name: declared_type(field)
        for field in handler.parsed_fn_signature.parameters.values()
        if isinstance(field.kwarg_definition, QueryParameter)
    }


def declared_type(field: Any) -> Any:
    """The type of a parameter with its constraints, without the framework's metadata and None.

    A parameter that may be left out is declared with None; on the wire it is never null.
    """
    annotation = field.annotation
    members = [member for member in get_args(annotation) if member is not type(None)]
    if type(None) in get_args(annotation) and len(members) == 1:
        annotation = members[0]
    for entry in field.metadata:
        if isinstance(entry, Meta):
            annotation = Annotated[annotation, entry]
    return annotation


async def refuse_bad_parameters(connection: Connection, handler: BaseRouteHandler) -> None:
    """Guard: every query parameter is declared, given once, and of its declared type.

    Raises `Problem` (400) with every fault.
    """
    values: dict[str, list[str]] = {}
    for name, value in connection.query_params.multi_items():
        values.setdefault(name, []).append(value)
    if not values:
        return
    known = query_parameters(handler)
    errors: list[ProblemError] = []
    for name, given in values.items():
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            detail = f"the query parameter {name[:100]!r} is unknown; known here are: {names}"
            code = RequestFaultCode.UNKNOWN_PARAMETER
            errors.append(parameter_error("query", name, code, detail))
        elif len(given) > 1:
            detail = f"the query parameter {name!r} is given once; got {len(given)}"
            code = RequestFaultCode.REPEATED_PARAMETER
            errors.append(parameter_error("query", name, code, detail))
        else:
            _, faults = read_text(given[0], known[name])
            errors += [
                parameter_error("query", name, fault.code, f"{name}: {fault.detail}")
                for fault in faults
            ]
    if errors:
        raise Problem.listing(problem_types.INVALID_PARAMETERS, errors)


async def refuse_unacceptable(connection: Connection, handler: BaseRouteHandler) -> None:
    """Guard: the Accept header allows the one format the handler answers in."""
    header = ", ".join(connection.headers.getall("accept", []))
    if header and isinstance(handler, HTTPRouteHandler):
        offered = answer_media_type(handler)
        if not accepts(header, offered):
            raise Problem(problem_types.NOT_ACCEPTABLE, f"this URL answers in {offered}")


def answer_media_type(handler: HTTPRouteHandler) -> str:
    """The media type of a handler's answers without parameters; JSON unless it says otherwise."""
    stated = getattr(handler.media_type, "value", handler.media_type)
    return str(stated).partition(";")[0].strip() or "application/json"


def accepts(header: str, media_type: str) -> bool:
    """Whether an Accept header allows a media type (RFC 9110, section 12.5.1).

    The most specific range that matches decides; its weight 0 means no.
    """
    main = media_type.partition("/")[0]
    specificity = {"*/*": 1, f"{main}/*": 2, media_type: 3}
    best = (0, False)
    for element in header.lower().split(","):
        media_range, *parameters = (part.strip() for part in element.split(";"))
        weight = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        try:
            allowed = float(weight) > 0
        except ValueError:
            allowed = False
        best = max(best, (specificity.get(media_range, 0), allowed))
    return best[0] > 0 and best[1]
