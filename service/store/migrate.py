"""Migrations, from code: up, down, where a database stands and whether it fits the models.

Each call is one transaction under a lock, so that services that start together take turns and a
migration that fails leaves the database as it was.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, event, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import ConnectionPoolEntry

from service.resources import resource_folder
from service.store.engine import BEGIN_MODE, create_engine, sqlite_path
from service.store.tables import Base

__all__ = [
    "MigrationFailed",
    "UnknownSchema",
    "check_drift",
    "current",
    "downgrade",
    "draft",
    "head",
    "is_missing_file",
    "refuse_unknown",
    "upgrade",
]

T = TypeVar("T")

# Any number will do as long as nothing else in the database locks it.
_ADVISORY_LOCK = 7_253_640_911


class MigrationFailed(Exception):
    """The database at a URL can't be opened or migrated; the message says why, for people."""


class UnknownSchema(MigrationFailed):
    """The database stands at a revision that this version has never heard of."""

    def __init__(self, revision: str) -> None:
        super().__init__(
            f"the database has the schema {revision!r}, which this version does not know, and is "
            "left as it is: a newer version has migrated it. Run that version, or restore a backup"
        )


async def upgrade(url: str, revision: str = "head", *, script_location: Path | None = None) -> None:
    """Bring the database at `url` up to `revision`; SQLite's file and folder are made if absent,
    for this user alone.

    `script_location` is the folder of migrations, by default the one the package came with.
    Raises `MigrationFailed`; the database is as it was then.
    """
    await _migrate(url, script_location, command.upgrade, revision)


async def downgrade(url: str, revision: str, *, script_location: Path | None = None) -> None:
    """Take the database at `url` down to `revision`; `base` drops every table with its rows.

    Raises `MigrationFailed`; the database is as it was then.
    """
    await _migrate(url, script_location, command.downgrade, revision)


async def current(url: str) -> str | None:
    """The revision the database at `url` stands at; None before the first migration."""

    def read(connection: Connection) -> str | None:
        return MigrationContext.configure(connection).get_current_revision()

    if is_missing_file(url):  # asking should not make one
        return None
    return await _read(url, read)


async def refuse_unknown(url: str) -> None:
    """Raise `UnknownSchema` when the database at `url` is of a version other than this or older."""
    revision = await current(url)
    if revision is not None:
        _require_known(_config(None), revision)


def head(*, script_location: Path | None = None) -> str | None:
    """The newest revision there is."""
    return ScriptDirectory.from_config(_config(script_location)).get_current_head()


async def check_drift(url: str) -> list[Any]:
    """How the tables at `url` differ from the models, as Alembic's operations; empty is right."""

    def compare(connection: Connection) -> list[Any]:
        options = {"compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        differences: list[Any] = compare_metadata(context, Base.metadata)
        return differences

    return await _read(url, compare)


async def draft(url: str, message: str, *, script_location: Path | None = None) -> None:
    """Write a migration from the database at `url` to the models, to be tidied by hand."""
    config = _config(script_location)

    def write(connection: Connection) -> None:
        command.revision(_with(config, connection), message, autogenerate=True)

    await _read(url, write)


def _config(script_location: Path | None) -> Config:
    folder = resource_folder("migrations") if script_location is None else script_location
    config = Config()
    # Alembic's options are interpolated, so a percent sign in a path is doubled.
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    return config


def _with(config: Config, connection: Connection) -> Config:
    config.attributes["connection"] = connection
    return config


def _require_known(config: Config, revision: str) -> None:
    try:
        ScriptDirectory.from_config(config).get_revision(revision)
    except CommandError as error:
        raise UnknownSchema(revision) from error


def is_missing_file(url: str) -> bool:
    """Whether the URL names an SQLite file that is not there, so that migrating would make it."""
    path = sqlite_path(url)
    return path is not None and not path.exists()


async def _read(url: str, work: Callable[[Connection], T]) -> T:
    engine = create_engine(url)
    try:
        async with engine.connect() as connection:
            return await connection.run_sync(work)
    finally:
        await engine.dispose()


async def _migrate(
    url: str,
    script_location: Path | None,
    move: Callable[[Config, str], None],
    revision: str,
) -> None:
    config = _config(script_location)

    def work(connection: Connection) -> None:
        stands_at = MigrationContext.configure(connection).get_current_revision()
        if stands_at is not None:
            _require_known(config, stands_at)
        move(_with(config, connection), revision)

    try:
        await _migrate_in_turn(url, work)
    except (OSError, ValueError, SQLAlchemyError, CommandError) as error:
        # The driver's own words, without the statement and the links around them.
        reason = error.orig if isinstance(error, DBAPIError) else error
        raise MigrationFailed(f"the database can't be migrated: {reason}") from error


async def _migrate_in_turn(url: str, work: Callable[[Connection], None]) -> None:
    path = sqlite_path(url)
    if path is not None:
        # What is made here is nobody else's to read; what others made keeps the access they gave.
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            path.touch(mode=0o600)  # the files that SQLite adds beside it take this over
    engine = create_engine(url)
    try:
        if path is not None:
            await _migrate_sqlite(engine, work)
        else:
            await _migrate_postgresql(engine, work)
    finally:
        await engine.dispose()


async def _migrate_sqlite(engine: AsyncEngine, work: Callable[[Connection], None]) -> None:
    # A table that is rebuilt is dropped on the way, which would take the rows that refer to it
    # along; so references are left alone meanwhile and checked once, at the end.
    event.listen(engine.sync_engine, "connect", _suspend_foreign_keys)
    async with engine.connect() as connection:
        await connection.execution_options(**{BEGIN_MODE: "EXCLUSIVE"})
        async with connection.begin():
            await connection.run_sync(work)
            broken = (await connection.execute(text("PRAGMA foreign_key_check"))).all()
            if broken:
                raise RuntimeError(f"the migration breaks {len(broken)} references: {broken[:3]}")


def _suspend_foreign_keys(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys=OFF")
    cursor.close()


async def _migrate_postgresql(engine: AsyncEngine, work: Callable[[Connection], None]) -> None:
    async with engine.begin() as connection:
        # A migration may take longer than a query may, and the second one waits for the first.
        await connection.execute(text("SET LOCAL statement_timeout = 0"))
        await connection.execute(text("SET LOCAL lock_timeout = '120s'"))
        await connection.execute(
            text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK}
        )
        await connection.run_sync(work)
