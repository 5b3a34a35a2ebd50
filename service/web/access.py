"""Which requests are let in: the first guard of every route.

A route says in `opt` what it needs:

    **OPEN                     nothing: health, and the contract itself
    **needs(Scope.ADMIN)       this scope
    (neither)                  `read` for GET, `write` for everything else

With a token the request is its team's. Without one it is let in only while the service is open
(`service.app.access`), and then only from this machine, under a name of this machine, and not from
a page of another origin.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers.base import BaseRouteHandler
from litestar.handlers.http_handlers import HTTPRouteHandler
from litestar.types import Guard

from service.app.access import Access, Principal
from service.app.ports import Scope
from service.settings import is_loopback
from service.web import problem_types
from service.web.problems import Problem

__all__ = ["OPEN", "access_guard", "allowed_hosts", "needs", "required_scope"]

Connection = ASGIConnection[Any, Any, Any, Any]

_ACCESS = "access"
OPEN: Mapping[str, Any] = {_ACCESS: None}

_CHALLENGE = 'Bearer realm="stagefare"'
_BEARER = re.compile(r"bearer +(?P<token>[\x21-\x7e]{1,1000}) *", re.IGNORECASE)
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?", re.IGNORECASE)


def needs(scope: Scope) -> Mapping[str, Any]:
    """The `opt` of a route that needs another scope than its method says."""
    return {_ACCESS: scope}


def required_scope(handler: BaseRouteHandler) -> Scope | None:
    """The scope a handler needs; None when it is open to everybody."""
    if _ACCESS in handler.opt:
        stated: Scope | None = handler.opt[_ACCESS]
        return stated
    methods = handler.http_methods if isinstance(handler, HTTPRouteHandler) else set()
    if methods == {"OPTIONS"}:  # the framework's own: says which methods there are
        return None
    return Scope.READ if methods == {"GET"} else Scope.WRITE


def allowed_hosts(configured: str) -> frozenset[str]:
    """The names an open service answers to, as they stand in a Host header, without ports."""
    literal = f"[{configured}]" if ":" in configured else configured
    return frozenset({"localhost", "127.0.0.1", "[::1]", literal.lower()})


def access_guard(access: Access, hosts: Iterable[str]) -> Guard:
    """The guard that finds out whom a request is from and leaves it in `auth` of the scope.

    `hosts` are the names an open service answers to. The guard raises `Problem`: 401, 403, or 421.
    """
    names = frozenset(hosts)

    async def refuse_strangers(connection: Connection, handler: BaseRouteHandler) -> None:
        needed = required_scope(handler)
        if needed is None:
            return
        principal = await _principal(access, names, connection)
        if needed not in principal.scopes:
            detail = f"this route needs a token with the scope {needed.value!r}"
            if principal.token_id is None:
                detail += "; the first one is made by `stagefare tokens create`"
            challenge = f'{_CHALLENGE}, error="insufficient_scope", scope="{needed.value}"'
            raise Problem(
                problem_types.INSUFFICIENT_SCOPE, detail, headers={"WWW-Authenticate": challenge}
            )
        connection.scope["auth"] = principal

    return refuse_strangers


async def _principal(access: Access, hosts: frozenset[str], connection: Connection) -> Principal:
    given = connection.headers.getall("authorization", [])
    if given:
        bearer = _BEARER.fullmatch(given[0]) if len(given) == 1 else None
        principal = None if bearer is None else await access.bearer(bearer["token"])
        if principal is None:
            raise _unauthenticated(
                "the Authorization header holds no token that is valid here",
                ', error="invalid_token"',
            )
        return principal
    principal = await access.anonymous()
    if principal is None:
        raise _unauthenticated("this service asks for a token in the Authorization header")
    _refuse_all_but_neighbours(hosts, connection)
    return principal


def _unauthenticated(detail: str, error: str = "") -> Problem:
    return Problem(
        problem_types.UNAUTHENTICATED, detail, headers={"WWW-Authenticate": _CHALLENGE + error}
    )


def _refuse_all_but_neighbours(hosts: frozenset[str], connection: Connection) -> None:
    """Keep open access to programs on this machine."""
    # Without a peer address (a Unix socket) nothing says that the caller is near.
    if connection.client is None or not is_loopback(connection.client.host):
        raise _unauthenticated(
            "as long as no token has been made, this service answers its own machine only"
        )
    # A page can let its own name resolve to this machine; the browser then takes what the service
    # answers for the page's own. The name still stands in the Host header.
    given = connection.headers.getall("host", [])
    host = _HOST.fullmatch(given[0]) if len(given) == 1 else None
    if host is None or host["name"].lower() not in hosts:
        detail = f"as long as no token has been made, the Host is one of {', '.join(sorted(hosts))}"
        raise Problem(problem_types.MISDIRECTED_REQUEST, detail)
    # A page can send forms anywhere, though it never sees the answer. A browser says where from.
    for origin in connection.headers.getall("origin", []):
        if origin.partition("://")[2].lower() != given[0].lower():
            detail = "a browser sent this for a page of another origin"
            raise Problem(problem_types.FOREIGN_ORIGIN, detail)
