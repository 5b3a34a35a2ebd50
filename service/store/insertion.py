"""Insert unless the key is there already, in the words of the database at hand."""

from typing import Any

from sqlalchemy import inspect
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from service.store.tables import Base

__all__ = ["insert_if_absent"]


async def insert_if_absent(
    connection: AsyncConnection, table: type[Base], values: dict[str, Any]
) -> None:
    """Insert one row; a row with the same primary key stays as it is.

    On PostgreSQL this waits for a concurrent transaction that inserts the same key.
    """
    key = list(inspect(table).primary_key)
    if connection.dialect.name == "postgresql":
        await connection.execute(
            postgresql.insert(table).values(values).on_conflict_do_nothing(index_elements=key)
        )
    else:
        await connection.execute(
            sqlite.insert(table).values(values).on_conflict_do_nothing(index_elements=key)
        )
