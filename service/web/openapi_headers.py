"""The header fields of the contract: what requests may carry, and what answers have."""

from collections.abc import Iterable
from typing import Any

from service.web import problem_types
from service.web.conditional import TAGS_PATTERN
from service.web.idempotency import KEY_HEADER, KEY_PATTERN, REPLAYED_HEADER
from service.web.problem_types import ProblemType

__all__ = [
    "HEADERS",
    "KEY_PARAMETER",
    "answer_headers",
    "conditional_parameters",
    "problem_headers",
]

_TAG_SCHEMA = {"schema": {"type": "string", "pattern": TAGS_PATTERN, "maxLength": 1000}}
_CONDITIONAL_HEADERS: dict[tuple[str, str], dict[str, Any]] = {
    ("get", "If-Match"): {
        "description": "Only this version (or * any); 412 with the current ETag if not.",
        **_TAG_SCHEMA,
    },
    ("get", "If-None-Match"): {
        "description": "Entity tags the caller has; 304 when one is the current version.",
        **_TAG_SCHEMA,
    },
    ("put", "If-Match"): {
        "description": "Replace only this version (or * any); 412 with the current ETag if not.",
        **_TAG_SCHEMA,
    },
    ("put", "If-None-Match"): {
        "description": "* creates only; 412 when something is stored.",
        **_TAG_SCHEMA,
    },
    ("delete", "If-Match"): {
        "description": "Only this version (or * any); 412 with the current ETag if not, 428 "
        "without the header.",
        **_TAG_SCHEMA,
    },
}
_REQUIRED_HEADERS = {("delete", "If-Match")}
# Without an example: pages that try a request fill it in, and all their readers share one key.
KEY_PARAMETER = {
    "name": KEY_HEADER,
    "in": "header",
    "required": False,
    "description": "Names this request for 24 hours within the team, whichever of its tokens sends "
    "it. Sent again, it is answered as it was the first time; a request that was refused or failed "
    "leaves no key.",
    "schema": {"type": "string", "pattern": KEY_PATTERN, "minLength": 1, "maxLength": 255},
}
# The problem types that say when to try again, and those that say how to authenticate.
_TRY_AGAIN = {
    problem_types.IDEMPOTENCY_KEY_IN_USE,
    problem_types.RATE_LIMIT_EXCEEDED,
    problem_types.TOO_MANY_AT_ONCE,
    problem_types.OVERLOADED,
    problem_types.UNAVAILABLE,
}
_CHALLENGING = {problem_types.UNAUTHENTICATED, problem_types.INSUFFICIENT_SCOPE}
HEADERS = {
    "RateLimit-Policy": {
        "description": "How many requests `q` the caller may send within `w` seconds "
        "(draft-ietf-httpapi-ratelimit-headers); absent where the operator has set no limit.",
        "schema": {"type": "string"},
        "example": '"default";q=6000;w=60',
    },
    "RateLimit": {
        "description": "How many requests `r` are left, and after how many seconds `t` of none all "
        "of them will be. Refusals carry it too, once the caller is known.",
        "schema": {"type": "string"},
        "example": '"default";r=5999;t=1',
    },
    "Retry-After": {
        "description": "Seconds after which the request can be sent again.",
        "schema": {"type": "string", "pattern": "^[1-9][0-9]*$"},
        "example": "1",
    },
    "Link": {
        "description": "Where the contract, its reference and the state of the service are (RFC "
        "8288, with the relations `service-desc`, `service-doc` and `status` of RFC 8631).",
        "schema": {"type": "string"},
        "example": '</openapi.json>; rel="service-desc"; type="application/json"',
    },
    REPLAYED_HEADER: {
        "description": "`true` on the answer of an earlier request with the same Idempotency-Key; "
        "absent otherwise.",
        "schema": {"type": "string", "enum": ["true"]},
    },
    "WWW-Authenticate": {
        "description": "How to authenticate (RFC 6750), with the reason where one can be told.",
        "schema": {"type": "string"},
    },
    "RequestId": {
        "description": "Id of the request, the caller's own when it sent one; also in the log.",
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"},
    },
    "ETag": {
        "description": "Strong entity tag of the version in the answer; with 412, of the one that "
        "is stored, absent when nothing is.",
        "schema": {"type": "string"},
    },
    "Location": {
        "description": "Path of what was created; absent where it was stored before.",
        "schema": {"type": "string"},
    },
    "Content-Location": {
        "description": "Path under which this answer itself can be read again.",
        "schema": {"type": "string"},
    },
    "Stagefare-Plan": {
        "description": "The revision, as name@number, of a plan that was asked for by name; absent "
        "otherwise.",
        "schema": {"type": "string"},
    },
    "Allow": {
        "description": "The methods that the path takes.",
        "schema": {"type": "string"},
    },
}


def answer_headers(*names: str) -> dict[str, Any]:
    """X-Request-ID and these headers of an answer, by reference to what `HEADERS` says."""
    named = {name: {"$ref": f"#/components/headers/{name}"} for name in names}
    return {"X-Request-ID": {"$ref": "#/components/headers/RequestId"}, **named}


def problem_headers(types: Iterable[ProblemType]) -> dict[str, Any]:
    """The headers of a refusal with one of these problem types."""
    found = set(types)
    sent = {
        "WWW-Authenticate": found & _CHALLENGING,
        "Retry-After": found & _TRY_AGAIN,
        "ETag": problem_types.PRECONDITION_FAILED in found,
        "Allow": problem_types.METHOD_NOT_ALLOWED in found,
    }
    return answer_headers(*(name for name, is_sent in sent.items() if is_sent))


def conditional_parameters(method: str) -> list[dict[str, Any]]:
    """The conditional headers that requests with a method may carry, or must."""
    return [
        {
            "name": name,
            "in": "header",
            "required": (method, name) in _REQUIRED_HEADERS,
            **described,
        }
        for (of_method, name), described in _CONDITIONAL_HEADERS.items()
        if of_method == method
    ]
