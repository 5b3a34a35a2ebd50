"""What a connection may send, byte by byte, in front of an application that only echoes."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
import pytest_asyncio
import uvicorn
from structlog.contextvars import get_contextvars

from service.web import protocol
from service.web.protocol import MAX_HEAD_BYTES, MAX_HEADERS, bounded_protocol

HEAD = b"POST /here HTTP/1.1\r\nHost: localhost\r\n"
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
PATIENCE_SECONDS = 30
UNREAD_BYTES = 32 * 2**20  # far more than lies in the buffers of the system


async def echo(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answers with the size of the body and the number of headers."""
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    body = f"{size} bytes, {len(scope['headers'])} headers".encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Connection:
    """A connection to the server under test."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, *parts: bytes) -> None:
        """Send parts as they are, as far as the server takes them."""
        try:
            for part in parts:
                self._writer.write(part)
                await self._writer.drain()
        except ConnectionError:
            return

    async def close(self) -> None:
        """Leave, if it was not the server that did."""
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()

    async def one(self) -> bytes:
        """The next that comes, at most an answer of this size."""
        return await asyncio.wait_for(self._reader.read(2**16), PATIENCE_SECONDS)

    async def rest(self) -> bytes:
        """All that comes until the server closes the connection."""
        received = b""
        try:
            while part := await asyncio.wait_for(self._reader.read(2**16), PATIENCE_SECONDS):
                received += part
        except ConnectionError:  # what it did not read any more
            pass
        finally:
            self._writer.close()
        return received


class Server:
    """Opens connections."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connections: list[Connection] = []

    async def connect(self, limit: int = 2**16) -> Connection:
        """A new connection, which reads ahead no more than so many bytes, or twice as many."""
        stream = await asyncio.open_connection("127.0.0.1", self._port, limit=limit)
        connection = Connection(*stream)
        self._connections.append(connection)
        return connection

    async def close(self) -> None:
        """Close all connections."""
        for connection in self._connections:
            await connection.close()

    async def answer(self, *parts: bytes) -> bytes:
        """What a connection that sends this gets until it is closed."""
        connection = await self.connect()
        await connection.send(*parts)
        return await connection.rest()


@pytest.fixture
def refusals() -> list[int]:
    """The statuses of what was refused before there was a request."""
    return []


@pytest.fixture
def application() -> Any:
    """What the server serves."""
    return echo


@pytest_asyncio.fixture
async def server(
    request: pytest.FixtureRequest, refusals: list[int], application: Any
) -> AsyncIterator[Server]:
    """As many connections as the test says at a time, or any number."""
    most_connections = getattr(request, "param", 0)
    config = uvicorn.Config(
        application,
        port=0,
        log_config=None,
        lifespan="off",
        http=bounded_protocol(most_connections, refusals.append),
        ws="none",
        timeout_keep_alive=60 if most_connections else 1,
    )
    running = uvicorn.Server(config)
    serving = asyncio.create_task(running.serve())
    while not running.started:
        assert not serving.done()
        await asyncio.sleep(0.005)
    opened = Server(running.servers[0].sockets[0].getsockname()[1])
    yield opened
    await opened.close()
    running.should_exit = True
    await serving


def problem_of(answer: bytes) -> dict[str, Any]:
    """The one problem document that an answer is, and a closed connection after it."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert b"content-type: application/problem+json" in lines
    assert b"connection: close" in lines
    problem: dict[str, Any] = json.loads(body)
    assert lines[0].split(b" ")[1] == str(problem["status"]).encode()
    assert f"x-request-id: {problem['request_id']}".encode() in lines
    return problem


async def test_requests_on_one_connection_are_answered_in_turn(server: Server) -> None:
    post = HEAD + b"Content-Length: 3\r\n\r\nabc"
    received = await server.answer(post + post, post, GET)
    assert received.count(b"HTTP/1.1 200 OK") == 4
    assert received.count(b"3 bytes, 2 headers") == 3


async def test_a_body_may_be_larger_than_a_head(server: Server) -> None:
    size = 5 * MAX_HEAD_BYTES
    head = HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % size
    assert f"{size} bytes".encode() in await server.answer(head, b"x" * size)


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([HEAD, b"X: " + b"a" * MAX_HEAD_BYTES + b"\r\n\r\n"], id="a long value"),
        pytest.param([HEAD, b"X" * MAX_HEAD_BYTES + b": a\r\n\r\n"], id="a long name"),
        pytest.param([HEAD + b"X: ", *[b"a" * 2**15] * 1000], id="a value that never ends"),
        pytest.param([HEAD, *[b"X: a\r\n" * 1000] * 1000], id="headers that never end"),
        pytest.param([HEAD, b"X: a\r\n" * (MAX_HEADERS + 1) + b"\r\n"], id="many headers"),
        pytest.param([b"GET /", *[b"a" * 2**15] * 1000], id="a path that never ends"),
        pytest.param([b"GET /" + b"a" * MAX_HEAD_BYTES + b" HTTP/1.1\r\n\r\n"], id="a long path"),
    ],
)
async def test_a_head_without_end_is_refused(server: Server, parts: list[bytes]) -> None:
    assert problem_of(await server.answer(*parts))["type"] == "/problems/request-head-too-large"
    assert b" 200 " in await server.answer(GET)


class Lines(logging.Handler):
    """Request id, status and text of each line."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        status: int = record.__dict__["status"]
        self.seen.append((get_contextvars()["request_id"], status, record.getMessage()))


async def test_a_refusal_is_found_in_the_log_by_its_id(server: Server) -> None:
    lines = Lines()
    logger = logging.getLogger("stagefare.requests")
    level = logger.level
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    try:
        problem = problem_of(await server.answer(b"GET / HTTP/1.1\r\n\r\n"))
    finally:
        logger.removeHandler(lines)
        logger.setLevel(level)
    text = "refused before it was read: malformed-request"
    assert lines.seen == [(problem["request_id"], 400, text)]


async def test_as_many_headers_as_are_allowed_are_read(server: Server) -> None:
    more = b"X: a\r\n" * (MAX_HEADERS - 2)
    answer = await server.answer(HEAD + b"Connection: close\r\n" + more + b"\r\n")
    assert f"0 bytes, {MAX_HEADERS} headers".encode() in answer


async def test_trailers_are_dropped_however_many(server: Server) -> None:
    head = HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    answer = await server.answer(head, *[b"X: a\r\n" * 1000] * 200, b"\r\n")
    assert b"2 bytes, 3 headers" in answer


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="no host"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", id="two hosts"),
        pytest.param(HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", id="gzip"),
        pytest.param(HEAD + b"Transfer-Encoding: gzip\r\n\r\n", id="not chunked"),
        pytest.param(
            HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            id="chunked twice",
        ),
        pytest.param(
            HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            id="two lengths of a body",
        ),
        pytest.param(HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", id="two lengths"),
        pytest.param(HEAD + b"Content-Length: -1\r\n\r\n", id="a negative length"),
        pytest.param(HEAD + b"Content-Length : 2\r\n\r\n{}", id="a space before a colon"),
        pytest.param(HEAD + b"X: a\r\n b\r\n\r\n", id="a folded header"),
        pytest.param(HEAD + b"X: a\0b\r\n\r\n", id="NUL"),
        pytest.param(b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n", id="an unknown method"),
        pytest.param(b"GET / HTTP/3.0\r\nHost: a\r\n\r\n", id="an unknown version"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="TLS"),
    ],
)
async def test_what_two_readers_could_read_differently_is_refused(
    server: Server, request_: bytes
) -> None:
    smuggled = b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answer = await server.answer(request_ + smuggled)
    assert problem_of(answer)["type"] == "/problems/malformed-request"
    assert answer.count(b"HTTP/1.1") == 1


async def test_old_clients_need_no_host(server: Server) -> None:
    assert b"0 bytes, 0 headers" in await server.answer(b"GET / HTTP/1.0\r\n\r\n")


async def test_garbage_behind_a_request_does_not_end_up_in_its_answer(server: Server) -> None:
    connection = await server.connect()
    await connection.send(HEAD + b"Content-Length: 3\r\n\r\nabc" + b"garbage\r\n\r\n")
    answer = await connection.rest()
    assert answer.count(b"HTTP/1.1 ") <= 1


async def test_an_upgrade_is_not_taken(server: Server) -> None:
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    connection = await server.connect()
    await connection.send(HEAD + upgrade + b"Content-Length: 0\r\n\r\n")
    await connection.send(GET)
    assert b" 101 " not in await connection.rest()


async def test_what_is_refused_unread_is_counted_by_its_status(
    server: Server, refusals: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert b" 200 " in await server.answer(GET)
    problem_of(await server.answer(b"GET / HTTP/1.1\r\n\r\n"))
    problem_of(await server.answer(HEAD, b"X: " + b"a" * MAX_HEAD_BYTES + b"\r\n\r\n"))
    monkeypatch.setattr(protocol, "MAX_HEAD_SECONDS", 0.01)
    problem_of(await server.answer(b"G"))
    assert refusals == [400, 431, 408]


# More callers than may be


async def busy_ones(server: Server, count: int) -> list[Connection]:
    """Connections of which the server has read the head and waits for a body of two bytes."""
    connections = [await server.connect() for _ in range(count)]
    for connection in connections:
        await connection.send(
            HEAD + b"Connection: close\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
        )
        assert b" 100 " in await connection.one()
    return connections


@pytest.mark.parametrize("server", [2], indirect=True)
async def test_a_connection_too_many_is_told_so(server: Server, refusals: list[int]) -> None:
    busy = await busy_ones(server, 2)
    answer = await server.answer(GET)
    assert problem_of(answer)["type"] == "/problems/overloaded"
    assert b"retry-after: 1" in answer.lower()
    assert refusals == [503]
    for connection in busy:
        await connection.send(b"ab")
        assert b"2 bytes" in await connection.rest()
    assert b" 200 " in await server.answer(GET)


@pytest.mark.parametrize("server", [3], indirect=True)
async def test_a_connection_that_asks_nothing_makes_room(
    server: Server, refusals: list[int]
) -> None:
    asked = GET.replace(b"close", b"keep-alive")
    first, second, silent = [await server.connect() for _ in range(3)]
    for connection in (silent, first, second):
        await connection.send(asked)
        assert b" 200 " in await connection.one()
    assert b" 200 " in await server.answer(GET)
    assert await silent.rest() == b""
    for connection in (first, second):
        await connection.send(GET)
        assert b" 200 " in await connection.rest()
    assert refusals == []


@pytest.mark.parametrize("server", [2], indirect=True)
async def test_beyond_half_as_many_again_nothing_is_said(
    server: Server, refusals: list[int]
) -> None:
    """A refusal is left a moment to be read, which is a connection too."""
    await busy_ones(server, 2)
    refused = await server.connect()
    assert b"retry-after" in (await refused.one()).lower()
    assert await server.answer() == b""
    assert refusals == [503]


async def at_length(_scope: dict[str, Any], _receive: Any, send: Any) -> None:
    """Answers with many bytes."""
    headers = [(b"content-length", str(UNREAD_BYTES).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": bytes(UNREAD_BYTES)})


@pytest.mark.parametrize("application", [at_length])
async def test_what_is_left_unread_for_longest_is_given_up_when_it_is_too_much(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "MAX_UNREAD_BYTES", 2 * UNREAD_BYTES)
    waiting = []
    for _ in range(4):
        connection = await server.connect(limit=1)
        await connection.send(GET)
        assert await connection.one()  # so that it has begun before the next one
        waiting.append(connection)
    answers = [await connection.rest() for connection in waiting]
    # What lies in the buffers of the system does not count: two are within the limit for sure.
    assert len(answers[0]) < UNREAD_BYTES
    assert all(len(answer) > UNREAD_BYTES * 0.99 for answer in answers[2:])


# Callers that take their time


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads have a moment only."""
    monkeypatch.setattr(protocol, "MAX_HEAD_SECONDS", 0.2)


@pytest.mark.usefixtures("hasty")
async def test_a_head_that_is_begun_and_not_ended_is_told_so(server: Server) -> None:
    for begun in (b"G", HEAD, HEAD + b"X: a"):
        connection = await server.connect()
        await connection.send(begun)
        assert problem_of(await connection.rest())["type"] == "/problems/request-timeout"


@pytest.mark.usefixtures("hasty")
async def test_sending_a_little_at_a_time_does_not_help(server: Server) -> None:
    connection = await server.connect()
    await connection.send(HEAD)

    async def trickle() -> None:
        while True:
            await connection.send(b"X: a\r\n")
            await asyncio.sleep(0.02)

    trickling = asyncio.create_task(trickle())
    assert problem_of(await connection.rest())["type"] == "/problems/request-timeout"
    trickling.cancel()


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("sent", [b"", b"\r\n\r\n"], ids=["nothing", "empty lines"])
async def test_a_connection_that_asks_nothing_is_closed(server: Server, sent: bytes) -> None:
    connection = await server.connect()
    await connection.send(sent)
    assert await connection.rest() == b""


@pytest.mark.usefixtures("hasty")
async def test_a_body_has_a_time_of_its_own(server: Server) -> None:
    connection = await server.connect()
    await connection.send(HEAD + b"Connection: close\r\nContent-Length: 2\r\n\r\na")
    await asyncio.sleep(0.5)
    await connection.send(b"b")
    assert b"2 bytes" in await connection.rest()
