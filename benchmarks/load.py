"""Requests per second, CPU per request and percentiles of the service over HTTP.

    python -m benchmarks.load                   on SQLite
    python -m benchmarks.load --postgresql      on a PostgreSQL of its own, which does not sync
    python -m benchmarks.load --settings        also what garbage collection and pool settings do

The server is a process of its own, as `stagefare serve` would start it, with logs going nowhere and
one more route that does nothing: the floor, what the server, the framework and the outermost layer
cost. CPU per request is the server's, and the number to compare: requests per second and
percentiles depend on what else the machine does, and on the client, which is Python too and says
how much of a core it took. Where client and server together take all cores, the requests per second
are a lower bound.

The last row is the floor again, on one connection, while another process sends large batches as
fast as they are answered: how long small requests wait behind large ones, and how soon those that
are too many are refused.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING, Any

from service.app.access import create_token
from service.app.ports import Scope
from service.main import open_services
from service.settings import read_settings
from service.store import migrate

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

RANKS, MICROBATCHES = 16, 256
CONNECTIONS = 16
# Batches that are on their way at a time in the last row, and their plans: each 0.8 MB, and more
# work than one request may ask for, so each that is read is answered with 422.
PRESSING, PRESSING_PLANS = 40, 200
WARM_UP_SECONDS = 1.0
# Request number -> its bytes.
Request = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class Load:
    """What a scenario sends, and the status that is right."""

    name: str
    request: Request
    status: int


@dataclass(slots=True)
class Result:
    """What was measured in one scenario."""

    seconds: list[float] = field(default_factory=list)
    wall_seconds: float = 0.0
    server_cpu_seconds: float = 0.0
    client_cpu_seconds: float = 0.0

    @property
    def per_second(self) -> float:
        return len(self.seconds) / self.wall_seconds

    @property
    def cpu_per_request(self) -> float:
        return self.server_cpu_seconds / len(self.seconds)

    def percentile(self, share: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Server:
    """The process that serves, and how to reach it."""

    def __init__(self, port: int, token: str) -> None:
        self.port = port
        self._authorization = f"Authorization: Bearer {token}\r\n"

    def request(self, method: str, path: str, body: Any = None, headers: str = "") -> bytes:
        """A whole request."""
        content = b"" if body is None else json.dumps(body).encode()
        if body is not None:
            headers += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{self._authorization}{headers}\r\n"
        return head.encode() + content

    async def ask(self, request: bytes) -> tuple[int, bytes, bytes]:
        """Status, head and body of an answer, on a connection of its own."""
        async with self.connection() as (reader, writer):
            return await exchange(reader, writer, request)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """An open connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**24)
        try:
            yield reader, writer
        finally:
            writer.close()
            await writer.wait_closed()

    async def cpu_seconds(self) -> float:
        """The CPU time the process has used, by its own account."""
        _, _, body = await self.ask(self.request("GET", "/metrics"))
        for line in body.splitlines():
            if line.startswith(b"process_cpu_seconds_total "):
                return float(line.split()[1])
        raise RuntimeError("this system does not tell the CPU time of a process in /proc")


async def exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
) -> tuple[int, bytes, bytes]:
    """Send a request and read its answer: status, head and body."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head[9:12])
    marker = head.lower().find(b"content-length:")
    length = 0 if marker < 0 else int(head[marker + 15 : head.index(b"\r\n", marker)])
    return status, head, await reader.readexactly(length) if length and status != 304 else b""


def plan(number: int, ranks: int = RANKS) -> dict[str, Any]:
    """A plan like no other one."""
    stages = [
        {
            "forward_seconds": 0.006 + rank * 1e-4 + number * 1e-9,
            "backward_seconds": 0.012,
            **({"transfer_seconds": 1e-4} if rank < ranks - 1 else {}),
        }
        for rank in range(ranks)
    ]
    return {
        "costs": {"stages": stages},
        "schedule": {"kind": "1f1b"},
        "workload": {"microbatches": MICROBATCHES},
    }


async def loads(server: Server) -> list[Load]:
    """All scenarios, on a database that holds what they need."""
    status, _, answer = await server.ask(server.request("PUT", "/v1/plans/bench", plan(0)))
    if status not in (200, 201):
        raise RuntimeError(f"the plan was not stored: {status} {answer!r}")
    status, _, answer = await server.ask(server.request("POST", "/v1/estimates", {"plan": "bench"}))
    digest = json.loads(answer)["digest"]
    unchanged = f'If-None-Match: "{digest}"\r\n'
    fixed = {
        "floor": server.request("GET", "/floor"),
        "document": server.request("GET", "/v1/plans/bench"),
        "cached": server.request("GET", f"/v1/estimates/{digest}", headers=unchanged),
        "known": server.request("POST", "/v1/estimates", {"plan": "bench"}),
    }
    start = time.time_ns() % 10**6  # so that another run on the same database is fresh too

    def fresh(number: int) -> bytes:
        return server.request("POST", "/v1/estimates", {"plan": plan(start + number)})

    return [
        Load("a route that does nothing", lambda _: fixed["floor"], 200),
        Load("reading a document", lambda _: fixed["document"], 200),
        Load("a cached estimate, 304", lambda _: fixed["cached"], 304),
        Load("a known estimate, POST", lambda _: fixed["known"], 200),
        Load(f"a fresh estimate, {RANKS}x{MICROBATCHES}", fresh, 201),
    ]


async def measure(server: Server, load: Load, connections: int, seconds: float) -> Result:
    """Send one scenario's requests over some connections for some time."""
    result = Result()
    number = 0

    async def send(until: float, durations: list[float]) -> None:
        nonlocal number
        async with server.connection() as (reader, writer):
            while (began := time.perf_counter()) < until:
                number += 1
                status, _, body = await exchange(reader, writer, load.request(number))
                durations.append(time.perf_counter() - began)
                if status != load.status:
                    raise RuntimeError(f"{load.name}: {status} {body[:300]!r}")

    async def run(duration: float, durations: list[float]) -> None:
        until = time.perf_counter() + duration
        async with asyncio.TaskGroup() as group:
            for _ in range(connections):
                group.create_task(send(until, durations))

    await run(WARM_UP_SECONDS, [])
    before, client_before = await server.cpu_seconds(), time.process_time()
    began = time.perf_counter()
    await run(seconds, result.seconds)
    result.wall_seconds = time.perf_counter() - began
    result.client_cpu_seconds = time.process_time() - client_before
    result.server_cpu_seconds = await server.cpu_seconds() - before
    return result


def press(server: Server, seconds: float, answers: "Queue[tuple[int, float]]") -> None:
    """Send batches for some time, and say with what status and how soon each was answered."""
    plans = [{"plan": plan(number, 4 * RANKS)} for number in range(PRESSING_PLANS)]
    request = server.request("POST", "/v1/estimates/batches", {"plans": plans})
    until = time.monotonic() + seconds

    async def send() -> None:
        while time.monotonic() < until:
            began = time.monotonic()
            status, _, _ = await server.ask(request)
            answers.put((status, time.monotonic() - began))
            if status != 422:
                await asyncio.sleep(1)  # as it was told

    async def run() -> None:
        await asyncio.gather(*(send() for _ in range(PRESSING)))

    asyncio.run(run())


def show_pressed(server: Server, floor: Load, seconds: float) -> None:
    """The floor while a process presses, and what that one was told."""
    context = multiprocessing.get_context("spawn")
    answers: Queue[tuple[int, float]] = context.Queue()
    pressing = context.Process(target=press, args=(server, seconds + 3, answers))
    pressing.start()
    given = [answers.get()]
    result = asyncio.run(measure(server, floor, 1, seconds))
    while pressing.is_alive() or not answers.empty():
        with suppress(Empty):
            given.append(answers.get(timeout=0.1))
    pressing.join()
    percentiles = "".join(f"{result.percentile(p) * 1e3:5.1f} ms" for p in (0.5, 0.9, 0.99))
    print(
        f"{'the floor beside batches':26} {result.per_second:11.0f}"
        f" {result.cpu_per_request * 1e6:9.0f} us {'':9}{percentiles}"
        f"   worst {max(result.seconds) * 1e3:.0f} ms"
    )
    for status in sorted({status for status, _ in given}):
        of_status = sorted(seconds for each, seconds in given if each == status)
        print(
            f"  {len(of_status)} batches answered with {status}: median "
            f"{of_status[len(of_status) // 2]:.2f} s, worst {of_status[-1]:.2f} s"
        )


@contextmanager
def serving(database_url: str, *variant: str) -> Iterator[Server]:
    """A server in a process of its own, from when it is ready until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("STAGEFARE_")},
        "STAGEFARE_DATABASE_URL": database_url,
        "STAGEFARE_PORT": str(port),
        "STAGEFARE_REQUESTS_PER_MINUTE": "0",
    }
    settings = read_settings(environment)

    async def prepare() -> str:
        await migrate.upgrade(database_url)
        async with open_services(settings) as services:
            return (await create_token(services, [Scope.READ, Scope.WRITE])).text

    server = Server(port, asyncio.run(prepare()))
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.load_server", *variant],
        env=environment,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 120
        while not asyncio.run(is_ready(server)):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the server did not start")
            time.sleep(0.05)
        yield server
    finally:
        process.terminate()
        process.wait()


async def is_ready(server: Server) -> bool:
    """Whether the server answers, and says yes."""
    try:
        status, _, _ = await server.ask(server.request("GET", "/readyz"))
    except OSError:
        return False
    return status == 200


def machine() -> str:
    """What it ran on, in one line."""
    model = platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    return (
        f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, load average {os.getloadavg()[0]:.1f}"
    )


def show_scenarios(server: Server, connections: int, seconds: float) -> None:
    """One line a scenario."""
    print(f"{'':26}  requests/s  CPU/request  to floor     p50     p90     p99  client")
    floor = None
    scenarios = asyncio.run(loads(server))
    for load in scenarios:
        result = asyncio.run(measure(server, load, connections, seconds))
        floor = floor or result.cpu_per_request
        percentiles = "".join(f"{result.percentile(p) * 1e3:5.1f} ms" for p in (0.5, 0.9, 0.99))
        print(
            f"{load.name:26} {result.per_second:11.0f} {result.cpu_per_request * 1e6:9.0f} us"
            f" {result.cpu_per_request / floor:8.1f}x {percentiles}"
            f" {result.client_cpu_seconds / result.wall_seconds:6.0%}"
        )
    show_pressed(server, scenarios[0], seconds)


def show_settings(database_url: str, connections: int, seconds: float) -> None:
    """Reading a document with the settings of the service and without them, one server each."""
    variants = {
        "as it is": (),
        "nothing frozen": ("--no-freeze",),
        "pool of 5, 10 beyond": ("--default-pool",),
    }
    print(f"\n{'reading a document':26}  requests/s  CPU/request     p50     p99     max")
    for name, variant in variants.items():
        with serving(database_url, *variant) as server:
            load = asyncio.run(loads(server))[1]
            result = asyncio.run(measure(server, load, connections, seconds))
        percentiles = "".join(f"{result.percentile(p) * 1e3:5.1f} ms" for p in (0.5, 0.99, 1.0))
        print(
            f"{name:26} {result.per_second:11.0f} {result.cpu_per_request * 1e6:9.0f} us"
            f" {percentiles}"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--postgresql", action="store_true", help="not SQLite")
    parser.add_argument("--settings", action="store_true", help="compare settings too")
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    parser.add_argument("--seconds", type=float, default=5.0, help="a scenario")
    options = parser.parse_args()
    with ExitStack() as stack:
        if options.postgresql:
            from tests.plugins.postgresql import temporary_server

            url = stack.enter_context(temporary_server())
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            url = f"sqlite:///{folder}/stagefare.db"
        print(machine())
        database = "PostgreSQL, fsync off" if options.postgresql else "SQLite"
        print(f"{database}, {options.connections} connections, {options.seconds} s a scenario\n")
        with serving(url) as server:
            show_scenarios(server, options.connections, options.seconds)
        if options.settings:
            show_settings(url, options.connections, options.seconds)


if __name__ == "__main__":
    main()
