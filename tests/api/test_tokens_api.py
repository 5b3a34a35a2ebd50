"""Tokens over HTTP: the first one ends open access, an admin has those of the own team."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar import Litestar

from service.app.access import LOCAL_TEAM, create_token
from service.app.ports import Scope
from service.main import create_app, open_services
from service.settings import read_settings
from service.store.database import SqlDatabase
from tests.api.clients import client_of

PLAN = {
    "costs": {"stages": [{"forward_seconds": 0.002, "backward_seconds": 0.004}]},
    "schedule": {"kind": "1f1b"},
    "workload": {"microbatches": 3},
}


Made = Callable[[Scope], Awaitable[str]]


@pytest.fixture
def made(database_url: str, tmp_path: Path) -> Made:
    """Makes a token of the local team as the command line does, in a process of its own."""
    settings = {"STAGEFARE_DATA_DIR": str(tmp_path), "STAGEFARE_DATABASE_URL": database_url}

    async def make(scope: Scope) -> str:
        async with open_services(read_settings(settings), LOCAL_TEAM) as services:
            return (await create_token(services, [scope])).text

    return make


async def test_open_access_makes_no_tokens(client: httpx.AsyncClient) -> None:
    """Else anyone on the machine could lock everyone else out."""
    for scope in ("read", "admin"):
        refused = await client.post("/v1/tokens", json={"scopes": [scope]})
        assert refused.status_code == 403
        assert "stagefare tokens create" in refused.json()["detail"]
    assert (await client.get("/v1/tokens")).status_code == 403
    assert (await client.get("/v1/plans")).status_code == 200


async def test_the_first_token_ends_open_access_and_keeps_what_was_stored(
    app: Litestar, client: httpx.AsyncClient, made: Made
) -> None:
    stored = await client.put("/v1/plans/mine", json=PLAN)
    token = await made(Scope.READ)
    await asyncio.sleep(1.1)  # the service looks for a first token once a second

    assert (await client.get("/v1/plans/mine")).status_code == 401
    assert (await client.post("/v1/tokens", json={"scopes": ["admin"]})).status_code == 401
    assert (await client.get("/readyz")).json() == {"status": "ready", "access": "tokens"}
    async with client_of(app, token) as reader:
        read = await reader.get("/v1/plans/mine")
        assert read.headers["etag"] == stored.headers["etag"]
        refused = await reader.put("/v1/plans/mine", json=PLAN)
        assert refused.status_code == 403


class MovedClock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.moment = datetime(2026, 3, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.moment


async def test_a_token_made_by_another_process_ends_open_access_within_a_second(
    database: SqlDatabase, database_url: str, tmp_path: Path
) -> None:
    clock = MovedClock()
    settings = read_settings({"STAGEFARE_DATA_DIR": str(tmp_path)})
    app = create_app(settings, database=database, clock=clock)
    async with app.lifespan(), client_of(app) as http:
        assert (await http.get("/v1/plans")).status_code == 200
        elsewhere = {
            "STAGEFARE_DATA_DIR": str(tmp_path),
            "STAGEFARE_DATABASE_URL": database_url,
        }
        async with open_services(read_settings(elsewhere), "crew") as services:
            await create_token(services, [Scope.READ])
        clock.moment += timedelta(seconds=1)
        assert (await http.get("/v1/plans")).status_code == 401


async def test_an_admin_makes_lists_and_revokes(
    app: Litestar, client: httpx.AsyncClient, made: Made
) -> None:
    token = await made(Scope.ADMIN)
    first = {"token": token, "id": token.split("_")[1]}
    async with client_of(app, first["token"]) as admin:
        body = {"scopes": ["write", "read", "read"], "expires_in_seconds": 3600, "name": "crew"}
        answered = await admin.post("/v1/tokens", json=body)
        assert answered.status_code == 201
        assert answered.headers["cache-control"] == "no-store"
        second = answered.json()
        assert list(second) == ["token", "id", "name", "scopes", "created_at", "expires_at"]
        assert second["token"].startswith(f"stagefare_{second['id']}_")
        assert second["scopes"] == ["read", "write"]
        lifetime = datetime.fromisoformat(second["expires_at"]) - datetime.fromisoformat(
            second["created_at"]
        )
        assert lifetime == timedelta(hours=1)
        listed = (await admin.get("/v1/tokens")).json()["items"]
        assert [item["id"] for item in listed] == [second["id"], first["id"]]
        assert first["token"].rpartition("_")[2] not in str(listed)
        page = (await admin.get("/v1/tokens?limit=1")).json()
        assert page["items"] == listed[:1]
        assert (await admin.get(page["next"])).json() == {"items": listed[1:]}

        async with client_of(app, second["token"]) as other:
            assert (await other.get("/v1/plans")).status_code == 200
            assert (await admin.delete(f"/v1/tokens/{second['id']}")).status_code == 204
            assert (await other.get("/v1/plans")).status_code == 401
        assert (await admin.delete(f"/v1/tokens/{second['id']}")).status_code == 204
        again = (await admin.get("/v1/tokens")).json()["items"]
        assert [("revoked_at" in item) for item in again] == [True, False]

        # The last admin may go too: the service does not open again.
        assert (await admin.delete(f"/v1/tokens/{first['id']}")).status_code == 204
        assert (await admin.get("/v1/tokens")).status_code == 401
    assert (await client.get("/v1/plans")).status_code == 401


@pytest.mark.parametrize("token_id", ["0" * 20, "x", "%00", "x" * 300])
async def test_a_token_that_is_not_there_is_not_found(
    app: Litestar, made: Made, token_id: str
) -> None:
    async with client_of(app, await made(Scope.ADMIN)) as admin:
        response = await admin.delete(f"/v1/tokens/{token_id}")
    assert response.status_code == 404
    assert response.json()["type"] == "/problems/not-found"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"scopes": []},
        {"scopes": ["everything"]},
        {"scopes": ["read"] * 4},
        {"scopes": ["read"], "expires_in_seconds": 59},
        {"scopes": ["read"], "expires_in_seconds": 366 * 86400 + 1},
        {"scopes": ["read"], "name": "Not A Name"},
        {"scopes": ["read"], "team": "other"},
    ],
)
async def test_a_token_that_cannot_be_made_is_refused(
    app: Litestar, made: Made, body: dict[str, object]
) -> None:
    async with client_of(app, await made(Scope.ADMIN)) as admin:
        response = await admin.post("/v1/tokens", json=body)
        assert response.status_code == 400
        assert response.json()["type"] == "/problems/invalid-body"
        assert len((await admin.get("/v1/tokens")).json()["items"]) == 1


async def test_a_caller_is_known_before_the_request_is_read(
    app: Litestar, client: httpx.AsyncClient, made: Made
) -> None:
    token = await made(Scope.READ)
    bad: dict[str, Any] = {"content": b"not json", "headers": {"Accept": "image/png"}}
    assert (await client.put("/v1/plans/NOT?no=1", **bad)).status_code == 401
    async with client_of(app, token) as reader:
        assert (await reader.put("/v1/plans/NOT?no=1", **bad)).status_code == 403
    assert (await client.options("/v1/plans")).status_code == 204
