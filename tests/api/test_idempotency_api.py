"""`Idempotency-Key` over HTTP: retries, races, restarts and kills, on both databases."""

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar import Litestar

from service.app.access import create_token
from service.app.idempotency import KEPT_FOR, LEASE
from service.app.ports import Clock, Scope
from service.main import create_app, open_services
from service.settings import Settings, read_settings
from service.store.unit_of_work import SystemClock
from tests.api.clients import client_of
from tests.api.test_imports_api import GRAPH, graph_file

CountRows = Callable[[], Awaitable[dict[str, int]]]

PLAN: dict[str, Any] = {
    "costs": {"stages": [{"forward_seconds": 0.002, "backward_seconds": 0.004}]},
    "schedule": {"kind": "1f1b"},
    "workload": {"microbatches": 3},
}
KEY = {"Idempotency-Key": "6f1f3c0e"}
ESTIMATES = "/v1/estimates"
IMPORTS = "/v1/profiles/small/imports"


def problem(response: httpx.Response) -> str:
    return str(response.json()["type"]).removeprefix("/problems/")


def kept(response: httpx.Response) -> tuple[Any, ...]:
    """All of an answer but what belongs to one request."""
    own = {"x-request-id", "idempotency-replayed", "ratelimit"}
    headers = {name: value for name, value in response.headers.items() if name not in own}
    return response.status_code, headers, response.content


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    """Settings for services of their own on the database, as processes have them."""
    return read_settings(
        {"STAGEFARE_DATA_DIR": str(tmp_path), "STAGEFARE_DATABASE_URL": database_url}
    )


async def token_of(settings: Settings, team: str, *scopes: Scope) -> str:
    async with open_services(settings, team) as services:
        return (await create_token(services, scopes or Scope)).text


class LaterClock:
    """The machine's clock, moved on."""

    def __init__(self, by: timedelta) -> None:
        self._by = by

    def now(self) -> Any:
        return SystemClock().now() + self._by


def service(settings: Settings, clock: Clock | None = None) -> Litestar:
    return create_app(settings, clock=clock)


async def test_a_repetition_gets_the_first_answer(
    client: httpx.AsyncClient, count_rows: CountRows
) -> None:
    first = await client.post(ESTIMATES, json={"plan": PLAN}, headers=KEY)
    assert first.status_code == 201
    assert "idempotency-replayed" not in first.headers
    before = await count_rows()
    # The order of fields does not make it another request.
    text = json.dumps({"plan": dict(reversed(PLAN.items()))})
    headers = {**KEY, "Content-Type": "application/json", "X-Request-ID": "second"}
    again = await client.post(ESTIMATES, content=text, headers=headers)
    assert kept(again) == kept(first)
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["x-request-id"] == "second"
    # Without the key it is the stored estimate, with another key as well.
    for key in ({}, {"Idempotency-Key": "other"}):
        known = await client.post(ESTIMATES, json={"plan": PLAN}, headers=key)
        assert (known.status_code, known.content) == (200, first.content)
    after = await count_rows()
    assert after == before | {"idempotency_keys": 2}


async def test_another_request_under_the_key_is_refused(
    client: httpx.AsyncClient, count_rows: CountRows
) -> None:
    await client.post(ESTIMATES, json={"plan": PLAN}, headers=KEY)
    before = await count_rows()
    body = await client.post(
        ESTIMATES, json={"plan": PLAN, "asserted_iteration_seconds": 1.0}, headers=KEY
    )
    route = await client.post(
        IMPORTS, files=graph_file(), data={"microbatch_size": "4"}, headers=KEY
    )
    for refused in (body, route):
        assert (refused.status_code, problem(refused)) == (422, "idempotency-key-reused")
    assert await count_rows() == before


@pytest.mark.parametrize(
    "given",
    [
        [("Idempotency-Key", "")],
        [("Idempotency-Key", "two words")],
        [("Idempotency-Key", "k" * 256)],
        [("Idempotency-Key", "schlüssel".encode())],
        [("Idempotency-Key", "a"), ("Idempotency-Key", "a")],
    ],
    ids=["empty", "a space", "too long", "not ASCII", "twice"],
)
async def test_what_is_no_key_is_refused(
    client: httpx.AsyncClient, given: list[tuple[str, str]]
) -> None:
    refused = await client.post(ESTIMATES, json={"plan": PLAN}, headers=httpx.Headers(given))
    assert (refused.status_code, problem(refused)) == (400, "invalid-parameters")
    [error] = refused.json()["errors"]
    assert (error["pointer"], error["in"]) == ("/Idempotency-Key", "header")


async def test_the_longest_key_is_one(client: httpx.AsyncClient) -> None:
    key = {"Idempotency-Key": "~" * 255}
    assert (await client.post(ESTIMATES, json={"plan": PLAN}, headers=key)).status_code == 201


async def test_routes_that_can_be_repeated_pay_no_attention_to_keys(
    client: httpx.AsyncClient, count_rows: CountRows
) -> None:
    other = PLAN | {"workload": {"microbatches": 4}}
    for number, plan in enumerate((PLAN, PLAN, other)):
        stored = await client.put("/v1/plans/mine", json=plan, headers=KEY)
        assert stored.json()["revision"] == (1, 1, 2)[number]
    assert (await client.post("/v1/cadence", json={"plan": PLAN}, headers=KEY)).status_code == 200
    assert (await count_rows())["idempotency_keys"] == 0


async def test_a_refused_request_leaves_no_key(
    client: httpx.AsyncClient, count_rows: CountRows
) -> None:
    by_name = {"plan": "mine"}
    missing = await client.post(ESTIMATES, json=by_name, headers=KEY)
    assert (missing.status_code, problem(missing)) == (422, "invalid-input")
    malformed = await client.post(ESTIMATES, json={"plan": 7}, headers=KEY)
    assert malformed.status_code == 400
    assert (await count_rows())["idempotency_keys"] == 0
    await client.put("/v1/plans/mine", json=PLAN)
    assert (await client.post(ESTIMATES, json=by_name, headers=KEY)).status_code == 201


async def test_an_import_is_one_request_whatever_the_boundary_of_its_form(
    client: httpx.AsyncClient, count_rows: CountRows
) -> None:
    fields = {"microbatch_size": "4"}

    async def send(content: bytes = GRAPH, **more: str) -> httpx.Response:
        files = graph_file(content)
        return await client.post(IMPORTS, files=files, data={**fields, **more}, headers=KEY)

    first = await send()
    assert first.status_code == 201
    before = await count_rows()
    again = await send()
    assert first.request.headers["content-type"] != again.request.headers["content-type"]
    assert kept(again) == kept(first)
    for other in (await send(GRAPH + b"\n"), await send(dry_run="true")):
        assert (other.status_code, problem(other)) == (422, "idempotency-key-reused")
    assert await count_rows() == before


async def test_fifty_equal_requests_in_two_processes_are_one(
    settings: Settings, count_rows: CountRows
) -> None:
    apps = [service(settings), service(settings)]
    async with (
        apps[0].lifespan(),
        apps[1].lifespan(),
        client_of(apps[0]) as one,
        client_of(apps[1]) as other,
    ):

        async def create(http: httpx.AsyncClient) -> httpx.Response:
            return await http.post(
                IMPORTS, files=graph_file(), data={"microbatch_size": "4"}, headers=KEY
            )

        answers = await asyncio.gather(*(create((one, other)[n % 2]) for n in range(50)))
        by_status = Counter(answer.status_code for answer in answers)
        assert by_status.keys() <= {201, 409}
        assert by_status[201] >= 1
        done = [answer for answer in answers if answer.status_code == 201]
        assert len({answer.content for answer in done}) == 1
        assert sum("idempotency-replayed" not in answer.headers for answer in done) == 1
        for answer in answers:
            if answer.status_code == 409:
                assert problem(answer) == "idempotency-key-in-use"
                assert answer.headers["retry-after"] == "1"
        rows = await count_rows()
        assert (rows["revisions"], rows["documents"], rows["idempotency_keys"]) == (2, 2, 1)
        last = await create(other)
        assert kept(last) == kept(done[0])


async def test_the_answer_outlives_the_service_and_a_key_is_the_teams(settings: Settings) -> None:
    writer, reader = (
        await token_of(settings, "crew", Scope.READ, Scope.WRITE),
        await token_of(settings, "crew", Scope.READ),
    )
    stranger = await token_of(settings, "other")
    body = {"plan": PLAN}
    first_run = service(settings)
    async with first_run.lifespan(), client_of(first_run, writer) as http:
        first = await http.post(ESTIMATES, json=body, headers=KEY)
    second_run = service(settings)
    async with (
        second_run.lifespan(),
        client_of(second_run, reader) as colleague,
        client_of(second_run, stranger) as other,
    ):
        again = await colleague.post(ESTIMATES, json=body, headers=KEY)
        assert kept(again) == kept(first)
        assert again.headers["idempotency-replayed"] == "true"
        # Another team's key is another key, whatever is asked for under it.
        own = await other.post(
            ESTIMATES, json={**body, "asserted_iteration_seconds": 1.0}, headers=KEY
        )
        assert (own.status_code, "idempotency-replayed" in own.headers) == (201, False)
    next_day = service(settings, LaterClock(KEPT_FOR + LEASE))
    async with next_day.lifespan(), client_of(next_day, writer) as http:
        known = await http.post(ESTIMATES, json=body, headers=KEY)
        assert (known.status_code, "idempotency-replayed" in known.headers) == (200, False)


async def test_a_token_is_made_once_and_its_secret_shown_once(
    settings: Settings, count_rows: CountRows
) -> None:
    admin = await token_of(settings, "crew", Scope.ADMIN)
    app = service(settings)
    async with app.lifespan(), client_of(app, admin) as http:
        made = await http.post("/v1/tokens", json={"scopes": ["read"]}, headers=KEY)
        assert made.status_code == 201
        again = await http.post("/v1/tokens", json={"scopes": ["read"]}, headers=KEY)
        assert (again.status_code, problem(again)) == (409, "secret-not-kept")
        assert made.json()["id"] in again.json()["detail"]
        assert not re.search("stagefare_[0-9a-f]{20}_", again.text)
        assert "retry-after" not in again.headers
        assert (await count_rows())["tokens"] == 2


# A service that imports a profile under the key, and is killed at the point that is named.
KILLED = """
import asyncio, os, signal, sys
from service.main import create_app
from service.settings import read_settings
from service.store.keys import SqlKeyStore
from tests.api.clients import client_of
from tests.api.test_imports_api import graph_file

point, url, headers = sys.argv[1], sys.argv[2], {"Idempotency-Key": sys.argv[3]}

def die():
    os.kill(os.getpid(), signal.SIGKILL)

claimed = []
claim = SqlKeyStore.claim

async def claim_and_say(self, *arguments):
    claimed.append(await claim(self, *arguments))
    return claimed[-1]

SqlKeyStore.claim = claim_and_say

class Executor:
    async def run(self, function, *arguments):
        result = function(*arguments)
        if point == "while it works" and claimed:
            die()
        return result

complete = SqlKeyStore.complete

async def complete_and_die(self, claim, answer):
    assert await complete(self, claim, answer)
    die()

if point == "before it commits":
    SqlKeyStore.complete = complete_and_die

async def main():
    async with client_of(create_app(read_settings(), executor=Executor())) as http:
        fields = {"microbatch_size": "4"}
        await http.post(url, files=graph_file(), data=fields, headers=headers)

asyncio.run(main())
"""


@pytest.mark.parametrize("point", ["while it works", "before it commits"])
async def test_a_killed_request_stores_nothing_and_does_not_hold_its_key_for_ever(
    settings: Settings, count_rows: CountRows, point: str
) -> None:
    killed = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", KILLED, point, IMPORTS, KEY["Idempotency-Key"]],
        env={
            "PYTHONPATH": ".",
            "STAGEFARE_DATABASE_URL": settings.database_url,
            "STAGEFARE_DATA_DIR": str(settings.data_dir),
        },
        cwd=Path(__file__).parents[2],
        check=False,
        capture_output=True,
        text=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    rows = await count_rows()
    assert (rows["revisions"], rows["idempotency_keys"]) == (0, 1)

    async def send(app: Litestar) -> httpx.Response:
        async with app.lifespan(), client_of(app) as http:
            return await http.post(
                IMPORTS, files=graph_file(), data={"microbatch_size": "4"}, headers=KEY
            )

    waiting = await send(service(settings))
    assert (waiting.status_code, problem(waiting)) == (409, "idempotency-key-in-use")
    done = await send(service(settings, LaterClock(LEASE)))
    assert (done.status_code, "idempotency-replayed" in done.headers) == (201, False)
    assert kept(await send(service(settings))) == kept(done)
    rows = await count_rows()
    assert (rows["revisions"], rows["idempotency_keys"]) == (2, 1)
