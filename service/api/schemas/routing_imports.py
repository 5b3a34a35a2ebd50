"""Wire types of routing imports: the fields beside the files, and what was made of them."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from service.api.schemas.imports import ImportedPart, imported_part
from service.api.schemas.topology_imports import ImportedFile, LeftOutOfFile
from service.app.imports import ImportedDocument
from service.app.routing_formats import ROUTING_FORMATS
from service.app.routing_imports import ImportedRouting
from service.formats.documents.fields import MAX_STAGES, or_none
from service.formats.documents.moe import MAX_EXPERTS
from service.formats.routing_reading import StatedRouting
from service.web.forms import SentFile

__all__ = [
    "RoutingImportAnswer",
    "RoutingImportFields",
    "routing_import_answer",
    "stated_routing",
]

_FORMAT_NAMES = tuple(each.name for each in ROUTING_FORMATS)


class RoutingImportFields(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The fields of the form beside the parts `files`."""

    format: (
        Annotated[
            Literal[_FORMAT_NAMES],  # type: ignore[valid-type]
            Meta(description="Of all files; each is recognised by its content when absent."),
        ]
        | UnsetType
    ) = UNSET
    experts: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=MAX_EXPERTS,
                description="Of each layer. Needed for lists of experts whose file does not say "
                "it; else the columns count them.",
                examples=[64],
            ),
        ]
        | UnsetType
    ) = UNSET
    top_k: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=MAX_EXPERTS,
                description="Experts of each token. Needed for counts whose files do not say it.",
                examples=[2],
            ),
        ]
        | UnsetType
    ) = UNSET
    loads: (
        Annotated[
            bool,
            Meta(
                description="Whether counts are loads in a unit that is no number of tokens: in "
                "place of `top_k`."
            ),
        ]
        | UnsetType
    ) = UNSET
    replicated: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=MAX_STAGES,
                description="How often each assignment was counted, as by so many data-parallel "
                "replicas.",
            ),
        ]
        | UnsetType
    ) = UNSET
    drop_warm_up: (
        Annotated[
            bool,
            Meta(
                description="Whether to leave out tokens that look like dummies of an engine's "
                "warm-up; they are told in any case."
            ),
        ]
        | UnsetType
    ) = UNSET
    dry_run: Annotated[bool, Meta(description="Read and check only; store nothing.")] = False


class RoutingImportAnswer(Struct, kw_only=True, frozen=True):
    """What was read, assumed and left out, and the routing made of it."""

    dry_run: bool
    files: list[ImportedFile]
    assumptions: Annotated[list[str], Meta(description="What no file says, in sentences")]
    warnings: Annotated[
        list[str], Meta(description="What is legal and probably not meant; kept with the routing")
    ]
    left_out: list[LeftOutOfFile]
    routing: ImportedPart


def stated_routing(fields: RoutingImportFields) -> StatedRouting:
    """What the caller says besides the files."""
    return StatedRouting(
        experts=or_none(fields.experts),
        top_k=or_none(fields.top_k),
        loads=or_none(fields.loads),
        replicated=or_none(fields.replicated),
        drop_warm_up=or_none(fields.drop_warm_up),
    )


def routing_import_answer(imported: ImportedRouting, files: list[SentFile]) -> RoutingImportAnswer:
    """An import as it goes over the wire."""
    readings = imported.readings
    taken = [sentence for reading in readings for sentence in reading.assumptions]
    part = ImportedDocument(imported.name, imported.checked, imported.stored)
    return RoutingImportAnswer(
        dry_run=imported.stored is None,
        files=[
            ImportedFile(name=file.name, format=name, read=dict(reading.facts()))
            for file, name, reading in zip(files, imported.formats, readings, strict=True)
        ],
        assumptions=list(dict.fromkeys((*taken, *imported.joined.assumptions))),
        warnings=list(imported.checked.examined.warnings),
        left_out=[
            LeftOutOfFile(file=place, line=item.line, detail=item.detail)
            for place, reading in enumerate(readings)
            for item in reading.left_out
        ],
        routing=imported_part(part),
    )
