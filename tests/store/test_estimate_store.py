"""Stored answers, on each database."""

import asyncio
from datetime import UTC

import pytest

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
