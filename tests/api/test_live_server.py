"""Through a real server on a loopback port: what the in-process transport can't show."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
import uvicorn

from service.api.application import MAX_BODY_BYTES
from service.main import create_app
from service.settings import read_settings
from service.web import strict_json
from service.web.protocol import BoundedProtocol
from tests.api.held_kernels import Kernels
from tests.app.fakes import FakeDatabase, FakeStorage

JSON = {"Content-Type": "application/json"}


class Live:
    """A server and the storage behind it."""

    def __init__(self, url: str, storage: FakeStorage) -> None:
        self.url = url
        self.storage = storage


@pytest_asyncio.fixture
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    database = FakeDatabase()
    storage = database.for_team("local")
    app = create_app(read_settings({"STAGEFARE_DATA_DIR": str(tmp_path)}), database=database)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        server = uvicorn.Server(
            uvicorn.Config(app, log_config=None, access_log=False, http=BoundedProtocol, ws="none")
        )
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:
            assert not serving.done()
            await asyncio.sleep(0.01)
        yield Live(f"http://127.0.0.1:{port}", storage)
        server.should_exit = True
        await serving


async def chunks(size: int) -> AsyncIterator[bytes]:
    for _ in range(size // 2**16):
        yield b" " * 2**16
    yield b"{}"


async def test_a_body_over_the_limit_is_refused_declared_or_chunked(live: Live) -> None:
    async with httpx.AsyncClient(base_url=live.url) as http:
        declared = await http.put(
            "/v1/plans/mine", content=b" " * (MAX_BODY_BYTES + 1), headers=JSON
        )
        chunked = await http.put("/v1/plans/mine", content=chunks(MAX_BODY_BYTES), headers=JSON)
        within = await http.put("/v1/plans/mine", content=chunks(2**16), headers=JSON)
    for response in (declared, chunked):
        assert response.status_code == 413
        assert response.json()["type"] == "/problems/payload-too-large"
        assert response.headers["content-type"] == "application/problem+json"
    assert within.status_code == 400
    assert within.json()["type"] == "/problems/invalid-body"
    assert not live.storage.state.revisions


async def test_a_form_over_the_limit_is_refused(live: Live) -> None:
    files = {"file": ("graph.txt", b"x" * (17 * 2**20))}
    async with httpx.AsyncClient(base_url=live.url) as http:
        response = await http.post(
            "/v1/profiles/mine/imports", files=files, data={"microbatch_size": "1"}
        )
    assert response.status_code == 413
    assert not live.storage.state.revisions


async def test_a_body_that_comes_too_slowly_is_given_up(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strict_json, "MAX_BODY_SECONDS", 0.2)

    port = int(live.url.rpartition(":")[2])

    async def answer_to_a_trickle(head: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head + b"Host: localhost\r\nContent-Length: 1000\r\n\r\n")
        # One read: after it, what the service did not take any more may reset the connection.
        answer = asyncio.create_task(reader.read(2**16))
        while not answer.done():
            writer.write(b" ")
            await asyncio.wait({answer}, timeout=0.05)
        writer.close()
        return await answer

    plan = b"PUT /v1/plans/mine HTTP/1.1\r\nContent-Type: application/json\r\n"
    file = (
        b"POST /v1/profiles/mine/imports HTTP/1.1\r\n"
        b"Content-Type: multipart/form-data; boundary=x\r\n"
    )
    for head in (plan, file):
        answer = await answer_to_a_trickle(head)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"connection: close" in answer.lower()
        assert b"/problems/request-timeout" in answer


async def test_head_and_request_ids_survive_the_server(live: Live) -> None:
    async with httpx.AsyncClient(base_url=live.url) as http:
        for _ in range(3):  # on one kept connection: a body too many would break the next answer
            head = await http.head("/v1/plans", headers={"X-Request-ID": "abc"})
            assert (head.status_code, head.content) == (200, b"")
            assert head.headers["content-length"] == str(len(b'{"items":[]}'))
            assert head.headers["x-request-id"] == "abc"
        assert (await http.get("/v1/plans")).json() == {"items": []}


async def test_requests_no_client_library_would_send(live: Live) -> None:
    port = int(live.url.rpartition(":")[2])
    body = json.dumps({"a": 1}).encode()

    async def answer_to(request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        await writer.drain()
        received = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        await writer.wait_closed()
        return received

    head = b"PUT /v1/plans/mine HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    kind = b"Content-Type: application/json\r\n"
    assert b" 415 " in (await answer_to(head + b"Content-Length: 2\r\n\r\n{}"))[:20]
    length = b"Content-Length: %d\r\n\r\n" % len(body)
    assert b" 400 " in (await answer_to(head + kind + length + body))[:20]
    assert b" 400 " in (await answer_to(head.replace(b" localhost\r", b" a b\r") + b"\r\n"))[:20]
    assert b" 404 " in (await answer_to(head.replace(b"/v1/plans/mine", b"/%ff%00/../x") + b"\r\n"))
    rebound = head.replace(b" localhost\r", b" evil.example\r")
    assert b" 421 " in (await answer_to(rebound + kind + length + body))[:20]
    chunked = b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    assert b" 400 " in (await answer_to(head + kind + chunked))[:20]


def question(forward_seconds: float) -> dict[str, object]:
    stage = {"forward_seconds": forward_seconds, "backward_seconds": 0.02}
    plan = {
        "costs": {"stages": [stage]},
        "schedule": {"kind": "1f1b"},
        "workload": {"microbatches": 3},
    }
    return {"plan": plan}


async def test_what_waits_goes_with_its_caller_and_what_has_begun_is_stored(
    live: Live, kernels: Kernels
) -> None:
    async with httpx.AsyncClient(base_url=live.url) as http:

        async def metrics_say(line: str) -> None:
            while line not in (await http.get("/metrics")).text.splitlines():
                await asyncio.sleep(0.01)

        # As many as there are threads, and one that waits.
        questions = [question(seconds) for seconds in (0.001, 0.002, 0.003)]
        wires = []
        for index, asked in enumerate(questions):
            _, wire = await asyncio.open_connection("127.0.0.1", http.base_url.port)
            wires.append(wire)
            body = json.dumps(asked).encode()
            wire.write(
                b"POST /v1/estimates HTTP/1.1\r\nHost: 127.0.0.1\r\nIdempotency-Key: %d\r\n"
                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                % (index, len(body), body)
            )
            if index < 2:
                await kernels.wait_for(1)
        await metrics_say("stagefare_kernel_queue_depth 1.0")
        for wire in wires:
            wire.close()
        await metrics_say("stagefare_kernel_queue_depth 0.0")
        abandoned = 'method="POST",route="/v1/estimates",status="none"'
        await metrics_say(f"stagefare_http_requests_total{{{abandoned}}} 1.0")
        kernels.may_end.set()
        await metrics_say("stagefare_http_requests_in_flight 1.0")
        for index, (asked, replayed) in enumerate(
            zip(questions, ("true", "true", None), strict=True)
        ):
            key = {"Idempotency-Key": str(index)}
            again = await http.post("/v1/estimates", json=asked, headers=key)
            assert again.status_code == 201
            assert again.headers.get("Idempotency-Replayed") == replayed
