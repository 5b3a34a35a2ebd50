"""Services as processes of their own, which can be killed and started again."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__ = ["Launcher", "ServiceProcess", "launcher"]

ROOT = Path(__file__).resolve().parents[2]
_START_SECONDS = 120
_STOP_SECONDS = 60


class Launcher:
    """The process that forks services; see `tests.plugins.launcher`."""

    def __init__(self) -> None:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("STAGEFARE_")
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.plugins.launcher"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def fork(self, environment: dict[str, str], log: Path) -> int:
        """The id of a new process that serves with this environment."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"environment": environment, "log": str(log)}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """Kill all services."""
        self._process.communicate(timeout=_STOP_SECONDS)


@pytest.fixture(scope="session")
def launcher() -> Iterator[Launcher]:
    """Starts services; those that still run at the end of the session are killed."""
    made = Launcher()
    yield made
    made.close()


class ServiceProcess:
    """One service on a database. It keeps its port from one start to the next."""

    def __init__(self, launcher: Launcher, database_url: str, folder: Path) -> None:
        self._launcher = launcher
        self._log = folder / "service.log"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._environment = {
            "STAGEFARE_DATABASE_URL": database_url,
            "STAGEFARE_DATA_DIR": str(folder),
            "STAGEFARE_PORT": str(self.port),
            "STAGEFARE_REQUESTS_PER_MINUTE": "0",  # tests are hasty
        }
        self._pid = 0

    def start(self) -> None:
        """Start it and wait until it is ready."""
        self.begin()
        self.wait_until_ready()

    def begin(self) -> None:
        """Start it."""
        self._pid = self._launcher.fork(self._environment, self._log)

    def wait_until_ready(self) -> None:
        """Wait for the service to say that it is ready; fails with its log when it died."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"{self.url}/readyz", timeout=10):  # noqa: S310
                    return
            except OSError:
                if not self.is_alive():
                    break
            time.sleep(0.02)
        pytest.fail(f"the service did not become ready:\n{self.log()}")

    def is_alive(self) -> bool:
        """Whether the process is there."""
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return False
        return True

    def wait(self, seconds: float) -> None:
        """Let it do what it does for a while."""
        time.sleep(seconds)

    def kill(self) -> None:
        """End it as a crash would, and wait until nothing is left of it."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to end, and wait until it has."""
        self._end(signal.SIGTERM)

    def _end(self, by: signal.Signals) -> None:
        if self.is_alive():
            os.kill(self._pid, by)
        deadline = time.monotonic() + _STOP_SECONDS
        while self.is_alive() and time.monotonic() < deadline:
            time.sleep(0.005)
        assert not self.is_alive(), f"the service does not end:\n{self.log()}"

    def resident_bytes(self) -> int:
        """The memory it has at this moment."""
        command = ["ps", "-o", "rss=", "-p", str(self._pid)]
        said = subprocess.run(command, check=True, capture_output=True, text=True)
        return int(said.stdout) * 1024

    def log(self) -> str:
        """What it has written so far."""
        return self._log.read_text(errors="replace") if self._log.is_file() else ""
