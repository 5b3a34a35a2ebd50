"""What the tests of the stores put into them."""

import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from service.app.ports import (
    DocumentKind,
    KeyClaim,
    MeasurementRow,
    NewRevision,
    Revision,
    Scope,
    StoredEstimate,
    Token,
)
from service.store.unit_of_work import SqlStorage

__all__ = [
    "SteppingClock",
    "estimate",
    "key_claim",
    "measurement",
    "new_revision",
    "put",
    "put_profile",
    "token",
]


class SteppingClock:
    """A clock that moves on by a second each time it is asked."""

    def __init__(self, start: datetime = datetime(2026, 3, 1, 12, 0, 0, 123456, UTC)) -> None:
        self.moment = start

    def now(self) -> datetime:
        """The next moment."""
        self.moment += timedelta(seconds=1)
        return self.moment


def new_revision(text: str = "content", **changes: Any) -> NewRevision:
    """A revision ready to be stored, told apart by its text."""
    content = text.encode()
    made = NewRevision(
        content=content,
        digest=f"sha256:{hashlib.sha256(content).hexdigest()}",
        summary={"text": text},
    )
    return replace(made, **changes)


async def put(
    storage: SqlStorage, kind: DocumentKind, name: str, text: str = "content", **changes: Any
) -> Revision:
    """Store the next revision of a name in a unit of work of its own."""
    async with storage.writing() as unit:
        await unit.documents.lock(kind, name)
        return await unit.documents.append(kind, name, new_revision(text, **changes))


def measurement(revision: Revision, position: int = 0, **changes: Any) -> MeasurementRow:
    """A row of a profile revision with nothing known that may be unknown."""
    made = MeasurementRow(
        profile=revision.name,
        profile_revision=revision.number,
        position=position,
        layer="layer0",
        device=None,
        precision=None,
        microbatch_size=1,
        sequence_length=None,
        tensor_parallel=1,
        recompute="none",
        forward_seconds=0.001,
        backward_seconds=None,
        backward_input_seconds=None,
        backward_weight_seconds=None,
        recompute_seconds=None,
        tensor_parallel_communication_seconds=None,
        saved_activation_bytes=None,
        workspace_bytes=None,
        samples=None,
        relative_deviation=None,
    )
    return replace(made, **changes)


async def put_profile(storage: SqlStorage, name: str, *rows: dict[str, Any]) -> Revision:
    """Store the next revision of a profile with these measurements, at positions 0, 1, ..."""
    async with storage.writing() as unit:
        await unit.documents.lock(DocumentKind.PROFILE, name)
        revision = await unit.documents.append(DocumentKind.PROFILE, name, new_revision())
        await unit.measurements.add(
            revision,
            [measurement(revision, position, **row) for position, row in enumerate(rows)],
        )
        return revision


def estimate(digest: str = "sha256:00", **changes: Any) -> StoredEstimate:
    """An answer to be stored."""
    made = StoredEstimate(
        digest=digest,
        model_version="1",
        request=b'{"request":1}',
        answer=b'{"answer":1}',
        created_at=datetime(2026, 3, 1, 12, 0, 0, 123456, UTC),
    )
    return replace(made, **changes)


def token(number: int = 1, **changes: Any) -> Token:
    """A token of ours; later ones have greater numbers."""
    created_at = datetime(2026, 3, 1, 12, 0, 0, 123456, UTC)
    made = Token(
        id=f"{number:020x}",
        name=None,
        scopes=frozenset({Scope.READ}),
        created_at=created_at,
        expires_at=created_at + timedelta(days=1),
    )
    return replace(made, **changes)


def key_claim(key: str = "key", **changes: Any) -> KeyClaim:
    """A request that wants a key for a minute, and its answer kept for a day."""
    claimed_at = changes.get("claimed_at", datetime(2026, 3, 1, 12, 0, 0, 123456, UTC))
    made = KeyClaim(
        key=key,
        fingerprint=bytes(32),
        holder="first",
        claimed_at=claimed_at,
        leased_until=claimed_at + timedelta(minutes=1),
        expires_at=claimed_at + timedelta(days=1),
    )
    return replace(made, **changes)
