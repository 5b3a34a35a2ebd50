"""Health, the contract, and problem pages."""

import re
from pathlib import Path

import httpx
import pytest

from service.main import create_app
from service.settings import read_settings
from service.store import migrate
from service.web.problem_types import PROBLEM_TYPES
from tests.api.clients import client_of
from tests.app.fakes import FakeDatabase


async def test_a_live_service_is_ready(client: httpx.AsyncClient) -> None:
    assert (await client.get("/healthz")).json() == {"status": "alive"}
    assert (await client.get("/readyz")).json() == {"status": "ready", "access": "open"}


async def test_readiness_says_what_is_missing(tmp_path: Path) -> None:
    settings = read_settings({"STAGEFARE_DATA_DIR": str(tmp_path)})
    app = create_app(settings)
    async with client_of(app) as http:
        cold = await http.get("/readyz")
        assert cold.status_code == 503
        assert cold.headers["retry-after"] == "1"
        assert cold.json()["detail"] == (
            "not ready: the kernels are being compiled; "
            "the database is not migrated: run `stagefare migrate`"
        )
        async with app.lifespan():
            assert "not migrated" in (await http.get("/readyz")).json()["detail"]
            await migrate.upgrade(settings.database_url)
            assert (await http.get("/readyz")).status_code == 200


async def test_a_database_that_is_away_is_unavailable(tmp_path: Path) -> None:
    url = "postgresql://nobody@127.0.0.1:1/none"
    settings = read_settings({"STAGEFARE_DATA_DIR": str(tmp_path), "STAGEFARE_DATABASE_URL": url})
    app = create_app(settings)
    async with (
        app.lifespan(),
        client_of(app) as http,
    ):
        assert "does not answer" in (await http.get("/readyz")).json()["detail"]
        response = await http.get("/v1/plans")
        assert response.status_code == 503
        assert response.json()["type"] == "/problems/unavailable"


async def test_the_front_page_leads_everywhere(client: httpx.AsyncClient) -> None:
    page = await client.get("/", headers={"Accept": "text/html,*/*;q=0.8"})
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    links = re.findall(r'href="([^"]*)"', page.text)
    assert {"/reference", "/openapi.json", "/healthz", "/readyz"} < set(links)
    assert {problem_type.uri for problem_type in PROBLEM_TYPES} < set(links)
    followed = re.findall(r"<([^>]*)>; rel=", page.headers["link"])
    assert followed == ["/openapi.json", "/reference", "/readyz"]
    for link in {*links, *followed}:
        assert (await client.get(link)).status_code == 200
    # Nothing else is loaded, from here or elsewhere.
    assert not re.search(r"<script|<style|<img|<link|src=|://", page.text)
    assert page.headers["content-security-policy"].startswith("default-src 'none'; ")


async def test_the_front_page_is_asked_for_like_all_else(client: httpx.AsyncClient) -> None:
    head = await client.head("/")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len((await client.get("/")).content))
    refused = await client.get("/", headers={"Accept": "application/json"})
    assert (refused.status_code, refused.json()["type"]) == (406, "/problems/not-acceptable")
    assert refused.json()["detail"] == "this URL answers in text/html"
    wrong = await client.post("/")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
    assert (await client.get("/?page=1")).status_code == 400
    stranger = await client.get("/", headers={"Authorization": "Bearer nobody"})
    assert stranger.status_code == 200


async def test_every_problem_type_has_its_page(client: httpx.AsyncClient) -> None:
    for problem_type in PROBLEM_TYPES:
        page = await client.get(problem_type.uri)
        assert page.status_code == 200
        assert page.headers["content-type"] == "text/plain; charset=utf-8"
        assert page.text.startswith(f"# {problem_type.title}")


@pytest.mark.filterwarnings("error")
async def test_an_application_needs_no_database_to_be_built(tmp_path: Path) -> None:
    settings = read_settings({"STAGEFARE_DATA_DIR": str(tmp_path)})
    app = create_app(settings, database=FakeDatabase())
    async with (
        app.lifespan(),
        client_of(app) as http,
    ):
        assert (await http.get("/readyz")).status_code == 200
