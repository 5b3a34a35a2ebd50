"""What is too much by weight is refused at once, and what is given up is held no longer."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.app import holdings
from service.app.access import LOCAL_TEAM, create_token
from service.app.ports import Scope
from service.core.estimates.work import work_of
from service.formats.documents import plan as plans
from service.main import open_services
from service.web import strict_json
from tests.api.clients import client_of
from tests.api.held_kernels import Kernels
from tests.api.limited import PLAN, QUESTION, limited, problem, started
from tests.app.plan_documents import decode_plan

MEBIBYTE = 2**20
JSON = {"Content-Type": "application/json"}


class SlowBody:
    """A body of which a part comes, and the rest when a test says so."""

    def __init__(self, *parts: bytes, waits_after: int = 1) -> None:
        self._parts = parts
        self._waits_after = waits_after
        self.sent = 0
        self.may_go_on = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            if self.sent == self._waits_after:
                await self.may_go_on.wait()
            self.sent += 1
            yield part

    async def has_sent(self, parts: int) -> None:
        while self.sent < parts:
            await asyncio.sleep(0.001)


def put(
    http: httpx.AsyncClient, body: SlowBody | bytes, announced: int | None = None
) -> "asyncio.Task[httpx.Response]":
    headers = JSON if announced is None else {**JSON, "Content-Length": str(announced)}
    request = http.put("/v1/plans/slow", content=body, headers=headers)
    return asyncio.create_task(request)


async def held(http: httpx.AsyncClient, size_bytes: int) -> None:
    """Until so many bytes of bodies are held, as the metrics tell."""
    await gauge(http, "stagefare_request_body_bytes", size_bytes)


async def work_held(http: httpx.AsyncClient, seconds: float) -> None:
    """Until so much work is held, as the metrics tell."""
    await gauge(http, "stagefare_work_seconds", seconds)


async def gauge(http: httpx.AsyncClient, name: str, value: float) -> None:
    while True:
        samples = (line.split(" ") for line in (await http.get("/metrics")).text.splitlines())
        if [float(sample[1]) for sample in samples if sample[0] == name] == [value]:
            return
        await asyncio.sleep(0.01)


async def test_an_announced_body_beyond_the_share_is_refused_unread(
    database_url: str, tmp_path: Path
) -> None:
    async with started(limited(database_url, tmp_path, BODY_MIB_PER_CALLER=1)) as (_, http):
        slow = SlowBody(b"{", b'"costs": 1}')
        waiting = put(http, slow, announced=MEBIBYTE - 10)
        await held(http, MEBIBYTE - 10)
        unread = SlowBody(b"never asked for", waits_after=0)
        refused = await put(http, unread, announced=20)
        assert problem(refused) == (429, "too-many-at-once", "1")
        assert "10 too many" in refused.json()["detail"]
        assert unread.sent == 0
        # What needs no body, and what fits beside it, is answered.
        assert (await http.get("/v1/plans")).status_code == 200
        assert (await put(http, b"{}", announced=2)).status_code == 400
        slow.may_go_on.set()
        assert (await waiting).status_code == 400
        await held(http, 0)


async def test_a_body_in_chunks_is_refused_when_it_is_too_much(
    database_url: str, tmp_path: Path
) -> None:
    async with started(limited(database_url, tmp_path, BODY_MIB_PER_CALLER=1)) as (_, http):
        slow = SlowBody(b" " * (MEBIBYTE - 10), b" ")
        waiting = put(http, slow)
        await held(http, MEBIBYTE - 10)
        growing = SlowBody(*[b" " * 6] * 9, waits_after=9)
        refused = await put(http, growing)
        assert problem(refused) == (429, "too-many-at-once", "1")
        assert growing.sent < 9
        await held(http, MEBIBYTE - 10)
        slow.may_go_on.set()
        assert (await waiting).status_code == 400
        await held(http, 0)


async def test_another_caller_has_a_share_until_the_process_is_full(
    database_url: str, tmp_path: Path
) -> None:
    settings = limited(database_url, tmp_path, BODY_MIB_PER_CALLER=1, BODY_MIB=2)
    async with open_services(settings, LOCAL_TEAM) as services:
        tokens = [(await create_token(services, Scope)).text for _ in range(3)]
    async with (
        started(settings) as (app, _),
        client_of(app, tokens[0]) as one,
        client_of(app, tokens[1]) as other,
        client_of(app, tokens[2]) as third,
    ):
        bodies = [SlowBody(b"{", b"}") for _ in range(2)]
        waiting = [
            put(http, body, announced=MEBIBYTE)
            for http, body in zip((one, other), bodies, strict=True)
        ]
        await held(third, 2 * MEBIBYTE)
        assert problem(await put(one, b"{}", announced=2)) == (429, "too-many-at-once", "1")
        assert problem(await put(third, b"{}", announced=2)) == (503, "overloaded", "1")
        for body in bodies:
            body.may_go_on.set()
        assert {(await each).status_code for each in waiting} == {400}
        await held(third, 0)
        assert (await put(third, b"{}", announced=2)).status_code == 400


async def test_a_body_that_is_given_up_or_comes_too_slowly_is_held_no_longer(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with started(limited(database_url, tmp_path, BODY_MIB_PER_CALLER=1)) as (_, http):
        given_up = put(http, SlowBody(b"{", b"}"), announced=1000)
        await held(http, 1000)
        given_up.cancel()
        await held(http, 0)
        monkeypatch.setattr(strict_json, "MAX_BODY_SECONDS", 0.01)
        late = await put(http, SlowBody(b"{", b"}"), announced=1000)
        assert late.status_code == 408
        await held(http, 0)


async def test_one_body_is_read_however_small_the_share(database_url: str, tmp_path: Path) -> None:
    async with started(limited(database_url, tmp_path, BODY_MIB_PER_CALLER=1)) as (_, http):
        lines = b"n1 -- x -- forward_compute_time=1, backward_compute_time=2, activation_size=4, "
        graph = lines + b"parameter_size=8\n" + (b" " * 1023 + b"\n") * 2048
        answer = await http.post(
            "/v1/profiles/mine/imports",
            files={"file": ("graph.txt", graph)},
            data={"microbatch_size": "1"},
        )
        assert answer.status_code == 201, answer.text
        await held(http, 0)


# Work. A second is as much as the small plan takes.


def units(plan: dict[str, Any]) -> int:
    return work_of(plans.to_core(decode_plan(plan))).total


def with_microbatches(number: int) -> dict[str, Any]:
    return {**PLAN, "workload": {"microbatches": number}}


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> int:
    """Work of a second: that of one `PLAN`."""
    work = units(PLAN)
    for module in ("service.app.holdings", "service.main"):
        monkeypatch.setattr(f"{module}.WORK_PER_SECOND", work)
    return work


async def test_a_caller_has_so_much_work_and_no_more(
    database_url: str, tmp_path: Path, kernels: Kernels, second: int
) -> None:
    settings = limited(database_url, tmp_path, WORK_SECONDS_PER_CALLER=4, WORK_SECONDS=8)
    async with started(settings) as (_, http):
        stored = await http.put("/v1/plans/mine", json=PLAN)
        assert stored.status_code == 201
        larger = with_microbatches(20)
        assert 3 * second <= units(larger) <= 4 * second
        first = asyncio.create_task(http.post("/v1/cadence", json={"plan": larger}))
        await kernels.wait_for(1)
        await work_held(http, units(larger) / second)
        for path in ("/v1/bubble", "/v1/estimates"):
            refused = await http.post(path, json={"plan": larger})
            # 3.6 seconds twice are 3.1 beyond 4, and two threads work on them.
            assert problem(refused) == (429, "too-many-at-once", "2")
        batch = {"plans": [{"plan": with_microbatches(number)} for number in (3, 4)]}
        assert problem(await http.post("/v1/estimates/batches", json=batch))[0] == 429
        kernels.may_end.set()
        assert (await first).status_code == 200
        await work_held(http, 0)
        assert (await http.post("/v1/bubble", json={"plan": larger})).status_code == 200
        assert (await http.post("/v1/estimates/batches", json=batch)).status_code == 200
        await work_held(http, 0)


async def test_what_is_stored_is_answered_however_much_is_computed(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: int
) -> None:
    del second
    settings = limited(database_url, tmp_path, WORK_SECONDS_PER_CALLER=1)
    async with started(settings) as (_, http):
        location = (await http.post("/v1/estimates", json=QUESTION)).headers["location"]
        kernels = Kernels()
        kernels.hold(monkeypatch)
        first = asyncio.create_task(http.post("/v1/cadence", json=QUESTION))
        await kernels.wait_for(1)
        assert (await http.post("/v1/estimates", json=QUESTION)).status_code == 200
        assert (await http.get(location)).status_code == 200
        batch = {"plans": [QUESTION]}
        assert (await http.post("/v1/estimates/batches", json=batch)).status_code == 200
        assert problem(await http.get(f"{location}/timeline"))[0] == 429
        kernels.may_end.set()
        assert (await first).status_code == 200
        assert (await http.get(f"{location}/timeline")).status_code == 200


async def test_all_callers_together_have_so_much_work(
    database_url: str, tmp_path: Path, kernels: Kernels, second: int
) -> None:
    del second
    settings = limited(database_url, tmp_path, WORK_SECONDS_PER_CALLER=1, WORK_SECONDS=2)
    async with open_services(settings, LOCAL_TEAM) as services:
        tokens = [(await create_token(services, Scope)).text for _ in range(3)]
    async with (
        started(settings) as (app, _),
        client_of(app, tokens[0]) as one,
        client_of(app, tokens[1]) as other,
        client_of(app, tokens[2]) as third,
    ):
        computing = [
            asyncio.create_task(http.post("/v1/cadence", json=QUESTION)) for http in (one, other)
        ]
        await kernels.wait_for(2)
        assert problem(await one.post("/v1/cadence", json=QUESTION))[:2] == (
            429,
            "too-many-at-once",
        )
        assert problem(await third.post("/v1/cadence", json=QUESTION)) == (503, "overloaded", "1")
        kernels.may_end.set()
        assert {(await each).status_code for each in computing} == {200}
        assert (await third.post("/v1/cadence", json=QUESTION)).status_code == 200


async def test_a_large_body_is_refused_before_it_is_looked_at(
    database_url: str,
    tmp_path: Path,
    kernels: Kernels,
    second: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[int] = []
    decode = strict_json.decode_json

    def noted(body: bytes, type_: Any) -> Any:
        looked_at.append(len(body))
        return decode(body, type_)

    monkeypatch.setattr(strict_json, "decode_json", noted)
    monkeypatch.setattr(holdings, "PREPARATION_PER_BYTE", second)
    settings = limited(database_url, tmp_path, WORK_SECONDS_PER_CALLER=1000)
    async with started(settings) as (_, http):
        first = asyncio.create_task(http.post("/v1/cadence", json=QUESTION))
        await kernels.wait_for(1)
        large = {**PLAN, "description": "x" * 1500, "schedule": {"kind": "1f1b" + " " * 4000}}
        assert problem(await http.put("/v1/plans/large", json=large))[0] == 429
        graph = {"file": ("graph.txt", b" " * 6000)}
        fields = {"microbatch_size": "1"}
        answer = await http.post("/v1/profiles/large/imports", files=graph, data=fields)
        assert problem(answer)[0] == 429
        assert max(looked_at) < 1000  # the question's
        unread = SlowBody(b"never asked for", waits_after=0)
        assert problem(await put(http, unread, announced=5000))[0] == 429
        assert unread.sent == 0
        kernels.may_end.set()
        assert (await first).status_code == 200
        # Alone it may take what it takes.
        assert (await http.put("/v1/plans/large", json=large)).status_code == 400
        await work_held(http, 0)


async def test_who_is_slow_to_read_an_answer_holds_no_work(
    database_url: str, tmp_path: Path, second: int
) -> None:
    """The work is done when the answer is known."""
    del second
    settings = limited(database_url, tmp_path, WORK_SECONDS_PER_CALLER=1)
    async with started(settings) as (app, http):
        may_read, is_answered = asyncio.Event(), asyncio.Event()
        body = httpx.Request("POST", "http://localhost/", json=QUESTION).content
        await _serve(app, body, is_answered, may_read, http)


async def _serve(
    app: Callable[..., Any],
    body: bytes,
    is_answered: asyncio.Event,
    may_read: asyncio.Event,
    http: httpx.AsyncClient,
) -> None:
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/v1/cadence",
        "raw_path": b"/v1/cadence",
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        "server": ("localhost", 80),
        "client": ("127.0.0.1", 1),
        "state": {},
    }
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if messages:
            return messages.pop()
        return await asyncio.Future()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            is_answered.set()
        await may_read.wait()

    serving = asyncio.create_task(app(scope, receive, send))
    await is_answered.wait()
    answer = await http.post("/v1/cadence", json=QUESTION)
    assert answer.status_code == 200
    may_read.set()
    await serving
