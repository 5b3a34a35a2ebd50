"""The commands of docs/operations.md, run as they stand there while writers write."""

import asyncio
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

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
from tests.plugins.postgresql import binaries_for

MANUAL = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
BACKENDS = ("sqlite", "postgresql")


def commands(heading: str, backend: str) -> str:
    """The shell commands of a section of the manual for one of the databases."""
    section = MANUAL.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
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
            env={**os.environ, "PATH": path, **environment},
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


async def can_be_written(url: str) -> None:
    engine = create_engine(url)
    try:
        executor = InlineExecutor()
        made = Backend(SqlDatabase(engine), executor, SystemClock(), ClusterCache(executor))
        document: Any = msgspec.json.decode(
            (resource_folder("examples") / "plans" / "equal-stages-gpipe.json").read_bytes(),
            type=DOCUMENT_TYPES[DocumentKind.PLAN].struct,
        )
        stored = await documents.put(made.for_team("crew"), DocumentKind.PLAN, "after", document)
        assert stored.revision.number == 1
    finally:
        await engine.dispose()
