"""The tables, as SQLAlchemy models; `migrations/` builds the same ones.

    teams
    └── documents              one row a name; knows its newest revision number
        └── revisions          immutable, numbered from 1, with the canonical bytes
            ├── document_pins        what a revision refers to, with numbers
            ├── topology_summaries   typed columns beside a topology
            └── measurements         the rows of a profile
    ├── estimates              answers by digest
    ├── tokens                 who may act for the team
    └── idempotency_keys       requests done once, with their first answers

Keys are what people say: team, kind, name, number. A row can't exist without its team, a pin
can't point to another team, and each list is read in the order of a primary key.
"""

from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Double,
    ForeignKeyConstraint,
    Index,
    LargeBinary,
    MetaData,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from service.store.types import PlainText, UtcDateTime

__all__ = [
    "Base",
    "DocumentPins",
    "Documents",
    "Estimates",
    "IdempotencyKeys",
    "Measurements",
    "Revisions",
    "Teams",
    "Tokens",
    "TopologySummaries",
]


class Base(DeclarativeBase):
    """The metadata of all tables, with a rule for every constraint's name."""

    metadata = MetaData(
        naming_convention={
            "pk": "pk_%(table_name)s",
            "fk": "fk_%(table_name)s_%(referred_table_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
        }
    )
    # JSON and not JSONB: key order and every escape come back as they were written.
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        str: PlainText,
        int: BigInteger,
        float: Double,
        bytes: LargeBinary,
        datetime: UtcDateTime,
        dict[str, Any]: JSON,
        list[str]: JSON,
    }


class Teams(Base):
    """Who owns rows."""

    __tablename__ = "teams"
    __table_args__ = (CheckConstraint("length(name) BETWEEN 1 AND 63", name="name_length"),)

    name: Mapped[str] = mapped_column(primary_key=True)
    created_at: Mapped[datetime]


class Documents(Base):
    """A name. `newest_number` is 0 until the transaction that made the row appends to it."""

    __tablename__ = "documents"
    __table_args__ = (
        ForeignKeyConstraint(["team"], ["teams.name"]),
        CheckConstraint("length(name) BETWEEN 1 AND 63", name="name_length"),
        CheckConstraint("newest_number >= 0", name="newest_number_not_negative"),
    )

    team: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    newest_number: Mapped[int]
    archived_at: Mapped[datetime | None]
    created_at: Mapped[datetime]


class Revisions(Base):
    """An immutable state of a document."""

    __tablename__ = "revisions"
    __table_args__ = (
        ForeignKeyConstraint(
            ["team", "kind", "name"], ["documents.team", "documents.kind", "documents.name"]
        ),
        CheckConstraint("number >= 1", name="number_positive"),
    )

    team: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    digest: Mapped[str]
    content: Mapped[bytes]
    summary: Mapped[dict[str, Any]]
    warnings: Mapped[list[str]]
    created_at: Mapped[datetime]


def _belongs_to_revision(number_column: str, name_column: str = "name") -> ForeignKeyConstraint:
    return ForeignKeyConstraint(
        ["team", "kind", name_column, number_column],
        ["revisions.team", "revisions.kind", "revisions.name", "revisions.number"],
    )


class DocumentPins(Base):
    """A revision that another revision refers to; it resolves as long as both exist."""

    __tablename__ = "document_pins"
    __table_args__ = (
        _belongs_to_revision("number"),
        ForeignKeyConstraint(
            ["team", "pinned_kind", "pinned_name", "pinned_number"],
            ["revisions.team", "revisions.kind", "revisions.name", "revisions.number"],
            name="fk_document_pins_pinned_revisions",
        ),
        Index("ix_document_pins_pinned", "team", "pinned_kind", "pinned_name", "pinned_number"),
    )

    team: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    pinned_kind: Mapped[str] = mapped_column(primary_key=True)
    pinned_name: Mapped[str] = mapped_column(primary_key=True)
    pinned_number: Mapped[int] = mapped_column(primary_key=True)


class TopologySummaries(Base):
    """What can be asked of a topology without reading its document."""

    __tablename__ = "topology_summaries"
    __table_args__ = (
        _belongs_to_revision("number"),
        CheckConstraint("kind = 'topologies'", name="kind_is_topologies"),
        CheckConstraint("hosts >= 0 AND devices >= 0 AND links >= 0", name="counts_not_negative"),
    )

    team: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    hosts: Mapped[int]
    devices: Mapped[int]
    links: Mapped[int]
    link_kinds: Mapped[list[str]]


def _finite_and_not_negative(*columns: str, prefix: str = "") -> list[CheckConstraint]:
    # PostgreSQL sorts NaN and infinity above every number, so one upper bound refuses both. It
    # keeps 63 characters of a constraint's name, so a long prefix of columns is no part of it.
    return [
        CheckConstraint(f"{prefix}{column} BETWEEN 0 AND 1e300", name=f"{column}_range")
        for column in columns
    ]


class Measurements(Base):
    """One measured cost of a profile revision; a column that is NULL is unknown, not zero."""

    __tablename__ = "measurements"
    __table_args__ = (
        _belongs_to_revision("profile_revision", name_column="profile"),
        CheckConstraint("kind = 'profiles'", name="kind_is_profiles"),
        CheckConstraint("position >= 0", name="position_not_negative"),
        CheckConstraint(
            "microbatch_size >= 1 AND sequence_length >= 1 AND tensor_parallel >= 1",
            name="shape_positive",
        ),
        CheckConstraint(
            "saved_activation_bytes >= 0 AND workspace_bytes >= 0 AND samples >= 0",
            name="counts_not_negative",
        ),
        *_finite_and_not_negative(
            "forward_seconds",
            "backward_seconds",
            "backward_input_seconds",
            "backward_weight_seconds",
            "recompute_seconds",
            "tensor_parallel_communication_seconds",
            "relative_deviation",
        ),
        *_finite_and_not_negative(
            "forward_communication_seconds",
            "forward_exposed_seconds",
            "backward_communication_seconds",
            "backward_exposed_seconds",
            "recompute_communication_seconds",
            "recompute_exposed_seconds",
            prefix="tensor_parallel_",
        ),
        # One layer, or one device, compared across profiles, in the order of a page.
        Index("ix_measurements_layer", "team", "layer", "profile", "profile_revision", "position"),
        Index(
            "ix_measurements_device", "team", "device", "profile", "profile_revision", "position"
        ),
    )

    team: Mapped[str] = mapped_column(primary_key=True)
    profile: Mapped[str] = mapped_column(primary_key=True)
    profile_revision: Mapped[int] = mapped_column(primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    # Always 'profiles': lets the foreign key say that only a profile has measurements.
    kind: Mapped[str]
    layer: Mapped[str]
    device: Mapped[str | None]
    precision: Mapped[str | None]
    microbatch_size: Mapped[int]
    sequence_length: Mapped[int | None]
    tensor_parallel: Mapped[int]
    recompute: Mapped[str]
    forward_seconds: Mapped[float]
    backward_seconds: Mapped[float | None]
    backward_input_seconds: Mapped[float | None]
    backward_weight_seconds: Mapped[float | None]
    recompute_seconds: Mapped[float | None]
    tensor_parallel_communication_seconds: Mapped[float | None]
    saved_activation_bytes: Mapped[int | None]
    workspace_bytes: Mapped[int | None]
    samples: Mapped[int | None]
    relative_deviation: Mapped[float | None]
    tensor_parallel_forward_communication_seconds: Mapped[float | None]
    tensor_parallel_forward_exposed_seconds: Mapped[float | None]
    tensor_parallel_backward_communication_seconds: Mapped[float | None]
    tensor_parallel_backward_exposed_seconds: Mapped[float | None]
    tensor_parallel_recompute_communication_seconds: Mapped[float | None]
    tensor_parallel_recompute_exposed_seconds: Mapped[float | None]


class Estimates(Base):
    """A stored answer, addressed by the digest of everything it depends on."""

    __tablename__ = "estimates"
    __table_args__ = (ForeignKeyConstraint(["team"], ["teams.name"]),)

    team: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(primary_key=True)
    model_version: Mapped[str]
    request: Mapped[bytes]
    answer: Mapped[bytes]
    created_at: Mapped[datetime]


class Tokens(Base):
    """A bearer token without its secret; rows are never removed.

    A token is looked up by its id before its team is known, so ids are unique across teams.
    """

    __tablename__ = "tokens"
    __table_args__ = (
        ForeignKeyConstraint(["team"], ["teams.name"]),
        UniqueConstraint("id"),
        CheckConstraint("length(id) = 20", name="id_length"),
        CheckConstraint("length(secret_hash) = 32", name="secret_hash_length"),
    )

    team: Mapped[str] = mapped_column(primary_key=True)
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str | None]
    secret_hash: Mapped[bytes]
    scopes: Mapped[list[str]]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]


class IdempotencyKeys(Base):
    """A request that is done once. Until it has a status it is being done, by `holder`.

    `body` is the first answer's; where that held a secret, `made` says of what instead.
    """

    __tablename__ = "idempotency_keys"
    __table_args__ = (
        ForeignKeyConstraint(["team"], ["teams.name"]),
        CheckConstraint("length(key) BETWEEN 1 AND 255", name="key_length"),
        CheckConstraint("length(fingerprint) = 32", name="fingerprint_length"),
        CheckConstraint(
            "(status_code IS NULL AND headers IS NULL AND body IS NULL AND made IS NULL) OR "
            "(status_code IS NOT NULL AND headers IS NOT NULL AND "
            "(body IS NULL) <> (made IS NULL))",
            name="answer_whole",
        ),
        Index("ix_idempotency_keys_expiry", "team", "expires_at"),
    )

    team: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    fingerprint: Mapped[bytes]
    holder: Mapped[str]
    leased_until: Mapped[datetime]
    expires_at: Mapped[datetime]
    status_code: Mapped[int | None]
    headers: Mapped[dict[str, Any] | None]
    body: Mapped[bytes | None]
    made: Mapped[str | None]
