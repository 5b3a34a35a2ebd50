"""What README.md shows is what happens."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def shown(what: str) -> str:
    """The generated output of a command, as it stands in the README."""
    pattern = rf"<!-- generated: {re.escape(what)} -->\n```\w+\n(.*?)```\n<!-- end -->"
    found = re.search(pattern, README, re.DOTALL)
    assert found is not None
    return found[1]


def commands() -> list[str]:
    """The commands of the README's console blocks, continuation lines included."""
    blocks = re.findall(r"```console\n(.*?)```", README, re.DOTALL)
    return [command for block in blocks for command in re.split(r"^\$ ", block, flags=re.M)[1:]]


def environment(folder: Path, port: int = 8000) -> dict[str, str]:
    """This process's environment with settings of the test's own and no others."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("STAGEFARE_")}
    return {**inherited, "STAGEFARE_DATA_DIR": str(folder), "STAGEFARE_PORT": str(port)}


def test_the_check_command_prints_what_is_shown(tmp_path: Path) -> None:
    result = subprocess.run(
        [ROOT / "scripts" / "serve", "--check"],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == shown("scripts/serve --check")
    again = subprocess.run(
        [ROOT / "scripts" / "serve", "--check"],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "of which 0 stored now" in again.stdout.splitlines()[0]


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port of a running `scripts/serve`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        chosen: int = probe.getsockname()[1]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [ROOT / "scripts" / "serve"],
            env=environment(tmp_path, chosen),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait_until_ready(chosen, process)
            yield chosen
        finally:
            process.terminate()
            process.wait(30)


def _wait_until_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert process.poll() is None, "scripts/serve ended"
        try:
            if httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    pytest.fail("scripts/serve did not become ready in a minute")


def test_the_curl_command_answers_what_is_shown(port: int) -> None:
    first, _ = curl_commands()
    assert json.loads(curl(first, port)) == json.loads(shown("curl"))


def test_what_to_ask_is_answered(port: int) -> None:
    _, keyed = curl_commands()
    made = json.loads(curl(keyed, port))
    assert made["workload"]["microbatches"] == 16
    assert json.loads(curl(keyed, port)) == made
    bodies = re.search(r"```json\n(\{\"plan.*?)```", README, re.DOTALL)
    assert bodies is not None
    blocking, limited, unequal = (
        httpx.post(
            f"http://127.0.0.1:{port}/v1/estimates",
            content=body,
            headers={"Content-Type": "application/json"},
        ).raise_for_status()
        for body in re.split(r"\n(?=\{)", bodies[1].strip())
    )
    assert blocking.json()["transfer_mode"] == "blocking"
    ranks = limited.json()["live_activations"]["ranks"]
    assert max(rank["peak_activations"] for rank in ranks) == 4  # the limit, used to the full
    # The second rank begins when the first microbatch is there, which is the shorter one.
    assert unequal.json()["live_activations"]["ranks"][1]["series"]["at_seconds"][0] == 0.006


def test_a_token_of_the_team_local_reaches_what_was_stored_before(
    port: int, tmp_path: Path
) -> None:
    _, keyed = curl_commands()
    digest = json.loads(curl(keyed, port))["digest"]
    make, picture = re.findall(r"```sh\n((?:TOKEN=|curl )[^`]*)```", README)
    made = subprocess.run(
        ["sh", "-euc", f"{make}echo $TOKEN"],
        cwd=ROOT,
        env=environment(tmp_path, port),
        capture_output=True,
        text=True,
        check=True,
    )
    picture = picture.replace("$TOKEN", made.stdout.strip()).replace("$DIGEST", digest)
    curl(picture.replace("-o timeline.svg", f"-o {tmp_path}/timeline.svg"), port)
    assert (tmp_path / "timeline.svg").read_text().startswith("<svg")
    for _ in range(100):
        if httpx.get(f"http://127.0.0.1:{port}/v1/plans").status_code == 401:
            return
        time.sleep(0.1)
    pytest.fail("open access went on for ten seconds after the first token")


def curl_commands() -> list[str]:
    return [command for command in commands() if command.startswith("curl ")]


def curl(command: str, port: int) -> str:
    """What a curl command of the README prints; httpx sends it where there is no curl."""
    words = shlex.split(command.replace("127.0.0.1:8000", f"127.0.0.1:{port}"))
    if shutil.which("curl") is not None:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout
    url = next(word for word in words if word.startswith("http"))
    lines = [value for name, value in pairwise(words) if name == "-H"]
    headers = dict(line.split(": ", 1) for line in lines)
    if "-d" in words:
        answer = httpx.post(url, content=words[words.index("-d") + 1], headers=headers)
    else:
        answer = httpx.get(url, headers=headers)
    if "-o" in words:
        Path(words[words.index("-o") + 1]).write_text(answer.text)
    return answer.text


def test_every_command_of_the_readme_exists() -> None:
    for command in commands():
        program = shlex.split(command, comments=True)[0]
        assert program == "curl" or (ROOT / program).is_file() or program.startswith(".venv/")
    assert (ROOT / ".ci" / "run").read_text() == (
        '#!/bin/sh\nexec "$(dirname -- "$0")/../scripts/test"\n'
    )


def test_links_lead_somewhere() -> None:
    for page in (README, (ROOT / "ARCHITECTURE.md").read_text("utf-8")):
        for target in re.findall(r"\]\(([^)#]+)\)", page):
            assert target.startswith("http") or (ROOT / target).exists(), target
