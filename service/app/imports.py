"""Importing profiles that other tools have made, in one transaction or only to look."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from msgspec import Struct

from service.app.documents import Checked, Stored, check, store
from service.app.idempotency import Record, record_nothing
from service.app.ports import DocumentKind
from service.app.services import Services
from service.core.errors import Fault, FaultCode, InvalidInput
from service.formats.documents.model import ModelDocument
from service.formats.documents.profile import ProfileDocument
from service.formats.pipedream import LeftOut, looks_like_pipedream, read_pipedream

__all__ = [
    "IMPORT_FORMATS",
    "Imported",
    "ImportedDocument",
    "ProfileFile",
    "import_profile",
]


@dataclass(frozen=True, slots=True)
class ProfileFile:
    """A file and what it can't say itself. Without a format it is recognised by its content."""

    content: bytes
    microbatch_size: int
    format: str | None = None
    device: str | None = None
    precision: str | None = None


@dataclass(frozen=True, slots=True)
class _Reading:
    """What a format read: both documents, and what a person should know before using them."""

    model: ModelDocument
    profile: ProfileDocument
    facts: dict[str, Any]
    assumptions: tuple[str, ...]
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True)
class _ImportFormat:
    name: str
    recognises: Callable[[bytes], bool]
    read: Callable[[ProfileFile], _Reading]


@dataclass(frozen=True, slots=True)
class ImportedDocument:
    """A document made from the file; `stored` is None when it was only looked at."""

    name: str
    checked: Checked
    stored: Stored | None


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import read, assumed and left out, and the documents it made."""

    format: str
    facts: dict[str, Any]
    assumptions: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    model: ImportedDocument
    profile: ImportedDocument


def _read_pipedream(file: ProfileFile) -> _Reading:
    result = read_pipedream(
        file.content,
        microbatch_size=file.microbatch_size,
        device=file.device,
        precision=file.precision,
    )
    return _Reading(
        result.model, result.profile, asdict(result.read), result.assumptions, result.left_out
    )


_FORMATS = (_ImportFormat("pipedream", looks_like_pipedream, _read_pipedream),)
IMPORT_FORMATS = tuple(each.name for each in _FORMATS)


async def import_profile(
    services: Services,
    file: ProfileFile,
    *,
    profile_name: str,
    model_name: str,
    dry_run: bool = False,
    record: Record[Imported] = record_nothing,
) -> Imported:
    """Read a file into a model and a profile and store both, or neither.

    `record` is called in the transaction that stores them.

    Raises `InvalidInput` with every fault, those of the file at `("file", "line", n)`.
    """
    chosen = _format_of(file)
    reading = await services.executor.run(_read, chosen, file)
    model = await _checked(services, DocumentKind.MODEL, reading.model)
    profile = await _checked(services, DocumentKind.PROFILE, reading.profile)

    def imported(stored_model: Stored | None, stored_profile: Stored | None) -> Imported:
        return Imported(
            format=chosen.name,
            facts=reading.facts,
            assumptions=reading.assumptions,
            left_out=reading.left_out,
            model=ImportedDocument(model_name, model, stored_model),
            profile=ImportedDocument(profile_name, profile, stored_profile),
        )

    if dry_run:
        return imported(None, None)
    async with services.storage.writing() as unit:
        outcome = imported(
            await store(unit, model_name, model), await store(unit, profile_name, profile)
        )
        await record(unit, outcome)
    return outcome


def _format_of(file: ProfileFile) -> _ImportFormat:
    names = ", ".join(IMPORT_FORMATS)
    if file.format is not None:
        named = next((each for each in _FORMATS if each.name == file.format), None)
        if named is None:
            detail = f"{file.format!r} is no format of profiles; known are: {names}"
            raise InvalidInput([Fault(FaultCode.NOT_SUPPORTED, ("format",), detail)])
        return named
    recognised = next((each for each in _FORMATS if each.recognises(file.content)), None)
    if recognised is None:
        detail = f"the file is in no format that is read here; known are: {names}"
        raise InvalidInput([Fault(FaultCode.UNREADABLE, ("file",), detail)])
    return recognised


def _read(chosen: _ImportFormat, file: ProfileFile) -> _Reading:
    try:
        return chosen.read(file)
    except InvalidInput as error:
        raise InvalidInput(_in_file(fault) for fault in error.faults) from error


def _in_file(fault: Fault) -> Fault:
    """A fault of a line belongs to the file; one of a field stands where the field does."""
    if fault.path and fault.path[0] != "line":
        return fault
    return replace(fault, path=("file", *fault.path))


async def _checked(services: Services, kind: DocumentKind, document: Struct) -> Checked:
    try:
        return await check(services, kind, document)
    except InvalidInput as error:
        # The pointer is into a document the caller never saw; the detail says what is wrong.
        raise InvalidInput(replace(fault, path=("file",)) for fault in error.faults) from error
