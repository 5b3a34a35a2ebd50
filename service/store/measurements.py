"""Measurements as rows on SQL."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import islice

from sqlalchemy import and_, insert, literal, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from service.app.ports import DocumentKind, MeasurementFilter, MeasurementRow, Revision
from service.app.references import Reference, parse_reference
from service.store.limits import is_storable_integer, is_storable_text
from service.store.tables import Documents, Measurements

__all__ = ["SqlMeasurementStore"]

# A measurement's columns carry the names of the row's fields.
_FIELDS = tuple(field.name for field in fields(MeasurementRow))
# Preparing a row for the database takes some 50 microseconds of the event loop; between batches
# others have their turn.
_BATCH = 500


@dataclass(frozen=True, slots=True)
class SqlMeasurementStore:
    """The `MeasurementStore` of one team, in one transaction."""

    connection: AsyncConnection
    team: str

    async def add(self, revision: Revision, rows: Iterable[MeasurementRow]) -> None:
        """Store the rows of a profile revision just appended, some at a time.

        Raises ValueError when the revision is no profile or a row names another revision.
        """
        if revision.kind is not DocumentKind.PROFILE:
            raise ValueError(f"{revision.kind.value} have no measurements, only profiles do")
        remaining = iter(rows)
        while batch := list(islice(remaining, _BATCH)):
            await self._insert(revision, batch)

    async def _insert(self, revision: Revision, rows: Sequence[MeasurementRow]) -> None:
        for row in rows:
            if (row.profile, row.profile_revision) != (revision.name, revision.number):
                raise ValueError(
                    f"a row of {row.profile}@{row.profile_revision} under {revision.reference}"
                )
        fixed = {"team": self.team, "kind": revision.kind}
        await self.connection.execute(
            insert(Measurements),
            [fixed | {name: getattr(row, name) for name in _FIELDS} for row in rows],
        )

    async def page(
        self, wanted: MeasurementFilter, limit: int, after: tuple[str, int, int] | None = None
    ) -> Sequence[MeasurementRow]:
        """Rows of the newest revisions (or of the one named) of profiles that are not archived.

        Ordered by (profile, revision, position), strictly after `after`.
        """
        profile = None if wanted.profile is None else parse_reference(wanted.profile)
        if wanted.profile is not None and profile is None:
            return []
        equal = _wanted_columns(wanted, profile)
        if not all(map(_is_storable, (*equal.values(), *(after or ())))):
            return []
        query = (
            select(*(getattr(Measurements, name) for name in _FIELDS))
            .join(
                Documents,
                and_(
                    Documents.team == Measurements.team,
                    Documents.kind == Measurements.kind,
                    Documents.name == Measurements.profile,
                ),
            )
            .where(Measurements.team == self.team, Documents.archived_at.is_(None))
        )
        if profile is None or profile.number is None:
            query = query.where(Measurements.profile_revision == Documents.newest_number)
        for column, value in equal.items():
            query = query.where(getattr(Measurements, column) == value)
        key = tuple_(Measurements.profile, Measurements.profile_revision, Measurements.position)
        if after is not None:
            query = query.where(key > tuple_(*map(literal, after)))
        query = query.order_by(*key.clauses).limit(limit)
        return [MeasurementRow(*row) for row in await self.connection.execute(query)]


def _wanted_columns(wanted: MeasurementFilter, profile: Reference | None) -> dict[str, str | int]:
    columns = {
        "profile": None if profile is None else profile.name,
        "profile_revision": None if profile is None else profile.number,
        "layer": wanted.layer,
        "device": wanted.device,
        "precision": wanted.precision,
        "microbatch_size": wanted.microbatch_size,
        "sequence_length": wanted.sequence_length,
        "tensor_parallel": wanted.tensor_parallel,
        "recompute": wanted.recompute,
    }
    return {column: value for column, value in columns.items() if value is not None}


def _is_storable(value: str | int) -> bool:
    return is_storable_text(value) if isinstance(value, str) else is_storable_integer(value)
