"""The ports in memory, for tests of use cases and of HTTP without a database."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from service.app.clusters import ClusterCache
from service.app.ports import (
    Clock,
    DocumentKind,
    Executor,
    HeldKey,
    KeptAnswer,
    KeyClaim,
    KnownToken,
    MeasurementFilter,
    MeasurementRow,
    NewRevision,
    Revision,
    RevisionHeading,
    Storage,
    StoredEstimate,
    Token,
    TopologySummary,
    UnitOfWork,
)
from service.app.references import parse_reference
from service.app.services import Services

__all__ = [
    "FakeClock",
    "FakeDatabase",
    "FakeDocuments",
    "FakeStorage",
    "InlineExecutor",
    "fake_services",
]

T = TypeVar("T")
Key = tuple[DocumentKind, str]


class FakeClock:
    """A clock that moves a second each time it is read."""

    def __init__(self) -> None:
        self._now = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        self._now += timedelta(seconds=1)
        return self._now


class InlineExecutor:
    """Runs at once, on the event loop."""

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        return function(*arguments)


@dataclass
class State:
    """Everything that is stored."""

    revisions: dict[Key, list[Revision]] = field(default_factory=dict)
    archived: set[Key] = field(default_factory=set)
    pins: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    topologies: dict[str, TopologySummary] = field(default_factory=dict)
    rows: list[MeasurementRow] = field(default_factory=list)
    estimates: dict[str, StoredEstimate] = field(default_factory=dict)
    tokens: dict[str, tuple[Token, bytes]] = field(default_factory=dict)
    keys: dict[str, tuple[KeyClaim, KeptAnswer | None]] = field(default_factory=dict)

    def copied(self) -> "State":
        return State(
            {key: list(revisions) for key, revisions in self.revisions.items()},
            set(self.archived),
            dict(self.pins),
            dict(self.topologies),
            list(self.rows),
            dict(self.estimates),
            dict(self.tokens),
            dict(self.keys),
        )


class FakeDocuments:
    def __init__(self, state: State, clock: Clock) -> None:
        self._state = state
        self._clock = clock

    async def find(
        self, kind: DocumentKind, name: str, number: int | None = None
    ) -> Revision | None:
        revisions = self._state.revisions.get((kind, name), [])
        if number is not None:
            return next((r for r in revisions if r.number == number), None)
        if not revisions or (kind, name) in self._state.archived:
            return None
        return revisions[-1]

    async def lock(self, kind: DocumentKind, name: str) -> Revision | None:
        self._state.revisions.setdefault((kind, name), [])
        return await self.find(kind, name)

    async def append(self, kind: DocumentKind, name: str, new: NewRevision) -> Revision:
        revisions = self._state.revisions[kind, name]
        revision = Revision(
            kind,
            name,
            len(revisions) + 1,
            new.digest,
            self._clock.now(),
            new.summary,
            new.warnings,
            new.content,
        )
        revisions.append(revision)
        self._state.archived.discard((kind, name))
        self._state.pins[f"{kind}/{revision.reference}"] = new.pins
        return revision

    async def page(
        self, kind: DocumentKind, limit: int, after: str | None = None
    ) -> Sequence[RevisionHeading]:
        newest = [
            revisions[-1].heading
            for key, revisions in sorted(self._state.revisions.items())
            if key[0] is kind and revisions and key not in self._state.archived
        ]
        return [r for r in newest if after is None or r.name > after][:limit]

    async def history(
        self, kind: DocumentKind, name: str, limit: int, before: int | None = None
    ) -> Sequence[RevisionHeading]:
        revisions = reversed(self._state.revisions.get((kind, name), []))
        return [r.heading for r in revisions if before is None or r.number < before][:limit]

    async def archive(self, kind: DocumentKind, name: str) -> bool:
        if await self.find(kind, name) is None:
            return False
        self._state.archived.add((kind, name))
        return True

    async def add_topology_summary(self, revision: Revision, summary: TopologySummary) -> None:
        self._state.topologies[revision.reference] = summary


class FakeMeasurements:
    def __init__(self, state: State) -> None:
        self._state = state

    async def add(self, revision: Revision, rows: Iterable[MeasurementRow]) -> None:
        for row in rows:
            assert (row.profile, row.profile_revision) == (revision.name, revision.number)
            self._state.rows.append(row)

    async def page(
        self, wanted: MeasurementFilter, limit: int, after: tuple[str, int, int] | None = None
    ) -> Sequence[MeasurementRow]:
        profile = None if wanted.profile is None else parse_reference(wanted.profile)
        found = []
        for row in self._state.rows:
            key = (DocumentKind.PROFILE, row.profile)
            newest = self._state.revisions[key][-1].number
            number = newest if profile is None or profile.number is None else profile.number
            place = (row.profile, row.profile_revision, row.position)
            if (
                key not in self._state.archived
                and row.profile_revision == number
                and (profile is None or profile.name == row.profile)
                and (after is None or place > after)
                and all(
                    getattr(wanted, name) in (None, getattr(row, name))
                    for name in (
                        "layer",
                        "device",
                        "precision",
                        "microbatch_size",
                        "sequence_length",
                        "tensor_parallel",
                    )
                )
            ):
                found.append((place, row))
        return [row for _, row in sorted(found, key=lambda entry: entry[0])][:limit]


class FakeEstimates:
    def __init__(self, state: State) -> None:
        self._state = state

    async def find(self, digest: str) -> StoredEstimate | None:
        return self._state.estimates.get(digest)

    async def find_all(self, digests: Collection[str]) -> Mapping[str, StoredEstimate]:
        return {name: kept for name, kept in self._state.estimates.items() if name in digests}

    async def add(self, *estimates: StoredEstimate) -> None:
        for estimate in estimates:
            self._state.estimates.setdefault(estimate.digest, estimate)


class FakeTokens:
    def __init__(self, state: State) -> None:
        self._state = state

    async def add(self, token: Token, secret_hash: bytes) -> None:
        self._state.tokens[token.id] = token, secret_hash

    async def page(self, limit: int, before: str | None = None) -> Sequence[Token]:
        tokens = [token for _, (token, _) in sorted(self._state.tokens.items(), reverse=True)]
        return [token for token in tokens if before is None or token.id < before][:limit]

    async def revoke(self, token_id: str, moment: datetime) -> bool:
        if token_id not in self._state.tokens:
            return False
        token, secret_hash = self._state.tokens[token_id]
        if token.revoked_at is None:
            self._state.tokens[token_id] = replace(token, revoked_at=moment), secret_hash
        return True


class FakeKeys:
    def __init__(self, state: State) -> None:
        self._keys = state.keys

    async def claim(self, claim: KeyClaim) -> HeldKey | None:
        if claim.key in self._keys:
            held, answer = self._keys[claim.key]
            is_dead = answer is None and held.leased_until <= claim.claimed_at
            if not is_dead and held.expires_at > claim.claimed_at:
                return HeldKey(held.fingerprint, answer)
        self._keys[claim.key] = claim, None
        return None

    async def complete(self, claim: KeyClaim, answer: KeptAnswer) -> bool:
        if self._keys.get(claim.key) != (claim, None):
            return False
        self._keys[claim.key] = claim, answer
        return True

    async def release(self, claim: KeyClaim) -> None:
        if self._keys.get(claim.key) == (claim, None):
            del self._keys[claim.key]

    async def drop_expired(self, moment: datetime, limit: int) -> None:
        expired = [key for key, (claim, _) in self._keys.items() if claim.expires_at <= moment]
        for key in expired[:limit]:
            del self._keys[key]


@dataclass
class FakeUnitOfWork:
    documents: FakeDocuments
    measurements: FakeMeasurements
    estimates: FakeEstimates
    tokens: FakeTokens
    keys: FakeKeys


class FakeStorage:
    """Storage in memory; a failed unit of work leaves nothing behind."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.state = State()
        self._clock = clock or FakeClock()
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[UnitOfWork]:
        yield self._unit(self.state.copied())

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[UnitOfWork]:
        async with self._turn:
            state = self.state.copied()
            yield self._unit(state)
            self.state = state

    def _unit(self, state: State) -> UnitOfWork:
        return FakeUnitOfWork(
            FakeDocuments(state, self._clock),
            FakeMeasurements(state),
            FakeEstimates(state),
            FakeTokens(state),
            FakeKeys(state),
        )


class FakeDatabase:
    """A storage in memory for each team, and the directory of all their tokens.

    `looks` counts how often the directory was asked whether it is empty, `finds` for a token.
    """

    def __init__(self) -> None:
        self.looks = 0
        self.finds = 0
        self._storages: dict[str, FakeStorage] = {}

    @property
    def token_directory(self) -> "FakeDatabase":
        return self

    def for_team(self, team: str) -> FakeStorage:
        return self._storages.setdefault(team, FakeStorage())

    async def find(self, token_id: str) -> KnownToken | None:
        self.finds += 1
        for team, storage in self._storages.items():
            if token_id in storage.state.tokens:
                return KnownToken(team, *storage.state.tokens[token_id])
        return None

    async def is_empty(self) -> bool:
        self.looks += 1
        return not any(storage.state.tokens for storage in self._storages.values())


def fake_services(storage: Storage | None = None, executor: Executor | None = None) -> Services:
    """Services on fakes."""
    clock = FakeClock()
    executor = executor or InlineExecutor()
    return Services(
        storage=storage or FakeStorage(copy(clock)),
        executor=executor,
        clock=clock,
        clusters=ClusterCache(executor),
    )
