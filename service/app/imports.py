"""Importing profiles that other tools have made, in one transaction or only to look."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from msgspec import Struct

from service.app.documents import Checked, Stored, check, store
from service.app.idempotency import Record, record_nothing
from service.app.ports import DocumentKind, UnitOfWork
from service.app.profile_formats import profile_format, read_profile
from service.app.services import Services
from service.core.errors import InvalidInput
from service.core.topology.readings import LeftOut
from service.formats.profile_reading import ProfileReading, Stated

__all__ = ["Imported", "ImportedDocument", "ProfileFile", "import_profile"]


@dataclass(frozen=True, slots=True)
class ProfileFile:
    """A file and what is stated of it. Without a format it is recognised by its content."""

    content: bytes
    stated: Stated
    format: str | None = None


@dataclass(frozen=True, slots=True)
class ImportedDocument:
    """A document made from the file; `stored` is None when it was only looked at."""

    name: str
    checked: Checked
    stored: Stored | None


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import read, assumed and left out, and the documents it made.

    `model` is None where the file holds costs alone, of layers of a model that stands elsewhere.
    """

    format: str
    facts: Mapping[str, Any]
    assumptions: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    model: ImportedDocument | None
    profile: ImportedDocument


async def import_profile(
    services: Services,
    file: ProfileFile,
    *,
    profile_name: str,
    model_name: str | None = None,
    dry_run: bool = False,
    record: Record[Imported] = record_nothing,
) -> Imported:
    """Read a file into a profile, and a model where the format has one, and store all or nothing.

    Without a `model_name` the model is called like the profile. `record` is called in the
    transaction that stores them.

    Raises `InvalidInput` with every fault, those of the file at `("file", "line", n)`.
    """
    format_name, reading = await services.executor.run(_read, file)
    names = {DocumentKind.MODEL: model_name or profile_name, DocumentKind.PROFILE: profile_name}
    made = {DocumentKind.MODEL: reading.model, DocumentKind.PROFILE: reading.profile}
    checked = {
        kind: await _checked(services, kind, document)
        for kind, document in made.items()
        if document is not None
    }

    async def imported(unit: UnitOfWork | None) -> Imported:
        documents = {
            kind: ImportedDocument(
                names[kind], each, None if unit is None else await store(unit, names[kind], each)
            )
            for kind, each in checked.items()
        }
        return Imported(
            format=format_name,
            facts=reading.facts,
            assumptions=reading.assumptions,
            left_out=reading.left_out,
            model=documents.get(DocumentKind.MODEL),
            profile=documents[DocumentKind.PROFILE],
        )

    if dry_run:
        return await imported(None)
    async with services.storage.writing() as unit:
        outcome = await imported(unit)
        await record(unit, outcome)
    return outcome


def _read(file: ProfileFile) -> tuple[str, ProfileReading]:
    chosen = profile_format(file.content, file.format)
    return chosen.name, read_profile(chosen, file.content, file.stated)


async def _checked(services: Services, kind: DocumentKind, document: Struct) -> Checked:
    try:
        return await check(services, kind, document)
    except InvalidInput as error:
        # The pointer is into a document the caller never saw; the detail says what is wrong.
        raise InvalidInput(replace(fault, path=("file",)) for fault in error.faults) from error
