"""Many clients of two services on one database change one document: nothing is lost or doubled."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.main import create_app
from service.settings import Settings, read_settings
from tests.api.clients import client_of

URL = "/v1/plans/shared"


def plan(microbatches: int) -> dict[str, Any]:
    return {
        "costs": {"stages": [{"forward_seconds": 0.002, "backward_seconds": 0.004}]},
        "schedule": {"kind": "1f1b"},
        "workload": {"microbatches": microbatches},
    }


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    return read_settings(
        {"STAGEFARE_DATA_DIR": str(tmp_path), "STAGEFARE_DATABASE_URL": database_url}
    )


@asynccontextmanager
async def two_services(settings: Settings) -> AsyncIterator[list[httpx.AsyncClient]]:
    """Clients of two services, which share nothing but the database."""
    one, other = create_app(settings), create_app(settings)
    async with (
        one.lifespan(),
        other.lifespan(),
        client_of(one) as of_one,
        client_of(other) as of_other,
    ):
        yield [of_one, of_other]


async def test_no_update_of_32_writers_is_lost(settings: Settings) -> None:
    """Each adds one to what it has read, and reads again when another one was quicker."""
    async with two_services(settings) as clients:
        await clients[0].put(URL, json=plan(1))
        refusals = Counter[int]()

        async def add_one(http: httpx.AsyncClient) -> None:
            while True:
                read = await http.get(URL)
                count = read.json()["document"]["workload"]["microbatches"]
                tag = {"If-Match": read.headers["etag"]}
                written = await http.put(URL, json=plan(count + 1), headers=tag)
                if written.status_code == 200:
                    assert written.json()["revision"] == count + 1
                    return
                refusals[written.status_code] += 1
                # The refusal names the version that was in the way, never the one that was sent.
                assert written.headers["etag"] != read.headers["etag"]

        await asyncio.gather(*(add_one(clients[number % 2]) for number in range(32)))
        newest = (await clients[0].get(URL)).json()
        assert (newest["revision"], newest["document"]["workload"]["microbatches"]) == (33, 33)
        assert refusals.keys() == {412}


async def test_equal_content_of_16_clients_is_one_revision(settings: Settings) -> None:
    async with two_services(settings) as clients:
        answers = await asyncio.gather(
            *(clients[number % 2].put(URL, json=plan(4)) for number in range(16))
        )
        assert Counter(answer.status_code for answer in answers) == {201: 1, 200: 15}
        assert len({(answer.content, answer.headers["etag"]) for answer in answers}) == 1
        revisions = (await clients[0].get(f"{URL}/revisions")).json()["items"]
        assert [revision["revision"] for revision in revisions] == [1]


async def test_one_of_16_archives_the_version_it_has_seen(settings: Settings) -> None:
    async with two_services(settings) as clients:
        tag = (await clients[0].put(URL, json=plan(4))).headers["etag"]
        newer = (await clients[0].put(URL, json=plan(5))).headers["etag"]
        stale = await clients[1].delete(URL, headers={"If-Match": tag})
        assert (stale.status_code, stale.headers["etag"]) == (412, newer)
        answers = await asyncio.gather(
            *(clients[n % 2].delete(URL, headers={"If-Match": newer}) for n in range(16))
        )
        assert Counter(answer.status_code for answer in answers) == {204: 1, 404: 15}
