"""Stored answers on SQL."""

from dataclasses import dataclass

from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from service.app.ports import StoredEstimate
from service.store.insertion import insert_if_absent
from service.store.limits import is_storable_text
from service.store.tables import Estimates

__all__ = ["SqlEstimateStore"]

# Made once: building it costs more than the database needs to answer it.
_FIND = select(
    Estimates.digest,
    Estimates.model_version,
    Estimates.request,
    Estimates.answer,
    Estimates.created_at,
).where(Estimates.team == bindparam("team"), Estimates.digest == bindparam("digest"))


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

    async def add(self, estimate: StoredEstimate) -> None:
        """Store an answer; storing the same digest again changes nothing."""
        await insert_if_absent(
            self.connection,
            Estimates,
            {
                "team": self.team,
                "digest": estimate.digest,
                "model_version": estimate.model_version,
                "request": estimate.request,
                "answer": estimate.answer,
                "created_at": estimate.created_at,
            },
        )
