"""The wheel that the image installs: complete, and content with folders it can't write to."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.repository import ROOT, committed_files
from tests.containers.test_image import image_environment

PATIENCE_SECONDS = 180
TRAVELLING = ("migrations", "openapi", "examples")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the pinned backend, without a network and without an environment of its own."""
    folder = tmp_path_factory.mktemp("wheel")
    build = "import sys, hatchling.build; print(hatchling.build.build_wheel(sys.argv[1]))"
    subprocess.run(
        [sys.executable, "-c", build, str(folder)], cwd=ROOT, check=True, capture_output=True
    )
    (built,) = folder.glob("*.whl")
    return built


def test_it_holds_every_file_of_the_package_and_what_travels_with_it(wheel: Path) -> None:
    expected = set()
    for name in committed_files():
        if name.parts[0] == "service":
            expected.add(str(name))
        elif name.parts[0] in TRAVELLING:
            expected.add(f"service/_resources/{name}")
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    assert not sorted(expected - held)
    extra = {name for name in held - expected if ".dist-info/" not in name}
    assert not sorted(name for name in extra if "__pycache__" not in name)


def give_up_overriding_permissions() -> None:
    """Let file permissions hold for root too, in the process about to be started (Linux)."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            if libc.prctl(24, capability, 0, 0, 0):  # PR_CAPBSET_DROP
                raise OSError(ctypes.get_errno(), "prctl")


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Iterator[Path]:
    """The wheel unpacked into a folder that nobody may write to."""
    folder = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield folder
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)


def test_it_migrates_and_serves_where_it_can_not_write(installed: Path, tmp_path: Path) -> None:
    """The commands of the image, with its settings, beside the packages of this environment."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "data").mkdir()
    environment = {
        **image_environment(),
        "PATH": "/usr/bin:/bin",
        # First the wheel; the checkout comes in by the environment's own path only after it.
        "PYTHONPATH": os.pathsep.join([str(installed), sysconfig.get_path("purelib")]),
        "NUMBA_CACHE_DIR": str(tmp_path / "numba"),
        "STAGEFARE_DATA_DIR": str(tmp_path / "data"),
        "STAGEFARE_HOST": "127.0.0.1",
        "STAGEFARE_PORT": str(port),
    }

    def start(*arguments: str) -> "subprocess.Popen[str]":
        main = "import service; from service.cli import main; print(service.__file__); main()"
        return subprocess.Popen(
            [sys.executable, "-B", "-c", main, *arguments],
            cwd=tmp_path / "data",
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=give_up_overriding_permissions,  # noqa: PLW1509
        )

    migrating = start("migrate")
    output, errors = migrating.communicate(timeout=PATIENCE_SECONDS)
    assert migrating.returncode == 0, errors
    assert output.startswith(str(installed / "service"))
    assert (tmp_path / "data" / "stagefare.db").is_file()

    serving = start("serve")
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (answer := read(f"http://127.0.0.1:{port}/readyz")) != 200:
            assert serving.poll() is None, serving.communicate()
            assert time.monotonic() < deadline, answer
            time.sleep(0.1)
        assert read(f"http://127.0.0.1:{port}/openapi.json") == 200
        assert read(f"http://127.0.0.1:{port}/problems/not-found") == 200
        serving.send_signal(signal.SIGTERM)
        _, errors = serving.communicate(timeout=PATIENCE_SECONDS)
        assert serving.returncode == 0, errors
        assert list((tmp_path / "numba").iterdir())  # compiled there and not beside the sources
    finally:
        serving.kill()
        serving.communicate()


def read(url: str) -> int | None:
    """The status of an answer; None when nobody listens."""
    try:
        with urllib.request.urlopen(url, timeout=20) as response:  # noqa: S310
            status: int = response.status
            return status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except OSError:
        return None
