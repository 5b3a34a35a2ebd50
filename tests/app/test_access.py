"""Tokens are made, checked and revoked; the first one ends open access."""

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from service.app.access import (
    DEFAULT_LIFETIME,
    LOCAL_TEAM,
    MAX_LIFETIME,
    MIN_LIFETIME,
    Access,
    NewToken,
    Principal,
    create_token,
    revoke_token,
    token_page,
)
from service.app.clusters import ClusterCache
from service.app.errors import NotFound
from service.app.ports import Scope
from service.app.services import Backend
from tests.app.fakes import FakeDatabase, InlineExecutor

READ, WRITE, ADMIN = Scope.READ, Scope.WRITE, Scope.ADMIN
START = datetime(2026, 3, 1, tzinfo=UTC)


class StillClock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.moment = START

    def now(self) -> datetime:
        return self.moment


class World:
    """A database, a clock, and what a running service decides with."""

    def __init__(self) -> None:
        self.clock = StillClock()
        self.database = FakeDatabase()
        executor = InlineExecutor()
        self.backend = Backend(self.database, executor, self.clock, ClusterCache(executor))
        self.access = Access(self.database.token_directory, self.clock)

    async def make(self, team: str, *scopes: Scope, **options: Any) -> NewToken:
        return await create_token(self.backend.for_team(team), scopes, **options)


@pytest.fixture
def world() -> World:
    return World()


async def test_a_token_stands_for_its_team_and_scopes(world: World) -> None:
    made = await world.make("crew", READ, WRITE, name="nightly")
    principal = await world.access.bearer(made.text)
    assert principal == Principal("crew", frozenset({READ, WRITE}), made.token.id)
    assert made.token.name == "nightly"
    assert made.token.expires_at - made.token.created_at == DEFAULT_LIFETIME == timedelta(days=90)


async def test_only_a_hash_of_the_secret_is_stored(world: World) -> None:
    made = await world.make("crew", READ)
    prefix, visible, secret = made.text.split("_")
    assert (prefix, visible, len(secret)) == ("stagefare", made.token.id, 64)
    [(token, stored)] = world.database.for_team("crew").state.tokens.values()
    assert stored == hashlib.sha256(secret.encode()).digest()
    assert secret not in repr(token)


async def test_ids_are_in_the_order_of_creation(world: World) -> None:
    made = []
    for _ in range(3):
        made.append((await world.make("crew", READ)).token)
        world.clock.moment += timedelta(milliseconds=1)
    services = world.backend.for_team("crew")
    assert await token_page(services, 10) == made[::-1]
    assert await token_page(services, 1, made[1].id) == made[:1]
    assert len({token.id for token in made}) == 3


async def test_what_is_no_token_is_nobody(world: World) -> None:
    made = await world.make("crew", READ)
    prefix, visible, secret = made.text.split("_")
    for text in (
        "",
        "x",
        made.text[:-1],
        made.text + "0",
        made.text + "\n",
        made.text.upper(),
        f"{prefix}_{visible}_{secret[::-1]}",
        f"{prefix}_{visible[::-1]}_{secret}",
        f"{prefix}_{'0' * 20}_{'0' * 64}",
        visible,
    ):
        assert await world.access.bearer(text) is None, text


async def test_an_unknown_id_has_no_secret_that_fits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even one whose hash is what an unknown id is compared with."""
    monkeypatch.setattr("service.app.access._hash", lambda _: bytes(32))
    assert await world.access.bearer(f"stagefare_{'0' * 20}_{'0' * 64}") is None


async def test_a_token_ends(world: World) -> None:
    made = await world.make("crew", READ, lifetime=timedelta(hours=1))
    world.clock.moment = START + timedelta(hours=1) - timedelta(microseconds=1)
    assert await world.access.bearer(made.text) is not None
    world.clock.moment = START + timedelta(hours=1)
    assert await world.access.bearer(made.text) is None


async def test_a_revoked_token_is_refused_at_once_and_stays_listed(world: World) -> None:
    made = await world.make("crew", READ)
    kept = await world.make("crew", READ)
    services = world.backend.for_team("crew")
    world.clock.moment += timedelta(minutes=1)
    await revoke_token(services, made.token.id)
    world.clock.moment += timedelta(minutes=1)
    await revoke_token(services, made.token.id)
    world.access.forget(made.token.id)
    assert await world.access.bearer(made.text) is None
    assert await world.access.bearer(kept.text) is not None
    revoked = {token.id: token.revoked_at for token in await token_page(services, 10)}
    assert revoked == {made.token.id: START + timedelta(minutes=1), kept.token.id: None}


async def test_a_token_is_looked_up_once_a_second(world: World) -> None:
    made = await world.make("crew", READ)
    services = world.backend.for_team("crew")
    for _ in range(100):
        assert await world.access.bearer(made.text) is not None
        world.clock.moment += timedelta(milliseconds=20)
    assert world.database.finds == 2
    await revoke_token(services, made.token.id)  # by another process: nobody says so here
    assert await world.access.bearer(made.text) is None
    assert world.database.finds == 3

    short = await world.make("crew", READ, lifetime=timedelta(minutes=1))
    world.clock.moment = short.token.expires_at - timedelta(milliseconds=1)
    assert await world.access.bearer(short.text) is not None
    world.clock.moment = short.token.expires_at  # its end is no news
    assert await world.access.bearer(short.text) is None


async def test_a_held_token_has_one_secret(world: World) -> None:
    made = await world.make("crew", READ)
    assert await world.access.bearer(made.text) is not None
    assert await world.access.bearer(made.text[:-64] + "0" * 64) is None


async def test_no_more_tokens_are_held_than_allowed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.app.access.MAX_TOKENS_HELD", 2)
    made = [await world.make("crew", READ) for _ in range(3)]
    for token in (*made, made[0], made[2]):
        assert await world.access.bearer(token.text) is not None
    assert world.database.finds == 4  # the first one was let go for the third


async def test_a_team_revokes_its_own_tokens_only(world: World) -> None:
    made = await world.make("crew", READ)
    for token_id in (made.token.id, "0" * 20):
        with pytest.raises(NotFound, match=f"no token '{token_id}' is stored"):
            await revoke_token(world.backend.for_team("other"), token_id)
    assert await world.access.bearer(made.text) is not None


@pytest.mark.parametrize(
    "lifetime",
    [MIN_LIFETIME - timedelta(seconds=1), MAX_LIFETIME + timedelta(seconds=1), timedelta(0)],
)
async def test_a_lifetime_is_bounded(world: World, lifetime: timedelta) -> None:
    with pytest.raises(ValueError, match="a token lives from"):
        await world.make("crew", READ, lifetime=lifetime)
    with pytest.raises(ValueError, match="at least one scope"):
        await world.make("crew")
    assert not world.database.for_team("crew").state.tokens


# Open access


async def test_without_a_token_everyone_is_the_local_team(world: World) -> None:
    assert await world.access.is_open()
    may = frozenset({Scope.READ, Scope.WRITE})
    assert await world.access.anonymous() == Principal(LOCAL_TEAM, may)


async def test_the_first_token_ends_it_for_good(world: World) -> None:
    assert await world.access.is_open()
    made = await world.make("crew", READ)
    world.clock.moment += timedelta(seconds=1)
    assert not await world.access.is_open()
    assert await world.access.anonymous() is None
    await revoke_token(world.backend.for_team("crew"), made.token.id)
    world.clock.moment += timedelta(days=1000)
    assert not await world.access.is_open()
    assert not await Access(world.database.token_directory, world.clock).is_open()


async def test_an_open_service_looks_once_a_second_and_a_closed_one_never(world: World) -> None:
    for _ in range(100):
        assert await world.access.is_open()
        world.clock.moment += timedelta(milliseconds=20)
    assert world.database.looks == 2
    world.clock.moment -= timedelta(days=1)  # a clock that is set back does not stop the looking
    assert await world.access.is_open()
    assert world.database.looks == 3
    await world.make("crew", READ)
    for _ in range(3):
        world.clock.moment += timedelta(seconds=2)
        assert not await world.access.is_open()
    assert world.database.looks == 4


async def test_a_token_made_or_used_in_the_same_process_is_noticed_at_once(world: World) -> None:
    assert await world.access.is_open()
    made = await world.make("crew", READ)
    assert await world.access.is_open()  # has not looked again
    await world.access.bearer(made.text)
    assert not await world.access.is_open()

    other = Access(world.database.token_directory, world.clock)
    other.close()
    assert not await other.is_open()
