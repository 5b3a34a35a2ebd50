"""What the Content-Type and Content-Encoding of a body may say."""

from typing import Any

from litestar import Request

from service.web import problem_types
from service.web.problems import Problem

__all__ = ["require_media_type"]


def require_media_type(request: Request[Any, Any, Any], media_type: str) -> None:
    """Raise `Problem` (415) unless the body is of this type, in UTF-8 and not compressed.

    Two headers that disagree would let two readers see two things, so one is all there may be.
    """
    given = request.headers.getall("content-type", [])
    if len(given) > 1:
        raise _unsupported(media_type, f"there is one Content-Type header; got {len(given)}")
    stated, options = request.content_type
    if stated.lower() != media_type:
        detail = f"this route reads {media_type}; the Content-Type header says {stated[:100]!r}"
        raise _unsupported(media_type, detail)
    charset = options.get("charset", "utf-8")
    if charset.lower() != "utf-8":
        raise _unsupported(media_type, f"a body is in UTF-8; the header says {charset[:100]!r}")
    encoding = ", ".join(request.headers.getall("content-encoding", []))
    if encoding.strip().lower() not in {"", "identity"}:
        detail = f"a body is sent as it is; the Content-Encoding header says {encoding[:100]!r}"
        raise Problem(
            problem_types.UNSUPPORTED_MEDIA_TYPE, detail, headers={"Accept-Encoding": "identity"}
        )


def _unsupported(media_type: str, detail: str) -> Problem:
    headers = {"Accept-Post": media_type}
    return Problem(problem_types.UNSUPPORTED_MEDIA_TYPE, detail, headers=headers)
