"""Who is let in at a route, and how the others are told."""

from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from litestar import Litestar, Request, delete, get, post

from service.app.access import Access, NewToken, Principal, create_token
from service.app.clusters import ClusterCache
from service.app.ports import Scope
from service.app.services import Backend
from service.web.access import OPEN, access_guard, allowed_hosts, needs
from service.web.problems import EXCEPTION_HANDLERS
from tests.app.fakes import FakeDatabase, InlineExecutor

AnyRequest = Request[Any, Principal, Any]


@get("/read", sync_to_thread=False)
def read(request: AnyRequest) -> str:
    return request.auth.team


@post("/ask", opt=needs(Scope.READ), status_code=200, sync_to_thread=False)
def ask(request: AnyRequest) -> str:
    return request.auth.team


@post("/store", sync_to_thread=False)
def store(request: AnyRequest) -> str:
    return request.auth.team


@delete("/token", opt=needs(Scope.ADMIN), status_code=200, sync_to_thread=False)
def revoke(request: AnyRequest) -> str:
    return request.auth.team


@get("/health", opt=OPEN, sync_to_thread=False)
def health(request: AnyRequest) -> str:
    return "auth" if "auth" in request.scope else "nobody"


ROUTES = [
    ("GET", "/read", Scope.READ),
    ("POST", "/ask", Scope.READ),
    ("POST", "/store", Scope.WRITE),
    ("DELETE", "/token", Scope.ADMIN),
]


class SameClock:
    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)


class Guarded:
    """An application behind the guard, and the database behind that."""

    def __init__(self) -> None:
        self.database = FakeDatabase()
        executor = InlineExecutor()
        self._backend = Backend(self.database, executor, SameClock(), ClusterCache(executor))
        self.access = Access(self.database, SameClock())
        self._app: Any = Litestar(
            [read, ask, store, revoke, health],
            guards=[access_guard(self.access, allowed_hosts("127.0.0.1"))],
            exception_handlers=EXCEPTION_HANDLERS,
            openapi_config=None,
            logging_config=None,
        )

    async def token(self, team: str, *scopes: Scope) -> NewToken:
        self.access.close()
        return await create_token(self._backend.for_team(team), scopes)

    async def send(
        self,
        method: str,
        path: str,
        headers: dict[str, str] | list[tuple[str, str]] | None = None,
        peer: str | None = "127.0.0.1",
    ) -> httpx.Response:
        async def from_peer(scope: Any, receive: Any, send: Any) -> None:
            client = None if peer is None else (peer, 50000)
            await self._app({**scope, "client": client}, receive, send)

        transport = httpx.ASGITransport(app=from_peer)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return await http.request(method, path, headers=headers)


@pytest.fixture
def guarded() -> Guarded:
    return Guarded()


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def assert_problem(response: httpx.Response, status: int, slug: str) -> None:
    assert response.status_code == status
    assert response.json()["type"] == f"/problems/{slug}"
    assert response.headers["content-type"] == "application/problem+json"


# Tokens


@pytest.mark.parametrize(("method", "path", "needed"), ROUTES)
async def test_the_scope_of_a_route_is_needed_and_enough(
    guarded: Guarded, method: str, path: str, needed: Scope
) -> None:
    right = await guarded.token("crew", needed)
    response = await guarded.send(method, path, bearer(right.text))
    assert (response.is_success, response.text) == (True, "crew")

    others = await guarded.token("crew", *(scope for scope in Scope if scope is not needed))
    refused = await guarded.send(method, path, bearer(others.text))
    assert_problem(refused, 403, "insufficient-scope")
    assert f"'{needed.value}'" in refused.json()["detail"]
    assert refused.headers["www-authenticate"] == (
        f'Bearer realm="stagefare", error="insufficient_scope", scope="{needed.value}"'
    )


async def test_without_a_token_only_open_routes_answer(guarded: Guarded) -> None:
    guarded.access.close()
    assert (await guarded.send("GET", "/health")).text == "nobody"
    for method, path, _ in ROUTES:
        refused = await guarded.send(method, path)
        assert_problem(refused, 401, "unauthenticated")
        assert refused.headers["www-authenticate"] == 'Bearer realm="stagefare"'


async def test_all_bad_credentials_have_the_same_answer(guarded: Guarded) -> None:
    made = await guarded.token("crew", Scope.READ)
    _, visible, secret = made.text.split("_")
    bad: list[dict[str, str] | list[tuple[str, str]]] = [
        bearer("x"),
        bearer(made.text[:-1]),
        bearer(f"stagefare_{visible}_{'0' * 64}"),
        bearer(f"stagefare_{'0' * 20}_{secret}"),
        bearer("x" * 5000),
        {"Authorization": made.text},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": f"Basic {made.text}"},
        {"Authorization": f"Bearer {made.text}, {made.text}"},
        [("Authorization", f"Bearer {made.text}"), ("Authorization", f"Bearer {made.text}")],
    ]
    answers = [await guarded.send("GET", "/read", headers) for headers in bad]
    assert len({answer.content for answer in answers}) == 1
    for answer in answers:
        assert_problem(answer, 401, "unauthenticated")
        assert answer.headers["www-authenticate"] == (
            'Bearer realm="stagefare", error="invalid_token"'
        )
        assert secret not in answer.text


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "Bearer  "])
async def test_the_scheme_has_no_case(guarded: Guarded, scheme: str) -> None:
    made = await guarded.token("crew", Scope.READ)
    response = await guarded.send("GET", "/read", {"Authorization": f"{scheme} {made.text}"})
    assert response.text == "crew"


async def test_a_token_works_from_anywhere_and_under_any_name(guarded: Guarded) -> None:
    made = await guarded.token("crew", Scope.READ)
    headers = {**bearer(made.text), "Host": "stagefare.example", "Origin": "https://ui.example"}
    assert (await guarded.send("GET", "/read", headers, peer="192.0.2.7")).text == "crew"


# Open access


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.9.9.9", "::1"])
@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1:80", "[::1]:8000"])
async def test_while_open_this_machine_is_the_local_team(
    guarded: Guarded, peer: str, host: str
) -> None:
    for method, path, scope in ROUTES:
        response = await guarded.send(method, path, {"Host": host}, peer)
        if scope is Scope.ADMIN:
            assert_problem(response, 403, "insufficient-scope")
            assert "stagefare tokens create" in response.json()["detail"]
        else:
            assert (response.is_success, response.text) == (True, "local")


@pytest.mark.parametrize("peer", ["192.0.2.7", "2001:db8::1", "testclient", "", None])
async def test_while_open_other_machines_are_refused(guarded: Guarded, peer: str | None) -> None:
    for method, path, _ in ROUTES:
        assert_problem(await guarded.send(method, path, peer=peer), 401, "unauthenticated")
    assert (await guarded.send("GET", "/health", peer=peer)).text == "nobody"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "localhost:8000@evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.2",
        "localhost:",
        "",
    ],
)
async def test_while_open_other_names_are_refused(guarded: Guarded, host: str) -> None:
    response = await guarded.send("GET", "/read", {"Host": host})
    # The framework itself refuses what no Host can be.
    assert response.status_code in {400, 421}
    if response.status_code == 421:
        assert_problem(response, 421, "misdirected-request")
        assert "localhost" in response.json()["detail"]


async def test_while_open_two_names_are_refused(guarded: Guarded) -> None:
    headers = [("Host", "localhost"), ("Host", "localhost")]
    assert_problem(await guarded.send("GET", "/read", headers), 421, "misdirected-request")


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:3000", "http://127.0.0.1:8000", ""]
)
async def test_while_open_pages_of_other_origins_are_refused(guarded: Guarded, origin: str) -> None:
    headers = {"Host": "localhost:8000", "Origin": origin}
    for method, path, _ in ROUTES:
        assert_problem(await guarded.send(method, path, headers), 403, "foreign-origin")


async def test_while_open_the_services_own_pages_are_served(guarded: Guarded) -> None:
    headers = {"Host": "localhost:8000", "Origin": "http://localhost:8000"}
    assert (await guarded.send("POST", "/store", headers)).text == "local"


async def test_while_open_a_bad_token_is_still_a_bad_token(guarded: Guarded) -> None:
    assert_problem(await guarded.send("GET", "/read", bearer("x")), 401, "unauthenticated")


@pytest.mark.parametrize(
    ("configured", "name"),
    [("127.0.0.2", "127.0.0.2"), ("::1", "[::1]"), ("Localhost", "localhost")],
)
def test_the_configured_host_is_a_name_of_this_machine(configured: str, name: str) -> None:
    assert allowed_hosts(configured) == {"localhost", "127.0.0.1", "[::1]", name}
