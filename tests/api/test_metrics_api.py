"""What a scraper gets from the whole application."""

import re

import httpx
from litestar import Litestar

from service.core.estimates.version import MODEL_VERSION
from service.main import create_app
from service.settings import read_settings
from tests.api.clients import client_of

PLAN = {
    "costs": {"stages": [{"forward_seconds": 0.006, "backward_seconds": 0.012}] * 2},
    "schedule": {"kind": "1f1b"},
    "workload": {"microbatches": 8},
}


async def numbers(http: httpx.AsyncClient) -> dict[str, float]:
    response = await http.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    pairs = re.findall(r"^([^#\s]\S*) (\S+)$", response.text, re.M)
    return {name: float(number) for name, number in pairs}


async def test_estimates_are_counted_as_computed_or_stored(client: httpx.AsyncClient) -> None:
    for _ in range(3):
        assert (await client.post("/v1/estimates", json={"plan": PLAN})).is_success
    seen = await numbers(client)
    assert seen['stagefare_estimates_total{answer="computed"}'] == 1
    assert seen['stagefare_estimates_total{answer="stored"}'] == 2
    counted = 'stagefare_http_requests_total{method="POST",route="/v1/estimates",status="200"}'
    assert seen[counted] == 2
    assert seen["stagefare_http_requests_in_flight"] == 1  # the scrape itself
    assert any(f'model_version="{MODEL_VERSION}"' in name for name in seen)


async def test_a_scraper_asks_for_text(client: httpx.AsyncClient) -> None:
    accepted = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5"
    assert (await client.get("/metrics", headers={"Accept": accepted})).status_code == 200
    assert (await client.get("/metrics", headers={"Accept": "text/html"})).status_code == 406


async def test_the_pool_and_the_kernels_are_watched(database_url: str) -> None:
    settings = read_settings({"STAGEFARE_DATABASE_URL": database_url})
    app: Litestar = create_app(settings)
    async with app.lifespan(), client_of(app) as http:
        assert (await http.get("/v1/plans")).status_code == 200
        seen = await numbers(http)
    assert seen["stagefare_database_connections"] == 20
    assert seen["stagefare_database_connections_in_use"] == 0
    assert seen["stagefare_kernel_threads"] == 2
    assert seen["stagefare_kernel_threads_busy"] == 0
    assert seen["stagefare_kernel_queue_depth"] == 0
