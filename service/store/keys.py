"""Idempotency keys on SQL: those of one team."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, and_, delete, null, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from service.app.ports import HeldKey, KeptAnswer, KeyClaim
from service.store.tables import IdempotencyKeys

__all__ = ["SqlKeyStore"]

_KEY = (IdempotencyKeys.team, IdempotencyKeys.key)


@dataclass(frozen=True, slots=True)
class SqlKeyStore:
    """The `KeyStore` of one team, in one transaction.

    The primary key (team, key) is what makes a key one request's: whoever inserts it first has it,
    in whatever process. On PostgreSQL the second one waits for the transaction of the first.
    """

    connection: AsyncConnection
    team: str

    async def claim(self, claim: KeyClaim) -> HeldKey | None:
        """Take a key; or what is known of the request that has it."""
        made = {
            "fingerprint": claim.fingerprint,
            "holder": claim.holder,
            "leased_until": claim.leased_until,
            "expires_at": claim.expires_at,
        }
        dialect = postgresql if self.connection.dialect.name == "postgresql" else sqlite
        insertion = dialect.insert(IdempotencyKeys).values(team=self.team, key=claim.key, **made)
        is_free = or_(
            IdempotencyKeys.expires_at <= claim.claimed_at,
            and_(
                IdempotencyKeys.status_code.is_(None),
                IdempotencyKeys.leased_until <= claim.claimed_at,
            ),
        )
        no_answer = {name: null() for name in ("status_code", "headers", "body", "made")}
        taken = await self.connection.execute(
            insertion.on_conflict_do_update(
                index_elements=list(_KEY), set_={**made, **no_answer}, where=is_free
            ).returning(IdempotencyKeys.holder)
        )
        if taken.one_or_none() is not None:
            return None
        rows = await self.connection.execute(
            select(
                IdempotencyKeys.fingerprint,
                IdempotencyKeys.status_code,
                IdempotencyKeys.headers,
                IdempotencyKeys.body,
                IdempotencyKeys.made,
            ).where(IdempotencyKeys.team == self.team, IdempotencyKeys.key == claim.key)
        )
        row = rows.one_or_none()
        if row is None:  # released since: that request has failed, and this one may be sent again
            return HeldKey(claim.fingerprint, None)
        if row.status_code is None:
            return HeldKey(row.fingerprint, None)
        answer = KeptAnswer(row.status_code, row.headers, row.body, row.made)
        return HeldKey(row.fingerprint, answer)

    async def complete(self, claim: KeyClaim, answer: KeptAnswer) -> bool:
        """Keep the answer to a claimed key; False when another request has taken it over."""
        completed = await self.connection.execute(
            update(IdempotencyKeys)
            .where(self._is_held(claim))
            .values(
                status_code=answer.status_code,
                headers=dict(answer.headers),
                body=answer.body,
                made=answer.made,
            )
        )
        return completed.rowcount == 1

    async def release(self, claim: KeyClaim) -> None:
        """Forget a claimed key, unless it has been answered or taken over."""
        await self.connection.execute(delete(IdempotencyKeys).where(self._is_held(claim)))

    async def drop_expired(self, moment: datetime, limit: int) -> None:
        """Remove at most `limit` keys that have expired by that moment.

        Those that another transaction has its hands on are left to the next one.
        """
        # A common table expression is evaluated once. PostgreSQL may evaluate a subquery again
        # for every row, and find other rows each time.
        expired = (
            select(IdempotencyKeys.key)
            .where(IdempotencyKeys.team == self.team, IdempotencyKeys.expires_at <= moment)
            .order_by(IdempotencyKeys.expires_at)
            .limit(limit)
            .with_for_update(skip_locked=True)
            .cte("expired")
        )
        await self.connection.execute(
            delete(IdempotencyKeys).where(
                IdempotencyKeys.team == self.team, IdempotencyKeys.key.in_(select(expired.c.key))
            )
        )

    def _is_held(self, claim: KeyClaim) -> ColumnElement[bool]:
        return and_(
            IdempotencyKeys.team == self.team,
            IdempotencyKeys.key == claim.key,
            IdempotencyKeys.holder == claim.holder,
            IdempotencyKeys.status_code.is_(None),
        )
