"""Which URLs are taken, and how the databases are set up."""

from pathlib import Path

import pytest
from sqlalchemy import text

from service.store.engine import create_engine, place, sqlite_path


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("sqlite:///stagefare.db", "sqlite+aiosqlite:///stagefare.db"),
        ("sqlite:////var/lib/stagefare.db", "sqlite+aiosqlite:////var/lib/stagefare.db"),
        ("sqlite+aiosqlite:///stagefare.db", "sqlite+aiosqlite:///stagefare.db"),
        ("postgres://u@h/d", "postgresql+asyncpg://u@h/d"),
        ("postgresql://u@h:5433/d", "postgresql+asyncpg://u@h:5433/d"),
        ("postgresql+asyncpg://u@h/d", "postgresql+asyncpg://u@h/d"),
        ("postgresql://u@h/d?sslmode=require", "postgresql+asyncpg://u@h/d?ssl=require"),
        ("postgresql://u@/d?host=/run/pg", "postgresql+asyncpg://u@/d?host=%2Frun%2Fpg"),
    ],
)
def test_the_driver_may_be_left_out(given: str, used: str) -> None:
    assert create_engine(given).url.render_as_string() == used


@pytest.mark.parametrize(
    "url",
    [
        "",
        "stagefare.db",
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite:///file:x?mode=memory&uri=true",
        "mysql://u@h/d",
        "postgresql+psycopg://u@h/d",
        "postgresql://u:secret@h:port/d",
    ],
)
def test_other_urls_are_refused_by_saying_what_would_do(url: str) -> None:
    with pytest.raises(ValueError, match="sqlite") as refusal:
        create_engine(url)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///stagefare.db?timeout=5",
        "postgresql://u:secret@h/d?connect_timout=5",
        "postgresql://u:secret@h/d?prepared_statement_cache_size=many",
    ],
)
def test_options_that_no_driver_takes_are_refused_by_name(url: str) -> None:
    option = url.partition("?")[2].partition("=")[0]
    with pytest.raises(ValueError, match=f"unknown options {option}") as refusal:
        create_engine(url)
    assert "secret" not in str(refusal.value)


def test_only_sqlite_has_a_file() -> None:
    assert sqlite_path("sqlite:///a/b.db") == Path("a/b.db")
    assert sqlite_path("sqlite:////a/b.db") == Path("/a/b.db")
    assert sqlite_path("postgresql://u@h/d") is None


def test_the_place_of_a_database_is_told_without_its_password() -> None:
    assert place("sqlite:////a/b.db") == "/a/b.db"
    assert place("sqlite:///b.db") == str(Path("b.db").absolute())
    assert place("postgresql+asyncpg://u:secret@h:5433/d") == "postgresql://u:***@h:5433/d"
    assert place("postgres://u@/d?host=/run/pg") == "postgresql://u@/d?host=%2Frun%2Fpg"


async def test_how_a_connection_is_set_up(database_url: str) -> None:
    expected = (
        {
            "PRAGMA foreign_keys": "1",
            "PRAGMA journal_mode": "wal",
            "PRAGMA synchronous": "2",
            "PRAGMA busy_timeout": "15000",
        }
        if database_url.startswith("sqlite")
        else {
            "SHOW application_name": "stagefare",
            "SHOW lock_timeout": "10s",
            "SHOW statement_timeout": "30s",
            "SHOW idle_in_transaction_session_timeout": "1min",
            "SHOW timezone": "UTC",
            "SHOW transaction_isolation": "read committed",
        }
    )
    engine = create_engine(database_url)
    try:
        async with engine.connect() as connection:
            found = {query: str(await connection.scalar(text(query))) for query in expected}
    finally:
        await engine.dispose()
    assert found == expected


@pytest.mark.parametrize("url", ["sqlite:///stagefare.db", "postgresql://u@h/d"])
def test_errors_do_not_repeat_values(url: str) -> None:
    """They are logged, and a value may be a document."""
    assert create_engine(url).sync_engine.hide_parameters
