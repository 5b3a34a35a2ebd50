"""What the process is built from."""

import asyncio
import gc
import sys
import threading
from inspect import iscoroutinefunction
from pathlib import Path

import pytest
from sqlalchemy.pool import QueuePool

from service.app.errors import Overloaded
from service.main import SWITCH_SECONDS, KernelExecutor, create_app
from service.settings import read_settings
from service.store.engine import create_engine
from tests.api.clients import client_of
from tests.app.fakes import FakeDatabase


@pytest.mark.parametrize(("most_waiting", "taken"), [(1, 2), (3, 4), (0, 9)])
async def test_the_executor_refuses_what_would_only_wait(most_waiting: int, taken: int) -> None:
    executor = KernelExecutor(1, most_waiting=most_waiting)
    gate = threading.Event()
    calls = [asyncio.create_task(executor.run(gate.wait, 60)) for _ in range(9)]
    await asyncio.sleep(0)
    refused = [call for call in calls if call.done()]
    assert refused == calls[taken:]
    assert all(isinstance(call.exception(), Overloaded) for call in refused)
    gate.set()
    await asyncio.gather(*calls[:taken])
    assert await executor.run(divmod, 7, 2) == (3, 1)
    await executor.close()


@pytest.mark.parametrize("threads", [1, 2])
async def test_the_executor_knows_what_waits_and_what_works(threads: int) -> None:
    executor = KernelExecutor(threads)
    gate = threading.Event()
    calls = [asyncio.create_task(executor.run(gate.wait, 60)) for _ in range(5)]
    while executor.busy < threads:
        await asyncio.sleep(0.001)
    assert (executor.busy, executor.waiting) == (threads, 5 - threads)
    calls[-1].cancel()
    await asyncio.wait([calls[-1]])
    while executor.waiting > 4 - threads:
        await asyncio.sleep(0.001)
    gate.set()
    await asyncio.gather(*calls[:-1])
    with pytest.raises(ZeroDivisionError):
        await executor.run(lambda: 1 / 0)
    assert (executor.busy, executor.waiting) == (0, 0)
    await executor.close()


async def test_closing_waits_for_what_runs_and_drops_what_does_not() -> None:
    executor = KernelExecutor(1)
    gate = threading.Event()
    runs, waits = (asyncio.create_task(executor.run(gate.wait, 60)) for _ in range(2))
    while not executor.busy:
        await asyncio.sleep(0.001)
    closing = asyncio.create_task(executor.close())
    await asyncio.wait([waits])
    assert waits.cancelled()
    assert not closing.done()
    gate.set()
    await closing
    assert await runs is True


async def test_nothing_made_at_start_up_is_collected_again(tmp_path: Path) -> None:
    before = gc.get_threshold()
    gc.unfreeze()
    app = create_app(read_settings({"STAGEFARE_DATA_DIR": str(tmp_path)}), database=FakeDatabase())
    async with app.lifespan():
        assert gc.get_freeze_count() > 100_000
        assert gc.get_threshold() == (20_000, 10, 250)
    gc.set_threshold(*before)


async def test_the_event_loop_does_not_wait_long_for_its_turn(tmp_path: Path) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    app = create_app(read_settings({"STAGEFARE_DATA_DIR": str(tmp_path)}), database=FakeDatabase())
    async with app.lifespan():
        assert sys.getswitchinterval() == pytest.approx(SWITCH_SECONDS)
    sys.setswitchinterval(before)


async def test_the_pool_opens_no_connection_beyond_those_it_keeps(database_url: str) -> None:
    """Connections that overflow are opened and closed with every burst of requests."""
    pool = create_engine(database_url).sync_engine.pool
    assert isinstance(pool, QueuePool)
    assert (pool.size(), pool._max_overflow) == (20, 0)


class StuckDirectory:
    """A database that takes a question and never answers."""

    async def is_empty(self) -> bool:
        await asyncio.Event().wait()
        return True


async def test_readiness_does_not_wait_for_a_database_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.main.READY_SECONDS", 0.01)
    database = FakeDatabase()
    monkeypatch.setattr(FakeDatabase, "token_directory", StuckDirectory())
    app = create_app(read_settings({"STAGEFARE_DATA_DIR": str(tmp_path)}), database=database)
    async with app.lifespan(), client_of(app) as http:
        response = await http.get("/readyz")
    assert response.status_code == 503
    assert response.json()["detail"] == "not ready: the database does not answer within 0.01 s"


async def test_a_service_that_stops_is_not_ready(tmp_path: Path) -> None:
    app = create_app(read_settings({"STAGEFARE_DATA_DIR": str(tmp_path)}), database=FakeDatabase())
    async with client_of(app) as http:
        async with app.lifespan():
            assert (await http.get("/readyz")).status_code == 200
        stopping = await http.get("/readyz")
        assert (stopping.status_code, stopping.headers["retry-after"]) == (503, "1")
        assert stopping.json()["detail"] == "not ready: the service is stopping"
        assert (await http.get("/healthz")).status_code == 200


async def test_no_guard_goes_through_a_thread(tmp_path: Path) -> None:
    """The framework hands plain functions to a thread, for every request."""
    app = create_app(read_settings({"STAGEFARE_DATA_DIR": str(tmp_path)}), database=FakeDatabase())
    assert app.guards
    assert all(iscoroutinefunction(guard) for guard in app.guards)
