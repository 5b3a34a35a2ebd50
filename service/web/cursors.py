"""Keyset paging: bounded pages, opaque cursors, and the URL of the next page."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar
from urllib.parse import urlencode

import msgspec
from litestar import Request
from litestar.params import FromQuery
from msgspec import Meta

from service.web import problem_types
from service.web.problems import Problem, RequestFaultCode, parameter_error

__all__ = ["CURSOR", "DEFAULT_LIMIT", "MAX_LIMIT", "Cursor", "Limit", "page_of", "read_cursor"]

T = TypeVar("T")
Item = TypeVar("Item")

CURSOR = "cursor"
DEFAULT_LIMIT = 50
MAX_LIMIT = 200

Limit = FromQuery[Annotated[int, Meta(ge=1, le=MAX_LIMIT, description="Most items of one page.")]]
Cursor = FromQuery[
    Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9_-]{1,1000}$(?!\n)",
            description="Where the page starts: taken from `next`, opaque.",
        ),
    ]
    | None
]


def read_cursor(request: Request[Any, Any, Any], cursor: str | None, position: type[T]) -> T | None:
    """The position a cursor stands for in the list that is asked for; None without a cursor.

    Raises `Problem` (422) when it is no cursor of this list.
    """
    if cursor is None:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        written = urlsafe_b64decode(padded.encode("ascii"))
        path, found = msgspec.json.decode(written, type=tuple[str, position])  # type: ignore[valid-type]
    except (ValueError, msgspec.MsgspecError) as error:
        raise _no_cursor() from error
    if path != _path(request):
        raise _no_cursor()
    return found


def _no_cursor() -> Problem:
    detail = "a cursor is used as the service gave it, in the list it was given for"
    fault = parameter_error("query", CURSOR, RequestFaultCode.INVALID_CURSOR, detail)
    return Problem(problem_types.INVALID_INPUT, detail, [fault])


def page_of(
    request: Request[Any, Any, Any],
    found: Sequence[Item],
    limit: int,
    position: Callable[[Item], Any],
) -> tuple[Sequence[Item], str | None]:
    """The items of one page and the URL of the next one, None on the last page.

    `found` holds up to `limit + 1` items: the one too many says that there is a next page.
    `position` gives what the next page starts strictly after.
    """
    if len(found) <= limit:
        return found, None
    items = found[:limit]
    written = msgspec.json.encode((_path(request), position(items[-1])))
    cursor = urlsafe_b64encode(written).rstrip(b"=").decode()
    query = {name: value for name, value in request.query_params.items() if name != CURSOR}
    return items, f"{request.scope['path']}?{urlencode({**query, CURSOR: cursor})}"


def _path(request: Request[Any, Any, Any]) -> str:
    path: str = request.scope["path"]
    return path.rstrip("/")
