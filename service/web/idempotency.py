"""The `Idempotency-Key` header: a request that creates is done once, however often it is sent.

A handler says in `opt` that it takes one (`**IDEMPOTENT`) and answers through `respond_once`. All
other routes are safe to repeat as they are, and pay no attention to the header.
"""

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from litestar import Request, Response

from service.app.apart import USUAL, run_apart
from service.app.idempotency import Answer, KeyedRequest, Record, answer_once
from service.app.services import Services
from service.web import problem_types
from service.web.problems import Problem, RequestFaultCode, parameter_error

__all__ = [
    "IDEMPOTENT",
    "KEY_HEADER",
    "KEY_PATTERN",
    "REPLAYED_HEADER",
    "respond_once",
    "takes_key",
]

T = TypeVar("T")

_IDEMPOTENT = "idempotent"
IDEMPOTENT: Mapping[str, Any] = {_IDEMPOTENT: True}

KEY_HEADER = "Idempotency-Key"
REPLAYED_HEADER = "Idempotency-Replayed"
KEY_PATTERN = r"^[\x21-\x7e]{1,255}$(?!\n)"
_KEY = re.compile(KEY_PATTERN)


def takes_key(opt: Mapping[str, Any]) -> bool:
    """Whether the handler with this `opt` takes an idempotency key."""
    return bool(opt.get(_IDEMPOTENT))


async def respond_once(
    request: Request[Any, Any, Any],
    services: Services,
    content: Any,
    create: Callable[[Record[T]], Awaitable[T]],
    answer: Callable[[T], Answer],
) -> Response[bytes]:
    """The response to a request that creates: `answer` of what `create` made, now or before.

    `content` is what the body asks for, as values msgspec can write: the order of its fields, and
    the boundary of a form, do not make it another request. `create` passes its argument on to the
    use case, as `record`.

    Raises `Problem` (400) when the header is no key, and what `answer_once` raises.
    """
    keyed = await _keyed(request, content)
    made, is_replayed = await answer_once(services, keyed, create, answer)
    headers = {**made.headers, REPLAYED_HEADER: "true"} if is_replayed else dict(made.headers)
    return Response(
        made.body, status_code=made.status_code, media_type="application/json", headers=headers
    )


async def _keyed(request: Request[Any, Any, Any], content: Any) -> KeyedRequest | None:
    given = request.headers.getall(KEY_HEADER, [])
    if not given:
        return None
    if len(given) > 1 or _KEY.match(given[0]) is None:
        detail = f"{KEY_HEADER} is given once: 1 to 255 visible ASCII characters"
        error = parameter_error("header", KEY_HEADER, RequestFaultCode.INVALID_HEADER, detail)
        raise Problem(problem_types.INVALID_PARAMETERS, detail, [error])
    # No method and no path holds a line feed.
    asked = f"{request.method}\n{request.scope['path']}\n".encode()
    size = USUAL if request.content_length is None else request.content_length
    return KeyedRequest(given[0], await run_apart(size, _digest, asked, content))


def _digest(asked: bytes, content: Any) -> bytes:
    return hashlib.sha256(asked + msgspec.json.encode(content, order="sorted")).digest()
