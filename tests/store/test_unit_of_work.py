"""What holds when many work at once, for several teams, or when the database is away."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import chain
from pathlib import Path

import pytest
from sqlalchemy import event, func, insert, make_url, select, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.pool import ConnectionPoolEntry

from service.app.errors import Unavailable
from service.app.ports import DocumentKind, MeasurementFilter, Storage
from service.store import engine as engine_module
from service.store.database import SqlDatabase
from service.store.engine import create_engine
from service.store.tables import Revisions, Teams
from service.store.unit_of_work import SqlStorage
from tests.store.rows import estimate, new_revision, put, put_profile

PLAN = DocumentKind.PLAN

CUT = text("SELECT pg_terminate_backend(:process)")
WRITERS = 32
REVISIONS_EACH = 10


@asynccontextmanager
async def storages(url: str, count: int) -> AsyncIterator[list[SqlStorage]]:
    """Storages that share nothing but the database, as those of several processes do."""
    async with AsyncExitStack() as stack:
        made = []
        for _ in range(count):
            engine = create_engine(url)
            stack.push_async_callback(engine.dispose)
            made.append(SqlStorage(engine))
        yield made


def test_it_is_the_storage_that_use_cases_ask_for(storage: SqlStorage) -> None:
    port: Storage = storage
    assert port is storage


# Concurrency


@pytest.mark.parametrize("processes", [1, 4])
async def test_no_number_is_lost_or_given_twice(database_url: str, processes: int) -> None:
    async def write(storage: SqlStorage, writer: int) -> list[int]:
        return [
            (await put(storage, PLAN, "p", f"{writer}:{turn}")).number
            for turn in range(REVISIONS_EACH)
        ]

    async with storages(database_url, processes) as made:
        numbers = await asyncio.gather(
            *(write(made[writer % processes], writer) for writer in range(WRITERS))
        )
        async with made[0].reading() as unit:
            history = await unit.documents.history(PLAN, "p", 1_000)
    count = WRITERS * REVISIONS_EACH
    assert sorted(chain.from_iterable(numbers)) == list(range(1, count + 1))
    assert [revision.number for revision in history] == list(range(count, 0, -1))
    assert len({revision.digest for revision in history}) == count
    assert all(own == sorted(own) for own in numbers)


async def test_comparing_under_the_lock_stores_equal_content_once(database_url: str) -> None:
    async def store_unless_equal(storage: SqlStorage) -> int:
        async with storage.writing() as unit:
            new = new_revision()
            newest = await unit.documents.lock(PLAN, "p")
            if newest is not None and newest.digest == new.digest:
                return newest.number
            return (await unit.documents.append(PLAN, "p", new)).number

    async with storages(database_url, 4) as made:
        await put(made[0], PLAN, "p", "before")
        numbers = await asyncio.gather(
            *(store_unless_equal(made[writer % 4]) for writer in range(WRITERS))
        )
    assert set(numbers) == {2}


async def test_a_locked_name_waits_for_the_unit_of_work_that_holds_it(database_url: str) -> None:
    events: list[str] = []
    held = asyncio.Event()

    async def hold(storage: SqlStorage) -> None:
        async with storage.writing() as unit:
            await unit.documents.lock(PLAN, "p")
            held.set()
            await asyncio.sleep(0.1)
            await unit.documents.append(PLAN, "p", new_revision())
            events.append("appended")

    async def wait(storage: SqlStorage) -> None:
        await held.wait()
        async with storage.writing() as unit:
            newest = await unit.documents.lock(PLAN, "p")
            events.append("locked")
            assert newest is not None
            assert newest.number == 2, "what the other one appended is seen"

    async with storages(database_url, 2) as (first, second):
        await put(first, PLAN, "p", "before")
        await asyncio.gather(hold(first), wait(second))
    assert events == ["appended", "locked"]


async def test_sqlite_takes_the_write_lock_before_anything_is_read(
    sqlite_template: Path, tmp_path: Path
) -> None:
    path = shutil.copyfile(sqlite_template, tmp_path / "stagefare.db")
    engine = create_engine(f"sqlite:///{path}")
    statements: list[str] = []
    event.listen(
        engine.sync_engine,
        "before_cursor_execute",
        lambda _connection, _cursor, statement, *_rest: statements.append(statement),
    )
    try:
        async with SqlStorage(engine).writing():
            pass
        async with SqlStorage(engine).reading() as unit:
            await unit.documents.find(PLAN, "p")
    finally:
        await engine.dispose()
    begins = [statement for statement in statements if statement.startswith("BEGIN")]
    assert statements[0] == "BEGIN IMMEDIATE"
    assert begins == ["BEGIN IMMEDIATE", "BEGIN DEFERRED"]


async def test_a_cancelled_writer_leaves_nothing_and_holds_nothing(storage: SqlStorage) -> None:
    locked = asyncio.Event()

    async def write() -> None:
        async with storage.writing() as unit:
            await unit.documents.lock(PLAN, "p")
            await unit.documents.append(PLAN, "p", new_revision("cancelled"))
            locked.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(write())
    await locked.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert (await put(storage, PLAN, "p", "kept")).number == 1


async def test_a_reader_sees_one_state_throughout(storage: SqlStorage) -> None:
    await put(storage, PLAN, "p", "a")
    async with storage.reading() as unit:
        before = await unit.documents.find(PLAN, "p")
        assert before is not None
        await put(storage, PLAN, "p", "b")
        await put(storage, PLAN, "q")
        assert await unit.documents.find(PLAN, "p") == before
        assert await unit.documents.page(PLAN, 10) == [before.heading]
    async with storage.reading() as unit:
        assert len(await unit.documents.page(PLAN, 10)) == 2


async def test_readers_find_a_connection_while_writers_queue(database_url: str) -> None:
    async with storages(database_url, 1) as (storage,):
        await put(storage, PLAN, "p")
        async with storage.writing() as unit:
            await unit.documents.lock(PLAN, "p")
            # More writers of other names than the pool has connections.
            writers = [asyncio.create_task(put(storage, PLAN, f"q{index}")) for index in range(60)]
            await asyncio.sleep(0)
            async with storage.reading() as reader:
                assert await reader.documents.find(PLAN, "p") is not None
        await asyncio.gather(*writers)
        async with storage.reading() as reader:
            assert len(await reader.documents.page(PLAN, 100)) == 61


async def test_a_unit_of_work_that_reads_stores_nothing(storage: SqlStorage) -> None:
    with suppress(DBAPIError):  # PostgreSQL refuses, SQLite forgets
        async with storage.reading() as unit:
            await unit.estimates.add(estimate())
    async with storage.reading() as unit:
        assert await unit.estimates.find(estimate().digest) is None


# Teams


async def test_teams_do_not_see_each_other(database: SqlDatabase, storage: SqlStorage) -> None:
    other = database.for_team("other")
    mine = await put_profile(storage, "same", {"layer": "mine"})
    await put_profile(other, "same", {"layer": "theirs"})
    theirs = await put_profile(other, "same", {"layer": "theirs"})
    only_theirs = await put(other, PLAN, "only-theirs")
    async with other.writing() as unit:
        await unit.estimates.add(estimate())
    assert (mine.number, theirs.number) == (1, 2)

    async with storage.writing() as unit:
        documents = unit.documents
        assert await documents.find(PLAN, "only-theirs") is None
        assert await documents.find(PLAN, "only-theirs", 1) is None
        assert await documents.find(DocumentKind.PROFILE, "same", 2) is None
        assert await documents.page(DocumentKind.PROFILE, 10) == [mine.heading]
        assert await documents.page(PLAN, 10) == []
        assert await documents.history(DocumentKind.PROFILE, "same", 10) == [mine.heading]
        assert await documents.history(PLAN, "only-theirs", 10) == []
        assert not await documents.archive(PLAN, "only-theirs")
        assert await documents.archive(DocumentKind.PROFILE, "same")
        assert await unit.measurements.page(MeasurementFilter(), 10) == []
        assert await unit.estimates.find(estimate().digest) is None
    async with other.reading() as unit:
        assert await unit.documents.find(DocumentKind.PROFILE, "same") == theirs
        assert await unit.documents.page(PLAN, 10) == [only_theirs.heading]
        rows = await unit.measurements.page(MeasurementFilter(), 10)
        assert [row.layer for row in rows] == ["theirs"]
        assert await unit.estimates.find(estimate().digest) == estimate()


async def test_a_pin_stays_within_the_team(database: SqlDatabase, storage: SqlStorage) -> None:
    await put(database.for_team("other"), DocumentKind.MODEL, "gpt")
    with pytest.raises(IntegrityError):
        await put(storage, PLAN, "p", pins=(("model", "gpt@1"),))


async def test_the_team_is_made_once_and_when_it_writes(
    database: SqlDatabase, storage: SqlStorage
) -> None:
    async def teams() -> int | None:
        async with storage.reading() as unit:
            count = select(func.count()).select_from(Teams)
            return await unit.documents.connection.scalar(count)

    assert await teams() == 0
    await asyncio.gather(*(put(storage, PLAN, f"p{index}") for index in range(8)))
    assert await teams() == 1
    await put(database.for_team("other"), PLAN, "p")
    assert await teams() == 2


async def test_the_database_itself_refuses_a_number_twice(storage: SqlStorage) -> None:
    await put(storage, PLAN, "p")
    columns = [column.name for column in Revisions.__table__.columns]
    again = insert(Revisions).from_select(columns, select(Revisions.__table__))
    async with storage.writing() as unit:
        with pytest.raises(IntegrityError):
            await unit.documents.connection.execute(again)


# A database that is away or busy


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines made in this test wait for a lock or a connection a moment only."""
    settings = engine_module._POSTGRESQL_SETTINGS | {"lock_timeout": "50ms"}
    monkeypatch.setattr(engine_module, "_POSTGRESQL_SETTINGS", settings)
    monkeypatch.setattr(engine_module, "_SQLITE_BUSY_SECONDS", 0.05)
    monkeypatch.setattr(engine_module, "_POOL", engine_module._POOL | {"pool_timeout": 0.05})


@pytest.mark.usefixtures("impatient")
async def test_a_lock_that_is_held_too_long_is_unavailability(database_url: str) -> None:
    async with storages(database_url, 2) as (first, second):
        async with first.writing() as unit:
            await unit.documents.lock(PLAN, "p")
            with pytest.raises(Unavailable, match="try again"):
                await put(second, PLAN, "p")
        assert (await put(second, PLAN, "p")).number == 1


@pytest.mark.usefixtures("impatient")
async def test_a_pool_that_is_used_up_is_unavailability(database_url: str) -> None:
    async with storages(database_url, 1) as (storage,):
        async with AsyncExitStack() as stack:
            for _ in range(20):
                await stack.enter_async_context(storage.reading())
            with pytest.raises(Unavailable):
                async with storage.reading():
                    pass
        async with storage.reading() as unit:
            assert await unit.documents.page(PLAN, 10) == []


@pytest.mark.parametrize(
    "url", ["postgresql://nobody@/nothing?host=/nowhere", "sqlite:////nowhere/stagefare.db"]
)
async def test_a_database_that_can_not_be_reached_is_unavailability(url: str) -> None:
    async with storages(url, 1) as (storage,):
        with pytest.raises(Unavailable):
            async with storage.reading():
                pass
        with pytest.raises(Unavailable):
            await put(storage, PLAN, "p")


async def test_a_connection_that_is_cut_is_unavailability_and_heals(database_url: str) -> None:
    if database_url.startswith("sqlite"):
        return  # a file has no connection to cut

    async def be_cut_while_writing(storage: SqlStorage, other: SqlStorage) -> None:
        async with storage.writing() as unit:
            await unit.documents.lock(PLAN, "p")
            process = await unit.documents.connection.scalar(text("SELECT pg_backend_pid()"))
            async with other.writing() as cutting:
                await cutting.documents.connection.execute(CUT, {"process": process})
            await unit.documents.append(PLAN, "p", new_revision("lost"))

    async with storages(database_url, 2) as (first, second):
        await put(first, PLAN, "p")
        with pytest.raises(Unavailable):
            await be_cut_while_writing(first, second)
        assert (await put(first, PLAN, "p", "kept")).number == 2


async def test_a_connection_that_is_cut_before_a_reader_leaves_is_unavailability(
    database_url: str,
) -> None:
    if database_url.startswith("sqlite"):
        return  # a file has no connection to cut

    async def be_cut_while_reading(storage: SqlStorage, other: SqlStorage) -> None:
        async with storage.reading() as unit:
            process = await unit.documents.connection.scalar(text("SELECT pg_backend_pid()"))
            async with other.writing() as cutting:
                await cutting.documents.connection.execute(CUT, {"process": process})

    async with storages(database_url, 2) as (first, second):
        with pytest.raises(Unavailable):
            await be_cut_while_reading(first, second)
        async with first.reading() as unit:
            assert await unit.documents.page(PLAN, 10) == []


async def test_a_database_that_lets_nobody_in_is_unavailability(database_url: str) -> None:
    if database_url.startswith("sqlite"):
        return  # a file has neither roles nor databases
    url = make_url(database_url)
    for other in (url.set(username="unknown"), url.set(database="unknown")):
        async with storages(other.render_as_string(), 1) as (storage,):
            with pytest.raises(Unavailable):
                async with storage.reading():
                    pass


async def test_a_database_that_can_only_be_read_is_unavailability_for_writers(
    database_url: str,
) -> None:
    if not database_url.startswith("sqlite"):
        return  # a replica of a server is not what a file that can't be written is
    async with storages(database_url, 1) as (storage,):
        await put(storage, PLAN, "p")
        event.listen(storage._engine.sync_engine, "connect", _refuse_writes)
        await storage._engine.dispose()
        with pytest.raises(Unavailable):
            await put(storage, PLAN, "p", "changed")
        async with storage.reading() as unit:
            assert len(await unit.documents.page(PLAN, 10)) == 1


def _refuse_writes(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA query_only=ON")
    cursor.close()


async def test_other_errors_of_the_database_stay_what_they_are(storage: SqlStorage) -> None:
    with pytest.raises(DBAPIError, match="nonsense"):
        async with storage.reading() as unit:
            await unit.documents.connection.execute(text("nonsense"))


async def test_an_error_of_the_use_case_passes_through(storage: SqlStorage) -> None:
    with pytest.raises(OSError, match="mine"):
        async with storage.reading():
            raise OSError("mine")
