"""Wire types of imports: the fields beside the file, and what was made of it."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from service.app.imports import Imported, ImportedDocument
from service.app.model_formats import MODEL_FORMATS
from service.app.ports import DocumentKind
from service.app.profile_formats import PROFILE_FORMATS
from service.core.models.dtypes import DType
from service.formats.documents.fields import Reference

__all__ = [
    "ImportAnswer",
    "ImportReport",
    "ImportedPart",
    "LeftOutLine",
    "ModelImportAnswer",
    "ModelImportFields",
    "ProfileImportFields",
    "import_answer",
    "imported_part",
    "model_import_answer",
]

_Words = Annotated[str, Meta(min_length=1, max_length=127, pattern=r"^[^\x00-\x1f\x7f]+$(?!\n)")]


_PROFILE_FORMAT_NAMES = tuple(each.name for each in PROFILE_FORMATS)
_MODEL_FORMAT_NAMES = tuple(each.name for each in MODEL_FORMATS)


class ProfileImportFields(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The fields of the form beside the part `file`."""

    microbatch_size: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=2**53 - 1,
                description="Samples of one microbatch the profile was taken at. Needed by "
                "`pipedream`, `dnn_partitioning` and `piper`, whose files can't say it.",
                examples=[64],
            ),
        ]
        | UnsetType
    ) = UNSET
    backward_ratio: (
        Annotated[
            float,
            Meta(
                ge=0,
                le=1000,
                description="How long a backward takes for its forward, as an assumption. Needed "
                "by `piper`, which has both together; `galvatron` has forwards alone, and without "
                "it the backward stays unknown.",
                examples=[2.0],
            ),
        ]
        | UnsetType
    ) = UNSET
    format: (
        Annotated[
            Literal[_PROFILE_FORMAT_NAMES],  # type: ignore[valid-type]
            Meta(description="The file's format; recognised by its content when absent."),
        ]
        | UnsetType
    ) = UNSET
    device: (
        Annotated[_Words, Meta(description="The device measured on.", examples=["V100"])]
        | UnsetType
    ) = UNSET
    precision: (
        Annotated[_Words, Meta(description="The precision measured in.", examples=["fp32"])]
        | UnsetType
    ) = UNSET
    model_name: (
        Annotated[
            str,
            Meta(
                pattern=r"^[a-z][a-z0-9-]{0,62}$(?!\n)",
                description="Name of the model that is made; the profile's name when absent. "
                "Where the file holds costs alone, a stored model to hold them against.",
            ),
        ]
        | UnsetType
    ) = UNSET
    dry_run: Annotated[bool, Meta(description="Read and check only; store nothing.")] = False


class ModelImportFields(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The fields of the form beside the part `file`."""

    format: (
        Annotated[
            Literal[_MODEL_FORMAT_NAMES],  # type: ignore[valid-type]
            Meta(description="The file's format; recognised by its content when absent."),
        ]
        | UnsetType
    ) = UNSET
    dtype: (
        Annotated[
            DType,
            Meta(
                description="Type of the weights in training, where the file does not say it or "
                "it is to be another.",
                examples=["bf16"],
            ),
        ]
        | UnsetType
    ) = UNSET
    vocabulary_size: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=10**9,
                description="Tokens of the vocabulary, where the arguments of a launch leave it to "
                "a tokenizer.",
                examples=[50257],
            ),
        ]
        | UnsetType
    ) = UNSET
    profile: (
        Annotated[
            Reference,
            Meta(
                description="With it the arguments of a launch become a plan too: the profile "
                "that prices it.",
                examples=["gpt-48-h100"],
            ),
        ]
        | UnsetType
    ) = UNSET
    plan_name: (
        Annotated[
            str,
            Meta(
                pattern=r"^[a-z][a-z0-9-]{0,62}$(?!\n)",
                description="Name of the plan that is made of the arguments of a launch; the "
                "model's name when there is a profile and this is absent. Without a profile its "
                "costs are assumed, from FLOPs and bytes.",
            ),
        ]
        | UnsetType
    ) = UNSET
    dry_run: Annotated[bool, Meta(description="Read and check only; store nothing.")] = False


class LeftOutLine(Struct, kw_only=True, frozen=True):
    """Something the file says that the documents do not hold."""

    line: Annotated[int, Meta(ge=1, description="Line of the file, counted from 1")]
    detail: str


class ImportedPart(Struct, kw_only=True, frozen=True):
    """One of the documents made from the file."""

    name: Annotated[str, Meta(description="The name it is stored under")]
    digest: Annotated[str, Meta(description="Digest of its canonical content")]
    summary: Annotated[dict[str, Any], Meta(description="The document in a few numbers")]
    revision: Annotated[int, Meta(ge=1, description="Absent in a dry run")] | UnsetType = UNSET
    change: (
        Annotated[
            Literal["created", "appended", "unchanged"], Meta(description="Absent in a dry run")
        ]
        | UnsetType
    ) = UNSET


class ImportReport(Struct, kw_only=True, frozen=True):
    """What was read, assumed and left out."""

    format: Annotated[str, Meta(description="The format the file was read as")]
    dry_run: bool
    read: Annotated[dict[str, Any], Meta(description="What was read, in a few numbers")]
    assumptions: Annotated[list[str], Meta(description="What the file can't say, in sentences")]
    left_out: list[LeftOutLine]


class ImportAnswer(ImportReport, kw_only=True, frozen=True):
    """What was read, assumed and left out, and the documents made of it."""

    model: (
        Annotated[ImportedPart, Meta(description="Absent where the file holds costs alone")]
        | UnsetType
    ) = UNSET
    profile: ImportedPart


class ModelImportAnswer(ImportReport, kw_only=True, frozen=True):
    """What was read, assumed and left out, and the documents made of it."""

    model: ImportedPart
    plan: (
        Annotated[ImportedPart, Meta(description="Absent where no `profile` was named to price it")]
        | UnsetType
    ) = UNSET


def import_answer(imported: Imported) -> ImportAnswer:
    """An import of a profile as it goes over the wire."""
    model = imported.documents.get(DocumentKind.MODEL)
    return ImportAnswer(
        **_report(imported),
        model=UNSET if model is None else imported_part(model),
        profile=imported_part(imported.documents[DocumentKind.PROFILE]),
    )


def model_import_answer(imported: Imported) -> ModelImportAnswer:
    """An import of a model as it goes over the wire."""
    plan = imported.documents.get(DocumentKind.PLAN)
    return ModelImportAnswer(
        **_report(imported),
        model=imported_part(imported.documents[DocumentKind.MODEL]),
        plan=UNSET if plan is None else imported_part(plan),
    )


def _report(imported: Imported) -> dict[str, Any]:
    return {
        "format": imported.format,
        "dry_run": all(each.stored is None for each in imported.documents.values()),
        "read": dict(imported.facts),
        "assumptions": list(imported.assumptions),
        "left_out": [LeftOutLine(line=item.line, detail=item.detail) for item in imported.left_out],
    }


def imported_part(made: ImportedDocument) -> ImportedPart:
    """A document that was made, as it goes over the wire."""
    stored = made.stored
    return ImportedPart(
        name=made.name,
        digest=made.checked.digest,
        summary=made.checked.examined.summary,
        revision=UNSET if stored is None else stored.revision.number,
        change=UNSET if stored is None else stored.change.value,
    )
