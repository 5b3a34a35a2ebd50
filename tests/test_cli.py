"""Commands that can't do what they are asked say why in words, and never with a traceback."""

import asyncio
import json
import re
import socket
import stat
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from sqlalchemy import text

from service.cli import main
from service.cli.running import Commands
from service.store import migrate
from service.store.engine import create_engine


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A data folder of the test's own, and nothing of the caller's settings."""
    return {
        "STAGEFARE_DATA_DIR": str(tmp_path / "data"),
        "STAGEFARE_DATABASE_URL": "",
        "STAGEFARE_HOST": "",
    }


def refusal(environment: dict[str, str], *arguments: str, typed: bytes = b"") -> str:
    """What a command that fails says on standard error."""
    result = CliRunner().invoke(main, arguments, env=environment, input=typed)
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 1
    before, error, said = result.stderr.partition("Error: ")
    assert re.fullmatch(r"(Database: .+\n)?", before)
    assert error
    return said


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"costs"',
        b"\xff\xfe{}",
        b"[" * 100_000,
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a": [{"b": 1, "b": 1}]}',
    ],
    ids=["empty", "cut off", "no text", "deep", "long number", "a key twice"],
)
def test_a_plan_that_is_no_json_is_named(
    environment: dict[str, str], tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "plan.json"
    file.write_bytes(content)
    assert f"{file} is no JSON: " in refusal(environment, "estimate", str(file))
    assert "standard input is no JSON: " in refusal(environment, "estimate", "-", typed=content)


@pytest.mark.parametrize("patch", ["", "{", "[" * 100_000])
def test_a_patch_that_is_no_json_is_named(environment: dict[str, str], patch: str) -> None:
    assert "--patch is no JSON: " in refusal(environment, "estimate", "mine", "--patch", patch)


def test_what_is_neither_a_file_nor_a_reference_is_refused(
    environment: dict[str, str], tmp_path: Path
) -> None:
    for plan in ("a" * 5000, str(tmp_path), "no/such/file.json", "\udcff"):
        assert "there is no file" in refusal(environment, "estimate", plan)


PROFILE = (
    "n -- Linear -- forward_compute_time=1.0, backward_compute_time=1.0, "
    "activation_size=4.0, parameter_size=4.0\n"
)


@pytest.mark.parametrize(
    "command",
    [
        ["tokens", "create", "--team", "crew", "--scope", "read"],
        ["tokens", "list", "--team", "crew"],
        ["tokens", "revoke", "--team", "crew", "0" * 20],
        ["estimate", "mine"],
        ["import", "graph.txt", "--name", "mine", "--microbatch-size", "1"],
        ["import-routing", "graph.txt", "--name", "mine"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_where_no_database_is_only_serving_and_migrating_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "graph.txt").write_text(PROFILE)
    environment = dict.fromkeys(("STAGEFARE_DATA_DIR", "STAGEFARE_DATABASE_URL"), "")
    looked_at = tmp_path / ".stagefare" / "stagefare.db"
    said = refusal(environment, *command)
    assert said.startswith(f"there is no database {looked_at}: run this where the service was")
    assert "STAGEFARE_DATA_DIR" in said
    assert not looked_at.parent.exists()

    made = CliRunner().invoke(main, ["migrate"], env=environment)
    assert made.stdout == f"The database has the schema of this version: {looked_at}\n"
    assert stat.S_IMODE(looked_at.stat().st_mode) == 0o600
    assert stat.S_IMODE(looked_at.parent.stat().st_mode) == 0o700
    used = CliRunner().invoke(main, command, env=environment)
    assert used.stderr.startswith(f"Database: {looked_at}\n")
    assert "Database" not in used.stdout


def test_text_that_no_database_holds_is_refused(
    environment: dict[str, str], tmp_path: Path
) -> None:
    CliRunner().invoke(main, ["migrate"], env=environment)
    file = tmp_path / "graph.txt"
    file.write_text(PROFILE)
    options = ("--name", "mine", "--microbatch-size", "1", "--device", "\udcff")
    assert "/device: " in refusal(environment, "import", str(file), *options)


def test_files_of_expert_loads_become_a_routing(
    environment: dict[str, str], tmp_path: Path
) -> None:
    CliRunner().invoke(main, ["migrate"], env=environment)
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    first.write_text("layer,expert,count\n0,0,3\n0,1,5\n")
    second.write_text("layer,expert,count\n0,0,8\n")
    command = ["import-routing", str(first), str(second), "--name", "mine"]
    assert "/top_k: " in refusal(environment, *command)
    assert "--name is a lower-case letter" in refusal(environment, *command[:-1], "Mine")
    looked = CliRunner().invoke(main, [*command, "--top-k", "1", "--dry-run"], env=environment)
    assert "Nothing stored: routing mine was only read." in looked.stdout
    done = CliRunner().invoke(main, [*command, "--top-k", "1", "--experts", "2"], env=environment)
    assert done.exit_code == 0, done.output
    told = done.stdout.splitlines()
    assert told[:3] == ["Read first.csv, a csv file:", "  layers: 1", "  steps: 1"]
    assert any("each is taken to be a step of its own" in line for line in told)
    assert told[-1] == "Routing mine@1: created."


def test_a_folder_that_can_not_be_made_is_told(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    assert "can't be migrated" in refusal(environment, "migrate")


def test_a_database_that_does_not_answer_is_told_without_its_password(
    environment: dict[str, str],
) -> None:
    environment["STAGEFARE_DATABASE_URL"] = "postgresql://u:secret@127.0.0.1:1/d"
    said = refusal(environment, "serve", "--check")
    assert "can't be migrated" in said
    assert "secret" not in said


@pytest.mark.parametrize(
    "command", [["serve", "--check"], ["migrate"], ["tokens", "list", "--team", "crew"]]
)
def test_a_database_of_a_newer_version_is_refused_and_stays(
    environment: dict[str, str], database_url: str, command: list[str]
) -> None:
    asyncio.run(stamp(database_url, "later"))
    environment["STAGEFARE_DATABASE_URL"] = database_url
    said = refusal(environment, *command)
    assert "the schema 'later', which this version does not know" in said
    assert "restore a backup" in said
    assert asyncio.run(migrate.current(database_url)) == "later"


async def stamp(url: str, revision: str) -> None:
    """Write another revision into a database."""
    engine = create_engine(url)
    try:
        async with engine.begin() as connection:
            await connection.execute(
                text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision}
            )
    finally:
        await engine.dispose()


def test_an_address_in_use_is_told_before_anything_is_announced(
    environment: dict[str, str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        environment["STAGEFARE_PORT"] = str(taken.getsockname()[1])
        result = CliRunner().invoke(main, ["serve"], env=environment)
    assert result.exit_code == 1
    assert "in use" in result.stderr
    assert "Serving" not in result.stdout


def test_what_the_machine_refuses_is_one_line() -> None:
    @click.group(cls=Commands)
    def group() -> None: ...

    @group.command()
    def read() -> None:
        raise PermissionError(13, "Permission denied", "graph.txt")

    result = CliRunner().invoke(group, ["read"])
    assert result.exit_code == 1
    assert result.stderr == "Error: [Errno 13] Permission denied: 'graph.txt'\n"


def test_the_contract_is_printed_as_it_is() -> None:
    result = CliRunner().invoke(main, ["openapi"])
    assert result.exit_code == 0
    assert json.loads(result.stdout_bytes)["openapi"] == "3.1.0"
