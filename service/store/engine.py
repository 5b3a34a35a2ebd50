"""Engines for the two databases: SQLite through aiosqlite, PostgreSQL through asyncpg."""

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as NoFreeConnection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

__all__ = [
    "BEGIN_MODE",
    "create_engine",
    "is_of_another_schema",
    "is_unavailable",
    "place",
    "sqlite_path",
]

# Execution option of a connection: how SQLite begins its transaction.
BEGIN_MODE = "begin_mode"

_POOL = {"pool_size": 20, "max_overflow": 0, "pool_timeout": 10}
_SQLITE_BUSY_SECONDS = 15
_SQLITE_PRAGMAS = (
    "PRAGMA foreign_keys=ON",
    "PRAGMA journal_mode=WAL",
    # What is acknowledged is on the disk. NORMAL would survive a crash of the process, but a loss
    # of power could take the newest transactions.
    "PRAGMA synchronous=FULL",
)
_POSTGRESQL_CONNECT_SECONDS = 10
_POSTGRESQL_OPTIONS = frozenset({"host", "passfile", "port", "ssl"})
_POSTGRESQL_SETTINGS = {
    "application_name": "stagefare",
    "lock_timeout": "10s",
    "statement_timeout": "30s",
    "idle_in_transaction_session_timeout": "60s",
    "timezone": "UTC",
}

# Primary result codes of SQLite: busy, locked, read-only, I/O error, full, cannot open.
_SQLITE_UNAVAILABLE = frozenset({5, 6, 8, 10, 13, 14})
# SQLSTATE classes and codes of PostgreSQL: no connection, refused to log in, no such database, out
# of resources, stopped by an operator or a time-out, deadlock or serialization failure, lock not
# available.
_POSTGRESQL_UNAVAILABLE = ("08", "28", "3D", "53", "57", "40", "55P03")

# Undefined table or column; SQLite has no code for them.
_POSTGRESQL_MISSING = frozenset({"42P01", "42703"})
_SQLITE_MISSING = re.compile(r"no such (table|column): |table \w+ has no column named ")


def create_engine(url: str) -> AsyncEngine:
    """An engine for `sqlite:///path` or `postgresql://user@host/name`; the driver may be left out.

    Nothing is connected yet. Whoever makes an engine disposes it. Raises ValueError for any
    other URL, and for SQLite in memory, which each connection would see as its own database.
    """
    location = _with_driver(url)
    if location.get_backend_name() == "sqlite":
        return _sqlite_engine(location)
    return _postgresql_engine(location)


def sqlite_path(url: str) -> Path | None:
    """The file of an SQLite URL; None for PostgreSQL."""
    location = _with_driver(url)
    return Path(location.database or "") if location.get_backend_name() == "sqlite" else None


def place(url: str) -> str:
    """Where a database is, for people: the file, or the URL without its password."""
    path = sqlite_path(url)
    if path is not None:
        return str(path.absolute())
    return _with_driver(url).set(drivername="postgresql").render_as_string()


def is_unavailable(error: Exception) -> bool:
    """Whether the database could not do this now, so that trying again later makes sense.

    Takes what connecting raises (a driver's own error, an OSError, a pool that is used up) as
    well as the DBAPIError of a statement.
    """
    if isinstance(error, OSError | NoFreeConnection):
        return True
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    cause = error.orig if isinstance(error, DBAPIError) else error
    sqlite_code = getattr(cause, "sqlite_errorcode", None)
    if sqlite_code is not None:
        return sqlite_code & 0xFF in _SQLITE_UNAVAILABLE
    sqlstate = getattr(cause, "sqlstate", None) or ""
    return sqlstate.startswith(_POSTGRESQL_UNAVAILABLE)


def is_of_another_schema(error: DBAPIError) -> bool:
    """Whether a statement met a database without a table or column that this version has.

    All statements are fixed, so nothing else can be the reason.
    """
    sqlstate = getattr(error.orig, "sqlstate", None)
    return sqlstate in _POSTGRESQL_MISSING or _SQLITE_MISSING.match(str(error.orig)) is not None


def _with_driver(url: str) -> URL:
    try:
        location = make_url(url)
    except (ArgumentError, ValueError):
        # The text may hold a password, so neither it nor the error is repeated.
        raise ValueError(
            "a database URL looks like sqlite:///path or postgresql://user@host/name"
        ) from None
    backend = location.drivername
    if backend in ("sqlite", "sqlite+aiosqlite"):
        if location.database in (None, "", ":memory:") or "mode" in location.query:
            raise ValueError("SQLite needs a file: sqlite:///relative or sqlite:////absolute")
        return _with_options(location.set(drivername="sqlite+aiosqlite"), frozenset())
    if backend in ("postgres", "postgresql", "postgresql+asyncpg"):
        location = location.set(drivername="postgresql+asyncpg")
        # What libpq calls sslmode is called ssl here, with the same values.
        if "sslmode" in location.query:
            mode = location.query["sslmode"]
            location = location.difference_update_query(["sslmode"])
            location = location.update_query_dict({"ssl": mode})
        return _with_options(location, _POSTGRESQL_OPTIONS)
    raise ValueError(f"{backend} is not supported: use sqlite or postgresql")


def _with_options(location: URL, known: frozenset[str]) -> URL:
    """The same URL; the driver would fail on other options only when it connects."""
    unknown = sorted(location.query.keys() - known)
    if unknown:
        names = ", ".join(sorted(known)) or "none"
        raise ValueError(f"unknown options {', '.join(unknown)}: known here are {names}")
    return location


# Summaries hold only finite numbers; a NaN would be refused by one database and not the other.
_to_json = partial(json.dumps, allow_nan=False, separators=(",", ":"))


def _sqlite_engine(location: URL) -> AsyncEngine:
    engine = create_async_engine(
        location,
        json_serializer=_to_json,
        hide_parameters=True,  # an error that is logged holds no document
        connect_args={"timeout": _SQLITE_BUSY_SECONDS},
        **_POOL,
    )
    event.listen(engine.sync_engine, "connect", _prepare_sqlite)
    event.listen(engine.sync_engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    # Left to itself the driver begins late, and not before reads: two writers then compute the
    # same number. None hands every BEGIN to `_begin_sqlite`.
    sqlite_connection: Any = connection
    sqlite_connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in _SQLITE_PRAGMAS:
        cursor.execute(pragma)
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    mode = connection.get_execution_options().get(BEGIN_MODE, "DEFERRED")
    connection.exec_driver_sql(f"BEGIN {mode}")


def _postgresql_engine(location: URL) -> AsyncEngine:
    return create_async_engine(
        location,
        json_serializer=_to_json,
        hide_parameters=True,
        connect_args={
            "timeout": _POSTGRESQL_CONNECT_SECONDS,
            "server_settings": _POSTGRESQL_SETTINGS,
        },
        **_POOL,
    )
