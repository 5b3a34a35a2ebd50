"""Idempotency keys of a team: held by one request at a time, in whatever process."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy.exc import IntegrityError

from service.app.ports import HeldKey, KeptAnswer, KeyClaim
from service.store.database import SqlDatabase
from service.store.engine import create_engine
from service.store.unit_of_work import SqlStorage
from tests.store.rows import key_claim, token

CLAIM = key_claim()
ANSWER = KeptAnswer(201, {"ETag": '"x"', "Location": "/v1/x"}, b'{"a":1}')
SECRET = KeptAnswer(201, {}, None, made="the token 1")


async def claim(storage: SqlStorage, wanted: KeyClaim = CLAIM) -> HeldKey | None:
    async with storage.writing() as unit:
        return await unit.keys.claim(wanted)


async def complete(storage: SqlStorage, answer: KeptAnswer, held: KeyClaim = CLAIM) -> bool:
    async with storage.writing() as unit:
        return await unit.keys.complete(held, answer)


def later(seconds: float, claim: KeyClaim = CLAIM, holder: str = "second") -> KeyClaim:
    moment = claim.claimed_at + timedelta(seconds=seconds)
    return key_claim(claim.key, claimed_at=moment, holder=holder)


@pytest.mark.parametrize("answer", [ANSWER, SECRET])
async def test_the_first_answer_comes_back_as_it_was_kept(
    storage: SqlStorage, answer: KeptAnswer
) -> None:
    assert await claim(storage) is None
    assert await claim(storage, later(1)) == HeldKey(CLAIM.fingerprint, None)
    assert await complete(storage, answer)
    assert await claim(storage, later(100)) == HeldKey(CLAIM.fingerprint, answer)


async def test_the_fingerprint_is_that_of_the_request_that_has_the_key(storage: SqlStorage) -> None:
    await claim(storage)
    other = replace(later(1), fingerprint=bytes([1]) * 32)
    assert await claim(storage, other) == HeldKey(CLAIM.fingerprint, None)


async def test_a_released_key_is_free(storage: SqlStorage) -> None:
    await claim(storage)
    async with storage.writing() as unit:
        await unit.keys.release(CLAIM)
    assert await claim(storage, later(1)) is None


async def test_an_answered_key_is_not_released(storage: SqlStorage) -> None:
    await claim(storage)
    await complete(storage, ANSWER)
    async with storage.writing() as unit:
        await unit.keys.release(CLAIM)
    assert await claim(storage, later(1)) == HeldKey(CLAIM.fingerprint, ANSWER)


async def test_a_key_whose_lease_has_run_out_is_taken_over(storage: SqlStorage) -> None:
    await claim(storage)
    assert await claim(storage, later(59.999)) is not None
    second = later(60)
    assert await claim(storage, second) is None
    # The first one lives after all: it can neither complete nor release what is not its own.
    assert not await complete(storage, ANSWER)
    async with storage.writing() as unit:
        await unit.keys.release(CLAIM)
    assert await complete(storage, SECRET, second)
    assert await claim(storage, later(200)) == HeldKey(CLAIM.fingerprint, SECRET)


async def test_an_answer_expires_and_leaves_nothing_in_the_next_one(storage: SqlStorage) -> None:
    await claim(storage)
    await complete(storage, ANSWER)
    assert await claim(storage, later(86_399)) is not None
    assert await claim(storage, later(86_400)) is None
    assert await claim(storage, later(86_401, holder="third")) == HeldKey(CLAIM.fingerprint, None)


async def test_expired_keys_are_removed_some_at_a_time(storage: SqlStorage) -> None:
    claims = [
        key_claim(f"key-{number}", claimed_at=CLAIM.claimed_at + timedelta(seconds=number))
        for number in range(5)
    ]
    for each in claims:
        await claim(storage, each)

    async def left() -> list[str]:
        async with storage.writing() as unit:
            asked = [(each, await unit.keys.claim(later(-1, each, "x"))) for each in claims]
        # A key that was gone is claimed by asking; it is given back.
        gone = [each for each, held in asked if held is None]
        async with storage.writing() as unit:
            for each in gone:
                await unit.keys.release(later(-1, each, "x"))
        return [each.key for each, held in asked if held is not None]

    async def drop(moment_of: KeyClaim, limit: int) -> None:
        async with storage.writing() as unit:
            await unit.keys.drop_expired(moment_of.expires_at, limit)

    await drop(claims[3], 2)
    assert await left() == ["key-2", "key-3", "key-4"]
    await drop(claims[3], 10)
    assert await left() == ["key-4"]


async def test_teams_do_not_meet(database: SqlDatabase) -> None:
    crew, other = database.for_team("crew"), database.for_team("other")
    assert await claim(crew) is None
    assert await claim(other) is None
    assert await complete(crew, ANSWER)
    assert await claim(other, later(1)) == HeldKey(CLAIM.fingerprint, None)
    async with other.writing() as unit:
        await unit.keys.drop_expired(CLAIM.expires_at, 10)
    assert await claim(crew, later(1)) == HeldKey(CLAIM.fingerprint, ANSWER)


async def test_one_of_many_claims_in_two_processes_wins(database_url: str) -> None:
    """Two engines stand for two processes: they share the database and nothing else."""
    engines = [create_engine(database_url) for _ in range(2)]
    try:
        storages = [SqlStorage(engine) for engine in engines]
        claims = [replace(CLAIM, holder=f"holder-{number}") for number in range(16)]
        outcomes = await asyncio.gather(
            *(claim(storages[number % 2], each) for number, each in enumerate(claims))
        )
        assert outcomes.count(None) == 1
        assert outcomes.count(HeldKey(CLAIM.fingerprint, None)) == 15
        winner = claims[outcomes.index(None)]
        completed = [await complete(storages[0], ANSWER, each) for each in claims]
        assert completed == [each is winner for each in claims]
    finally:
        for engine in engines:
            await engine.dispose()


async def test_a_key_and_what_it_stands_for_are_stored_together_or_not_at_all(
    storage: SqlStorage,
) -> None:
    async def store_and_fail() -> None:
        async with storage.writing() as unit:
            await unit.tokens.add(token(), bytes(32))
            assert await unit.keys.complete(CLAIM, ANSWER)
            raise RuntimeError

    await claim(storage)
    with pytest.raises(RuntimeError):
        await store_and_fail()
    assert await claim(storage, later(1)) == HeldKey(CLAIM.fingerprint, None)
    async with storage.reading() as unit:
        assert await unit.tokens.page(10) == []


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(KeptAnswer(201, {}, None, None), id="neither body nor what was made"),
        pytest.param(KeptAnswer(201, {}, b"{}", "the token"), id="both"),
    ],
)
async def test_half_an_answer_is_refused_by_the_database(
    storage: SqlStorage, answer: KeptAnswer
) -> None:
    await claim(storage)
    with pytest.raises(IntegrityError):
        await complete(storage, answer)


@pytest.mark.parametrize(
    "wrong", [{"key": ""}, {"key": "k" * 256}, {"fingerprint": bytes(31)}], ids=str
)
async def test_what_is_no_key_is_refused_by_the_database(
    storage: SqlStorage, wrong: dict[str, object]
) -> None:
    with pytest.raises(IntegrityError):
        await claim(storage, replace(CLAIM, **wrong))  # type: ignore[arg-type]
