"""Insert unless the key is there already, in the words of the database at hand."""

from typing import Any

from sqlalchemy import inspect
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from service.store.tables import Base

__all__ = ["insert_if_absent"]


async def insert_if_absent(
    connection: AsyncConnection, table: type[Base], *rows: dict[str, Any]
) -> None:
    """Insert one or more rows; a row with the same primary key stays as it is.

    On PostgreSQL this waits for a concurrent transaction that inserts the same key.
    """
    key = list(inspect(table).primary_key)
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(table).on_conflict_do_nothing(index_elements=key)
    await connection.execute(statement, rows[0] if len(rows) == 1 else rows)
