"""The commands of docs/operations.md, run as they stand there while writers write."""

import asyncio
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from sqlalchemy import make_url

from service.app import documents
from service.app.clusters import ClusterCache
from service.app.document_kinds import DOCUMENT_TYPES
from service.app.ports import DocumentKind
from service.app.services import Backend, Services
from service.resources import resource_folder
from service.store import migrate
from service.store.database import SqlDatabase
from service.store.engine import create_engine, sqlite_path
from service.store.unit_of_work import SystemClock
from tests.app.fakes import InlineExecutor
from tests.crash.invariants import check_whole, stored_revisions
from tests.crash.workload import Key
from tests.plugins.databases import PostgresServer
from tests.plugins.postgresql import binaries_for, temporary_server

ROOT = Path(__file__).resolve().parents[2]
MANUAL = ROOT / "docs" / "operations.md"
COMPOSE = ROOT / "docker-compose.yml"
BACKENDS = ("sqlite", "postgresql")


def section_blocks(heading: str) -> list[str]:
    """The shell commands of a section of the manual."""
    section = MANUAL.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)


def commands(heading: str, backend: str) -> str:
    """The shell commands of a section of the manual for one of the databases."""
    blocks = section_blocks(heading)
    assert len(blocks) == len(BACKENDS)
    block: str = blocks[BACKENDS.index(backend)]
    return block


class Rehearsal:
    """A database in use, and the place where its backups are made and restored."""

    def __init__(self, url: str, folder: Path, server: PostgresServer | None) -> None:
        self.url = url
        self.folder = folder
        self.server = server
        self.backend = BACKENDS[server is not None]
        self.stored: dict[Key, str] = {}

    async def run(self, heading: str, **environment: str) -> None:
        """Run the commands of a section."""
        binaries = [] if self.server is None else [str(binaries_for(self.folder, None))]
        path = os.pathsep.join([*binaries, os.environ["PATH"]])
        process = await asyncio.create_subprocess_exec(
            "sh",
            "-euc",
            commands(heading, self.backend),
            cwd=self.folder,
            env={
                **os.environ,
                "PATH": path,
                "STAGEFARE_DATA_DIR": str(self.folder),
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        assert process.returncode == 0, said.decode()

    async def write(self, services: Services, ended: asyncio.Event) -> None:
        """Store one revision after another, of each kind, and note what was stored."""
        examples = {
            kind: sorted((resource_folder("examples") / kind.value).glob("*.json"))
            for kind in DOCUMENT_TYPES
        }
        turn = 0
        while not ended.is_set():
            for kind, files in examples.items():
                file = files[turn % len(files)]
                document = msgspec.json.decode(file.read_bytes(), type=DOCUMENT_TYPES[kind].struct)
                name = "mine" if kind is DocumentKind.PLAN else file.stem
                made = (await documents.put(services, kind, name, document)).revision
                self.stored[(kind.value, name, made.number)] = made.digest
            turn += 1


@pytest.fixture
def rehearsal(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> Rehearsal:
    if sqlite_path(database_url) is not None:
        return Rehearsal(database_url, tmp_path, None)
    return Rehearsal(database_url, tmp_path, request.getfixturevalue("postgres_server"))


async def test_a_backup_made_under_load_restores_to_one_moment(rehearsal: Rehearsal) -> None:
    engine, ended = create_engine(rehearsal.url), asyncio.Event()
    executor = InlineExecutor()
    backend = Backend(SqlDatabase(engine), executor, SystemClock(), ClusterCache(executor))
    writing = asyncio.create_task(rehearsal.write(backend.for_team("crew"), ended))
    while len(rehearsal.stored) < 40:
        await asyncio.sleep(0.01)
    before = dict(rehearsal.stored)
    await rehearsal.run("Backup", DATABASE=rehearsal.url)
    during = len(rehearsal.stored)
    while len(rehearsal.stored) == during:  # it goes on after it
        await asyncio.sleep(0.01)
    ended.set()
    await writing
    await engine.dispose()

    if rehearsal.server is None:
        restored = rehearsal.url
        await rehearsal.run("Restore")
    else:
        restored = rehearsal.server.create()
        await rehearsal.run("Restore", NEW_DATABASE=restored)
    await migrate.upgrade(restored)
    assert await migrate.check_drift(restored) == []
    await check_whole(restored)
    found = await stored_revisions(restored)
    assert before.items() <= found.items()
    assert found.items() <= rehearsal.stored.items()
    assert len(found) < len(rehearsal.stored), "what came after the backup is not in it"
    await can_be_written(restored)
    if rehearsal.server is not None:
        rehearsal.server.drop(restored)


def run_in(folder: Path, commands: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run commands of the manual with nothing of the caller's settings."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("STAGEFARE_")}
    return subprocess.run(
        ["sh", "-uc", commands],
        cwd=folder,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_backup_of_no_database_fails_and_makes_nothing(tmp_path: Path) -> None:
    backup = commands("Backup", "sqlite")
    assert run_in(tmp_path, backup).returncode != 0
    (tmp_path / ".stagefare").mkdir()
    assert run_in(tmp_path, backup).returncode != 0
    assert [path.name for path in tmp_path.rglob("*")] == [".stagefare"]


def test_a_backup_lies_beside_its_database_for_one_user_and_is_not_replaced(
    tmp_path: Path, sqlite_template: Path
) -> None:
    data = tmp_path / ".stagefare"
    data.mkdir()
    shutil.copyfile(sqlite_template, data / "stagefare.db")
    backup = commands("Backup", "sqlite")
    made = run_in(tmp_path, backup)
    assert made.returncode == 0, made.stderr
    assert stat.S_IMODE((data / "backup.db").stat().st_mode) == 0o600
    before = (data / "backup.db").read_bytes()
    again = run_in(tmp_path, backup)
    assert again.returncode != 0
    assert "already exists" in again.stderr
    assert (data / "backup.db").read_bytes() == before


def test_without_a_backup_a_restore_takes_nothing_away(
    tmp_path: Path, sqlite_template: Path
) -> None:
    data = tmp_path / ".stagefare"
    data.mkdir()
    shutil.copyfile(sqlite_template, data / "stagefare.db")
    (data / "stagefare.db-wal").write_bytes(b"newest")
    assert run_in(tmp_path, commands("Restore", "sqlite")).returncode != 0
    assert (data / "stagefare.db-wal").read_bytes() == b"newest"


# Does in this machine's server what the engine would do in the container of the database.
DOCKER = """#!/bin/sh
echo "$*" >> docker.log
case "$1 $2 $3 $4" in
    "compose exec -T database") shift 4; exec "$@" ;;
    "compose stop service " | "compose up --detach ") exit 0 ;;
esac
echo "unexpected: docker $*" >&2
exit 2
"""


async def test_the_compose_commands_bring_the_backup_back_and_keep_what_was(tmp_path: Path) -> None:
    database = yaml.safe_load(COMPOSE.read_text())["services"]["database"]
    role = database["environment"]["POSTGRES_USER"]
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "docker").write_text(DOCKER)
    (programs / "docker").chmod(0o700)
    backup, restore = section_blocks("Compose: backup and restore")
    with temporary_server() as server:
        binaries = binaries_for(tmp_path, None)
        environment = {
            "PATH": os.pathsep.join([str(programs), str(binaries), os.environ["PATH"]]),
            "PGHOST": str(make_url(server).query["host"]),
        }

        def run(script: str) -> str:
            result = run_in(tmp_path, f"set -e\n{script}", **environment)
            assert result.returncode == 0, result.stderr
            return result.stdout

        # As the image of the database does at its first start.
        run(f"createuser --username=postgres --superuser {role}")
        run(f"createdb --username={role} {database['environment']['POSTGRES_DB']}")
        url = make_url(server).set(username=role, database=role)
        served = url.render_as_string(hide_password=False)
        await migrate.upgrade(served)
        await can_be_written(served, "before")
        stored = await stored_revisions(served)
        run(backup)
        assert stat.S_IMODE((tmp_path / "backup.dump").stat().st_mode) == 0o600
        await can_be_written(served, "later")
        newest = await stored_revisions(served)

        run(restore)
        assert await stored_revisions(served) == stored
        await check_whole(served)
        old = url.set(database="before_restore").render_as_string(hide_password=False)
        assert await stored_revisions(old) == newest
        await can_be_written(served, "after")
    asked = (tmp_path / "docker.log").read_text().splitlines()
    assert asked[1] == "compose stop service"
    assert asked[-1] == "compose up --detach"


async def can_be_written(url: str, name: str = "after") -> None:
    engine = create_engine(url)
    try:
        executor = InlineExecutor()
        made = Backend(SqlDatabase(engine), executor, SystemClock(), ClusterCache(executor))
        document: Any = msgspec.json.decode(
            (resource_folder("examples") / "plans" / "equal-stages-gpipe.json").read_bytes(),
            type=DOCUMENT_TYPES[DocumentKind.PLAN].struct,
        )
        stored = await documents.put(made.for_team("crew"), DocumentKind.PLAN, name, document)
        assert stored.revision.number == 1
    finally:
        await engine.dispose()
