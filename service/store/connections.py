"""Connections that say `Unavailable` when the database can't be reached, and turns of writers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from typing import Any

from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.app.errors import Unavailable
from service.store.engine import is_of_another_schema, is_unavailable

__all__ = ["connected", "writer_turn"]

# Above what the database itself allows a statement or a lock: this is for one that says nothing.
MAX_TRANSACTION_SECONDS = 60
MAX_TURN_SECONDS = 15
_UNAVAILABLE = "the database can't be reached, is busy or can't be written; try again in a moment"
_OTHER_SCHEMA = "the database does not have the schema of this version: run `stagefare migrate`"


@asynccontextmanager
async def connected(engine: AsyncEngine, options: dict[str, Any]) -> AsyncIterator[AsyncConnection]:
    """A connection of the engine with these execution options.

    Raises `Unavailable` for what fails for lack of the database, also in the block, and when all of
    it takes longer than a transaction may.
    """
    limit = asyncio.timeout(MAX_TRANSACTION_SECONDS)
    try:
        async with limit, AsyncExitStack() as stack:
            try:
                connection = await stack.enter_async_context(engine.connect())
            except Exception as error:
                if is_unavailable(error):
                    raise Unavailable(_UNAVAILABLE) from error
                raise
            await connection.execution_options(**options)
            yield connection
    # Around the stack, because leaving it ends the transaction, which can fail as well.
    except DBAPIError as error:
        if is_unavailable(error):
            raise Unavailable(_UNAVAILABLE) from error
        if is_of_another_schema(error):
            raise Unavailable(_OTHER_SCHEMA) from error
        raise
    except TimeoutError as error:
        if limit.expired():
            raise Unavailable(_UNAVAILABLE) from error
        raise


def writer_turn(engine: AsyncEngine) -> AbstractAsyncContextManager[Any]:
    """What a writer on this engine holds while it writes.

    SQLite has one writer at a time. Those of this process wait here, in turn and without a
    connection, so that readers find one; only other processes meet the busy time-out. Entering
    raises `Unavailable` when the turn does not come in time.
    """
    return _Turn() if engine.dialect.name == "sqlite" else nullcontext()


class _Turn:
    """A lock that is not waited for longer than a caller would."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> None:
        try:
            async with asyncio.timeout(MAX_TURN_SECONDS):
                await self._lock.acquire()
        except TimeoutError as error:
            raise Unavailable(_UNAVAILABLE) from error

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()
