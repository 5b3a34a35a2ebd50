"""More than may be computed is refused at once, and nothing stays taken."""

import asyncio
from pathlib import Path
from typing import Any

import httpx

from service.app.access import LOCAL_TEAM, create_token
from service.app.ports import Scope
from service.main import open_services
from tests.api.clients import client_of
from tests.api.held_kernels import Kernels
from tests.api.limited import PLAN, QUESTION, limited, problem, started, until, waiting_for


async def test_a_caller_over_its_share_is_refused_and_all_else_goes_on(
    database_url: str, tmp_path: Path, kernels: Kernels
) -> None:
    settings = limited(database_url, tmp_path, CALCULATIONS_PER_CALLER=1)
    async with started(settings) as (_, http):
        first = asyncio.create_task(http.post("/v1/cadence", json=QUESTION))
        await kernels.wait_for(1)
        for path in ("/v1/bubble", "/v1/estimates"):
            refused = await http.post(path, json=QUESTION)
            assert problem(refused) == (429, "too-many-at-once", "1")
        assert problem(await http.put("/v1/plans/mine", json=PLAN))[0] == 429
        # What computes nothing is answered as ever, while all kernels are at work.
        for path in ("/healthz", "/readyz", "/v1/plans", "/metrics"):
            assert (await http.get(path)).status_code == 200
        kernels.may_end.set()
        assert (await first).status_code == 200
        assert (await http.put("/v1/plans/mine", json=PLAN)).status_code == 201
        assert (await http.post("/v1/estimates", json=QUESTION)).status_code == 201


async def test_each_token_has_a_share_of_its_own(
    database_url: str, tmp_path: Path, kernels: Kernels
) -> None:
    settings = limited(database_url, tmp_path, CALCULATIONS_PER_CALLER=1)
    async with open_services(settings, LOCAL_TEAM) as services:
        tokens = [(await create_token(services, [Scope.READ])).text for _ in range(2)]
    async with (
        started(settings) as (app, _),
        client_of(app, tokens[0]) as one,
        client_of(app, tokens[1]) as other,
    ):
        computing = [
            asyncio.create_task(http.post("/v1/cadence", json=QUESTION)) for http in (one, other)
        ]
        await kernels.wait_for(2)
        assert problem(await one.post("/v1/cadence", json=QUESTION))[0] == 429
        kernels.may_end.set()
        assert [(await each).status_code for each in computing] == [200, 200]


async def test_more_than_may_wait_is_refused_at_once(
    database_url: str, tmp_path: Path, kernels: Kernels
) -> None:
    settings = limited(database_url, tmp_path, WAITING_CALCULATIONS=1, CALCULATIONS_PER_CALLER=0)
    async with started(settings) as (_, http):
        computing = [asyncio.create_task(http.post("/v1/cadence", json=QUESTION)) for _ in range(3)]
        await kernels.wait_for(2)  # both threads, and one that waits
        await waiting_for(http, 1)
        assert problem(await http.post("/v1/cadence", json=QUESTION)) == (503, "overloaded", "1")
        kernels.may_end.set()
        assert [(await each).status_code for each in computing] == [200] * 3
        assert (await http.post("/v1/cadence", json=QUESTION)).status_code == 200


async def test_a_client_that_goes_away_leaves_nothing_taken(
    database_url: str, tmp_path: Path, kernels: Kernels
) -> None:
    settings = limited(database_url, tmp_path, WAITING_CALCULATIONS=1, CALCULATIONS_PER_CALLER=3)
    async with started(settings) as (_, http):
        computing = [asyncio.create_task(http.post("/v1/cadence", json=QUESTION)) for _ in range(3)]
        await kernels.wait_for(2)
        await waiting_for(http, 1)
        for each in computing:
            each.cancel()
        await asyncio.gather(*computing, return_exceptions=True)
        # What had not begun is gone; both threads are still at what nobody waits for.
        await waiting_for(http, 0)
        one_more = asyncio.create_task(http.post("/v1/cadence", json=QUESTION))
        await waiting_for(http, 1)
        kernels.may_end.set()
        assert (await one_more).status_code == 200
        # One of the threads may have done this while the other was still at what was given up.
        await until(http, "stagefare_kernel_threads_busy 0.0")
        answers = await asyncio.gather(*(http.post("/v1/cadence", json=QUESTION) for _ in range(3)))
        assert [answer.status_code for answer in answers] == [200] * 3


async def test_requests_are_counted_for_each_token_and_for_each_address_while_open(
    database_url: str, tmp_path: Path
) -> None:
    settings = limited(database_url, tmp_path, REQUESTS_PER_MINUTE=2)
    async with started(settings) as (app, http):
        assert [(await http.get("/v1/plans")).status_code for _ in range(3)] == [200, 200, 429]
        asgi: Any = app
        elsewhere = httpx.ASGITransport(app=asgi, client=("127.0.0.2", 1234))
        async with httpx.AsyncClient(transport=elsewhere, base_url="http://localhost") as other:
            assert (await other.get("/v1/plans")).status_code == 200
    async with open_services(settings, LOCAL_TEAM) as services:
        tokens = [(await create_token(services, [Scope.READ])).text for _ in range(2)]
    async with (
        started(settings) as (app, nobody),
        client_of(app, tokens[0]) as one,
        client_of(app, tokens[1]) as other,
    ):
        assert [(await one.get("/v1/plans")).status_code for _ in range(3)] == [200, 200, 429]
        answer = await other.get("/v1/plans")
        assert answer.headers["ratelimit"] == '"default";r=1;t=30'
        # Who is not known is not counted, and learns nothing of limits.
        refused = [await nobody.get("/v1/plans") for _ in range(3)]
        assert [each.status_code for each in refused] == [401] * 3
        assert all("ratelimit" not in each.headers for each in refused)


async def test_no_limit_means_none(database_url: str, tmp_path: Path) -> None:
    settings = limited(
        database_url,
        tmp_path,
        REQUESTS_PER_MINUTE=0,
        CALCULATIONS_PER_CALLER=0,
        WAITING_CALCULATIONS=0,
    )
    async with started(settings) as (_, http):
        answers = await asyncio.gather(
            *(http.post("/v1/cadence", json=QUESTION) for _ in range(150))
        )
        assert {answer.status_code for answer in answers} == {200}
        assert all("ratelimit" not in answer.headers for answer in answers)
