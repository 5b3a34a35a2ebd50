"""Fixtures: a fresh migrated database of either kind, and the storage on it.

All but `database` and `storage` are plain fixtures, so that tests with any event loop, or none,
can use them.
"""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pytest
import pytest_asyncio
from sqlalchemy import make_url, text

from service.app.access import LOCAL_TEAM
from service.store import migrate
from service.store.database import SqlDatabase
from service.store.engine import create_engine
from service.store.unit_of_work import SqlStorage
from tests.plugins.postgresql import temporary_server

__all__ = [
    "BACKENDS",
    "PostgresServer",
    "database",
    "database_url",
    "empty_database",
    "empty_database_url",
    "postgres_server",
    "postgres_template",
    "sqlite_template",
    "storage",
]

T = TypeVar("T")

BACKENDS = ("sqlite", "postgresql")


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A PostgreSQL server on which the tests may create databases."""

    url: str

    def create(self, template: str | None = None) -> str:
        """Make a new database, a copy of the one at the URL `template` if given; its URL."""
        name = f"stagefare_{uuid4().hex}"
        copying = f" TEMPLATE {make_url(template).database}" if template else ""
        self._execute(f"CREATE DATABASE {name}{copying}")
        return make_url(self.url).set(database=name).render_as_string(hide_password=False)

    def drop(self, url: str) -> None:
        """Remove a database that `create` made, whoever is still connected."""
        self._execute(f"DROP DATABASE {make_url(url).database} WITH (FORCE)")

    def _execute(self, statement: str) -> None:
        async def execute() -> None:
            engine = create_engine(self.url)
            try:
                async with engine.connect() as connection:
                    await connection.execution_options(isolation_level="AUTOCOMMIT")
                    await connection.execute(text(statement))
            finally:
                await engine.dispose()

        _run_apart(execute())


def _run_apart(work: Coroutine[Any, Any, T]) -> T:
    # On a loop of its own in a thread of its own: the test's loop may be running already.
    with ThreadPoolExecutor(max_workers=1) as executor:
        return executor.submit(asyncio.run, work).result()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The server at TEST_DATABASE_URL, or one of our own for this session (or xdist worker).

    Fails, and does not skip, when there is neither: a skipped suite would look like a passed one.
    """
    given = os.environ.get("TEST_DATABASE_URL")
    if given:
        yield PostgresServer(given)
        return
    with temporary_server() as url:
        yield PostgresServer(url)


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a migrated database to copy."""
    url = postgres_server.create()
    _run_apart(migrate.upgrade(url))
    yield url
    postgres_server.drop(url)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated file to copy."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    _run_apart(migrate.upgrade(f"sqlite:///{path}"))
    return path


@pytest.fixture(params=BACKENDS)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a fresh migrated database; each test runs once on SQLite and on PostgreSQL."""
    if request.param == "sqlite":
        path = tmp_path / "stagefare.db"
        shutil.copyfile(request.getfixturevalue("sqlite_template"), path)
        yield f"sqlite:///{path}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    url = server.create(template=request.getfixturevalue("postgres_template"))
    yield url
    server.drop(url)


@pytest.fixture(params=BACKENDS)
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database without any table, of each kind in turn."""
    with empty_database(request, request.param, tmp_path) as url:
        yield url


@contextmanager
def empty_database(request: pytest.FixtureRequest, backend: str, folder: Path) -> Iterator[str]:
    """The URL of a database without any table, for fixtures of any scope."""
    if backend == "sqlite":
        yield f"sqlite:///{folder / 'empty.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    url = server.create()
    yield url
    server.drop(url)


@pytest_asyncio.fixture(loop_scope="session")
async def database(database_url: str) -> AsyncIterator[SqlDatabase]:
    """A fresh database, for tests on the session's loop."""
    engine = create_engine(database_url)
    try:
        yield SqlDatabase(engine)
    finally:
        await engine.dispose()


@pytest.fixture
def storage(database: SqlDatabase) -> SqlStorage:
    """The storage of the local team on a fresh database."""
    return database.for_team(LOCAL_TEAM)
