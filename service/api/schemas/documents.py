"""Wire types that all kinds of documents share."""

from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from service.app.ports import Revision, RevisionHeading
from service.formats.documents.fields import or_unset

__all__ = ["DocumentAnswer", "Page", "RevisionEntry", "document_answer", "revision_entry"]

D = TypeVar("D")
Item = TypeVar("Item")

Name = Annotated[str, Meta(description="Name of the document", examples=["two-dgx-h100"])]
Number = Annotated[int, Meta(ge=1, description="Number of the revision, from 1", examples=[1])]
Digest = Annotated[
    str, Meta(description="Digest of the canonical content; equal content has an equal digest")
]
CreatedAt = Annotated[datetime, Meta(tz=True, description="When the revision was stored, UTC")]
Summary = Annotated[
    dict[str, Any], Meta(description="The document in a few numbers, different for each kind")
]
Warnings = Annotated[
    list[str], Meta(description="What had to be assumed about the document, in sentences")
]


class RevisionEntry(Struct, kw_only=True, frozen=True):
    """A revision in a list, without its content."""

    name: Name
    revision: Number
    digest: Digest
    created_at: CreatedAt
    summary: Summary
    warnings: Warnings


class DocumentAnswer(Struct, Generic[D], kw_only=True, frozen=True):
    """A revision with its content."""

    name: Name
    revision: Number
    digest: Digest
    created_at: CreatedAt
    summary: Summary
    warnings: Warnings
    document: D


class Page(Struct, Generic[Item], kw_only=True, frozen=True):
    """One page of a list."""

    items: list[Item]
    next: Annotated[
        str | UnsetType, Meta(description="URL of the next page; absent on the last one")
    ] = UNSET

    @classmethod
    def of(cls, items: list[Item], following: str | None) -> "Page[Item]":
        """The page of some items and the URL of the next one, if there is one."""
        return cls(items=items, next=or_unset(following))


def revision_entry(revision: RevisionHeading) -> RevisionEntry:
    """A revision as an entry of a list."""
    return RevisionEntry(
        name=revision.name,
        revision=revision.number,
        digest=revision.digest,
        created_at=revision.created_at,
        summary=revision.summary,
        warnings=list(revision.warnings),
    )


def document_answer(revision: Revision) -> DocumentAnswer[Raw]:
    """A revision with its content as stored, which is not read again on its way out."""
    return DocumentAnswer(
        name=revision.name,
        revision=revision.number,
        digest=revision.digest,
        created_at=revision.created_at,
        summary=revision.summary,
        warnings=list(revision.warnings),
        document=Raw(revision.content),
    )
