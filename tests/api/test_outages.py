"""A database that is away, locked, full or of another version: 503, Retry-After, and recovery."""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar import Litestar
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from service import main
from service.main import create_app
from service.settings import read_settings
from service.store import connections, migrate
from service.store import engine as engine_module
from service.store.engine import create_engine, sqlite_path
from tests.api.clients import client_of
from tests.plugins.databases import BACKENDS
from tests.plugins.postgresql import OwnServer
from tests.plugins.services import Launcher, ServiceProcess

STAGES = [{"forward_seconds": 0.006, "backward_seconds": 0.012}] * 2
REQUEST_SECONDS = 60


def plan(microbatches: int = 8) -> dict[str, Any]:
    return {
        "costs": {"stages": STAGES},
        "schedule": {"kind": "1f1b"},
        "workload": {"microbatches": microbatches},
    }


def assert_unavailable(answer: httpx.Response) -> None:
    assert answer.status_code == 503, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == "/problems/unavailable"
    assert int(answer.headers["retry-after"]) >= 1


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The application's engine waits a moment only."""
    settings = engine_module._POSTGRESQL_SETTINGS | {"lock_timeout": "100ms"}
    monkeypatch.setattr(engine_module, "_POSTGRESQL_SETTINGS", settings)
    monkeypatch.setattr(engine_module, "_SQLITE_BUSY_SECONDS", 0.1)
    monkeypatch.setattr(connections, "MAX_TURN_SECONDS", 0.3)


@asynccontextmanager
async def application(url: str, folder: Path) -> AsyncIterator[Litestar]:
    """The application that makes its own engine for this database, started."""
    app = create_app(
        read_settings({"STAGEFARE_DATABASE_URL": url, "STAGEFARE_DATA_DIR": str(folder)})
    )
    async with app.lifespan():
        yield app


@asynccontextmanager
async def held(url: str) -> AsyncIterator[AsyncConnection]:
    """Somebody else holds what every writer needs, until the block ends."""
    engine = create_engine(url)
    try:
        async with engine.connect() as connection:
            if connection.dialect.name == "sqlite":
                await connection.execution_options(begin_mode="IMMEDIATE")
            async with connection.begin():
                if connection.dialect.name == "postgresql":
                    await connection.execute(text("LOCK TABLE documents IN EXCLUSIVE MODE"))
                yield connection
    finally:
        await engine.dispose()


@pytest.mark.usefixtures("impatient")
async def test_a_lock_that_others_hold_is_not_waited_for_for_ever(
    database_url: str, tmp_path: Path
) -> None:
    async with application(database_url, tmp_path) as app, client_of(app) as http:
        assert (await http.put("/v1/plans/mine", json=plan())).status_code == 201
        async with held(database_url):
            # Many at once: none of them waits for the time-outs of all before it.
            answers = await asyncio.gather(
                *(http.put("/v1/plans/mine", json=plan(9 + n)) for n in range(12))
            )
            for answer in answers:
                assert_unavailable(answer)
            assert (await http.get("/v1/plans/mine")).json()["revision"] == 1
        assert (await http.put("/v1/plans/mine", json=plan(50))).json()["revision"] == 2


@contextmanager
def full(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No more may be written than there is: the size of SQLite's file, a quota of PostgreSQL's."""
    if (path := sqlite_path(url)) is not None:
        with sqlite3.connect(path) as file:
            (pages,) = file.execute("PRAGMA page_count").fetchone()
        limit = (*engine_module._SQLITE_PRAGMAS, f"PRAGMA max_page_count={pages}")
        monkeypatch.setattr(engine_module, "_SQLITE_PRAGMAS", limit)
    else:
        # What a server with a full disk says, said by a trigger.
        asyncio_run(url, _FULL)
    yield
    if path is not None:
        monkeypatch.undo()
    else:
        asyncio_run(url, ("DROP TRIGGER full_disk ON revisions",))


_FULL = (
    """CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION 'no space left' USING ERRCODE = '53100'; END $$""",
    "CREATE TRIGGER full_disk BEFORE INSERT ON revisions EXECUTE FUNCTION full_disk()",
)


def asyncio_run(url: str, statements: tuple[str, ...]) -> None:
    async def run() -> None:
        engine = create_engine(url)
        try:
            async with engine.begin() as connection:
                for statement in statements:
                    await connection.execute(text(statement))
        finally:
            await engine.dispose()

    asyncio.run(run())


def test_a_full_disk_is_unavailability(
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    big = {**plan(), "description": "x" * 500}

    async def fill(http: httpx.AsyncClient) -> httpx.Response:
        for number in range(200):
            answer = await http.put(
                "/v1/plans/mine", json={**big, "workload": {"microbatches": number + 1}}
            )
            if answer.status_code == 503:
                return answer
            assert answer.status_code in {200, 201}
        pytest.fail("the disk did not become full")

    async def meet_full_disk() -> None:
        async with application(database_url, tmp_path) as app, client_of(app) as http:
            assert_unavailable(await fill(http))
            assert (await http.get("/v1/plans")).status_code == 200
            assert (await http.get("/readyz")).status_code == 200

    async def find_room() -> None:
        async with application(database_url, tmp_path) as app, client_of(app) as http:
            before = (await http.get("/v1/plans")).json()["items"]
            answer = await http.put("/v1/plans/mine", json=plan(1000))
            expected = before[0]["revision"] + 1 if before else 1
            assert answer.json()["revision"] == expected

    with full(database_url, monkeypatch):
        asyncio.run(meet_full_disk())
    asyncio.run(find_room())
    (line,) = (record for record in caplog.records if record.name == "stagefare.web")
    # What failed, for whoever operates it, and nothing that a caller sent.
    assert "53100" in line.getMessage() or "SQLITE_FULL" in line.getMessage()
    assert "xxx" not in line.getMessage()


async def test_a_database_that_is_not_migrated_is_unavailability(
    empty_database_url: str, tmp_path: Path
) -> None:
    async with application(empty_database_url, tmp_path) as app, client_of(app) as http:
        for path in ("/v1/plans", "/v1/plans/mine", "/v1/measurements"):
            answer = await http.get(path)
            assert_unavailable(answer)
            assert "stagefare migrate" in answer.json()["detail"]
        assert_unavailable(await http.put("/v1/plans/mine", json=plan()))
        assert "not migrated" in (await http.get("/readyz")).json()["detail"]
        assert (await http.get("/healthz")).status_code == 200
        await migrate.upgrade(empty_database_url)
        assert (await http.get("/readyz")).status_code == 200
        assert (await http.put("/v1/plans/mine", json=plan())).status_code == 201


async def test_a_database_of_an_older_version_is_unavailability(
    database_url: str, tmp_path: Path
) -> None:
    await migrate.downgrade(database_url, "0001")
    async with application(database_url, tmp_path) as app, client_of(app) as http:
        assert_unavailable(await http.get("/v1/plans"))
        assert_unavailable(await http.get("/readyz"))


async def stamp(database_url: str, revision: str | None) -> None:
    """Let the database say that it is of another version."""
    engine = create_engine(database_url)
    try:
        async with engine.begin() as connection:
            statement = text("UPDATE alembic_version SET version_num = :revision")
            await connection.execute(statement, {"revision": revision})
    finally:
        await engine.dispose()


async def test_no_application_starts_on_a_database_of_a_newer_version(
    database_url: str, tmp_path: Path
) -> None:
    await stamp(database_url, "later")
    with pytest.raises(ExceptionGroup) as refusal:  # the framework starts things in a group
        async with application(database_url, tmp_path):
            pass
    (reason,) = refusal.value.exceptions
    assert isinstance(reason, migrate.UnknownSchema)
    assert "'later'" in str(reason)
    assert await migrate.current(database_url) == "later"


@pytest.mark.parametrize(
    ("revision", "said"), [("0001", "stagefare migrate"), ("later", "a newer version has migrated")]
)
async def test_readiness_ends_when_another_version_takes_the_database(
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    revision: str,
    said: str,
) -> None:
    monkeypatch.setattr(main, "SCHEMA_SECONDS", 0)
    async with application(database_url, tmp_path) as app, client_of(app) as http:
        assert (await http.get("/readyz")).status_code == 200
        await stamp(database_url, revision)
        refused = await http.get("/readyz")
        assert_unavailable(refused)
        assert said in refused.json()["detail"]
        await stamp(database_url, migrate.head())
        assert (await http.get("/readyz")).status_code == 200


async def test_an_application_starts_before_its_database(tmp_path: Path) -> None:
    url = f"postgresql://postgres@/postgres?host={tmp_path}"
    async with application(url, tmp_path) as app, client_of(app) as http:
        assert_unavailable(await http.get("/v1/plans"))
        assert_unavailable(await http.get("/readyz"))


# Away under load, in a process of its own


@pytest.fixture(params=BACKENDS)
def own_server(request: pytest.FixtureRequest) -> Iterator[OwnServer | None]:
    """A server that can be stopped; None for SQLite, which has none."""
    if request.param == "sqlite":
        yield None
        return
    server = OwnServer({"fsync": "off"})
    try:
        server.start()
        yield server
    finally:
        server.close()


class Load:
    """Callers that read and write all the time and count what they are told."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._writes = 0
        self.answers: Counter[int] = Counter()

    async def run(self, ended: asyncio.Event) -> None:
        """Call until `ended`; a call that gets no answer fails the test."""
        async with httpx.AsyncClient(base_url=self._url, timeout=REQUEST_SECONDS) as http:
            await asyncio.gather(*(self._call(http, ended, number) for number in range(8)))

    async def _call(self, http: httpx.AsyncClient, ended: asyncio.Event, number: int) -> None:
        while not ended.is_set():
            if number % 2:
                answer = await http.get("/v1/plans?limit=5")
            else:
                self._writes += 1
                answer = await http.put(f"/v1/plans/p{number}", json=plan(self._writes % 500 + 1))
            self.answers[answer.status_code] += 1
            if answer.status_code not in {200, 201}:
                assert_unavailable(answer)
                await asyncio.sleep(0.02)

    async def more(self, *statuses: int) -> None:
        """Wait until there has been another answer with one of these statuses."""
        before = sum(self.answers[status] for status in statuses)
        async with asyncio.timeout(REQUEST_SECONDS):
            while sum(self.answers[status] for status in statuses) <= before:
                await asyncio.sleep(0.01)


async def test_a_database_that_goes_away_under_load_comes_back(
    launcher: Launcher, own_server: OwnServer | None, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'away.db'}" if own_server is None else own_server.url
    await migrate.upgrade(url)
    service = ServiceProcess(launcher, url, tmp_path)
    await asyncio.to_thread(service.start)
    load, ended = Load(service.url), asyncio.Event()
    calling = asyncio.create_task(load.run(ended))
    for _ in range(2):
        await load.more(200)
        if own_server is None:
            # A file does not go away; the nearest is that somebody else takes it for a while.
            async with held(url):
                await asyncio.sleep(0.3)
        else:
            await asyncio.to_thread(own_server.stop)
            await load.more(503)
            await asyncio.to_thread(own_server.start)
        await load.more(200)
    ended.set()
    await calling
    # Every connection of the pool has healed, not only the one that was asked last.
    async with httpx.AsyncClient(base_url=service.url, timeout=REQUEST_SECONDS) as http:
        answers = await asyncio.gather(*(http.get("/v1/plans") for _ in range(40)))
        assert {answer.status_code for answer in answers} == {200}
        assert (await http.get("/readyz")).status_code == 200
    assert service.is_alive()
    service.kill()
    assert "Traceback" not in service.log()
    if own_server is None:
        assert not load.answers[503]


async def test_a_database_that_says_nothing_is_given_up(
    own_server: OwnServer | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine hangs, or the network swallows what is sent: no error will ever come."""
    url = f"sqlite:///{tmp_path / 'mute.db'}" if own_server is None else own_server.url
    await migrate.upgrade(url)
    monkeypatch.setattr(engine_module, "_SQLITE_BUSY_SECONDS", 2)
    async with application(url, tmp_path) as app, client_of(app) as http:
        assert (await http.get("/v1/plans")).status_code == 200
        monkeypatch.setattr(connections, "MAX_TRANSACTION_SECONDS", 0.5)
        if own_server is None:
            async with held(url):
                answer = await http.put("/v1/plans/mine", json=plan())
        else:
            own_server.freeze(is_frozen=True)
            try:
                answer = await http.get("/v1/plans")
            finally:
                own_server.freeze(is_frozen=False)
        assert_unavailable(answer)
        monkeypatch.undo()
        assert (await http.put("/v1/plans/mine", json=plan())).status_code == 201
