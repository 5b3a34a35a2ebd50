"""What the use cases need from the outside, as small protocols.

A unit of work is built for one team, so no query below it can forget whose rows it reads. Only the
`TokenDirectory`, which finds out whose request it is, looks at all teams.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from service.app.measurement_rows import MeasurementFilter, MeasurementRow

__all__ = [
    "Clock",
    "Database",
    "DocumentKind",
    "DocumentStore",
    "EstimateStore",
    "Executor",
    "HeldKey",
    "KeptAnswer",
    "KeyClaim",
    "KeyStore",
    "KnownToken",
    "MeasurementFilter",
    "MeasurementRow",
    "MeasurementStore",
    "NewRevision",
    "Observer",
    "Revision",
    "RevisionHeading",
    "Scope",
    "Storage",
    "StoredEstimate",
    "Token",
    "TokenDirectory",
    "TokenStore",
    "TopologySummary",
    "UnitOfWork",
    "WorkHolder",
]

T = TypeVar("T")


class DocumentKind(StrEnum):
    """The kinds of stored documents, each named as in its route (`/v1/topologies`)."""

    TOPOLOGY = "topologies"
    MODEL = "models"
    PROFILE = "profiles"
    ROUTING = "routings"
    PLAN = "plans"


@dataclass(frozen=True, slots=True)
class NewRevision:
    """A document ready to be stored: canonical bytes, their digest, and what people see first."""

    content: bytes
    digest: str
    summary: dict[str, Any]
    warnings: tuple[str, ...] = ()
    # Resolved references of the document, "topology" -> "two-hosts@1"; what a pin keeps alive.
    pins: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class RevisionHeading:
    """What a list shows of one immutable, numbered state of a named document."""

    kind: DocumentKind
    name: str
    number: int
    digest: str
    created_at: datetime
    summary: dict[str, Any]
    warnings: tuple[str, ...]

    @property
    def reference(self) -> str:
        """`name@number`."""
        return f"{self.name}@{self.number}"


@dataclass(frozen=True, slots=True)
class Revision(RevisionHeading):
    """A revision with its content, which may be megabytes: lists go without it."""

    content: bytes

    @property
    def heading(self) -> RevisionHeading:
        """The revision without its content."""
        return RevisionHeading(
            self.kind,
            self.name,
            self.number,
            self.digest,
            self.created_at,
            self.summary,
            self.warnings,
        )


@dataclass(frozen=True, slots=True)
class TopologySummary:
    """Typed columns beside a topology's canonical document."""

    hosts: int
    devices: int
    links: int
    link_kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredEstimate:
    """An answer, addressed by the digest of everything it depends on."""

    digest: str
    model_version: str
    request: bytes  # the resolved request: patched plan with everything pinned
    answer: bytes
    created_at: datetime


class Scope(StrEnum):
    """What a token allows, each by itself: a scope holds no other one."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Token:
    """What is known of a token besides its secret."""

    id: str  # ids are in the order in which the tokens were made
    name: str | None
    scopes: frozenset[Scope]
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class KnownToken:
    """A token with what is needed to check a secret, and the team it speaks for."""

    team: str
    token: Token
    secret_hash: bytes  # SHA-256, 32 bytes


@dataclass(frozen=True, slots=True)
class KeyClaim:
    """An idempotency key that one request wants to hold until it is answered or fails."""

    key: str
    fingerprint: bytes  # SHA-256 of what the request asks for, 32 bytes
    holder: str  # tells this attempt from all others
    claimed_at: datetime
    # From then on the holder is taken for dead, and the next request takes the key over.
    leased_until: datetime
    expires_at: datetime  # from then on the key is as if it had never been used


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """The first answer to a key. Without a body it held the secret of `made`."""

    status_code: int
    headers: Mapping[str, str]
    body: bytes | None
    made: str | None = None


@dataclass(frozen=True, slots=True)
class HeldKey:
    """A key that another request has; without an answer that one is not finished."""

    fingerprint: bytes
    answer: KeptAnswer | None


class DocumentStore(Protocol):
    """Revisions of the documents of one team."""

    async def find(
        self, kind: DocumentKind, name: str, number: int | None = None
    ) -> Revision | None:
        """The newest revision unless archived, or the numbered one even when archived."""

    async def lock(self, kind: DocumentKind, name: str) -> Revision | None:
        """Make the name exist, hold it until the unit of work ends; its newest revision.

        None when it is archived, as when it never had one; numbers go on all the same.
        """

    async def append(self, kind: DocumentKind, name: str, new: NewRevision) -> Revision:
        """Store the next revision of a name held by `lock`; unarchives the name."""

    async def page(
        self, kind: DocumentKind, limit: int, after: str | None = None
    ) -> Sequence[RevisionHeading]:
        """Newest revisions of names that are not archived, by name, strictly after `after`."""

    async def history(
        self, kind: DocumentKind, name: str, limit: int, before: int | None = None
    ) -> Sequence[RevisionHeading]:
        """Revisions of one name, newest first, strictly before number `before`."""

    async def archive(self, kind: DocumentKind, name: str) -> bool:
        """Take the name out of lists and new references; False when there is none."""

    async def add_topology_summary(self, revision: Revision, summary: TopologySummary) -> None:
        """Store the typed columns of a topology revision just appended."""


class MeasurementStore(Protocol):
    """The measurements of all profile revisions of one team, as rows."""

    async def add(self, revision: Revision, rows: Iterable[MeasurementRow]) -> None:
        """Store the rows of a profile revision just appended, some at a time."""

    async def page(
        self, wanted: MeasurementFilter, limit: int, after: tuple[str, int, int] | None = None
    ) -> Sequence[MeasurementRow]:
        """Rows of the newest revisions (or of the one named) of profiles that are not archived.

        Ordered by (profile, revision, position), strictly after `after`.
        """


class EstimateStore(Protocol):
    """Stored answers of one team, by digest."""

    async def find(self, digest: str) -> StoredEstimate | None:
        """The stored answer, if any."""

    async def find_all(self, digests: Collection[str]) -> Mapping[str, StoredEstimate]:
        """The stored answers of those digests that have one, by digest."""

    async def add(self, *estimates: StoredEstimate) -> None:
        """Store answers; storing the same digest again changes nothing."""


class TokenStore(Protocol):
    """The tokens of one team. None is ever removed."""

    async def add(self, token: Token, secret_hash: bytes) -> None:
        """Store a new token with the SHA-256 hash of its secret."""

    async def page(self, limit: int, before: str | None = None) -> Sequence[Token]:
        """Tokens, newest first, made strictly before the one with the id `before`."""

    async def revoke(self, token_id: str, moment: datetime) -> bool:
        """Make a token useless from that moment on, unless it is already; False without one."""


class KeyStore(Protocol):
    """The idempotency keys of one team."""

    async def claim(self, claim: KeyClaim) -> HeldKey | None:
        """Take a key; or what is known of the request that has it."""

    async def complete(self, claim: KeyClaim, answer: KeptAnswer) -> bool:
        """Keep the answer to a claimed key; False when another request has taken it over."""

    async def release(self, claim: KeyClaim) -> None:
        """Forget a claimed key, unless it has been answered or taken over."""

    async def drop_expired(self, moment: datetime, limit: int) -> None:
        """Remove at most `limit` keys that have expired by that moment."""


class UnitOfWork(Protocol):
    """One transaction for one team. Leaving it normally commits when writing; an error undoes."""

    @property
    def documents(self) -> DocumentStore: ...
    @property
    def measurements(self) -> MeasurementStore: ...
    @property
    def estimates(self) -> EstimateStore: ...
    @property
    def tokens(self) -> TokenStore: ...
    @property
    def keys(self) -> KeyStore: ...


class Storage(Protocol):
    """Opens units of work for one team."""

    def reading(self) -> AbstractAsyncContextManager[UnitOfWork]:
        """A unit of work that only reads."""

    def writing(self) -> AbstractAsyncContextManager[UnitOfWork]:
        """A unit of work that commits at its end; SQLite begins it IMMEDIATE."""


class TokenDirectory(Protocol):
    """The tokens of all teams, to find out which team a request is from. It can do nothing else."""

    async def find(self, token_id: str) -> KnownToken | None:
        """The token of that id, whatever its team and whether or not it still holds."""

    async def is_empty(self) -> bool:
        """Whether no team has ever made a token."""


class Database(Protocol):
    """Everything that is stored, reached by naming a team."""

    @property
    def token_directory(self) -> TokenDirectory: ...

    def for_team(self, team: str) -> Storage:
        """The storage of one team. The team exists as soon as something of it is written."""


class Executor(Protocol):
    """Runs pure, long work away from the event loop."""

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """The function's result; its exception is raised here."""


class WorkHolder(Protocol):
    """Knows what a request still has to compute, so that others can be told how long it takes."""

    def hold_preparation(self, size_bytes: int) -> None:
        """So many bytes of documents are to be read and checked, beside what was said before.

        Raises `TooManyAtOnce` or `Overloaded`: it would only wait.
        """

    def hold_work(self, units: int) -> None:
        """So much is to be computed, in operation-runs, and nothing of what was said before.

        Raises `TooManyAtOnce` or `Overloaded`: it would only wait.
        """


class Observer(Protocol):
    """Is told what happens, for those who run the service. It changes no answer."""

    def estimated(self, *, computed: bool) -> None:
        """An estimate was given: computed now, or as it was stored."""

    def span(self, name: str, /) -> AbstractContextManager[None]:
        """Around a part of the work that takes time."""


class Clock(Protocol):
    """Tells the time; the only one who does."""

    def now(self) -> datetime:
        """The present moment, in UTC."""
