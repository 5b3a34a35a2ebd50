"""A service that is told to stop, in a process of its own, with a request on its way."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from service.app.ports import DocumentKind
from service.main import open_services
from service.settings import read_settings

PLAN = {
    "costs": {"stages": [{"forward_seconds": 0.006, "backward_seconds": 0.012}] * 2},
    "schedule": {"kind": "1f1b"},
    "workload": {"microbatches": 8},
}
BODY = json.dumps(PLAN).encode()
PATIENCE_SECONDS = 120


class Running:
    """A service and what it has logged."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self._log = log
        self.url = f"http://127.0.0.1:{port}"

    def log(self) -> list[dict[str, Any]]:
        """Every line, each of them JSON."""
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    def ready(self) -> httpx.Response | None:
        """What /readyz says; None when nobody listens."""
        try:
            return httpx.get(f"{self.url}/readyz")
        except httpx.TransportError:
            # Also a connection that was still in the queue when the socket was closed: it is reset.
            return None

    def wait_for(self, is_so: Any) -> None:
        """Until it is so; fails when the process ends meanwhile."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            assert self.process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    @contextmanager
    def begun(self, name: str) -> Iterator[socket.socket]:
        """Send all but the last byte of a document; begins when the service is at work on it."""
        head = (
            f"PUT /v1/plans/{name} HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
        )
        address = ("127.0.0.1", self.port)
        with socket.create_connection(address, timeout=PATIENCE_SECONDS) as connection:
            connection.sendall(head.encode() + BODY[:-1])
            # The scrape itself is the other one.
            line = "\nstagefare_http_requests_in_flight 2.0\n"
            self.wait_for(lambda: line in httpx.get(f"{self.url}/metrics").text)
            yield connection


@contextmanager
def service(tmp_path: Path, database_url: str, **settings: str) -> Iterator[Running]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("STAGEFARE_")},
        "STAGEFARE_PORT": str(port),
        "STAGEFARE_DATABASE_URL": database_url,
        "STAGEFARE_DATA_DIR": str(tmp_path),
        **settings,
    }
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-c", "from service.cli import main; main()", "serve"],
            env=environment,
            cwd=Path(__file__).resolve().parents[1],
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
    running = Running(process, port, log)
    try:
        running.wait_for(lambda: getattr(running.ready(), "status_code", None) == 200)
        yield running
    finally:
        process.kill()
        process.wait()


async def plans(database_url: str) -> list[str]:
    """The names of the plans that are stored."""
    settings = read_settings({"STAGEFARE_DATABASE_URL": database_url})
    async with open_services(settings) as services, services.storage.reading() as unit:
        return [heading.name for heading in await unit.documents.page(DocumentKind.PLAN, 10)]


def test_what_is_on_its_way_arrives_before_the_service_ends(
    tmp_path: Path, database_url: str
) -> None:
    with (
        service(tmp_path, database_url, STAGEFARE_SHUTDOWN_DELAY_SECONDS="3600") as running,
        running.begun("on-its-way") as connection,
    ):
        running.process.send_signal(signal.SIGTERM)
        running.wait_for(lambda: getattr(running.ready(), "status_code", None) == 503)
        refused = running.ready()
        assert refused is not None
        assert refused.json()["detail"] == "not ready: the service is stopping"
        # Until those who send requests have noticed, requests are answered.
        assert httpx.put(f"{running.url}/v1/plans/late", json=PLAN).status_code == 201

        running.process.send_signal(signal.SIGTERM)  # the delay has been long enough
        running.wait_for(lambda: running.ready() is None)
        connection.sendall(BODY[-1:])
        answer = b""
        while part := connection.recv(2**16):
            answer += part
        assert answer.startswith(b"HTTP/1.1 201 ")
        assert b"connection: close" in answer.lower()
        assert running.process.wait(PATIENCE_SECONDS) == 0

        lines = running.log()
        puts = [line for line in lines if line.get("method") == "PUT"]
        assert [(line["route"], line["status"], line["team"]) for line in puts] == [
            ("/v1/plans/{name}", 201, "local"),
            ("/v1/plans/{name}", 201, "local"),
        ]
        assert all(line["request_id"] for line in puts)
        assert not [line for line in lines if line["level"] in {"error", "critical"}]
    assert asyncio.run(plans(database_url)) == ["late", "on-its-way"]


def test_what_does_not_arrive_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'stagefare.db'}"
    with (
        service(tmp_path, url, STAGEFARE_SHUTDOWN_GRACE_SECONDS="1") as running,
        running.begun("never-whole") as connection,
    ):
        running.process.send_signal(signal.SIGINT)
        while connection.recv(2**16):
            pass
        assert running.process.wait(PATIENCE_SECONDS) == 0
        events = [line["event"] for line in running.log()]
        assert "Cancel 1 running task(s), timeout graceful shutdown exceeded" in events
