"""HTTP/1.1 on a connection: uvicorn's protocol, with bounds that it does not have.

Left to itself it collects headers for as long as they come and waits for them for ever, on any
number of connections, which anyone can make it do without a token. It also passes on what RFC 9112
has a server refuse. All of it is refused here, before the application sees a request, as a problem
document like any other refusal.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import msgspec
from structlog.contextvars import bound_contextvars
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from service.web import problem_types
from service.web.problem_types import ProblemType
from service.web.problems import PROBLEM_MEDIA_TYPE, ProblemDocument

__all__ = [
    "MAX_HEADERS",
    "MAX_HEAD_BYTES",
    "MAX_HEAD_SECONDS",
    "MAX_UNREAD_BYTES",
    "BoundedProtocol",
    "bounded_protocol",
]

MAX_HEAD_BYTES = 2**16
MAX_HEADERS = 100
MAX_HEAD_SECONDS = 20
# Of answers that are written and not read, on all connections.
MAX_UNREAD_BYTES = 256 * 2**20
_LINGER_SECONDS = 2
_RETRY_AFTER_SECONDS = 1
_HEAD_TOO_LARGE = (
    problem_types.REQUEST_HEAD_TOO_LARGE,
    f"the head of a request has at most {MAX_HEAD_BYTES} bytes and {MAX_HEADERS} headers",
)


# Where the application writes of the requests that reach it.
logger = logging.getLogger("stagefare.requests")


class BoundedProtocol(HttpToolsProtocol):
    """One connection. The head of a request is its request line and its headers."""

    most_connections = 0  # at a time; 0 is no limit
    count_refusal: Callable[[int], None] = staticmethod(lambda _status: None)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._is_in_head = False
        self._head_bytes = 0  # of parts of the head that are complete
        self._pending_bytes = 0  # received since the head began; its last part may never end
        self._head_timer: asyncio.TimerHandle | None = None
        self.waits_since = self.loop.time()  # for a request, or its answer
        self.is_unread_since: float | None = None  # an answer of which more than usual is left
        self._refusal: tuple[ProblemType, str] | None = None
        self._is_refused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first request (asyncio calls this)."""
        super().connection_made(transport)  # type: ignore[arg-type]
        if self.most_connections and len(self.connections) > self.most_connections:
            self._make_room()
        if not self._is_refused:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more (asyncio calls this)."""
        self._forget_head()
        super().connection_lost(exc)

    def _make_room(self) -> None:
        """Close the connection that has asked for nothing the longest, or refuse this one."""
        if len(self.connections) > 1.5 * self.most_connections:
            # Refusals take their time to be read; these are too many even for that.
            self._is_refused = True
            self.transport.abort()
            return
        idle = [each for each in self.connections if isinstance(each, BoundedProtocol)]
        idle = [each for each in idle if each is not self and each.is_idle]
        if idle:
            min(idle, key=lambda each: each.waits_since).transport.close()
            return
        detail = f"{self.most_connections} connections are open, which is as many as may be"
        self._refusal = (problem_types.OVERLOADED, detail)
        self.send_400_response(detail)

    @property
    def is_idle(self) -> bool:
        """Whether nothing of a request has come that is not answered yet."""
        return (
            (self.cycle is None or self.cycle.response_complete)
            and not self._is_in_head
            and not self._is_refused
            and not self.transport.is_closing()
        )

    def data_received(self, data: bytes) -> None:
        """Read what has come (asyncio calls this)."""
        if self._is_refused or self.transport.is_closing():
            return
        if self.is_idle and self._head_timer is None:
            self._expect_head()
        super().data_received(data)
        if self._is_in_head and not self._is_refused:
            self._pending_bytes += len(data)
            if self._pending_bytes > MAX_HEAD_BYTES:
                self._refusal = _HEAD_TOO_LARGE
                self.send_400_response(_HEAD_TOO_LARGE[1])

    def on_message_begin(self) -> None:
        """A request line begins (the parser calls this)."""
        super().on_message_begin()
        self._is_in_head = True
        self._head_bytes = self._pending_bytes = 0
        if self._head_timer is None:
            self._expect_head()

    def on_url(self, url: bytes) -> None:
        """A part of the request line (the parser calls this)."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header (the parser calls this). Trailers, which nothing here reads, are dropped."""
        if self._is_in_head:
            self._count(len(name) + len(value) + 4)
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The end of the headers (the parser calls this)."""
        self._is_in_head = False
        self._forget_head()
        if len(self.headers) > MAX_HEADERS:
            self._refuse(*_HEAD_TOO_LARGE)
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (hosts == 0 and self.parser.get_http_version() == "1.1"):
            self._refuse(problem_types.MALFORMED_REQUEST, "a request has one Host header")
        codings = [value for name, value in self.headers if name == b"transfer-encoding"]
        if codings and [coding.strip().lower() for coding in codings] != [b"chunked"]:
            detail = "the only transfer coding that is read is chunked"
            self._refuse(problem_types.MALFORMED_REQUEST, detail)
        super().on_headers_complete()

    def pause_writing(self) -> None:
        """Hold an answer that is read more slowly than it is written (asyncio calls this)."""
        self.is_unread_since = self.loop.time()
        super().pause_writing()
        self._bound_unread()

    def resume_writing(self) -> None:
        """The end of that (asyncio calls this)."""
        self.is_unread_since = None
        super().resume_writing()

    def _bound_unread(self) -> None:
        """Give up the answers that have been left unread for longest when all are too much."""
        unread = [
            (each.is_unread_since, each.transport.get_write_buffer_size(), each)
            for each in self.connections
            if isinstance(each, BoundedProtocol) and each.is_unread_since is not None
        ]
        total = sum(size for _, size, _ in unread)
        for _, size, connection in sorted(unread, key=lambda item: item[0]):
            if total <= MAX_UNREAD_BYTES or connection is self:
                return
            connection.is_unread_since = None
            connection.transport.abort()
            total -= size

    def on_response_complete(self) -> None:
        """The end of an answer (the cycle of a request calls this)."""
        self.waits_since = self.loop.time()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request that can be served, and close the connection."""
        problem_type, detail = self._refusal or (problem_types.MALFORMED_REQUEST, msg)
        self._forget_head()
        # Amid the answer to an earlier request, a second one would be read as a part of it.
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            request_id = uuid4().hex
            self.transport.write(_response(problem_type, detail, request_id))
            self.count_refusal(problem_type.status)
            with bound_contextvars(request_id=request_id):
                fields = {"status": problem_type.status}
                logger.info("refused before it was read: %s", problem_type.slug, extra=fields)
        self._is_refused = True
        if self.transport.can_write_eof():
            # Closing at once would reset the connection while the caller still sends, and the
            # caller would not see the answer.
            self.transport.write_eof()
            self.loop.call_later(_LINGER_SECONDS, self.transport.close)
        else:
            self.transport.close()

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(*_HEAD_TOO_LARGE)

    def _refuse(self, problem_type: ProblemType, detail: str) -> None:
        """Raises, so that the parser stops; uvicorn then has `send_400_response` answer."""
        self._refusal = (problem_type, detail)
        raise ValueError(detail)

    def _expect_head(self) -> None:
        self._head_timer = self.loop.call_later(MAX_HEAD_SECONDS, self._give_up)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        if self._is_refused or self.transport.is_closing():
            return
        if self._is_in_head:
            detail = f"the headers were not there after {MAX_HEAD_SECONDS} seconds"
            self._refusal = (problem_types.REQUEST_TIMEOUT, detail)
            self.send_400_response(detail)
        else:  # nothing was asked, so nothing is answered
            self.transport.close()


def bounded_protocol(
    most_connections: int, count_refusal: Callable[[int], None]
) -> type[BoundedProtocol]:
    """The protocol with a limit of its connections; a refusal is counted by its status."""
    members = {
        "most_connections": most_connections,
        "count_refusal": staticmethod(count_refusal),
    }
    return type("Protocol", (BoundedProtocol,), members)


def _response(problem_type: ProblemType, detail: str, request_id: str) -> bytes:
    document = ProblemDocument(
        type=problem_type.uri,
        title=problem_type.title,
        status=problem_type.status,
        detail=detail,
        instance="",  # what was asked for may be unreadable
        request_id=request_id,
    )
    body = msgspec.json.encode(document)
    headers = (
        f"content-type: {PROBLEM_MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\n"
        f"x-request-id: {request_id}\r\nconnection: close\r\n"
    )
    if problem_type is problem_types.OVERLOADED:
        headers += f"retry-after: {_RETRY_AFTER_SECONDS}\r\n"
    headers += "\r\n"
    return STATUS_LINE[problem_type.status] + headers.encode() + body
