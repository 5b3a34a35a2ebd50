"""Stored answers on SQL."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from service.app.ports import StoredEstimate
from service.store.insertion import insert_if_absent
from service.store.limits import is_storable_text
from service.store.tables import Estimates

__all__ = ["SqlEstimateStore"]

# Made once: building them costs more than the database needs to answer them.
_OF_TEAM = select(
    Estimates.digest,
    Estimates.model_version,
    Estimates.request,
    Estimates.answer,
    Estimates.created_at,
).where(Estimates.team == bindparam("team"))
_FIND = _OF_TEAM.where(Estimates.digest == bindparam("digest"))
_FIND_ALL = _OF_TEAM.where(Estimates.digest.in_(bindparam("digests", expanding=True)))


@dataclass(frozen=True, slots=True)
class SqlEstimateStore:
    """The `EstimateStore` of one team, in one transaction."""

    connection: AsyncConnection
    team: str

    async def find(self, digest: str) -> StoredEstimate | None:
        """The stored answer, if any."""
        if not is_storable_text(digest):
            return None
        rows = await self.connection.execute(_FIND, {"team": self.team, "digest": digest})
        row = rows.one_or_none()
        return None if row is None else StoredEstimate(*row)

    async def find_all(self, digests: Collection[str]) -> Mapping[str, StoredEstimate]:
        """The stored answers of those digests that have one, by digest."""
        wanted = [digest for digest in digests if is_storable_text(digest)]
        if not wanted:
            return {}
        rows = await self.connection.execute(_FIND_ALL, {"team": self.team, "digests": wanted})
        return {row.digest: StoredEstimate(*row) for row in rows}

    async def add(self, *estimates: StoredEstimate) -> None:
        """Store answers, all in one statement; storing the same digest again changes nothing.

        In the order of their digests, so that two who store the same ones never wait in a circle.
        """
        rows = [
            {
                "team": self.team,
                "digest": estimate.digest,
                "model_version": estimate.model_version,
                "request": estimate.request,
                "answer": estimate.answer,
                "created_at": estimate.created_at,
            }
            for estimate in sorted(estimates, key=lambda estimate: estimate.digest)
        ]
        if rows:
            await insert_if_absent(self.connection, Estimates, *rows)
