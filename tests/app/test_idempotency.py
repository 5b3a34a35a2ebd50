"""A request is done once: what happens to its key when it succeeds, fails, dies or is late."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import pytest

from service.app.errors import AnswerNotKept, KeyInUse, KeyReused, NotFound
from service.app.idempotency import (
    KEPT_FOR,
    LEASE,
    Answer,
    KeyedRequest,
    Record,
    answer_once,
    record_nothing,
)
from service.app.ports import Scope, Token
from service.app.services import Services
from tests.app.fakes import FakeStorage, fake_services

REQUEST = KeyedRequest("key", bytes(32))
Create: TypeAlias = Callable[[Record[int]], Awaitable[int]]


def answer(made: int) -> Answer:
    return Answer(201, {"Location": f"/{made}"}, b"%d" % made)


class Creation:
    """Stores a token, a new one each time it is called, in the transaction of the record."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.calls = 0

    async def __call__(self, record: Record[int]) -> int:
        self.calls += 1
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        made = Token(f"{self.calls:020x}", None, frozenset({Scope.READ}), moment, moment)
        async with self.services.storage.writing() as unit:
            await unit.tokens.add(made, bytes(32))
            await record(unit, self.calls)
        return self.calls


@pytest.fixture
def storage() -> FakeStorage:
    return FakeStorage()


@pytest.fixture
def services(storage: FakeStorage) -> Services:
    return fake_services(storage)


def forward(services: Services, by: timedelta) -> None:
    """Let the time of the services go by."""
    services.clock._now += by  # type: ignore[attr-defined]


async def test_a_request_without_a_key_is_done_each_time(services: Services) -> None:
    creation = Creation(services)
    for number in (1, 2):
        assert await answer_once(services, None, creation, answer) == (answer(number), False)


async def test_the_second_time_the_first_answer_comes_back(
    services: Services, storage: FakeStorage
) -> None:
    creation = Creation(services)
    assert await answer_once(services, REQUEST, creation, answer) == (answer(1), False)
    assert await answer_once(services, REQUEST, creation, answer) == (answer(1), True)
    assert creation.calls == len(storage.state.tokens) == 1


async def test_another_request_under_the_key_is_refused(services: Services) -> None:
    creation = Creation(services)
    await answer_once(services, REQUEST, creation, answer)
    other = KeyedRequest("key", bytes([1]) * 32)
    with pytest.raises(KeyReused):
        await answer_once(services, other, creation, answer)
    assert creation.calls == 1


async def test_what_stores_nothing_keeps_its_answer_all_the_same(services: Services) -> None:
    async def known(_record: Record[int]) -> int:
        return 7

    assert await answer_once(services, REQUEST, known, answer) == (answer(7), False)
    assert await answer_once(services, REQUEST, known, answer) == (answer(7), True)


async def test_a_second_request_is_told_to_wait(services: Services) -> None:
    creation, going, may_end = Creation(services), asyncio.Event(), asyncio.Event()

    async def slow(record: Record[int]) -> int:
        going.set()
        await may_end.wait()
        return await creation(record)

    first = asyncio.create_task(answer_once(services, REQUEST, slow, answer))
    await going.wait()
    with pytest.raises(KeyInUse):
        await answer_once(services, REQUEST, creation, answer)
    may_end.set()
    assert await first == (answer(1), False)
    assert creation.calls == 1


async def test_a_refused_request_leaves_no_key(services: Services, storage: FakeStorage) -> None:
    async def refused(record: Record[int]) -> int:
        raise NotFound("nothing there")

    async def failed_after_storing(record: Record[int]) -> int:
        async with services.storage.writing() as unit:
            await record(unit, 1)
            raise ZeroDivisionError

    with pytest.raises(NotFound):
        await answer_once(services, REQUEST, refused, answer)
    with pytest.raises(ZeroDivisionError):
        await answer_once(services, REQUEST, failed_after_storing, answer)
    assert storage.state.keys == {}
    assert (await answer_once(services, REQUEST, Creation(services), answer))[1] is False


async def test_a_cancelled_request_leaves_no_key(services: Services, storage: FakeStorage) -> None:
    going = asyncio.Event()

    async def endless(record: Record[int]) -> int:
        going.set()
        await asyncio.Event().wait()
        return 0

    task = asyncio.create_task(answer_once(services, REQUEST, endless, answer))
    await going.wait()
    assert storage.state.keys
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert storage.state.keys == {}


async def test_a_request_that_lost_its_key_stores_nothing(
    services: Services, storage: FakeStorage
) -> None:
    """Whoever is taken for dead and lives may not do the work a second time."""
    creation, going, may_end = Creation(services), asyncio.Event(), asyncio.Event()

    async def late(record: Record[int]) -> int:
        going.set()
        await may_end.wait()
        return await creation(record)

    first = asyncio.create_task(answer_once(services, REQUEST, late, answer))
    await going.wait()
    forward(services, LEASE)
    assert await answer_once(services, REQUEST, creation, answer) == (answer(1), False)
    may_end.set()
    with pytest.raises(KeyInUse, match="taken it over"):
        await first
    assert len(storage.state.tokens) == 1
    assert await answer_once(services, REQUEST, creation, answer) == (answer(1), True)


async def test_a_secret_is_not_stored(services: Services, storage: FakeStorage) -> None:
    def secret(made: int) -> Answer:
        return Answer(201, {}, b"hush", shown_once="the token 1")

    creation = Creation(services)
    first, _ = await answer_once(services, REQUEST, creation, secret)
    assert first.body == b"hush"
    with pytest.raises(AnswerNotKept, match="the token 1"):
        await answer_once(services, REQUEST, creation, secret)
    assert b"hush" not in repr(storage.state).encode()
    assert creation.calls == 1


async def test_keys_expire_and_each_new_one_takes_some_of_them_away(
    services: Services, storage: FakeStorage
) -> None:
    creation = Creation(services)
    for number in range(12):
        await answer_once(services, KeyedRequest(f"{number}", bytes(32)), creation, answer)
    forward(services, KEPT_FOR)
    await answer_once(services, REQUEST, creation, answer)
    assert len(storage.state.keys) == 3  # ten are gone
    other = KeyedRequest("11", bytes([1]) * 32)  # also one that is there still is free
    assert (await answer_once(services, other, creation, answer))[1] is False
    assert storage.state.keys.keys() == {"key", "11"}


async def test_nothing_is_recorded_without_a_key(services: Services) -> None:
    async with services.storage.writing() as unit:
        await record_nothing(unit, object())
