"""Storing and reading documents, the same way for each kind.

A document is checked by the core, written in its one canonical form, and compared with the newest
revision of its name: equal content is that revision, other content is the next one. Content that
comes back after a change is a revision of its own.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct

from service.app.document_kinds import (
    DOCUMENT_TYPES,
    DocumentType,
    Examined,
    measurement_rows,
    references_of,
)
from service.app.errors import NotFound, PreconditionFailed
from service.app.ports import DocumentKind, NewRevision, Revision, RevisionHeading, UnitOfWork
from service.app.references import NamedReference, find_all, resolve_in_path, singular
from service.app.services import Services
from service.core.errors import Fault, FaultCode, InvalidInput, WorkBudgetExceeded
from service.formats.documents.canonical import canonical_bytes, digest

__all__ = [
    "Change",
    "Checked",
    "Precondition",
    "Stored",
    "archive",
    "check",
    "get",
    "history",
    "page",
    "put",
    "store",
    "version_tag",
]

# Whether a write may go on, given the tag of the version that is stored (None: none).
Precondition = Callable[[str | None], bool]


class Change(StrEnum):
    """What storing a document changed."""

    CREATED = "created"  # nothing was stored under the name, or it was archived
    APPENDED = "appended"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Stored:
    """The revision that holds a document now, and whether it is new."""

    revision: Revision
    change: Change


@dataclass(frozen=True, slots=True)
class Checked:
    """A valid document in the form in which it is stored."""

    kind: DocumentKind
    document: Struct
    content: bytes
    digest: str
    examined: Examined
    references: tuple[NamedReference, ...]


@dataclass(frozen=True, slots=True)
class _Refused:
    faults: tuple[Fault, ...]
    references: tuple[NamedReference, ...]


def version_tag(revision: Revision) -> str:
    """What changes when a named document does; equal content at another number is another tag."""
    return f"{revision.number}-{revision.digest}"


async def put(
    services: Services,
    kind: DocumentKind,
    name: str,
    document: Struct,
    permits: Precondition = lambda _: True,
) -> Stored:
    """Store a document under a name.

    Raises `InvalidInput` with every fault of the document, unknown references included, and
    `PreconditionFailed`; nothing is stored then.
    """
    checked = await check(services, kind, document)
    async with services.storage.writing() as unit:
        return await store(unit, name, checked, permits)


async def check(services: Services, kind: DocumentKind, document: Struct) -> Checked:
    """A document checked by the core, away from the event loop.

    Raises `WorkBudgetExceeded`, or `InvalidInput` with every fault, and when it would only wait.
    Unknown references are only
    looked for here when there are other faults, else `store` finds them in its transaction.
    """
    units = DOCUMENT_TYPES[kind].units(document)
    if units:
        services.holder.hold_work(units)
    outcome = await services.executor.run(_check, DOCUMENT_TYPES[kind], document)
    if isinstance(outcome, Checked):
        return outcome
    async with services.storage.reading() as unit:
        _, unknown = await find_all(unit, outcome.references, new=True)
    raise InvalidInput([*outcome.faults, *unknown])


def _check(document_type: DocumentType, document: Struct) -> Checked | _Refused:
    references = references_of(document)
    faults: list[Fault] = []
    content, examined = b"", Examined({})
    try:
        content = canonical_bytes(document)
        faults += _size_faults(document_type, len(content))
    except InvalidInput as error:
        faults += error.faults
    try:
        examined = document_type.examine(document)
    except WorkBudgetExceeded:
        raise
    except InvalidInput as error:
        faults += error.faults
    if faults:
        return _Refused(tuple(faults), references)
    name = digest(singular(document_type.kind), content)
    return Checked(document_type.kind, document, content, name, examined, references)


def _size_faults(document_type: DocumentType, size_bytes: int) -> Iterator[Fault]:
    """Whatever is stored can be read and stored again, also where an import made it."""
    if size_bytes > document_type.most_bytes:
        detail = f"the document has {size_bytes} bytes; it may have {document_type.most_bytes}"
        yield Fault(FaultCode.OUT_OF_RANGE, (), detail)


async def store(
    unit: UnitOfWork, name: str, checked: Checked, permits: Precondition = lambda _: True
) -> Stored:
    """Store a checked document in a unit of work that writes.

    Raises `PreconditionFailed`, or `InvalidInput` when the document refers to what is not stored.
    """
    visible = await unit.documents.lock(checked.kind, name)
    _require(permits, visible, f"{singular(checked.kind)} {name!r}")
    if visible is not None and visible.digest == checked.digest:
        return Stored(visible, Change.UNCHANGED)
    new = NewRevision(
        content=checked.content,
        digest=checked.digest,
        summary=checked.examined.summary,
        warnings=checked.examined.warnings,
        pins=await _pins(unit, checked.references),
    )
    revision = await unit.documents.append(checked.kind, name, new)
    if checked.examined.topology is not None:
        await unit.documents.add_topology_summary(revision, checked.examined.topology)
    if checked.examined.profile is not None:
        rows = measurement_rows(checked.examined.profile, revision)
        await unit.measurements.add(revision, rows)
    return Stored(revision, Change.CREATED if visible is None else Change.APPENDED)


async def _pins(
    unit: UnitOfWork, references: Sequence[NamedReference]
) -> tuple[tuple[str, str], ...]:
    """What the references stand for at this moment, as pins."""
    found, faults = await find_all(unit, references, new=True)
    if faults:
        raise InvalidInput(faults)
    return tuple((singular(reference.kind), revision.reference) for reference, revision in found)


def _require(permits: Precondition, visible: Revision | None, what: str) -> None:
    current = None if visible is None else version_tag(visible)
    if not permits(current):
        state = "is not stored" if visible is None else f"is stored as revision {visible.number}"
        raise PreconditionFailed(f"{what} {state}, which the request does not allow", current)


async def get(services: Services, kind: DocumentKind, reference: str) -> Revision:
    """The revision a name or name@revision stands for. Raises `NotFound`."""
    async with services.storage.reading() as unit:
        return await resolve_in_path(unit, kind, reference)


async def page(
    services: Services, kind: DocumentKind, limit: int, after: str | None = None
) -> Sequence[RevisionHeading]:
    """Newest revisions by name, strictly after a name; archived documents are left out."""
    async with services.storage.reading() as unit:
        return await unit.documents.page(kind, limit, after)


async def history(
    services: Services, kind: DocumentKind, name: str, limit: int, before: int | None = None
) -> Sequence[RevisionHeading]:
    """Revisions of one name, newest first; those of an archived document as well.

    Raises `NotFound` when there never was any.
    """
    async with services.storage.reading() as unit:
        found = await unit.documents.history(kind, name, limit, before)
        if not found and not await unit.documents.history(kind, name, 1):
            raise NotFound(f"no {singular(kind)} {name[:100]!r} is stored")
        return found


async def archive(
    services: Services,
    kind: DocumentKind,
    name: str,
    permits: Precondition = lambda _: True,
) -> None:
    """Take a document out of lists and new references; its revisions stay readable by number.

    Raises `NotFound` when there is none or it is archived already, and `PreconditionFailed`.
    """
    async with services.storage.writing() as unit:
        # Held from here on, so that the version compared is the one that is archived. Locking makes
        # an unknown name exist, which the error below undoes.
        visible = await unit.documents.lock(kind, name)
        if visible is None:
            raise NotFound(f"no {singular(kind)} {name[:100]!r} is stored")
        _require(permits, visible, f"{singular(kind)} {name!r}")
        await unit.documents.archive(kind, name)
