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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pytest
import pytest_asyncio
from sqlalchemy import make_url, text
from sqlalchemy.exc import DBAPIError

from service.app.access import LOCAL_TEAM
from service.store import migrate
from service.store.database import SqlDatabase
from service.store.engine import create_engine
from service.store.tables import Base
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

# What a migrated database is made of. A table made anew has another oid, so this tells it.
_SCHEMA = """
SELECT md5(coalesce(string_agg(part, ' ' ORDER BY part), '')) FROM (
  SELECT concat_ws(' ', oid, relname, relkind, relnatts, relchecks) FROM pg_class
    WHERE relnamespace = 'public'::regnamespace
  UNION ALL
  SELECT concat_ws(' ', attrelid, attname, atttypid, atttypmod, attnotnull) FROM pg_attribute
    JOIN pg_class ON pg_class.oid = attrelid WHERE relnamespace = 'public'::regnamespace
  UNION ALL
  SELECT concat_ws(' ', oid, pg_get_constraintdef(oid)) FROM pg_constraint
  UNION ALL
  SELECT concat_ws(' ', adrelid, pg_get_expr(adbin, adrelid)) FROM pg_attrdef
  UNION ALL
  SELECT version_num FROM alembic_version
) AS parts (part)
"""
_END_CONNECTIONS = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
  WHERE datname = current_database() AND pid <> pg_backend_pid()
"""

BACKENDS = ("sqlite", "postgresql")


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A PostgreSQL server on which the tests may create databases."""

    url: str
    _emptied: list[tuple[str, str]] = field(default_factory=list)

    def lend(self, template: str) -> tuple[str, str]:
        """A migrated database without a row, and what its schema is; `give_back` takes both.

        One that an earlier test had is emptied, which takes a tenth of the time of a copy.
        """
        if self._emptied:
            return self._emptied.pop()
        url = self.create(template)
        return url, str(_run_apart(_on_database(url, _SCHEMA)))

    def give_back(self, url: str, schema: str) -> None:
        """End what is still connected to it, and keep it for the next unless its schema changed."""
        tables = ", ".join(table.name for table in Base.metadata.sorted_tables)
        emptied = _on_database(url, _END_CONNECTIONS, f"TRUNCATE {tables}", _SCHEMA)
        try:
            is_whole = _run_apart(emptied) == schema
        except DBAPIError:  # a table is gone, or the database itself
            is_whole = False
        if is_whole:
            self._emptied.append((url, schema))
        else:
            self.drop(url)

    def drop_emptied(self) -> None:
        """Remove those that no test has at the moment."""
        for url, _ in self._emptied:
            self.drop(url)

    def create(self, template: str | None = None) -> str:
        """Make a new database, a copy of the one at the URL `template` if given; its URL."""
        name = f"stagefare_{uuid4().hex}"
        copying = f" TEMPLATE {make_url(template).database}" if template else ""
        self._execute(f"CREATE DATABASE {name}{copying}")
        return make_url(self.url).set(database=name).render_as_string(hide_password=False)

    def drop(self, url: str) -> None:
        """Remove a database that `create` made, whoever is still connected."""
        self._execute(f"DROP DATABASE IF EXISTS {make_url(url).database} WITH (FORCE)")

    def _execute(self, statement: str) -> None:
        _run_apart(_on_database(self.url, statement))


async def _on_database(url: str, *statements: str) -> object:
    """Run statements, each for itself; the first value of the last, if it answers any."""
    engine = create_engine(url)
    try:
        async with engine.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            for statement in statements:
                result = await connection.execute(text(statement))
            return result.scalar() if result.returns_rows else None
    finally:
        await engine.dispose()


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
        server = PostgresServer(given)
        yield server
        server.drop_emptied()
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
    url, schema = server.lend(request.getfixturevalue("postgres_template"))
    yield url
    server.give_back(url, schema)


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
