"""Documents and their revisions on SQL."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Row,
    Select,
    and_,
    bindparam,
    insert,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from service.app.ports import (
    Clock,
    DocumentKind,
    NewRevision,
    Revision,
    RevisionHeading,
    TopologySummary,
)
from service.app.references import parse_reference, singular
from service.store.insertion import insert_if_absent
from service.store.limits import (
    is_storable_integer,
    is_storable_text,
    nearest_storable_integer,
)
from service.store.tables import DocumentPins, Documents, Revisions, TopologySummaries

__all__ = ["SqlDocumentStore"]

# The statements are made once: building one costs more than the database needs to answer it.
_HEADINGS = select(
    Revisions.kind,
    Revisions.name,
    Revisions.number,
    Revisions.digest,
    Revisions.created_at,
    Revisions.summary,
    Revisions.warnings,
)


def _newest(columns: Select[Any]) -> Select[Any]:
    return columns.join(
        Documents,
        and_(
            Documents.team == Revisions.team,
            Documents.kind == Revisions.kind,
            Documents.name == Revisions.name,
            Documents.newest_number == Revisions.number,
        ),
    ).where(Documents.team == bindparam("team"), Documents.kind == bindparam("kind"))


def _of_name(columns: Select[Any]) -> Select[Any]:
    return columns.where(
        Revisions.team == bindparam("team"),
        Revisions.kind == bindparam("kind"),
        Revisions.name == bindparam("name"),
    )


_REVISIONS = _HEADINGS.add_columns(Revisions.content)
_NEWEST_OF_LIVE_NAME = _newest(_REVISIONS).where(
    Documents.name == bindparam("name"), Documents.archived_at.is_(None)
)
_PAGE = (
    _newest(_HEADINGS)
    .where(Documents.archived_at.is_(None), Documents.name > bindparam("after"))
    .order_by(Documents.name)
    .limit(bindparam("limit", type_=BigInteger))
)
_NUMBERED = _of_name(_REVISIONS).where(Revisions.number == bindparam("number"))
_HISTORY = (
    _of_name(_HEADINGS)
    .where(Revisions.number < bindparam("before"))
    .order_by(Revisions.number.desc())
    .limit(bindparam("limit", type_=BigInteger))
)
_LOCK = (
    select(Documents.newest_number)
    .where(
        Documents.team == bindparam("team"),
        Documents.kind == bindparam("kind"),
        Documents.name == bindparam("name"),
    )
    .with_for_update()
)

# Before the first name, and after the last number.
_NO_NAME = ""
_NO_NUMBER = 2**63 - 1

_KIND_OF_ROLE = {singular(kind): kind for kind in DocumentKind}


@dataclass(frozen=True, slots=True)
class SqlDocumentStore:
    """The `DocumentStore` of one team, in one transaction."""

    connection: AsyncConnection
    team: str
    clock: Clock

    async def find(
        self, kind: DocumentKind, name: str, number: int | None = None
    ) -> Revision | None:
        """The newest revision unless archived, or the numbered one even when archived."""
        if not is_storable_text(name):
            return None
        if number is None:
            return await self._one(_NEWEST_OF_LIVE_NAME, kind=kind, name=name)
        if not is_storable_integer(number):
            return None
        return await self._one(_NUMBERED, kind=kind, name=name, number=number)

    async def lock(self, kind: DocumentKind, name: str) -> Revision | None:
        """Make the name exist, hold it until the unit of work ends; its newest revision.

        None when it is archived, as when it never had one; numbers go on all the same. SQLite holds
        the whole database already; PostgreSQL holds the name's row.
        """
        await insert_if_absent(
            self.connection,
            Documents,
            {
                "team": self.team,
                "kind": kind,
                "name": name,
                "newest_number": 0,
                "created_at": self.clock.now(),
            },
        )
        await self.connection.execute(_LOCK, {"team": self.team, "kind": kind, "name": name})
        # A statement of its own: a join in the one above would see the revisions as they were
        # before it waited.
        return await self._one(_NEWEST_OF_LIVE_NAME, kind=kind, name=name)

    async def append(self, kind: DocumentKind, name: str, new: NewRevision) -> Revision:
        """Store the next revision of a name held by `lock`; unarchives the name.

        Raises LookupError for a name that was never locked, and ValueError for a pin that is not
        a numbered reference to a known kind.
        """
        pins = [_pin(role, reference) for role, reference in dict.fromkeys(new.pins)]
        number = (
            await self.connection.execute(
                update(Documents)
                .where(self._is_document(kind, name))
                .values(newest_number=Documents.newest_number + 1, archived_at=None)
                .returning(Documents.newest_number)
            )
        ).scalar_one_or_none()
        if number is None:
            raise LookupError(f"{kind.value}/{name} must be locked before a revision is appended")
        revision = Revision(
            kind=kind,
            name=name,
            number=number,
            digest=new.digest,
            created_at=self.clock.now(),
            summary=new.summary,
            warnings=new.warnings,
            content=new.content,
        )
        await self.connection.execute(
            insert(Revisions).values(
                **self._key(revision),
                digest=revision.digest,
                content=revision.content,
                summary=revision.summary,
                warnings=list(revision.warnings),
                created_at=revision.created_at,
            )
        )
        if pins:
            await self.connection.execute(
                insert(DocumentPins), [{**self._key(revision), **pin} for pin in pins]
            )
        return revision

    async def page(
        self, kind: DocumentKind, limit: int, after: str | None = None
    ) -> Sequence[RevisionHeading]:
        """Newest revisions of names that are not archived, by name, strictly after `after`."""
        after = _NO_NAME if after is None else after
        if not is_storable_text(after):
            return []
        return await self._all(_PAGE, kind=kind, after=after, limit=limit)

    async def history(
        self, kind: DocumentKind, name: str, limit: int, before: int | None = None
    ) -> Sequence[RevisionHeading]:
        """Revisions of one name, newest first, strictly before number `before`.

        An archived name keeps its history.
        """
        if not is_storable_text(name):
            return []
        before = _NO_NUMBER if before is None else nearest_storable_integer(before)
        return await self._all(_HISTORY, kind=kind, name=name, before=before, limit=limit)

    async def archive(self, kind: DocumentKind, name: str) -> bool:
        """Take the name out of lists and new references.

        False when there is none: never stored, or archived already.
        """
        if not is_storable_text(name):
            return False
        archived = await self.connection.execute(
            update(Documents)
            .where(
                self._is_document(kind, name),
                Documents.newest_number > 0,
                Documents.archived_at.is_(None),
            )
            .values(archived_at=self.clock.now())
        )
        return archived.rowcount == 1

    async def add_topology_summary(self, revision: Revision, summary: TopologySummary) -> None:
        """Store the typed columns of a topology revision just appended."""
        await self.connection.execute(
            insert(TopologySummaries).values(
                **self._key(revision),
                hosts=summary.hosts,
                devices=summary.devices,
                links=summary.links,
                link_kinds=list(summary.link_kinds),
            )
        )

    def _is_document(self, kind: DocumentKind, name: str) -> ColumnElement[bool]:
        return and_(Documents.team == self.team, Documents.kind == kind, Documents.name == name)

    def _key(self, revision: Revision) -> dict[str, Any]:
        return {
            "team": self.team,
            "kind": revision.kind,
            "name": revision.name,
            "number": revision.number,
        }

    async def _one(self, query: Select[Any], **parameters: Any) -> Revision | None:
        rows = await self.connection.execute(query, {"team": self.team, **parameters})
        row = rows.one_or_none()
        return None if row is None else Revision(**_heading(row), content=row.content)

    async def _all(self, query: Select[Any], **parameters: Any) -> list[RevisionHeading]:
        rows = await self.connection.execute(query, {"team": self.team, **parameters})
        return [RevisionHeading(**_heading(row)) for row in rows]


def _heading(row: Row[Any]) -> dict[str, Any]:
    return {
        "kind": DocumentKind(row.kind),
        "name": row.name,
        "number": row.number,
        "digest": row.digest,
        "created_at": row.created_at,
        "summary": row.summary,
        "warnings": tuple(row.warnings),
    }


def _pin(role: str, reference: str) -> dict[str, Any]:
    pinned = parse_reference(reference)
    if role not in _KIND_OF_ROLE or pinned is None or pinned.number is None:
        raise ValueError(f"{role!r}: {reference!r} is not a kind and a numbered reference")
    return {
        "pinned_kind": _KIND_OF_ROLE[role],
        "pinned_name": pinned.name,
        "pinned_number": pinned.number,
    }
