"""The methods a path takes, as the router itself answers."""

from litestar import Litestar
from litestar.exceptions import HTTPException
from litestar.utils import normalize_path

__all__ = ["allowed_methods"]

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def allowed_methods(app: Litestar, path: str) -> str:
    """The value of an Allow header; only for a path that has a route."""
    allowed = {"OPTIONS"}
    path = normalize_path(path)
    for method in _METHODS:
        try:
            app.asgi_router.handle_routing(path=path, method=method)
        except HTTPException:
            continue
        allowed.add(method)
    if "GET" in allowed:
        allowed.add("HEAD")
    return ", ".join(sorted(allowed))
