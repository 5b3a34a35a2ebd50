"""References to stored documents: `name` (the newest at that moment) or `name@3`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from service.app.errors import NotFound
from service.app.ports import DocumentKind, Revision, UnitOfWork
from service.core.errors import Fault, FaultCode, InvalidInput, Path

__all__ = [
    "Absent",
    "NamedReference",
    "Reference",
    "find",
    "find_all",
    "look_up",
    "parse_name",
    "parse_reference",
    "resolve",
    "resolve_in_path",
    "singular",
]

# Nine digits at most: a longer number can't be a revision, and the database would not take it.
REFERENCE = re.compile(r"(?P<name>[a-z][a-z0-9-]{0,62})(?:@(?P<number>[1-9][0-9]{0,8}))?")
NAME_RULE = "a lower-case letter followed by up to 62 lower-case letters, digits or hyphens"

_SINGULAR = {
    DocumentKind.TOPOLOGY: "topology",
    DocumentKind.MODEL: "model",
    DocumentKind.PROFILE: "profile",
    DocumentKind.ROUTING: "routing",
    DocumentKind.PLAN: "plan",
}


@dataclass(frozen=True, slots=True)
class Reference:
    """A name, and the revision's number when it is pinned."""

    name: str
    number: int | None = None

    def __str__(self) -> str:
        return self.name if self.number is None else f"{self.name}@{self.number}"


@dataclass(frozen=True, slots=True)
class NamedReference:
    """A reference inside a document, and where it stands."""

    kind: DocumentKind
    reference: str
    path: Path


@dataclass(frozen=True, slots=True)
class Absent:
    """What a reference that stands for nothing is told, within the team that asks."""

    detail: str

    def fault(self, path: Path) -> Fault:
        """The fault of such a reference at `path`."""
        return Fault(FaultCode.UNKNOWN_REFERENCE, path, self.detail)


def singular(kind: DocumentKind) -> str:
    """One document of the kind, as a word."""
    return _SINGULAR[kind]


def parse_reference(text: str) -> Reference | None:
    """The reference written as `text`; None when it is not one."""
    match = REFERENCE.fullmatch(text)
    if match is None:
        return None
    number = match["number"]
    return Reference(match["name"], None if number is None else int(number))


def parse_name(text: str) -> str | None:
    """The name written as `text`, without a revision; None when it is not one."""
    reference = parse_reference(text)
    return reference.name if reference is not None and reference.number is None else None


async def find(
    unit: UnitOfWork, kind: DocumentKind, text: str, *, new: bool = False
) -> Revision | None:
    """The revision a reference stands for, if there is one.

    A numbered revision of an archived document still resolves, so that what was pinned stays
    readable, unless the reference is `new`: archiving takes a document out of new references.
    """
    reference = parse_reference(text)
    if reference is None:
        return None
    if new and reference.number is not None:
        newest = await unit.documents.find(kind, reference.name)
        if newest is None or newest.number == reference.number:
            return newest
    return await unit.documents.find(kind, reference.name, reference.number)


async def look_up(
    unit: UnitOfWork, kind: DocumentKind, text: str, *, new: bool = False
) -> Revision | Absent:
    """The revision a reference stands for, as `find` does, or why it stands for none."""
    revision = await find(unit, kind, text, new=new)
    return await _absence(unit, kind, text, new=new) if revision is None else revision


async def _absence(unit: UnitOfWork, kind: DocumentKind, text: str, *, new: bool) -> Absent:
    """Why nothing was found; what another team stores is as if it were not."""
    word, shown = singular(kind), text[:100]
    reference = parse_reference(text)
    history = [] if reference is None else await unit.documents.history(kind, reference.name, 1)
    if reference is None or not history:
        how = "give the name, or name@revision, of one"
        return Absent(f"no {word} {shown!r} is stored; {how}")
    newest = history[0].reference
    if await unit.documents.find(kind, reference.name) is not None:
        return Absent(f"no {word} {shown!r} is stored; the newest revision is {newest!r}")
    if new:
        how = "storing it again under that name takes it back"
        return Absent(
            f"the {word} {reference.name!r} is archived, so nothing new refers to it; {how}"
        )
    if reference.number is None:
        return Absent(f"the {word} {shown!r} is archived; {newest!r} still resolves")
    return Absent(f"no {word} {shown!r} is stored; {newest!r}, which is archived, still resolves")


async def find_all(
    unit: UnitOfWork, references: Iterable[NamedReference], *, new: bool = False
) -> tuple[list[tuple[NamedReference, Revision]], list[Fault]]:
    """What a document's references stand for, and a fault for each that stands for nothing."""
    found, faults = [], []
    for reference in references:
        revision = await look_up(unit, reference.kind, reference.reference, new=new)
        if isinstance(revision, Absent):
            faults.append(revision.fault(reference.path))
        else:
            found.append((reference, revision))
    return found, faults


async def resolve(
    unit: UnitOfWork, kind: DocumentKind, reference: str, path: Path, *, new: bool = False
) -> Revision:
    """The revision a reference in a body stands for.

    Raises `InvalidInput` with one `unknown_reference` fault at `path` when there is none.
    """
    revision = await look_up(unit, kind, reference, new=new)
    if isinstance(revision, Absent):
        raise InvalidInput([revision.fault(path)])
    return revision


async def resolve_in_path(unit: UnitOfWork, kind: DocumentKind, reference: str) -> Revision:
    """The revision a reference in a URL stands for. Raises `NotFound` when there is none."""
    revision = await look_up(unit, kind, reference)
    if isinstance(revision, Absent):
        raise NotFound(revision.detail)
    return revision
