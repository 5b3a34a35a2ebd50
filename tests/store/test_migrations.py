"""Migrations: up from nothing, true to the models, down again, together and interrupted."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from stat import S_IMODE
from typing import Any, TypeVar

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Inspector, inspect, select, text

from service.app.ports import DocumentKind, MeasurementFilter, TopologySummary
from service.resources import resource_folder
from service.store import migrate
from service.store.engine import create_engine
from service.store.tables import Base
from service.store.unit_of_work import SqlStorage
from tests.store.rows import estimate, key_claim, new_revision, put, put_profile, token

T = TypeVar("T")

PLAN = DocumentKind.PLAN

SECOND_MIGRATION = '''
"""One more table."""

import sqlalchemy as sa
from alembic import op

revision = "next"
down_revision = "{head}"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table("extra", sa.Column("id", sa.Integer, primary_key=True))
    {more}


def downgrade() -> None:
    op.drop_table("extra")
'''


async def on_connection(url: str, work: Callable[[Connection], T]) -> T:
    engine = create_engine(url)
    try:
        async with engine.begin() as connection:
            return await connection.run_sync(work)
    finally:
        await engine.dispose()


async def on_storage(url: str, work: Callable[[SqlStorage], Awaitable[T]]) -> T:
    engine = create_engine(url)
    try:
        return await work(SqlStorage(engine))
    finally:
        await engine.dispose()


def table_names(connection: Connection) -> set[str]:
    return set(inspect(connection).get_table_names())


def shape(connection: Connection) -> dict[str, Any]:
    """Everything a table is made of, in an order that does not depend on who made it."""
    inspector = inspect(connection)
    return {
        table: shape_of_table(inspector, table)
        for table in inspector.get_table_names()
        if table != "alembic_version"
    }


def shape_of_table(inspector: Inspector, table: str) -> dict[str, Any]:
    columns = [
        (column["name"], repr(column["type"]), column["nullable"], column["default"])
        for column in inspector.get_columns(table)
    ]
    return {
        "columns": columns,
        "primary key": inspector.get_pk_constraint(table),
        "foreign keys": sorted(map(str, inspector.get_foreign_keys(table))),
        "checks": sorted(map(str, inspector.get_check_constraints(table))),
        "indexes": sorted(map(str, inspector.get_indexes(table))),
        "unique": sorted(map(str, inspector.get_unique_constraints(table))),
    }


def with_second_migration(folder: Path, more: str = "pass") -> Path:
    """A copy of the migrations with one more at the end."""
    shutil.copytree(resource_folder("migrations"), folder)
    script = SECOND_MIGRATION.format(head=migrate.head(), more=more)
    (folder / "versions" / "next.py").write_text(script)
    return folder


async def seed(storage: SqlStorage) -> None:
    """At least one row in every table."""
    async with storage.writing() as unit:
        await unit.documents.lock(DocumentKind.TOPOLOGY, "t")
        topology = await unit.documents.append(DocumentKind.TOPOLOGY, "t", new_revision())
        await unit.documents.add_topology_summary(topology, TopologySummary(2, 16, 40, ("pcie",)))
        await unit.estimates.add(estimate())
        await unit.tokens.add(token(), bytes(32))
        await unit.keys.claim(key_claim())
    await put_profile(storage, "h100", {}, {})
    await put(storage, PLAN, "p", pins=(("topology", "t@1"), ("profile", "h100@1")))


def test_the_history_is_one_line() -> None:
    scripts = ScriptDirectory(str(resource_folder("migrations")))
    assert len(scripts.get_bases()) == 1
    assert scripts.get_heads() == [migrate.head()]
    assert all(not script.is_branch_point for script in scripts.walk_revisions())


async def test_up_from_nothing(empty_database_url: str) -> None:
    assert await migrate.current(empty_database_url) is None
    await migrate.upgrade(empty_database_url)
    assert await migrate.current(empty_database_url) == migrate.head()
    tables = await on_connection(empty_database_url, table_names)
    assert tables == {"alembic_version", *Base.metadata.tables}
    await on_storage(empty_database_url, seed)


async def test_up_again_changes_nothing(database_url: str) -> None:
    await on_storage(database_url, seed)
    await migrate.upgrade(database_url)
    assert await migrate.current(database_url) == migrate.head()
    stored = await on_storage(database_url, lambda storage: put(storage, PLAN, "p", "again"))
    assert stored.number == 2


async def test_migrations_build_what_the_models_say(database_url: str) -> None:
    assert await migrate.check_drift(database_url) == []


async def test_drift_is_seen(database_url: str) -> None:
    statement = text("ALTER TABLE estimates ADD COLUMN extra INTEGER")
    await on_connection(database_url, lambda connection: connection.execute(statement).close())
    [difference] = await migrate.check_drift(database_url)
    assert difference[0] == "remove_column"


async def test_checks_and_indexes_are_the_models_too(empty_database_url: str) -> None:
    await migrate.upgrade(empty_database_url)
    migrated = await on_connection(empty_database_url, shape)
    await migrate.downgrade(empty_database_url, "base")
    await on_connection(empty_database_url, Base.metadata.create_all)
    assert migrated == await on_connection(empty_database_url, shape)


async def test_every_constraint_has_a_name(database_url: str) -> None:
    def unnamed(connection: Connection) -> list[Any]:
        inspector = inspect(connection)
        return [
            constraint
            for table in Base.metadata.tables
            for constraint in (
                inspector.get_pk_constraint(table),
                *inspector.get_foreign_keys(table),
                *inspector.get_check_constraints(table),
            )
            if not constraint["name"]
        ]

    assert await on_connection(database_url, unnamed) == []


Rows = dict[str, list[dict[str, Any]]]


async def rows_of(url: str) -> Rows:
    """Every row of every table in the order of its key, with the columns that are there."""

    def read(connection: Connection) -> Rows:
        inspector = inspect(connection)
        present = table_names(connection)
        found = {}
        for table in Base.metadata.sorted_tables:
            if table.name not in present:
                continue
            names = {column["name"] for column in inspector.get_columns(table.name)}
            columns = [column for column in table.columns if column.name in names]
            query = select(*columns).order_by(*table.primary_key)
            found[table.name] = [dict(row._mapping) for row in connection.execute(query)]
        return found

    return await on_connection(url, read)


def as_after(seeded: Rows, remaining: Rows) -> Rows:
    """What is there when a step was taken down and up again: what it removed is empty."""
    return {
        name: [
            {column: row[column] if column in kept else None for column in row}
            for row, kept in zip(rows, remaining[name], strict=True)
        ]
        if name in remaining
        else []
        for name, rows in seeded.items()
    }


async def test_the_seed_fills_every_table(database_url: str) -> None:
    await on_storage(database_url, seed)
    assert [name for name, rows in (await rows_of(database_url)).items() if not rows] == []


async def test_down_and_up_again_changes_no_row_that_stays(database_url: str) -> None:
    """Each step down in turn; what a step removes is empty when it is made again."""
    await on_storage(database_url, seed)
    expected = await rows_of(database_url)
    scripts = ScriptDirectory(str(resource_folder("migrations")))
    for script in list(scripts.walk_revisions())[:-1]:
        await migrate.downgrade(database_url, str(script.down_revision))
        remaining = await rows_of(database_url)
        assert remaining == {
            name: [
                {column: row[column] for column in kept}
                for row, kept in zip(expected[name], rows, strict=True)
            ]
            for name, rows in remaining.items()
        }
        await migrate.upgrade(database_url)
        expected = as_after(expected, remaining)
        assert await rows_of(database_url) == expected
        assert await migrate.check_drift(database_url) == []


async def test_down_to_nothing_and_up_again(database_url: str) -> None:
    await on_storage(database_url, seed)
    await migrate.downgrade(database_url, "base")
    assert await migrate.current(database_url) is None
    assert await on_connection(database_url, table_names) == {"alembic_version"}
    await migrate.upgrade(database_url)
    assert await migrate.check_drift(database_url) == []

    async def seed_and_read(storage: SqlStorage) -> None:
        async with storage.reading() as unit:
            assert await unit.documents.page(PLAN, 10) == []
            assert await unit.measurements.page(MeasurementFilter(), 10) == []
        await seed(storage)

    await on_storage(database_url, seed_and_read)


@pytest.mark.parametrize(("before", "table"), [("0001", "tokens"), ("0002", "idempotency_keys")])
async def test_a_table_comes_and_goes_beside_what_is_stored(
    database_url: str, before: str, table: str
) -> None:
    await on_storage(database_url, seed)
    await migrate.downgrade(database_url, before)
    assert table not in await on_connection(database_url, table_names)

    async def read(storage: SqlStorage) -> None:
        async with storage.reading() as unit:
            assert await unit.estimates.find(estimate().digest) == estimate()
            assert [plan.name for plan in await unit.documents.page(PLAN, 10)] == ["p"]

    await migrate.upgrade(database_url)
    await on_storage(database_url, read)
    assert await migrate.check_drift(database_url) == []


async def test_services_that_start_together_take_turns(empty_database_url: str) -> None:
    await asyncio.gather(*(migrate.upgrade(empty_database_url) for _ in range(8)))
    assert await migrate.current(empty_database_url) == migrate.head()
    assert await migrate.check_drift(empty_database_url) == []


async def test_a_later_migration_keeps_what_is_stored(database_url: str, tmp_path: Path) -> None:
    await on_storage(database_url, seed)
    # The table that all others refer to is rebuilt on SQLite, as any change of a column does.
    folder = with_second_migration(
        tmp_path / "migrations",
        more="""
    with op.batch_alter_table("revisions") as batch:
        batch.alter_column("digest", new_column_name="content_digest")
""",
    )
    await migrate.upgrade(database_url, script_location=folder)
    assert await migrate.current(database_url) == "next"

    def count_rows(connection: Connection) -> dict[str, int]:
        return {
            table.name: len(connection.execute(select(*table.primary_key)).all())
            for table in Base.metadata.sorted_tables
        }

    assert await on_connection(database_url, count_rows) == {
        "teams": 1,
        "documents": 3,
        "revisions": 3,
        "document_pins": 2,
        "topology_summaries": 1,
        "measurements": 2,
        "estimates": 1,
        "tokens": 1,
        "idempotency_keys": 1,
    }


async def test_a_migration_that_fails_leaves_everything_as_it_was(
    database_url: str, tmp_path: Path
) -> None:
    folder = with_second_migration(tmp_path / "migrations", more='raise RuntimeError("half-way")')
    await on_storage(database_url, seed)
    before = await on_connection(database_url, shape)
    with pytest.raises(RuntimeError, match="half-way"):
        await migrate.upgrade(database_url, script_location=folder)
    assert await migrate.current(database_url) == migrate.head()
    assert await on_connection(database_url, shape) == before


async def test_a_migration_may_not_break_references_on_sqlite(
    sqlite_template: Path, tmp_path: Path
) -> None:
    url = f"sqlite:///{shutil.copyfile(sqlite_template, tmp_path / 'stagefare.db')}"
    await on_storage(url, seed)
    folder = with_second_migration(
        tmp_path / "migrations", more='op.execute("DELETE FROM revisions")'
    )
    with pytest.raises(RuntimeError, match="breaks 7 references"):
        await migrate.upgrade(url, script_location=folder)
    assert await migrate.current(url) == migrate.head()


async def test_asking_where_a_database_stands_does_not_make_it(tmp_path: Path) -> None:
    path = tmp_path / "absent.db"
    assert await migrate.current(f"sqlite:///{path}") is None
    assert not path.exists()


async def test_the_folder_of_the_file_is_made_for_one_user(tmp_path: Path) -> None:
    file = tmp_path / "data" / "deep" / "stagefare.db"
    url = f"sqlite:///{file}"
    await migrate.upgrade(url)
    assert await migrate.current(url) == migrate.head()
    assert S_IMODE(file.parent.stat().st_mode) == 0o700
    assert S_IMODE(file.stat().st_mode) == 0o600


async def test_a_folder_and_a_file_that_are_there_keep_their_access(tmp_path: Path) -> None:
    file = tmp_path / "data" / "stagefare.db"
    file.parent.mkdir()
    file.parent.chmod(0o755)
    await migrate.upgrade(f"sqlite:///{file}")
    assert S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o640)
    await migrate.upgrade(f"sqlite:///{file}")
    assert S_IMODE(file.stat().st_mode) == 0o640
    assert S_IMODE(file.parent.stat().st_mode) == 0o755


async def test_a_draft_names_the_types_of_its_template(tmp_path: Path) -> None:
    folder = tmp_path / "100% migrations"
    shutil.copytree(resource_folder("migrations"), folder)
    for script in (folder / "versions").glob("*.py"):
        script.unlink()
    await migrate.draft(f"sqlite:///{tmp_path / 'empty.db'}", "all", script_location=folder)
    [draft] = (folder / "versions").glob("*.py")
    written = draft.read_text()
    assert "sa.Column('created_at', moment, nullable=False)" in written
    assert "service" not in written
    await migrate.upgrade(f"sqlite:///{tmp_path / 'drafted.db'}", script_location=folder)
    assert await migrate.check_drift(f"sqlite:///{tmp_path / 'drafted.db'}") == []


# A database that can't be migrated


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql://u:secret@127.0.0.1:1/d", "Connect call failed"),
        ("postgresql://u:secret@/d?host=/nowhere", "No such file"),
        ("postgresql://u:secret@h:port/d", "looks like"),
        ("sqlite:///{folder}", "unable to open"),
        ("sqlite:///{folder}/note.txt", "not a database"),
        ("sqlite:///{folder}/note.txt/stagefare.db", "note.txt"),
    ],
)
async def test_a_database_that_can_not_be_opened_is_told_in_words(
    tmp_path: Path, url: str, reason: str
) -> None:
    (tmp_path / "note.txt").write_text("no database, but longer than the header of one " * 9)
    with pytest.raises(migrate.MigrationFailed, match=reason) as refusal:
        await migrate.upgrade(url.format(folder=tmp_path))
    assert "secret" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


async def test_a_schema_of_another_version_is_refused_and_stays(empty_database_url: str) -> None:
    await migrate.upgrade(empty_database_url)
    engine = create_engine(empty_database_url)
    try:
        async with engine.begin() as connection:
            await connection.execute(text("UPDATE alembic_version SET version_num = 'later'"))
        with pytest.raises(migrate.MigrationFailed, match="later"):
            await migrate.upgrade(empty_database_url)
    finally:
        await engine.dispose()
    assert await migrate.current(empty_database_url) == "later"
