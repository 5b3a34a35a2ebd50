"""Units of work: one transaction, one team, all its stores."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.app.access import LOCAL_TEAM
from service.app.ports import Clock
from service.store.connections import connected, writer_turn
from service.store.documents import SqlDocumentStore
from service.store.engine import BEGIN_MODE
from service.store.estimates import SqlEstimateStore
from service.store.insertion import insert_if_absent
from service.store.keys import SqlKeyStore
from service.store.measurements import SqlMeasurementStore
from service.store.tables import Teams
from service.store.tokens import SqlTokenStore

__all__ = ["SqlStorage", "SqlUnitOfWork", "SystemClock"]


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
    tokens: SqlTokenStore
    keys: SqlKeyStore


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
        turn: AbstractAsyncContextManager[Any] | None = None,
    ) -> None:
        self._engine = engine
        self._team = team
        self._clock = SystemClock() if clock is None else clock
        # Storages on one engine share their queue of writers.
        self._turn = writer_turn(engine) if turn is None else turn

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
        async with connected(self._engine, options) as connection:
            yield self._unit_of_work(connection)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[SqlUnitOfWork]:
        """A unit of work that commits at its end; an error undoes all of it.

        Raises Unavailable when the database can't be reached, locked or written in time;
        nothing is stored then.
        """
        async with (
            self._turn,
            connected(self._engine, {BEGIN_MODE: "IMMEDIATE"}) as connection,
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
            tokens=SqlTokenStore(connection, self._team),
            keys=SqlKeyStore(connection, self._team),
        )
