"""Answers in JSON, with or without a version."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from litestar import Request, Response

from service.web.conditional import entity_tag, is_unmodified

__all__ = ["json_response", "tagged_response"]


def json_response(
    value: Any, status_code: int = 200, headers: Mapping[str, str] | None = None
) -> Response[bytes]:
    """A msgspec value as JSON."""
    return Response(
        msgspec.json.encode(value),
        status_code=status_code,
        media_type="application/json",
        headers=dict(headers or {}),
    )


def tagged_response(
    request: Request[Any, Any, Any], tag: str, value: Callable[[], Any]
) -> Response[bytes]:
    """The value with its strong entity tag, or 304 when the caller has this version already."""
    headers = {"ETag": entity_tag(tag)}
    if is_unmodified(request, tag):
        return Response(b"", status_code=304, headers=headers)
    return json_response(value(), headers=headers)
