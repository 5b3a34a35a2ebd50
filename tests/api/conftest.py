"""The whole application on a real database, SQLite and PostgreSQL in turn."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from litestar import Litestar
from sqlalchemy import func, select

from service.main import create_app
from service.settings import read_settings
from service.store.engine import create_engine
from service.store.tables import Base
from service.store.unit_of_work import SqlStorage

Counts = dict[str, int]


@pytest_asyncio.fixture
async def client(storage: SqlStorage, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application on a fresh database."""
    settings = read_settings({"STAGEFARE_DATA_DIR": str(tmp_path)})
    app = create_app(settings, storage=storage)
    started, stopped = asyncio.Event(), asyncio.Event()
    # A task of its own: the two halves of a fixture are different tasks, and a lifespan is one.
    life = asyncio.create_task(_live(app, started, stopped))
    await asyncio.wait({life, asyncio.create_task(started.wait())}, return_when="FIRST_COMPLETED")
    asgi: Any = app
    transport = httpx.ASGITransport(app=asgi, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as http:
        yield http
    stopped.set()
    await life


async def _live(app: Litestar, started: asyncio.Event, stopped: asyncio.Event) -> None:
    async with app.lifespan():
        started.set()
        await stopped.wait()


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
