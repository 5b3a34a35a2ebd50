"""The scripts are POSIX, run anywhere, are quiet when nothing is to do, and fail in one line."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.architecture.repository import ROOT

COMMANDS = ["scripts/serve", "scripts/check", "scripts/test", "scripts/pin", ".ci/run"]
SOURCED = ["scripts/environment.sh"]

# The tools that the scripts may rely on before there is a Python.
POSIX_TOOLS = [
    "basename",
    "cat",
    "cmp",
    "cp",
    "dirname",
    "grep",
    "head",
    "mkdir",
    "mv",
    "rm",
    "rmdir",
    "sh",
    "tail",
]


@pytest.mark.parametrize("script", [*COMMANDS, *SOURCED])
def test_it_parses_as_posix_shell(script: str) -> None:
    shell = shutil.which("dash") or "sh"
    result = subprocess.run([shell, "-n", ROOT / script], capture_output=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("script", COMMANDS)
def test_it_is_a_command(script: str) -> None:
    path = ROOT / script
    assert path.stat().st_mode & stat.S_IXUSR, f"{script} is not executable"
    first_line, text = path.read_text(encoding="utf-8").split("\n", 1)
    assert first_line == "#!/bin/sh"
    assert "set -eu" in text or text.startswith("exec ")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout, with a space in its path, of just what the scripts read."""
    folder = tmp_path / "a checkout"
    for name in ("scripts", "requirements", ".ci"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.fixture
def bare_path(tmp_path: Path) -> Path:
    """A PATH with the tools of any machine and no Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in POSIX_TOOLS:
        found = shutil.which(tool)
        assert found, f"this machine has no {tool}"
        (folder / tool).symlink_to(found)
    return folder


def command(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)


def run(script: Path, *arguments: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a script from a folder that has nothing to do with it."""
    return subprocess.run(
        [script, *arguments],
        cwd="/",
        env=dict(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (None, "none was found"),
        ("3.9 old complete", "python3 is Python 3.9"),
        ("3.12 new bare", "without its venv and ensurepip modules"),
    ],
)
@pytest.mark.parametrize("script", ["serve", "test"])
def test_a_missing_python_is_told_in_one_line(
    checkout: Path, bare_path: Path, script: str, answer: str | None, told: str
) -> None:
    if answer is not None:
        command(bare_path / "python3", f"echo '{answer}'")
    result = run(checkout / "scripts" / script, env={"PATH": str(bare_path)})
    assert result.returncode == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.count("Python 3.11 or newer is needed") == 1
    assert told in line
    assert not (checkout / ".venv").exists()


def test_the_python_named_by_the_caller_is_the_only_one_tried(
    checkout: Path, bare_path: Path
) -> None:
    command(bare_path / "python3", "echo '3.12 new complete'")
    named = {"PATH": str(bare_path), "PYTHON": "/nowhere/python"}
    result = run(checkout / "scripts" / "serve", env=named)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert "PYTHON=/nowhere/python does not run" in line


def test_a_network_that_is_away_is_told_in_one_line(checkout: Path) -> None:
    # A proxy that refuses, and none of this machine's own ways to packages.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    env |= dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    env |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1", "PYTHON": sys.executable}
    env |= {"no_proxy": "", "NO_PROXY": ""}
    result = run(checkout / "scripts" / "serve", env=env)
    assert result.returncode == 1
    assert result.stdout == ""
    started, failed = result.stderr.splitlines()
    assert "making .venv" in started
    assert "the network is needed" in failed
    assert not list((checkout / ".venv").glob("installed-*")), "it would count as finished"


@pytest.fixture
def finished(checkout: Path) -> Path:
    """The checkout with an environment that the scripts take for theirs and up to date."""
    bin_folder = checkout / ".venv" / "bin"
    bin_folder.mkdir(parents=True)
    command(bin_folder / "python", f'exec "{sys.executable}" "$@"')
    command(bin_folder / "stagefare", """printf '[%s]' "$@"; printf ' in %s' "$PWD" """)
    identity = f"Python {sys.version_info[0]}.{sys.version_info[1]} in {checkout.resolve()}\n"
    pins = (checkout / "requirements" / name for name in ("bootstrap.txt", "runtime.txt"))
    stamp = identity + "".join(file.read_text(encoding="utf-8") for file in pins)
    (checkout / ".venv" / "installed-runtime").write_text(stamp, encoding="utf-8")
    shutil.copy(checkout / "pyproject.toml", checkout / ".venv" / "installed-project")
    return checkout


def test_it_is_quiet_and_passes_arguments_on_when_nothing_is_to_do(finished: Path) -> None:
    result = run(finished / "scripts" / "serve", "--check", "two words", env=os.environ)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    arguments = "[serve][--with-examples][--check][two words]"
    assert result.stdout == f"{arguments} in {finished.resolve()}"


@pytest.mark.parametrize("change", ["moved", "interrupted", "other python"])
def test_an_environment_that_is_not_whole_is_made_again(
    finished: Path, bare_path: Path, tmp_path: Path, change: str
) -> None:
    if change == "moved":
        finished = finished.rename(tmp_path / "moved")
    elif change == "interrupted":
        (finished / ".venv" / "installed-runtime").unlink()
    else:
        command(finished / ".venv" / "bin" / "python", "exit 127")
    # No Python to make it with: that it asks for one shows that it would.
    result = run(finished / "scripts" / "serve", env={"PATH": str(bare_path)})
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert "Python 3.11 or newer is needed" in line


def test_the_one_command_of_continuous_integration_is_the_test_script() -> None:
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert lines == ["#!/bin/sh", 'exec "$(dirname -- "$0")/../scripts/test"']
