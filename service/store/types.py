"""Column types that hold the same values, in the same order, on both databases."""

from datetime import UTC, datetime

from sqlalchemy import DateTime, Dialect, Text
from sqlalchemy.types import TypeDecorator, TypeEngine

from service.store.limits import is_storable_text

__all__ = ["PlainText", "UtcDateTime"]


class PlainText(TypeDecorator[str]):
    """Text without NUL or lone surrogates, ordered by code point.

    A page is read in the order of names, so PostgreSQL must not sort them by a language's rules.
    """

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[str]:
        """Text with PostgreSQL's plain collation, and SQLite's own, which is the same."""
        return Text(collation="C" if dialect.name == "postgresql" else None)

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """The text; ValueError for one that only SQLite would take."""
        if value is not None and not is_storable_text(value):
            raise ValueError(f"{value!r} holds a NUL or a lone surrogate")
        return value


class UtcDateTime(TypeDecorator[datetime]):
    """An aware moment in UTC; SQLite, which has no zones, stores it without one."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """The moment in UTC; ValueError when it has no zone."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value.isoformat()} has no time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """The moment in UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
