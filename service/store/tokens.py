"""Tokens on SQL: those of one team."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, func, insert, literal, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.app.ports import Scope, Token
from service.store.limits import is_storable_text
from service.store.tables import Tokens

__all__ = ["TOKEN_COLUMNS", "SqlTokenStore", "token_of"]

TOKEN_COLUMNS = (
    Tokens.id,
    Tokens.name,
    Tokens.scopes,
    Tokens.created_at,
    Tokens.expires_at,
    Tokens.revoked_at,
)


def token_of(row: Row[*tuple[Any, ...]]) -> Token:
    """The token of a row that holds `TOKEN_COLUMNS`."""
    return Token(
        id=row.id,
        name=row.name,
        scopes=frozenset(map(Scope, row.scopes)),
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
    )


@dataclass(frozen=True, slots=True)
class SqlTokenStore:
    """The `TokenStore` of one team, in one transaction."""

    connection: AsyncConnection
    team: str

    async def add(self, token: Token, secret_hash: bytes) -> None:
        """Store a new token with the SHA-256 hash of its secret."""
        await self.connection.execute(
            insert(Tokens).values(
                team=self.team,
                id=token.id,
                name=token.name,
                secret_hash=secret_hash,
                scopes=[scope.value for scope in Scope if scope in token.scopes],
                created_at=token.created_at,
                expires_at=token.expires_at,
                revoked_at=token.revoked_at,
            )
        )

    async def page(self, limit: int, before: str | None = None) -> Sequence[Token]:
        """Tokens, newest first, made strictly before the one with the id `before`."""
        query = select(*TOKEN_COLUMNS).where(Tokens.team == self.team)
        if before is not None:
            if not is_storable_text(before):
                return []
            query = query.where(Tokens.id < before)
        rows = await self.connection.execute(query.order_by(Tokens.id.desc()).limit(limit))
        return [token_of(row) for row in rows]

    async def revoke(self, token_id: str, moment: datetime) -> bool:
        """Make a token useless from that moment on, unless it is already; False without one."""
        if not is_storable_text(token_id):
            return False
        revoked = await self.connection.execute(
            update(Tokens)
            .where(Tokens.team == self.team, Tokens.id == token_id)
            .values(
                revoked_at=func.coalesce(Tokens.revoked_at, literal(moment, Tokens.revoked_at.type))
            )
        )
        return revoked.rowcount == 1
