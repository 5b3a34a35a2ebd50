"""Units of work: one transaction, one team, all three stores."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.app.errors import Unavailable
from service.app.ports import Clock
from service.store.documents import SqlDocumentStore
from service.store.engine import BEGIN_MODE, is_unavailable
from service.store.estimates import SqlEstimateStore
from service.store.insertion import insert_if_absent
from service.store.measurements import SqlMeasurementStore
from service.store.tables import Teams

__all__ = ["SqlStorage", "SqlUnitOfWork", "SystemClock"]

LOCAL_TEAM = "local"

_UNAVAILABLE = "the database can't be reached or is busy; try again in a moment"


class SystemClock:
    """The clock of the machine, as the `Clock` port."""

    def now(self) -> datetime:
        """The present moment, in UTC."""
        return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class SqlUnitOfWork:
    """One transaction for one team."""

    documents: SqlDocumentStore
    measurements: SqlMeasurementStore
    estimates: SqlEstimateStore


class SqlStorage:
    """The `Storage` of one team on an engine.

    Use it on one event loop. The engine belongs to whoever made it, who also disposes it.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        team: str = LOCAL_TEAM,
        *,
        clock: Clock | None = None,
        writer_turn: AbstractAsyncContextManager[Any] | None = None,
    ) -> None:
        self._engine = engine
        self._team = team
        self._clock = SystemClock() if clock is None else clock
        self._writer_turn = _writer_turn(engine) if writer_turn is None else writer_turn

    def for_team(self, team: str) -> "SqlStorage":
        """The storage of another team on the same engine, in the same queue of writers."""
        return SqlStorage(self._engine, team, clock=self._clock, writer_turn=self._writer_turn)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[SqlUnitOfWork]:
        """A unit of work that only reads, and sees one state throughout.

        Raises Unavailable when the database can't be reached in time.
        """
        options: dict[str, Any] = (
            {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
            if self._engine.dialect.name == "postgresql"
            else {BEGIN_MODE: "DEFERRED"}
        )
        async with self._connected(options) as connection:
            yield self._unit_of_work(connection)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[SqlUnitOfWork]:
        """A unit of work that commits at its end; an error undoes all of it.

        Raises Unavailable when the database can't be reached, locked or written in time;
        nothing is stored then.
        """
        async with (
            self._writer_turn,
            self._connected({BEGIN_MODE: "IMMEDIATE"}) as connection,
            connection.begin(),
        ):
            await insert_if_absent(
                connection, Teams, {"name": self._team, "created_at": self._clock.now()}
            )
            yield self._unit_of_work(connection)

    def _unit_of_work(self, connection: AsyncConnection) -> SqlUnitOfWork:
        return SqlUnitOfWork(
            documents=SqlDocumentStore(connection, self._team, self._clock),
            measurements=SqlMeasurementStore(connection, self._team),
            estimates=SqlEstimateStore(connection, self._team),
        )

    @asynccontextmanager
    async def _connected(self, options: dict[str, Any]) -> AsyncIterator[AsyncConnection]:
        async with AsyncExitStack() as stack:
            try:
                connection = await stack.enter_async_context(self._engine.connect())
            except Exception as error:
                if is_unavailable(error):
                    raise Unavailable(_UNAVAILABLE) from error
                raise
            try:
                await connection.execution_options(**options)
                yield connection
            except DBAPIError as error:
                if is_unavailable(error):
                    raise Unavailable(_UNAVAILABLE) from error
                raise


def _writer_turn(engine: AsyncEngine) -> AbstractAsyncContextManager[Any]:
    # SQLite has one writer at a time. Those of this process wait here, in turn and without a
    # connection, so that readers find one; only other processes meet the busy time-out.
    return asyncio.Lock() if engine.dialect.name == "sqlite" else nullcontext()
