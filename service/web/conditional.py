"""Conditional requests (RFC 9110, section 13) over strong entity tags.

A tag is opaque text without quotes; the quotes belong to the header. Use cases get a
`Precondition`, which knows nothing of headers.
"""

import re
from collections.abc import Callable
from typing import Any

from litestar import Request

from service.app.errors import PreconditionFailed
from service.web import problem_types
from service.web.problems import Problem, RequestFaultCode, parameter_error

__all__ = ["TAGS_PATTERN", "entity_tag", "is_unmodified", "precondition", "required_precondition"]

AnyRequest = Request[Any, Any, Any]

_TAG = r'(?:W/)?"[!#-~]*"'
# Empty elements of a list are read over (RFC 9110, 5.6.1.2); a list of nothing else is no list.
TAGS_PATTERN = rf"^(?:\*|(?:[ \t]*,)*[ \t]*{_TAG}[ \t]*(?:,[ \t]*(?:{_TAG}[ \t]*)?)*)$(?!\n)"
_TAGS = re.compile(TAGS_PATTERN)
_ONE_TAG = re.compile(_TAG)


def entity_tag(tag: str) -> str:
    """The value of an ETag header."""
    return f'"{tag}"'


def is_unmodified(request: AnyRequest, tag: str) -> bool:
    """Whether If-None-Match says that the caller has this version already (answer 304).

    Raises `PreconditionFailed` when If-Match asks for another version than this one, and `Problem`
    when a header can't be read.
    """
    wanted = _tags(request, "If-Match")
    tags = _tags(request, "If-None-Match")
    if wanted is not None and "*" not in wanted and entity_tag(tag) not in wanted:
        detail = "what is stored is not the version that If-Match asks for"
        raise PreconditionFailed(detail, tag)
    # If-None-Match compares weakly: W/"x" and "x" are the same.
    return tags is not None and ("*" in tags or entity_tag(tag) in {_strong(t) for t in tags})


def precondition(request: AnyRequest) -> Callable[[str | None], bool]:
    """What If-Match and If-None-Match say about the version stored before a write.

    The result takes the stored version's tag, or None when nothing is stored, and says whether the
    write may go on. Raises `Problem` when a header can't be read.
    """
    must_match = _tags(request, "If-Match")
    must_not_match = _tags(request, "If-None-Match")

    def permits(current: str | None) -> bool:
        if must_match is not None:
            if current is None:
                return False
            if "*" not in must_match and entity_tag(current) not in must_match:
                return False
        if must_not_match is not None and current is not None:
            return "*" not in must_not_match and entity_tag(current) not in {
                _strong(tag) for tag in must_not_match
            }
        return True

    return permits


def required_precondition(request: AnyRequest) -> Callable[[str | None], bool]:
    """`precondition`, for a change that asks for If-Match: it takes away what others may use.

    Raises `Problem` (428) without the header.
    """
    if "If-Match" not in request.headers:
        raise Problem(
            problem_types.PRECONDITION_REQUIRED,
            "this needs the header If-Match with the ETag of the version that is meant, or * for "
            "whatever is stored",
        )
    return precondition(request)


def _tags(request: AnyRequest, header: str) -> list[str] | None:
    """The tags of a header with their quotes, or ["*"]; None without the header."""
    values = request.headers.getall(header, [])
    if not values:
        return None
    text = ", ".join(values).strip()
    if text == "*":
        return ["*"]
    if _TAGS.match(text) is None:
        detail = f'{header} is * or a list of entity tags in double quotes, such as "3-1f0c"'
        error = parameter_error("header", header, RequestFaultCode.INVALID_HEADER, detail)
        raise Problem(problem_types.INVALID_PARAMETERS, detail, [error])
    return _ONE_TAG.findall(text)


def _strong(tag: str) -> str:
    return tag.removeprefix("W/")
