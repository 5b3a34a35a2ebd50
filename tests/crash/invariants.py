"""What holds in a database whatever happened to those who wrote into it."""

from typing import Any

import msgspec
from sqlalchemy import Connection, Table, and_, func, select, text

from service.app.document_kinds import DOCUMENT_TYPES, references_of
from service.app.ports import DocumentKind
from service.app.references import parse_reference, singular
from service.formats.documents.canonical import canonical_bytes, digest
from service.store.engine import create_engine
from service.store.tables import (
    Base,
    DocumentPins,
    Documents,
    Estimates,
    Measurements,
    Revisions,
    TopologySummaries,
)
from tests.crash.workload import Key

__all__ = ["check_whole", "stored_revisions"]


async def stored_revisions(url: str) -> dict[Key, str]:
    """The digest of every stored revision, of whatever team."""
    query = select(Revisions.kind, Revisions.name, Revisions.number, Revisions.digest)

    def read(connection: Connection) -> dict[Key, str]:
        return {tuple(key): digest for *key, digest in connection.execute(query)}  # type: ignore[misc]

    found: dict[Key, str] = await _on(url, read)
    return found


async def check_whole(url: str) -> None:
    """No half of anything: every row has what belongs to it, and every digest fits its content."""
    await _on(url, _check_engine)
    await _on(url, _check_references)
    await _on(url, _check_revisions)
    await _on(url, _check_estimates)


async def _on(url: str, work: Any) -> Any:
    engine = create_engine(url)
    try:
        async with engine.connect() as connection:
            return await connection.run_sync(work)
    finally:
        await engine.dispose()


def _check_engine(connection: Connection) -> None:
    if connection.dialect.name == "sqlite":
        assert connection.execute(text("PRAGMA integrity_check")).scalars().all() == ["ok"]
        assert connection.execute(text("PRAGMA foreign_key_check")).all() == []
        return
    # Reads every row of every table, and so every page of it.
    for table in Base.metadata.sorted_tables:
        connection.execute(select(func.count()).select_from(table)).scalar_one()
    unchecked = text("SELECT conname FROM pg_constraint WHERE NOT convalidated")
    assert connection.execute(unchecked).all() == []


def _check_references(connection: Connection) -> None:
    """Every foreign key, asked for in plain SQL rather than believed."""
    for table in Base.metadata.sorted_tables:
        for constraint in table.foreign_key_constraints:
            parent: Table = constraint.referred_table.alias()  # type: ignore[assignment]
            pairs = [
                (element.parent, parent.c[element.column.name]) for element in constraint.elements
            ]
            missing = (
                select(func.count())
                .select_from(table.outerjoin(parent, and_(*(a == b for a, b in pairs))))
                .where(pairs[0][1].is_(None), *(a.is_not(None) for a, _ in pairs))
            )
            assert connection.execute(missing).scalar_one() == 0, constraint.name


def _check_revisions(connection: Connection) -> None:
    newest = {
        (row.team, row.kind, row.name): row.newest_number
        for row in connection.execute(
            select(Documents.team, Documents.kind, Documents.name, Documents.newest_number)
        )
    }
    numbers: dict[Any, list[int]] = {key: [] for key in newest}
    pins, summaries = _pins(connection), _keys(connection, TopologySummaries)
    measured = _measured(connection)
    for row in connection.execute(select(Revisions.__table__)):
        key = (row.team, row.kind, row.name)
        numbers[key].append(row.number)
        kind = DocumentKind(row.kind)
        document = msgspec.json.decode(row.content, type=DOCUMENT_TYPES[kind].struct)
        assert canonical_bytes(document) == bytes(row.content)
        assert row.digest == digest(singular(kind), bytes(row.content))
        referred = {
            (reference.kind.value, parse_reference(reference.reference).name)  # type: ignore[union-attr]
            for reference in references_of(document)
        }
        assert pins.get((*key, row.number), set()) == referred
        if kind is DocumentKind.TOPOLOGY:
            assert (*key, row.number) in summaries
        if kind is DocumentKind.PROFILE:
            count = len(document.measurements)  # type: ignore[attr-defined]
            assert measured.get((*key, row.number), 0) == count
    # Without gaps, from the first to the one that the name says is its newest.
    for key, found in numbers.items():
        assert sorted(found) == list(range(1, newest[key] + 1)), key
        assert found, key


def _pins(connection: Connection) -> dict[Any, set[tuple[str, str]]]:
    found: dict[Any, set[tuple[str, str]]] = {}
    for row in connection.execute(select(DocumentPins.__table__)):
        key = (row.team, row.kind, row.name, row.number)
        found.setdefault(key, set()).add((row.pinned_kind, row.pinned_name))
    return found


def _keys(connection: Connection, table: type[TopologySummaries]) -> set[tuple[Any, ...]]:
    query = select(table.team, table.kind, table.name, table.number)
    return {tuple(row) for row in connection.execute(query)}


def _measured(connection: Connection) -> dict[Any, int]:
    key = (Measurements.team, Measurements.profile, Measurements.profile_revision)
    rows = connection.execute(select(*key, func.count()).group_by(*key))
    return {(team, "profiles", name, number): count for team, name, number, count in rows}


def _check_estimates(connection: Connection) -> None:
    for row in connection.execute(select(Estimates.__table__)):
        assert row.digest == digest("estimate", bytes(row.request))
        assert msgspec.json.decode(row.answer)["digest"] == row.digest
