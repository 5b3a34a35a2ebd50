"""Stored answers, on each database."""

import asyncio
from datetime import UTC

import pytest

from service.app.ports import StoredEstimate
from service.store.unit_of_work import SqlStorage
from tests.store.rows import estimate


async def test_an_answer_is_found_as_it_was_stored(storage: SqlStorage) -> None:
    stored = estimate(request=bytes(range(256)), answer=b"\x00\xff" * 100_000)
    async with storage.writing() as unit:
        await unit.estimates.add(stored)
    async with storage.reading() as unit:
        found = await unit.estimates.find(stored.digest)
    assert found == stored
    assert found is not None
    assert found.created_at.tzinfo is UTC


@pytest.mark.parametrize("digest", ["sha256:01", "", "\x00", "\ud800", "%"])
async def test_an_unknown_digest_is_not_found(storage: SqlStorage, digest: str) -> None:
    async with storage.writing() as unit:
        await unit.estimates.add(estimate("sha256:00"))
        assert await unit.estimates.find(digest) is None


async def test_storing_a_digest_again_changes_nothing(storage: SqlStorage) -> None:
    first = estimate(answer=b"first")
    async with storage.writing() as unit:
        await unit.estimates.add(first)
        await unit.estimates.add(estimate(answer=b"second"))
    async with storage.writing() as unit:
        await unit.estimates.add(estimate(answer=b"third"))
    async with storage.reading() as unit:
        assert await unit.estimates.find(first.digest) == first


async def test_many_may_store_the_same_answer_at_once(storage: SqlStorage) -> None:
    async def store(writer: int) -> bytes:
        async with storage.writing() as unit:
            await unit.estimates.add(estimate(answer=f"{writer}".encode()))
        async with storage.reading() as unit:
            found = await unit.estimates.find(estimate().digest)
        assert found is not None
        return found.answer

    answers = await asyncio.gather(*map(store, range(32)))
    assert len(set(answers)) == 1, "each writer reads the one answer that was stored first"


async def test_many_answers_are_stored_and_found_together(storage: SqlStorage) -> None:
    many = [estimate(f"sha256:{n:04}", answer=bytes([n % 256]) * 1000) for n in range(300)]
    async with storage.writing() as unit:
        await unit.estimates.add(estimate("sha256:0007", answer=b"first"))
    async with storage.writing() as unit:
        await unit.estimates.add()
        await unit.estimates.add(*many)
    asked = [stored.digest for stored in many] + ["sha256:absent", "\x00"]
    async with storage.reading() as unit:
        found = await unit.estimates.find_all(asked)
        assert await unit.estimates.find_all([]) == {}
    expected = {stored.digest: stored.answer for stored in many} | {"sha256:0007": b"first"}
    assert {digest: stored.answer for digest, stored in found.items()} == expected


async def test_two_who_store_the_same_answers_in_other_orders_do_not_block_each_other(
    storage: SqlStorage,
) -> None:
    many = [estimate(f"sha256:{n:04}") for n in range(200)]

    async def store(estimates: list[StoredEstimate]) -> None:
        async with storage.writing() as unit:
            await unit.estimates.add(*estimates)

    await asyncio.gather(*(store(many[:: 1 if n % 2 else -1]) for n in range(8)))
    async with storage.reading() as unit:
        assert len(await unit.estimates.find_all([stored.digest for stored in many])) == 200
