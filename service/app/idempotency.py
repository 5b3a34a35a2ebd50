"""Doing a request once, however often it is sent: idempotency keys.

A caller who got no answer sends the same request again under the same key, and gets the answer of
the first time.

    claim       the key is written in a transaction of its own, with a lease: whoever sends it now
                is told to wait
    complete    the answer is kept in the transaction that stores what the request creates: there
                is both or neither
    release     a request that is refused or fails leaves no key, so it can be sent again

A process that dies in between leaves a claim, which the next request takes over when its lease has
run out. Should the first one live after all, it can't complete any more, and stores nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from secrets import token_hex
from typing import TypeVar

from service.app.errors import AnswerNotKept, AppError, KeyInUse, KeyReused
from service.app.ports import HeldKey, KeptAnswer, KeyClaim, UnitOfWork
from service.app.services import Services

__all__ = ["KEPT_FOR", "LEASE", "Answer", "KeyedRequest", "Record", "answer_once", "record_nothing"]

T = TypeVar("T")

# Longer than any request takes, queues and time-outs of the database included.
LEASE = timedelta(seconds=60)
KEPT_FOR = timedelta(hours=24)

# A claim adds one key and removes up to this many, so what has expired goes away sooner than keys
# come, and no request pays for a night of others.
_DROPPED_AT_A_TIME = 10

# Called by a use case in its transaction, with what it has made, before the transaction ends.
Record = Callable[[UnitOfWork, T], Awaitable[None]]


async def record_nothing(_unit: UnitOfWork, _outcome: object) -> None:
    """The `Record` of a request without a key."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it is sent.

    `shown_once` names what was made when the body holds its secret: such a body is never stored.
    """

    status_code: int
    headers: Mapping[str, str]
    body: bytes
    shown_once: str | None = None


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A key and the SHA-256 (32 bytes) of what is asked for under it."""

    key: str
    fingerprint: bytes


async def answer_once(
    services: Services,
    request: KeyedRequest | None,
    create: Callable[[Record[T]], Awaitable[T]],
    answer: Callable[[T], Answer],
) -> tuple[Answer, bool]:
    """The answer to a request, and whether it is that of an earlier request with the same key.

    `create` calls its argument in the transaction that stores what it makes. Where it stores
    nothing, since all is stored already, the answer is kept afterwards.

    Raises `KeyInUse`, `KeyReused`, `AnswerNotKept`, and whatever `create` raises.
    """
    if request is None:
        return answer(await create(record_nothing)), False
    now = services.clock.now()
    claim = KeyClaim(
        key=request.key,
        fingerprint=request.fingerprint,
        holder=token_hex(16),
        claimed_at=now,
        leased_until=now + LEASE,
        expires_at=now + KEPT_FOR,
    )
    async with services.storage.writing() as unit:
        held = await unit.keys.claim(claim)
        if held is None:
            await unit.keys.drop_expired(now, _DROPPED_AT_A_TIME)
    if held is not None:
        return _first_answer(request, held), True
    return await _claimed(services, claim, create, answer), False


async def _claimed(
    services: Services,
    claim: KeyClaim,
    create: Callable[[Record[T]], Awaitable[T]],
    answer: Callable[[T], Answer],
) -> Answer:
    kept: list[Answer] = []

    async def record(unit: UnitOfWork, outcome: T) -> None:
        made = answer(outcome)
        if not await unit.keys.complete(claim, _kept(made)):
            raise KeyInUse("this took so long that another request with the key has taken it over")
        kept.append(made)

    try:
        outcome = await create(record)
        if not kept:
            async with services.storage.writing() as unit:
                await record(unit, outcome)
    except BaseException:
        # Not even a cancelled request leaves its key. Where the database is away, the lease ends.
        with suppress(AppError):
            await asyncio.shield(_release(services, claim))
        raise
    return kept[0]


async def _release(services: Services, claim: KeyClaim) -> None:
    async with services.storage.writing() as unit:
        await unit.keys.release(claim)


def _kept(answer: Answer) -> KeptAnswer:
    return KeptAnswer(
        status_code=answer.status_code,
        headers=answer.headers,
        body=answer.body if answer.shown_once is None else None,
        made=answer.shown_once,
    )


def _first_answer(request: KeyedRequest, held: HeldKey) -> Answer:
    if held.fingerprint != request.fingerprint:
        raise KeyReused(
            "this idempotency key was used for another request: another route, or another body"
        )
    if held.answer is None:
        raise KeyInUse("the first request with this idempotency key is not finished")
    if held.answer.body is None:
        raise AnswerNotKept(
            f"the first request with this idempotency key made {held.answer.made}, whose secret "
            "was shown once and is stored nowhere: revoke it, and make another with another key"
        )
    return Answer(held.answer.status_code, held.answer.headers, held.answer.body)
