"""The whole application on a real database, SQLite and PostgreSQL in turn."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from litestar import Litestar
from sqlalchemy import func, select

from service.main import create_app
from service.settings import read_settings
from service.store.database import SqlDatabase
from service.store.engine import create_engine
from service.store.tables import Base
from service.web.application import Application
from tests.api.clients import client_of
from tests.api.held_kernels import Kernels
from tests.app.fakes import FakeDatabase
from tests.plugins.databases import BACKENDS, empty_database
from tests.plugins.services import Launcher, ServiceProcess

Counts = dict[str, int]


@pytest_asyncio.fixture
async def client(app: Litestar) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application on a fresh database, which has no token yet and so is open."""
    async with client_of(app) as http:
        yield http


@pytest.fixture(scope="session")
def routed() -> Application:
    """Routes for one application after the other: making them takes longer than most tests."""
    return create_app(read_settings({}), database=FakeDatabase())


@pytest_asyncio.fixture
async def app(
    database: SqlDatabase, tmp_path: Path, routed: Application
) -> AsyncIterator[Application]:
    """The application on a fresh database, started."""
    settings = read_settings({"STAGEFARE_DATA_DIR": str(tmp_path)})
    app = create_app(settings, database=database, routed=routed)
    started, stopped = asyncio.Event(), asyncio.Event()
    # A task of its own: the two halves of a fixture are different tasks, and a lifespan is one.
    life = asyncio.create_task(_live(app, started, stopped))
    await asyncio.wait({life, asyncio.create_task(started.wait())}, return_when="FIRST_COMPLETED")
    yield app
    stopped.set()
    await life


async def _live(app: Litestar, started: asyncio.Event, stopped: asyncio.Event) -> None:
    async with app.lifespan():
        started.set()
        await stopped.wait()


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernels]:
    """Simulations that end when the test says so."""
    held = Kernels()
    held.hold(monkeypatch)
    yield held
    held.may_end.set()


@pytest.fixture
def count_rows(database_url: str) -> Callable[[], Awaitable[Counts]]:
    """Counts the rows of every table, seen from outside the application."""

    async def count() -> Counts:
        engine = create_engine(database_url)
        try:
            async with engine.connect() as connection:
                return {
                    name: (
                        await connection.execute(select(func.count()).select_from(table))
                    ).scalar_one()
                    for name, table in Base.metadata.tables.items()
                }
        finally:
            await engine.dispose()

    return count


@pytest.fixture(scope="module", params=BACKENDS)
def service(
    request: pytest.FixtureRequest, launcher: Launcher, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServiceProcess]:
    """A service on a fresh database, which it migrates itself."""
    folder = tmp_path_factory.mktemp("hostile")
    with empty_database(request, request.param, folder) as url:
        running = ServiceProcess(launcher, url, folder)
        running.start()
        yield running
        running.stop()
        assert "Traceback" not in running.log()
