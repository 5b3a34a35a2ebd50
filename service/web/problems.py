"""Problem documents (RFC 9457) for every refusal, from one table of errors.

Everything that is raised below a route ends here, unknown routes and unforeseen exceptions
included. `Problem` is what the plumbing itself raises.
"""

import logging
from collections.abc import Iterable, Sequence
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, MethodNotAllowedException
from litestar.types import ExceptionHandlersMap
from msgspec import Meta

from service.app.errors import (
    AnswerNotKept,
    KeyInUse,
    KeyReused,
    NotFound,
    Overloaded,
    PreconditionFailed,
    Superseded,
    TooManyAtOnce,
    Unavailable,
)
from service.core.errors import (
    Fault,
    FaultCode,
    InvalidInput,
    Path,
    UnlikePlans,
    WorkBudgetExceeded,
)
from service.web import problem_types
from service.web.methods import allowed_methods
from service.web.problem_types import ProblemType

__all__ = [
    "EXCEPTION_HANDLERS",
    "MAX_LISTED_FAULTS",
    "PROBLEM_MEDIA_TYPE",
    "Problem",
    "ProblemDocument",
    "ProblemError",
    "RequestFaultCode",
    "json_pointer",
    "parameter_error",
    "problem_document",
    "problem_for",
]

PROBLEM_MEDIA_TYPE = "application/problem+json"
# More faults than this help nobody, and a hostile body could have a million.
MAX_LISTED_FAULTS = 100
MAX_TOKEN_LENGTH = 200
RETRY_AFTER_SECONDS = 1

logger = logging.getLogger("stagefare.web")

AnyRequest = Request[Any, Any, Any]


class RequestFaultCode(StrEnum):
    """What can be wrong with a request before the core sees it (shown in the OpenAPI file)."""

    INVALID_CURSOR = "invalid_cursor"
    INVALID_HEADER = "invalid_header"
    INVALID_VALUE = "invalid_value"
    LENGTH_OUT_OF_BOUNDS = "length_out_of_bounds"
    MALFORMED = "malformed"
    NOT_FINITE = "not_finite"
    NUL_CHARACTER = "nul_character"
    PATTERN_MISMATCH = "pattern_mismatch"
    REPEATED_KEY = "repeated_key"
    REPEATED_PARAMETER = "repeated_parameter"
    TOO_DEEP = "too_deep"
    UNKNOWN_FIELD = "unknown_field"
    UNKNOWN_PARAMETER = "unknown_parameter"
    UNKNOWN_VALUE = "unknown_value"
    WRONG_TYPE = "wrong_type"


class ProblemError(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One fault of a request."""

    pointer: Annotated[
        str,
        Meta(
            description="JSON Pointer into the body; for a parameter a slash and its name.",
            examples=["/workload/microbatches"],
        ),
    ]
    code: Annotated[
        str,
        Meta(
            description="Stable, for machines. These are all; a later version may add to them.",
            extra_json_schema={
                "enum": sorted([*RequestFaultCode, *FaultCode]),
                "x-extensible-enum": True,
            },
        ),
    ]
    detail: Annotated[str, Meta(description="What would be right, for people.")]
    where: Annotated[
        Literal["body", "query", "path", "header"],
        Meta(description="What the pointer points into; absent means the body."),
    ] = msgspec.field(name="in", default="body")


class ProblemDocument(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Why a request was refused (RFC 9457)."""

    type: Annotated[
        str, Meta(description="Stable name of the kind of problem, and where its page is served.")
    ]
    title: Annotated[str, Meta(description="Fixed for the type.")]
    status: Annotated[int, Meta(ge=400, le=599, description="The HTTP status.")]
    detail: Annotated[str, Meta(description="What is wrong in this case.")]
    instance: Annotated[str, Meta(description="Path of the request.")]
    request_id: Annotated[str, Meta(description="Also in the X-Request-ID header and the log.")]
    trace_id: (
        Annotated[str, Meta(description="Of the trace the request belongs to, if any.")]
        | msgspec.UnsetType
    ) = msgspec.UNSET
    errors: Annotated[
        list[ProblemError],
        Meta(max_length=MAX_LISTED_FAULTS, description="All faults at once, as far as listed."),
    ] = []


class Problem(Exception):
    """A refusal by the plumbing or by a controller."""

    def __init__(
        self,
        problem_type: ProblemType,
        detail: str,
        errors: Iterable[ProblemError] = (),
        headers: dict[str, str] | None = None,
    ) -> None:
        self.problem_type = problem_type
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = headers or {}
        super().__init__(detail)

    @classmethod
    def listing(cls, problem_type: ProblemType, errors: Sequence[ProblemError]) -> "Problem":
        """A refusal for one or more faults, of which as many are listed as may be."""
        listed = errors[:MAX_LISTED_FAULTS]
        if len(errors) == 1:
            detail = errors[0].detail
        elif len(errors) > len(listed):
            detail = f"{len(errors)} faults, of which the first {len(listed)} are listed"
        else:
            detail = f"{len(errors)} faults, all of them listed"
        return cls(problem_type, detail, listed)


# How each error class is answered. The most special class of an error decides, so the order does
# not matter.
_PROBLEM_TYPE_OF: dict[type[BaseException], ProblemType] = {
    InvalidInput: problem_types.INVALID_INPUT,
    UnlikePlans: problem_types.UNLIKE_PLANS,
    WorkBudgetExceeded: problem_types.WORK_BUDGET_EXCEEDED,
    NotFound: problem_types.NOT_FOUND,
    PreconditionFailed: problem_types.PRECONDITION_FAILED,
    Superseded: problem_types.SUPERSEDED,
    KeyInUse: problem_types.IDEMPOTENCY_KEY_IN_USE,
    KeyReused: problem_types.IDEMPOTENCY_KEY_REUSED,
    AnswerNotKept: problem_types.SECRET_NOT_KEPT,
    TooManyAtOnce: problem_types.TOO_MANY_AT_ONCE,
    Overloaded: problem_types.OVERLOADED,
    Unavailable: problem_types.UNAVAILABLE,
}
# What the framework raises by itself, by status.
_PROBLEM_TYPE_OF_STATUS = {
    400: problem_types.MALFORMED_REQUEST,
    404: problem_types.NO_SUCH_ROUTE,
    405: problem_types.METHOD_NOT_ALLOWED,
    413: problem_types.PAYLOAD_TOO_LARGE,
    415: problem_types.UNSUPPORTED_MEDIA_TYPE,
    503: problem_types.UNAVAILABLE,
}


def json_pointer(path: Path) -> str:
    """The JSON Pointer (RFC 6901) of a path; very long keys are cut.

    Half of a surrogate pair, which a key can hold and an answer can't, becomes a question mark.
    """
    pointer = "".join("/" + _token(part) for part in path)
    return pointer.encode(errors="replace").decode()


def _token(part: str | int) -> str:
    text = str(part)
    if len(text) > MAX_TOKEN_LENGTH:
        text = text[:MAX_TOKEN_LENGTH] + "..."
    return text.replace("~", "~0").replace("/", "~1")


def parameter_error(
    where: Literal["query", "path", "header"],
    name: str,
    code: str,
    detail: str,
) -> ProblemError:
    """A fault of a parameter outside the body."""
    return ProblemError(pointer=json_pointer((name,)), code=code, detail=detail, where=where)


def problem_for(error: Exception) -> Problem | None:
    """The refusal an error means; None when it was not foreseen."""
    if isinstance(error, Problem):
        return error
    known = next((cls for cls in type(error).__mro__ if cls in _PROBLEM_TYPE_OF), None)
    if known is None:
        return _problem_of_framework(error) if isinstance(error, HTTPException) else None
    problem_type = _PROBLEM_TYPE_OF[known]
    if isinstance(error, InvalidInput):
        return _problem_of_faults(problem_type, error.faults)
    headers = {}
    if isinstance(error, PreconditionFailed) and error.current is not None:
        headers["ETag"] = f'"{error.current}"'
    if isinstance(error, Overloaded | TooManyAtOnce):
        headers["Retry-After"] = str(error.retry_after_seconds)
    elif isinstance(error, KeyInUse | Unavailable):
        headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return Problem(problem_type, str(error), headers=headers)


def _answer_with_problem(request: AnyRequest, error: Exception) -> Response[bytes]:
    """The answer to a request that raised: the handler of every exception."""
    problem = problem_for(error)
    if problem is None:
        # The line carries the request's id; whatever else the caller wrote stays out of it.
        logger.error("request failed", exc_info=error)
        problem = Problem(
            problem_types.INTERNAL_ERROR, "the failure was logged under this request's id"
        )
    if isinstance(error, Unavailable) and error.__cause__ is not None:
        logger.warning("not served for want of the database: %s", _kind_of(error.__cause__))
    headers = dict(problem.headers)
    if isinstance(error, MethodNotAllowedException):
        headers["Allow"] = allowed_methods(request.app, request.scope["path"])
    return _response(request, problem, headers)


def _kind_of(cause: BaseException) -> str:
    """What failed, by the names of its classes alone: the messages of drivers quote values."""
    names = []
    failed: BaseException | None = cause
    while isinstance(failed, BaseException):
        code = getattr(failed, "sqlstate", None) or getattr(failed, "sqlite_errorname", None)
        names.append(type(failed).__name__ + (f" ({code})" if code else ""))
        # SQLAlchemy's errors hold the driver's own.
        failed = getattr(failed, "orig", None)
    return ", ".join(names)


EXCEPTION_HANDLERS: ExceptionHandlersMap = {
    HTTPException: _answer_with_problem,
    Exception: _answer_with_problem,
}


def problem_document(request: AnyRequest, problem: Problem) -> ProblemDocument:
    """What the caller of a request is told of a refusal."""
    return ProblemDocument(
        type=problem.problem_type.uri,
        title=problem.problem_type.title,
        status=problem.problem_type.status,
        detail=problem.detail,
        instance=request.scope["path"],
        request_id=str(request.scope["state"].get("request_id", "")),
        trace_id=request.scope["state"].get("trace_id") or msgspec.UNSET,
        errors=list(problem.errors[:MAX_LISTED_FAULTS]),
    )


def _response(request: AnyRequest, problem: Problem, headers: dict[str, str]) -> Response[bytes]:
    return Response(
        msgspec.json.encode(problem_document(request, problem)),
        status_code=problem.problem_type.status,
        media_type=PROBLEM_MEDIA_TYPE,
        headers=headers,
    )


def _problem_of_faults(problem_type: ProblemType, faults: Sequence[Fault]) -> Problem:
    return Problem.listing(
        problem_type,
        [
            ProblemError(pointer=json_pointer(fault.path), code=fault.code, detail=fault.detail)
            for fault in faults
        ],
    )


def _problem_of_framework(error: HTTPException) -> Problem | None:
    problem_type = _PROBLEM_TYPE_OF_STATUS.get(error.status_code)
    if problem_type is None:
        return None
    errors = _parameter_errors(error.extra) if isinstance(error.extra, list) else []
    if errors:
        return Problem.listing(problem_types.INVALID_PARAMETERS, errors)
    if error.status_code in {404, 405, 413}:
        return Problem(problem_type, problem_type.meaning)
    detail = error.detail or HTTPStatus(error.status_code).phrase
    return Problem(problem_type, detail[:MAX_TOKEN_LENGTH])


def _parameter_errors(extra: Sequence[Any]) -> list[ProblemError]:
    """The faults the framework found in parameters, all of them."""
    places: dict[str, Literal["query", "path", "header"]] = {
        "query": "query",
        "path": "path",
        "header": "header",
    }
    return [
        parameter_error(
            places.get(getattr(entry.get("source"), "value", "query"), "query"),
            str(entry["key"]),
            RequestFaultCode.INVALID_VALUE,
            str(entry["message"]).replace("`", ""),
        )
        for entry in extra
        if isinstance(entry, dict) and "key" in entry
    ]
