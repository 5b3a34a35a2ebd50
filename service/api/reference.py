"""The interactive reference: the contract to read and to try, without any other host.

Swagger UI draws it from `/openapi.json`, as the package `swagger-ui-bundle-v2` ships it. The page
is for people and so is no part of the contract itself.
"""

from functools import lru_cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from litestar import Request, Response, get
from litestar.handlers import HTTPRouteHandler

from service.web.access import OPEN
from service.web.conditional import entity_tag, is_unmodified
from service.web.pages import page_headers

__all__ = ["reference_routes"]

_OWN_FOLDER = Path(__file__).parent / "reference_page"
# The page may load and ask what this service serves, and nothing else; no code or style in it runs.
_SOURCES = (
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self'",
)
_HEADERS = {**page_headers(*_SOURCES), "Cache-Control": "no-cache"}


@lru_cache(maxsize=1)
def _swagger_ui() -> Path:
    """The folder of the package that holds the built files; its name has their version."""
    package = find_spec("swagger_ui_bundle")
    if package is None or package.origin is None:
        raise FileNotFoundError("the package swagger-ui-bundle-v2 is not installed")
    (folder,) = (Path(package.origin).parent / "vendor").iterdir()
    return folder


@lru_cache(maxsize=8)
def _read(name: str) -> tuple[bytes, str]:
    """The bytes of a file of the page, and their entity tag."""
    own = _OWN_FOLDER / name
    content = (own if own.is_file() else _swagger_ui() / name).read_bytes()
    return content, sha256(content).hexdigest()[:32]


def _file_route(path: str, name: str, media_type: str) -> HTTPRouteHandler:
    """One file; which ones there are is fixed, so that no path is made from a request."""

    @get(path, media_type=media_type, opt=OPEN, include_in_schema=False, sync_to_thread=False)
    def serve(request: Request[Any, Any, Any]) -> Response[bytes]:
        content, tag = _read(name)
        headers = {**_HEADERS, "ETag": entity_tag(tag)}
        if is_unmodified(request, tag):
            return Response(b"", status_code=304, headers=headers)
        return Response(content, media_type=media_type, headers=headers)

    return serve


reference_routes = (
    _file_route("/reference", "reference.html", "text/html"),
    _file_route("/reference/reference.js", "reference.js", "text/javascript"),
    _file_route("/reference/swagger-ui-bundle.js", "swagger-ui-bundle.js", "text/javascript"),
    _file_route("/reference/swagger-ui.css", "swagger-ui.css", "text/css"),
    _file_route("/reference/favicon-32x32.png", "favicon-32x32.png", "image/png"),
)
