"""The outermost layer: a request id on every answer, HEAD wherever GET works, a right Allow, what a
request holds, and what is logged, counted and traced of it.

The framework's own middleware runs after routing, so it would miss unknown routes.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast
from uuid import uuid4

from litestar import Litestar
from litestar.types import HTTPScope, Message, Receive, Scope, Send

from service.app.holdings import Holdings, Quota
from service.web import holding
from service.web.departures import CallerGone
from service.web.methods import allowed_methods
from service.web.telemetry import Exchange, Telemetry
from service.web.trace_context import trace_parent

__all__ = ["Application"]

REQUEST_ID_HEADER = b"x-request-id"
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")


class Application(Litestar):
    """The framework's application inside the layer described above."""

    telemetry = Telemetry()
    holdings = Holdings(Quota(0, 0), Quota(0, 0), threads=1)
    is_stopping = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one connection (ASGI)."""
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    async def _serve(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        parent = trace_parent(scope["headers"])
        with self.telemetry.exchange(scope["method"], _request_id(scope), parent) as exchange:
            await self._exchange(exchange, scope, receive, send)

    async def _exchange(
        self, exchange: Exchange, scope: HTTPScope, receive: Receive, send: Send
    ) -> None:
        is_head, is_options = scope["method"] == "HEAD", scope["method"] == "OPTIONS"
        # The server keeps its own scope, so that it knows that the request is a HEAD.
        ids = {"request_id": exchange.request_id, "trace_id": exchange.trace_id}
        state: dict[str, Any] = {**scope.get("state", {}), **ids}
        inner = {**scope, "state": state}
        holding.admit(state, self.holdings)
        if is_head:
            inner["method"] = "GET"

        async def ask() -> Any:
            message = await receive()
            if message["type"] == "http.request":
                exchange.request_bytes += len(message.get("body", b""))
            return message

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                holding.answered(state)
                headers = [
                    *message["headers"],
                    (REQUEST_ID_HEADER, exchange.request_id.encode()),
                    *_rate_limit_fields(inner),
                ]
                if is_options and message["status"] == 204:
                    # The framework names the methods of one of the routes of a path, not HEAD.
                    headers = [header for header in headers if header[0] != b"allow"]
                    headers.append((b"allow", allowed_methods(self, scope["path"]).encode()))
                await send(cast("Message", {**message, "headers": headers}))
            elif is_head and message["type"] == "http.response.body":
                if not message.get("more_body", False):
                    await send(cast("Message", {**message, "body": b""}))
            else:
                if message["type"] == "http.response.body":
                    exchange.response_bytes += len(message.get("body", b""))
                await send(message)

        try:
            await super().__call__(cast("Scope", inner), ask, answer)
        except CallerGone:
            pass  # the server knows, and expects no answer
        finally:
            holding.ended(state)
            exchange.routed(inner)


def _rate_limit_fields(scope: Mapping[str, Any]) -> Iterator[tuple[bytes, bytes]]:
    """What the guard that counts requests has left, refused or not."""
    for name, value in scope["state"].get("rate_limit", {}).items():
        yield name.lower().encode(), value.encode()


def _request_id(scope: HTTPScope) -> str:
    """The caller's id when it is one (bounded, printable), else a new one."""
    for name, value in scope["headers"]:
        if name == REQUEST_ID_HEADER and _REQUEST_ID.fullmatch(value):
            return value.decode("ascii")
    return uuid4().hex
