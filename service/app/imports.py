"""Importing what other tools have written, in one transaction or only to look."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, Struct

from service.app.documents import Checked, Stored, check, store
from service.app.file_formats import choose_format, read_file
from service.app.idempotency import Record, record_nothing
from service.app.model_formats import MODEL_FORMATS
from service.app.ports import DocumentKind, UnitOfWork
from service.app.profile_fit import fit_to_model
from service.app.profile_formats import PROFILE_FORMATS
from service.app.references import find_all
from service.app.services import Services
from service.core.errors import Fault, FaultCode, InvalidInput, LeftOut
from service.formats.documents.costs import AssumedCostsDocument, CostsDocument
from service.formats.documents.fields import or_unset
from service.formats.model_reading import ModelReading, StatedModel
from service.formats.profile_look_alikes import PROFILE_LOOK_ALIKES
from service.formats.profile_reading import ProfileReading, Stated

__all__ = [
    "ImportFile",
    "Imported",
    "ImportedDocument",
    "PlanToMake",
    "import_model",
    "import_profile",
    "planned",
]

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class ImportFile(Generic[S]):
    """A file and what is stated of it. Without a format it is recognised by its content."""

    content: bytes
    stated: S
    format: str | None = None


@dataclass(frozen=True, slots=True)
class ImportedDocument:
    """A document made from the file; `stored` is None when it was only looked at."""

    name: str
    checked: Checked
    stored: Stored | None


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import read, assumed and left out, and the documents it made, in their order."""

    format: str
    facts: Mapping[str, Any]
    assumptions: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    documents: Mapping[DocumentKind, ImportedDocument]


@dataclass(frozen=True, slots=True)
class PlanToMake:
    """What the plan of a launch is to be called, and the profile that prices it.

    Without a profile its costs are assumed.
    """

    name: str
    profile: str | None


def planned(model_name: str, plan_name: str | None, profile: str | None) -> PlanToMake | None:
    """The plan to make: none without a name or a profile; with a profile alone it is called like
    the model.
    """
    if plan_name is None and profile is None:
        return None
    return PlanToMake(plan_name or model_name, profile)


async def import_profile(
    services: Services,
    file: ImportFile[Stated],
    *,
    profile_name: str,
    model_name: str | None = None,
    dry_run: bool = False,
    record: Record[Imported] = record_nothing,
) -> Imported:
    """Read a file into a profile, and a model where the format has one, and store all or nothing.

    Without a `model_name` the model is called like the profile. Where the file has no model,
    `model_name` is one that is stored, and the facts tell how the profile fits it. `record` is
    called in the transaction that stores them.

    Raises `InvalidInput` with every fault, those of the file at `("file", "line", n)`.
    """
    name, reading = await services.executor.run(_read_profile, file)
    if reading.model is None and model_name is not None:
        facts = await fit_to_model(services, reading.profile, model_name)
        reading = replace(reading, facts={**reading.facts, **facts})
    made: dict[DocumentKind, tuple[str, Struct]] = {}
    if reading.model is not None:
        made[DocumentKind.MODEL] = (model_name or profile_name, reading.model)
    made[DocumentKind.PROFILE] = (profile_name, reading.profile)
    return await _import(services, name, reading, made, dry_run=dry_run, record=record)


async def import_model(
    services: Services,
    file: ImportFile[StatedModel],
    *,
    model_name: str,
    plan: PlanToMake | None = None,
    dry_run: bool = False,
    record: Record[Imported] = record_nothing,
) -> Imported:
    """Read a file into a model, and the plan it launches if asked for; store all or nothing.

    `record` is called in the transaction that stores them.

    Raises `InvalidInput` with every fault, those of the file at `("file", "line", n)`, and at the
    field that asks for a plan when the file does not hold one.
    """
    name, reading = await services.executor.run(_read_model, file)
    made: dict[DocumentKind, tuple[str, Struct]] = {DocumentKind.MODEL: (model_name, reading.model)}
    if plan is not None:
        if reading.plan is None:
            detail = f"this {name} file holds no plan to price: leave it out"
            field = "plan_name" if plan.profile is None else "profile"
            raise InvalidInput([Fault(FaultCode.NOT_SUPPORTED, (field,), detail)])
        costs = CostsDocument(
            model=model_name,
            profile=or_unset(plan.profile),
            assumed=AssumedCostsDocument() if plan.profile is None else UNSET,
        )
        made[DocumentKind.PLAN] = (plan.name, msgspec.structs.replace(reading.plan, costs=costs))
    return await _import(services, name, reading, made, dry_run=dry_run, record=record)


def _read_profile(file: ImportFile[Stated]) -> tuple[str, ProfileReading]:
    chosen = choose_format(PROFILE_FORMATS, file.content, file.format, PROFILE_LOOK_ALIKES)
    return chosen.name, read_file(chosen, file.content, file.stated)


def _read_model(file: ImportFile[StatedModel]) -> tuple[str, ModelReading]:
    chosen = choose_format(MODEL_FORMATS, file.content, file.format)
    return chosen.name, read_file(chosen, file.content, file.stated)


async def _import(
    services: Services,
    format_name: str,
    reading: ProfileReading | ModelReading,
    made: Mapping[DocumentKind, tuple[str, Struct]],
    *,
    dry_run: bool,
    record: Record[Imported],
) -> Imported:
    checked = {
        kind: await _checked(services, kind, document) for kind, (_, document) in made.items()
    }

    async def imported(unit: UnitOfWork | None) -> Imported:
        documents = {}
        for kind, (name, _) in made.items():
            stored = None if unit is None else await _stored(unit, name, checked[kind])
            documents[kind] = ImportedDocument(name, checked[kind], stored)
        return Imported(
            format=format_name,
            facts=reading.facts,
            assumptions=reading.assumptions,
            left_out=reading.left_out,
            documents=documents,
        )

    if dry_run:
        await _known_outside(services, checked)
        return await imported(None)
    async with services.storage.writing() as unit:
        outcome = await imported(unit)
        await record(unit, outcome)
    return outcome


async def _known_outside(services: Services, checked: Mapping[DocumentKind, Checked]) -> None:
    """Raise for references to what is not stored; to what is made here there is none yet."""
    outside = [
        reference
        for each in checked.values()
        for reference in each.references
        if reference.kind not in checked
    ]
    if outside:
        async with services.storage.reading() as unit:
            _, unknown = await find_all(unit, outside, new=True)
        if unknown:
            raise InvalidInput(map(_seen_by_the_caller, unknown))


async def _checked(services: Services, kind: DocumentKind, document: Struct) -> Checked:
    try:
        return await check(services, kind, document)
    except InvalidInput as error:
        raise InvalidInput(map(_seen_by_the_caller, error.faults)) from error


async def _stored(unit: UnitOfWork, name: str, checked: Checked) -> Stored:
    try:
        return await store(unit, name, checked)
    except InvalidInput as error:
        raise InvalidInput(map(_seen_by_the_caller, error.faults)) from error


def _seen_by_the_caller(fault: Fault) -> Fault:
    """The pointer is into a document the caller never saw; the detail says what is wrong.

    What prices a plan the caller named.
    """
    asked = ("profile",) if fault.path == ("costs", "profile") else ("file",)
    return replace(fault, path=asked)
