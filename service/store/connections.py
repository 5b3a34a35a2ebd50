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
from service.store.engine import is_unavailable

__all__ = ["connected", "writer_turn"]

_UNAVAILABLE = "the database can't be reached or is busy; try again in a moment"


@asynccontextmanager
async def connected(engine: AsyncEngine, options: dict[str, Any]) -> AsyncIterator[AsyncConnection]:
    """A connection of the engine with these execution options.

    Raises `Unavailable` for what fails for lack of the database, also in the block.
    """
    try:
        async with AsyncExitStack() as stack:
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
        raise


def writer_turn(engine: AsyncEngine) -> AbstractAsyncContextManager[Any]:
    """What a writer on this engine holds while it writes.

    SQLite has one writer at a time. Those of this process wait here, in turn and without a
    connection, so that readers find one; only other processes meet the busy time-out.
    """
    return asyncio.Lock() if engine.dialect.name == "sqlite" else nullcontext()
