"""The whole database: a storage for each team, and the one lookup that comes before a team.

Nothing else in this package reads or writes without a team.
"""

from dataclasses import dataclass

from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncEngine

from service.app.ports import Clock, KnownToken
from service.store.connections import connected, writer_turn
from service.store.limits import is_storable_text
from service.store.tables import Tokens
from service.store.tokens import TOKEN_COLUMNS, token_of
from service.store.unit_of_work import SqlStorage, SystemClock

__all__ = ["SqlDatabase", "SqlTokenDirectory"]

# Made once: building it costs more than the database needs to answer it.
_FIND = select(Tokens.team, Tokens.secret_hash, *TOKEN_COLUMNS).where(Tokens.id == bindparam("id"))
_ANY = select(Tokens.id).limit(1)


@dataclass(frozen=True, slots=True)
class SqlTokenDirectory:
    """The `TokenDirectory` on an engine. Raises Unavailable when it can't be reached in time."""

    engine: AsyncEngine

    async def find(self, token_id: str) -> KnownToken | None:
        """The token of that id, whatever its team and whether or not it still holds."""
        if not is_storable_text(token_id):
            return None
        async with connected(self.engine, {}) as connection:
            row = (await connection.execute(_FIND, {"id": token_id})).one_or_none()
        return None if row is None else KnownToken(row.team, token_of(row), row.secret_hash)

    async def is_empty(self) -> bool:
        """Whether no team has ever made a token."""
        async with connected(self.engine, {}) as connection:
            return (await connection.execute(_ANY)).first() is None


class SqlDatabase:
    """The `Database` on an engine, which belongs to whoever made it and is disposed there.

    Use it on one event loop.
    """

    def __init__(self, engine: AsyncEngine, *, clock: Clock | None = None) -> None:
        self._engine = engine
        self._clock = SystemClock() if clock is None else clock
        self._turn = writer_turn(engine)

    @property
    def token_directory(self) -> SqlTokenDirectory:
        """The tokens of all teams."""
        return SqlTokenDirectory(self._engine)

    def for_team(self, team: str) -> SqlStorage:
        """The storage of one team, in one queue of writers with the others."""
        return SqlStorage(self._engine, team, clock=self._clock, turn=self._turn)
