"""Every route of the application, what to send it, and teams that send it."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
from litestar import Litestar
from litestar.handlers.http_handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute

from service.app.access import create_token
from service.app.clusters import ClusterCache
from service.app.ports import Scope
from service.app.services import Backend
from service.store.database import SqlDatabase
from service.store.unit_of_work import SystemClock
from service.web.access import required_scope
from service.web.openapi import EXAMPLE, FILES, MULTIPART
from tests.api.clients import client_of
from tests.app.fakes import InlineExecutor

__all__ = [
    "ABSENT",
    "ABSENT_PLAN",
    "EXAMPLE_PLAN",
    "INLINE_PLAN",
    "OWNED",
    "Call",
    "Teams",
    "calls_of",
    "replaced",
]

# What the owner stores, and names of the same length that nobody stores.
OWNED, ABSENT = "crews-own", "crews-nil"
EXAMPLE_PLAN, ABSENT_PLAN = "equal-stages-1f1b", "equal-stages-none"
INLINE_PLAN = {
    "costs": {"stages": [{"forward_seconds": 0.002, "backward_seconds": 0.004}] * 2},
    "schedule": {"kind": "1f1b"},
    "workload": {"microbatches": 3},
}


@dataclass(frozen=True)
class Call:
    """A method of a route."""

    method: str
    path: str
    handler: HTTPRouteHandler

    @property
    def scope(self) -> Scope | None:
        return required_scope(self.handler)

    def url(self, ids: dict[str, str]) -> str:
        return re.sub(r"\{(\w+)\}", lambda match: ids[match[1]], self.path)

    async def send(
        self, http: httpx.AsyncClient, ids: dict[str, str], renamed: dict[str, str] | None = None
    ) -> httpx.Response:
        """Send it with an example of its body, in which names may be replaced."""
        url = self.url(ids)
        if self.method == "DELETE":
            return await http.request(self.method, url, headers={"If-Match": "*"})
        if MULTIPART in self.handler.opt:
            if FILES in self.handler.opt:
                fields = dict(self.handler.opt[EXAMPLE])
                texts = fields.pop("files")
                sent = [("files", ("file.txt", text.encode())) for text in texts]
                return await http.request(self.method, url, files=sent, data=fields)
            fields = dict(self.handler.opt[EXAMPLE])
            files = {"file": ("file.txt", fields.pop("file").encode())}
            return await http.request(self.method, url, files=files, data=fields)
        if self.handler.parsed_data_field is None:
            return await http.request(self.method, url)
        body = replaced(json.dumps(self.handler.opt[EXAMPLE]), renamed or {})
        headers = {"Content-Type": "application/json"}
        return await http.request(self.method, url, content=body, headers=headers)


def replaced(text: str, by: dict[str, str]) -> str:
    for old, new in by.items():
        text = text.replace(old, new)
    return text


def calls_of(app: Litestar) -> list[Call]:
    """Every method of every route, reading first and creating last."""
    order = ["GET", "HEAD", "DELETE", "POST", "PUT"]

    def found() -> Iterator[Call]:
        for route in app.routes:
            assert isinstance(route, HTTPRoute)
            for handler in route.route_handlers:
                for method in handler.http_methods - {"OPTIONS"}:
                    yield Call(method, route.path_format, handler)
                    if method == "GET":
                        yield Call("HEAD", route.path_format, handler)

    return sorted(found(), key=lambda call: (order.index(call.method), call.path))


class Teams:
    """Makes clients of any team, and what the owner has."""

    def __init__(self, app: Litestar, database: SqlDatabase) -> None:
        self._app = app
        executor = InlineExecutor()
        self._backend = Backend(database, executor, SystemClock(), ClusterCache(executor))

    async def client(self, team: str, *scopes: Scope) -> httpx.AsyncClient:
        new = await create_token(self._backend.for_team(team), scopes or Scope)
        return client_of(self._app, new.text)

    async def fill(self, owner: httpx.AsyncClient) -> dict[str, str]:
        """Store something for each route of the owner's team; what to write into paths."""
        for call in calls_of(self._app):
            if call.method == "PUT":
                stored = await call.send(owner, {"name": OWNED})
                assert stored.status_code == 201
        plan = await owner.put(f"/v1/plans/{EXAMPLE_PLAN}", json=INLINE_PLAN)
        assert plan.status_code == 201
        estimate = await owner.post("/v1/estimates", json={"plan": INLINE_PLAN})
        assert estimate.status_code == 201
        token = await owner.post("/v1/tokens", json={"scopes": ["read"]})
        return {
            "name": OWNED,
            "digest": estimate.json()["digest"],
            "id": token.json()["id"],
            "slug": "not-found",
            "design": "dgx-h100",
        }
