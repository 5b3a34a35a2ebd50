"""Questions about topologies are weighed, and refused at once where they would only wait."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.api.held_kernels import Kernels
from tests.api.limited import QUESTION, limited, problem, started

CLUSTER = {
    "hosts": [{"name": "host", "count": 2, "design": "dgx-h100"}],
    "fabric": {"kind": "rail_optimised", "spines": 2},
}
PAIR = {"source": "host0/gpu0", "target": "host1/gpu3", "message_bytes": 1000}
PLACED = {**QUESTION["plan"], "topology": "cold", "placement": {"devices": ["host0/gpu0"]}}
# What takes more than a caller may have beside what runs.
QUESTIONS: list[tuple[str, str, Any]] = [
    ("GET", "/v1/topologies/mine/shared", None),
    ("GET", "/v1/topologies/mine/graph.svg", None),
    ("POST", "/v1/topologies/mine/paths", PAIR),
    ("POST", "/v1/topologies/mine/flows", {"flows": [PAIR]}),
    ("PUT", "/v1/topologies/other", CLUSTER),
    ("GET", "/v1/topologies/cold/devices", None),
    ("GET", "/v1/topologies/cold/links", None),
    ("POST", "/v1/cadence", {"plan": PLACED}),
    ("POST", "/v1/estimates/batches", {"plans": [{"plan": {**PLACED, "topology": "colder"}}]}),
]


async def test_questions_about_topologies_are_refused_at_once_and_answered_alone(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = Kernels()
    settings = limited(database_url, tmp_path, WORK_SECONDS_PER_CALLER=1)
    async with started(settings) as (_, http):
        for name, hosts in (("mine", 2), ("cold", 3), ("colder", 4)):
            document = {**CLUSTER, "hosts": [{**CLUSTER["hosts"][0], "count": hosts}]}  # type: ignore[index]
            stored = await http.put(f"/v1/topologies/{name}", json=document)
            assert stored.status_code == 201
        # Expanded before, so that only the questions themselves are left.
        assert (await http.get("/v1/topologies/mine/devices")).status_code == 200
        for module in ("service.app.holdings", "service.main"):
            # Two of the small plan fit, and no expansion beside one of them.
            monkeypatch.setattr(f"{module}.WORK_PER_SECOND", 2000)
    async with started(settings) as (_, http):
        assert (await http.get("/v1/topologies/mine/devices")).status_code == 200
        kernels.hold(monkeypatch)
        running = asyncio.create_task(http.post("/v1/cadence", json=QUESTION))
        await kernels.wait_for(1)
        for method, path, body in QUESTIONS:
            refused = await http.request(method, path, json=body)
            assert problem(refused)[:2] == (429, "too-many-at-once"), path
        # What takes little passes.
        assert (await http.get("/v1/topologies/mine/devices")).status_code == 200
        kernels.may_end.set()
        assert (await running).status_code == 200
        for method, path, body in QUESTIONS:
            answer = await http.request(method, path, json=body)
            assert answer.status_code in {200, 201}, answer.text
