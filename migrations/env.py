"""Runs migrations on the connection, and in the transaction, that `service.store.migrate` gives."""

from typing import Any, Literal

from alembic import context

from service.store.tables import Base
from service.store.types import PlainText, UtcDateTime


def render_item(category: str, item: Any, _context: Any) -> str | Literal[False]:
    """How a drafted migration writes our column types: by the names its template defines."""
    if category == "type" and isinstance(item, PlainText):
        return "text"
    if category == "type" and isinstance(item, UtcDateTime):
        return "moment"
    return False


connection = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit("run migrations with `stagefare migrate`: it takes the lock they need")

context.configure(
    connection=connection,
    target_metadata=Base.metadata,
    render_item=render_item,
    compare_type=True,
    compare_server_default=True,
    # SQLite can't alter a column; Alembic rebuilds the table instead.
    render_as_batch=connection.dialect.name == "sqlite",
)
with context.begin_transaction():
    context.run_migrations()
