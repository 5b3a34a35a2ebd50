"""Tokens and open access on the command line."""

import asyncio
import re
import socket
from pathlib import Path

import httpx
import pytest
import uvicorn
from click.testing import CliRunner, Result

from service.cli import main
from service.main import create_app
from service.settings import read_settings
from service.store import migrate
from tests.api.clients import client_of


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A database of the test's own, and nothing of the caller's settings."""
    asyncio.run(migrate.upgrade(f"sqlite:///{tmp_path / 'stagefare.db'}"))
    return {
        "STAGEFARE_DATA_DIR": str(tmp_path),
        "STAGEFARE_DATABASE_URL": "",
        "STAGEFARE_HOST": "",
    }


def run(environment: dict[str, str], *arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, env=environment)


def create(environment: dict[str, str], *arguments: str) -> str:
    result = run(environment, "tokens", "create", "--team", "crew", *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def answer_to(environment: dict[str, str], token: str | None, path: str) -> httpx.Response:
    async def ask() -> httpx.Response:
        app = create_app(read_settings(environment))
        async with app.lifespan(), client_of(app, token) as http:
            return await http.get(path)

    return asyncio.run(ask())


def test_a_token_is_printed_once_and_works(environment: dict[str, str]) -> None:
    result = run(
        environment,
        *("tokens", "create", "--team", "crew", "--scope", "read", "--scope", "write"),
        *("--name", "nightly", "--expires-in", "12h"),
    )
    assert result.exit_code == 0
    token = result.stdout.strip()
    assert re.fullmatch(r"stagefare_[0-9a-f]{20}_[0-9a-f]{64}", token)
    assert "shown this once" in result.stderr
    assert "Open access has ended" in result.stderr
    assert (
        "Open access"
        not in run(environment, "tokens", "create", "--team", "crew", "--scope", "read").stderr
    )

    listed = run(environment, "tokens", "list", "--team", "crew").stdout.splitlines()
    assert len(listed) == 2
    assert listed[1].startswith(f"{token.split('_')[1]}  read,write ")
    assert listed[1].endswith("  nightly")
    assert token.split("_")[2] not in "".join(listed)
    assert run(environment, "tokens", "list", "--team", "other").stdout == ""

    assert answer_to(environment, token, "/v1/plans").json() == {"items": []}
    assert answer_to(environment, token, "/v1/tokens").status_code == 403
    assert answer_to(environment, None, "/v1/plans").status_code == 401
    assert answer_to(environment, None, "/readyz").json()["access"] == "tokens"


def test_a_token_is_revoked(environment: dict[str, str]) -> None:
    token = create(environment, "--scope", "read")
    token_id = token.split("_")[1]
    missing = run(environment, "tokens", "revoke", "--team", "other", token_id)
    assert missing.exit_code == 1
    assert f"no token '{token_id}' is stored" in missing.output
    result = run(environment, "tokens", "revoke", "--team", "crew", token_id)
    assert result.stdout == f"Token {token_id} is revoked.\n"
    assert "revoked" in run(environment, "tokens", "list", "--team", "crew").stdout
    assert answer_to(environment, token, "/v1/plans").status_code == 401
    assert answer_to(environment, None, "/v1/plans").status_code == 401


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--team", "Crew", "--scope", "read"], "--team"),
        (["--team", "crew"], "--scope"),
        (["--scope", "read"], "--team"),
        (["--team", "crew", "--scope", "all"], "--scope"),
        (["--team", "crew", "--scope", "read", "--name", "a b"], "--name"),
        (["--team", "crew", "--scope", "read", "--expires-in", "367d"], "1m to 366d"),
        (["--team", "crew", "--scope", "read", "--expires-in", "0m"], "1m to 366d"),
        (["--team", "crew", "--scope", "read", "--expires-in", "3w"], "1m to 366d"),
    ],
)
def test_what_cannot_be_made_is_said(
    environment: dict[str, str], arguments: list[str], said: str
) -> None:
    result = run(environment, "tokens", "create", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "stagefare.example"])  # noqa: S104
def test_without_tokens_only_loopback_is_served(environment: dict[str, str], host: str) -> None:
    refused = run(environment | {"STAGEFARE_HOST": host}, "serve", "--check")
    assert refused.exit_code == 1
    (line,) = refused.output.splitlines()
    assert line.startswith("Error: without tokens the service is open")
    assert host in line

    create(environment, "--scope", "read")
    assert run(environment | {"STAGEFARE_HOST": host}, "serve", "--check").exit_code == 0


@pytest.mark.parametrize("host", ["", "localhost"])
def test_without_tokens_loopback_is_served_and_says_so(
    environment: dict[str, str], host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start_and_stop(server: uvicorn.Server, **_options: object) -> None:
        server.started = True

    monkeypatch.setattr(uvicorn.Server, "run", start_and_stop)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    environment |= {"STAGEFARE_HOST": host, "STAGEFARE_PORT": str(port)}
    opened = run(environment, "serve")
    assert opened.exit_code == 0, opened.output
    assert "access        open to this machine, as the team local" in opened.output
    assert re.search(rf"to try it +http://\S+:{port}/reference$", opened.output, re.MULTILINE)
    assert f"the database  {environment['STAGEFARE_DATA_DIR']}/stagefare.db\n" in opened.output
    create(environment, "--scope", "read")
    assert "access        with a token" in run(environment, "serve").output
