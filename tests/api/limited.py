"""Applications that allow little, and what they say when it is too much."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from litestar import Litestar

from service.main import create_app
from service.settings import Settings, read_settings
from tests.api.clients import client_of

__all__ = ["PLAN", "QUESTION", "limited", "problem", "started", "until", "waiting_for"]

PLAN: dict[str, Any] = {
    "costs": {"stages": [{"forward_seconds": 0.002, "backward_seconds": 0.004}]},
    "schedule": {"kind": "1f1b"},
    "workload": {"microbatches": 3},
}
QUESTION = {"plan": PLAN}


def limited(database_url: str, tmp_path: Path, **limits: int) -> Settings:
    given = {f"STAGEFARE_{name}": str(limit) for name, limit in limits.items()}
    return read_settings(
        {
            "STAGEFARE_DATA_DIR": str(tmp_path),
            "STAGEFARE_DATABASE_URL": database_url,
            **given,
        }
    )


@asynccontextmanager
async def started(settings: Settings) -> AsyncIterator[tuple[Litestar, httpx.AsyncClient]]:
    app = create_app(settings)
    async with app.lifespan(), client_of(app) as http:
        yield app, http


async def until(http: httpx.AsyncClient, sample: str) -> None:
    """Until the metrics have that line."""
    while sample not in (await http.get("/metrics")).text.splitlines():
        await asyncio.sleep(0.01)


async def waiting_for(http: httpx.AsyncClient, count: int) -> None:
    """Until that many calculations wait for a thread."""
    await until(http, f"stagefare_kernel_queue_depth {count}.0")


def problem(response: httpx.Response) -> tuple[int, str, str]:
    slug = response.json()["type"].removeprefix("/problems/")
    return response.status_code, slug, response.headers["retry-after"]
