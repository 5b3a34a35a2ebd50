"""A service, or its PostgreSQL, is killed at random moments: what it acknowledged is there after.

`pytest tests/crash --crash-cycles 200` does it as often as one likes.
"""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.app.access import create_token
from service.app.clusters import ClusterCache
from service.app.ports import Scope
from service.app.services import Backend
from service.store import migrate
from service.store.database import SqlDatabase
from service.store.engine import create_engine
from service.store.unit_of_work import SystemClock
from tests.app.fakes import InlineExecutor
from tests.crash.invariants import check_whole, stored_revisions
from tests.crash.workload import TOPOLOGY, Acknowledged, Writers, check_acknowledged
from tests.plugins.databases import BACKENDS
from tests.plugins.postgresql import OwnServer
from tests.plugins.services import Launcher, ServiceProcess

# The longest that writers write before the next crash.
LOAD_SECONDS = 0.6


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def own_server(backend: str) -> Iterator[OwnServer | None]:
    """A PostgreSQL server as it comes, which waits for the disk before it acknowledges."""
    if backend == "sqlite":
        yield None
        return
    server = OwnServer({})
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def crash_url(own_server: OwnServer | None, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'crash.db'}" if own_server is None else own_server.url


async def admin_token(url: str) -> str:
    """A token of a team, made before there is a service."""
    engine = create_engine(url)
    try:
        executor = InlineExecutor()
        made = Backend(SqlDatabase(engine), executor, SystemClock(), ClusterCache(executor))
        return (await create_token(made.for_team("crew"), Scope)).text
    finally:
        await engine.dispose()


async def test_what_was_acknowledged_survives(
    request: pytest.FixtureRequest,
    launcher: Launcher,
    own_server: OwnServer | None,
    crash_url: str,
    tmp_path: Path,
    seed: int,
) -> None:
    cycles: int = request.config.getoption("--crash-cycles")
    print(f"seed {seed}, {cycles} cycles on {crash_url.partition(':')[0]}")  # noqa: T201
    await migrate.upgrade(crash_url)
    token = await admin_token(crash_url)
    service = ServiceProcess(launcher, crash_url, tmp_path)
    everything, last = Acknowledged(), Acknowledged()
    for cycle in range(cycles):
        chance = random.Random(seed + cycle)
        service.start()
        await check_acknowledged(service.url, token, last)
        if cycle == 0:
            await store_cluster(service.url, token)
        last = await write_until_killed(service, own_server, token, cycle, chance)
        everything.add(last)
        stored = await stored_revisions(crash_url)
        for key, (digest, _) in everything.revisions.items():
            assert stored.get(key) == digest, f"cycle {cycle}: {key} is lost"
        if cycles <= 20 or cycle % 20 == 0:
            await check_whole(crash_url)
    service.start()
    await check_acknowledged(service.url, token, last)
    service.kill()
    await check_whole(crash_url)
    assert "Traceback" not in service.log()
    print(f"{len(everything)} writes acknowledged, none lost")  # noqa: T201
    # Also that the writers wrote, of every kind.
    assert everything.estimates
    assert everything.archived
    assert {kind for kind, _, _ in everything.revisions} == {
        "topologies",
        "models",
        "profiles",
        "plans",
    }


async def store_cluster(url: str, token: str) -> None:
    """What some of the plans refer to."""
    import httpx

    async with httpx.AsyncClient(
        base_url=url, headers={"Authorization": f"Bearer {token}"}
    ) as http:
        assert (await http.put("/v1/topologies/cluster", json=TOPOLOGY)).status_code == 201


async def write_until_killed(
    service: ServiceProcess,
    own_server: OwnServer | None,
    token: str,
    cycle: int,
    chance: random.Random,
) -> Acknowledged:
    """What was acknowledged before the crash; in every third cycle PostgreSQL crashes first."""
    writers, gone = Writers(service.url, token, seed=cycle), asyncio.Event()
    writing = asyncio.create_task(writers.run(gone))
    await asyncio.sleep(chance.uniform(0.02, LOAD_SECONDS))
    if own_server is not None and cycle % 3 == 2:
        own_server.kill()
        await asyncio.sleep(chance.uniform(0, 0.1))
        await asyncio.to_thread(own_server.start)
        await asyncio.sleep(chance.uniform(0.02, LOAD_SECONDS))
    service.kill()
    gone.set()
    await writing
    return writers.acknowledged


def test_a_start_that_is_killed_leaves_nothing_half_done(
    launcher: Launcher, crash_url: str, tmp_path: Path, seed: int
) -> None:
    """Above all the migrations of the first start."""
    chance = random.Random(seed)
    service = ServiceProcess(launcher, crash_url, tmp_path)
    for _ in range(5):
        service.begin()
        service.wait(chance.uniform(0, 0.4))
        service.kill()
    service.start()
    service.kill()
    asyncio.run(check_migrated(crash_url))


def test_services_that_start_at_once_migrate_in_turn(
    launcher: Launcher, crash_url: str, tmp_path: Path
) -> None:
    """Processes, which share no lock but the database's."""
    services = []
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        services.append(ServiceProcess(launcher, crash_url, folder))
    for service in services:
        service.begin()
    for service in services:
        service.wait_until_ready()
    for service in services:
        service.stop()
    asyncio.run(check_migrated(crash_url))


async def check_migrated(url: str) -> None:
    assert await migrate.current(url) == migrate.head()
    assert await migrate.check_drift(url) == []
