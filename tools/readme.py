"""The outputs shown in README.md, from running what it shows."""

import asyncio
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import httpx
from click.testing import CliRunner

from service.cli import main as stagefare
from service.main import create_app
from service.settings import read_settings
from service.store import migrate

__all__ = ["curl_body", "generated_files"]

README = Path("README.md")
ROOT = Path(__file__).resolve().parents[1]

_BLOCK = re.compile(
    r"(?P<start><!-- generated: (?P<what>[^>]*) -->\n).*?(?P<end><!-- end -->\n)", re.DOTALL
)
_CURL_BODY = re.compile(r"^\$ curl .*? -d '(?P<body>[^']*)'$", re.DOTALL | re.MULTILINE)


def generated_files() -> dict[Path, bytes]:
    """README.md with its outputs made anew."""
    text = (ROOT / README).read_text("utf-8")
    outputs = {
        "scripts/serve --check": f"```text\n{_serve_output()}```\n",
        "curl": f"```json\n{_curl_output(curl_body(text))}\n```\n",
    }

    def fill(block: re.Match[str]) -> str:
        return block["start"] + outputs[block["what"]] + block["end"]

    return {README: _BLOCK.sub(fill, text).encode()}


def curl_body(readme: str) -> str:
    """What the curl command of the README sends."""
    found = _CURL_BODY.search(readme)
    if found is None:
        raise ValueError("README.md has no curl command with a body in single quotes")
    return found["body"]


def _serve_output() -> str:
    """What a first `scripts/serve --check` prints, the making of the environment aside."""
    with tempfile.TemporaryDirectory() as folder:
        # An empty value is as if absent: nothing of the caller's settings shows in the README.
        environment = {"STAGEFARE_DATA_DIR": folder, "STAGEFARE_DATABASE_URL": ""}
        arguments = ["serve", "--check", "--with-examples"]
        result = CliRunner().invoke(stagefare, arguments, env=environment, catch_exceptions=False)
    if result.exit_code != 0:
        raise RuntimeError(f"stagefare serve --check failed: {result.output}")
    return result.stdout


def _curl_output(body: str) -> str:
    """What the application answers, indented."""

    async def ask() -> str:
        with tempfile.TemporaryDirectory() as folder:
            settings = read_settings({"STAGEFARE_DATA_DIR": folder})
            await migrate.upgrade(settings.database_url)
            app: Any = create_app(settings)
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://localhost"
            ) as client:
                headers = {"Content-Type": "application/json"}
                response = await client.post("/v1/cadence", content=body, headers=headers)
        return response.raise_for_status().text

    return json.dumps(json.loads(asyncio.run(ask())), indent=2, ensure_ascii=False)
