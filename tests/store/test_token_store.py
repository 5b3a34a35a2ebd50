"""Tokens of a team, and the one lookup that knows no team."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from sqlalchemy.exc import IntegrityError

from service.app.errors import Unavailable
from service.app.ports import Database, KnownToken, Scope, Token
from service.store.database import SqlDatabase, SqlTokenDirectory
from service.store.engine import create_engine
from service.store.unit_of_work import SqlStorage
from tests.store.rows import token

HASH = bytes(range(32))
LATER = datetime(2026, 3, 2, tzinfo=UTC)


async def add(storage: SqlStorage, *tokens: Token, secret_hash: bytes = HASH) -> None:
    async with storage.writing() as unit:
        for each in tokens:
            await unit.tokens.add(each, secret_hash)


async def page(storage: SqlStorage, limit: int = 10, before: str | None = None) -> list[Token]:
    async with storage.reading() as unit:
        return list(await unit.tokens.page(limit, before))


def test_it_is_the_database_that_main_asks_for(database: SqlDatabase) -> None:
    port: Database = database
    assert port is database


async def test_a_token_comes_back_as_it_was_stored(storage: SqlStorage) -> None:
    plain = token(1)
    named = token(2, name="nightly", scopes=frozenset(Scope))
    await add(storage, plain, named)
    assert await page(storage) == [named, plain]


async def test_pages_are_newest_first_and_stay_right_while_tokens_are_made(
    storage: SqlStorage,
) -> None:
    made = [token(number) for number in range(1, 6)]
    await add(storage, *made)
    first = await page(storage, 2)
    assert first == [made[4], made[3]]
    await add(storage, token(6))
    assert await page(storage, 2, first[-1].id) == [made[2], made[1]]
    assert await page(storage, 2, made[0].id) == []
    assert await page(storage, 2, "\x00") == []


async def test_revoking_holds_from_the_first_time(storage: SqlStorage) -> None:
    await add(storage, token(1), token(2))
    for moment in (LATER, LATER.replace(year=2027)):
        async with storage.writing() as unit:
            assert await unit.tokens.revoke(token(1).id, moment)
    async with storage.writing() as unit:
        assert not await unit.tokens.revoke(token(3).id, LATER)
        assert not await unit.tokens.revoke("\x00", LATER)
    assert await page(storage) == [token(2), token(1, revoked_at=LATER)]


async def test_a_team_has_its_own_tokens_only(database: SqlDatabase, storage: SqlStorage) -> None:
    other = database.for_team("other")
    await add(storage, token(1))
    await add(other, token(2))
    assert await page(storage) == [token(1)]
    assert await page(other) == [token(2)]
    assert await page(storage, 10, token(2).id) == [token(1)]
    async with storage.writing() as unit:
        assert not await unit.tokens.revoke(token(2).id, LATER)
    assert await page(other) == [token(2)]


async def test_the_directory_knows_whose_token_it_is(
    database: SqlDatabase, storage: SqlStorage
) -> None:
    directory = database.token_directory
    assert await directory.is_empty()
    other = database.for_team("other")
    await add(other, token(2, revoked_at=LATER))
    assert not await directory.is_empty()
    await add(storage, token(1), secret_hash=bytes(32))
    assert await directory.find(token(1).id) == KnownToken("local", token(1), bytes(32))
    revoked = replace(token(2), revoked_at=LATER)
    assert await directory.find(token(2).id) == KnownToken("other", revoked, HASH)
    assert await directory.find(token(3).id) is None
    assert await directory.find("\x00") is None


async def test_an_id_belongs_to_one_team(database: SqlDatabase, storage: SqlStorage) -> None:
    await add(storage, token(1))
    with pytest.raises(IntegrityError):
        await add(database.for_team("other"), token(1))


@pytest.mark.parametrize(
    ("made", "secret_hash"),
    [(token(1), bytes(31)), (token(1, id="short"), HASH)],
    ids=["hash", "id"],
)
async def test_the_database_itself_refuses_a_token_of_another_shape(
    storage: SqlStorage, made: Token, secret_hash: bytes
) -> None:
    with pytest.raises(IntegrityError):
        await add(storage, made, secret_hash=secret_hash)


async def test_a_directory_that_is_away_says_so() -> None:
    engine = create_engine("postgresql://nobody@127.0.0.1:1/none")
    directory = SqlTokenDirectory(engine)
    try:
        with pytest.raises(Unavailable):
            await directory.is_empty()
        with pytest.raises(Unavailable):
            await directory.find(token(1).id)
    finally:
        await engine.dispose()
