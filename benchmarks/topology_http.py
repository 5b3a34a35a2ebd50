"""What questions about a stored cluster cost over HTTP, cold and warm, by size.

    python -m benchmarks.topology_http

In process, on SQLite: the whole service without a socket. Cold is the first question after the
topology was stored, warm the quickest of several like it; CPU time of all threads of this process.
"""

import asyncio
import platform
import tempfile
import time
from typing import Any

import httpx

from service.main import create_app
from service.settings import read_settings
from service.store.migrate import upgrade

__all__ = ["main"]

HOSTS = (8, 64, 512, 1_024)
REPEATS = 5
COLLECTIVE = {"collective": {"kind": "all_to_all", "message_bytes": 268_435_456}}


def document(hosts: int) -> dict[str, Any]:
    """DGX H100, up to 32 at a leaf, as many spines as a leaf has hosts."""
    per_leaf = min(32, hosts // 2)
    return {
        "hosts": [{"name": "host", "count": hosts, "design": "dgx-h100"}],
        "fabric": {"kind": "leaf_spine", "hosts_per_leaf": per_leaf, "spines": per_leaf},
    }


def questions(hosts: int) -> list[tuple[str, str, dict[str, Any] | None]]:
    """What is asked: a name, what follows the topology's URL, and the body."""
    pair = {"source": "host0/gpu0", "target": f"host{hosts - 1}/gpu5", "message_bytes": 2**24}
    return [
        ("devices", "devices?limit=1", None),
        ("path", "paths", pair),
        ("one message", "flows", {"flows": [pair]}),
        ("all-to-all", "flows", COLLECTIVE),
        ("pinned", "flows", {**COLLECTIVE, "routing": "pinned"}),
        ("shared", "shared", None),
        ("picture", "graph.svg", None),
    ]


async def ask(http: httpx.AsyncClient, url: str, body: dict[str, Any] | None) -> float:
    """CPU seconds of one answer."""
    begin = time.process_time()
    answer = await (http.get(url) if body is None else http.post(url, json=body))
    seconds = time.process_time() - begin
    answer.raise_for_status()
    return seconds


async def measure(http: httpx.AsyncClient, hosts: int) -> None:
    """A row for each question about a cluster of so many hosts."""
    name = f"of-{hosts}"
    begin = time.process_time()
    stored = await http.put(f"/v1/topologies/{name}", json=document(hosts))
    stored.raise_for_status()
    print(f"\n{hosts} hosts, {8 * hosts} GPUs: stored in {time.process_time() - begin:.3f} s")
    for what, path, body in questions(hosts):
        url = f"/v1/topologies/{name}/{path}"
        cold = await ask(http, url, body)
        warm = min([await ask(http, url, body) for _ in range(REPEATS)])
        print(f"{what:>14} {cold:9.3f} s cold {1e3 * warm:9.2f} ms warm", flush=True)


async def main() -> None:
    """Print all of it."""
    print(f"python {platform.python_version()}, {platform.machine()}")
    with tempfile.TemporaryDirectory() as folder:
        settings = read_settings({"STAGEFARE_DATA_DIR": folder})
        await upgrade(settings.database_url)
        app = create_app(settings)
        async with app.lifespan():
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://localhost", timeout=120
            ) as http:
                for hosts in HOSTS:
                    await measure(http, hosts)


if __name__ == "__main__":
    asyncio.run(main())
