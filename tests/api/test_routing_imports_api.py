"""Importing expert loads over HTTP, and what a stored routing is refused and warned for."""

from collections.abc import Awaitable, Callable
from typing import Any

import httpx

CountRows = Callable[[], Awaitable[dict[str, int]]]
URL = "/v1/routings/measured/imports"
FIRST = b'{"num_experts": 2, "source_ranks": 2, "iteration": 1, "layers": [\n'
FIRST += b'{"layer": 0, "matrix": [[5, 3], [4, 4]]}]}'
SECOND = FIRST.replace(b'"iteration": 1', b'"iteration": 900').replace(b"[5, 3]", b"[8, 0]")


def files(*contents: bytes) -> list[tuple[str, tuple[str, bytes]]]:
    return [("files", (f"loads{place}.json", each)) for place, each in enumerate(contents)]


async def test_files_become_the_steps_of_one_routing(
    client: httpx.AsyncClient, count_rows: CountRows
) -> None:
    before = await count_rows()
    looked = await client.post(
        URL, files=files(FIRST, SECOND), data={"top_k": "1", "dry_run": "true"}
    )
    assert looked.status_code == 200, looked.text
    assert looked.json()["dry_run"]
    assert await count_rows() == before
    imported = await client.post(URL, files=files(FIRST, SECOND), data={"top_k": "1"})
    assert imported.status_code == 201, imported.text
    answer = imported.json()
    assert answer["files"] == [
        {"name": f"loads{place}.json", "format": "json", "read": {"layers": 1, "steps": 1}}
        for place in range(2)
    ]
    part = answer["routing"]
    assert (part["name"], part["revision"], part["change"]) == ("measured", 1, "created")
    assert part["digest"] == looked.json()["routing"]["digest"]
    stored = (await client.get("/v1/routings/measured")).json()
    assert stored["summary"] == part["summary"]
    assert (
        stored["summary"].items()
        >= {
            "level": "source_expert",
            "layers": 1,
            "steps": 2,
            "sources": 2,
            "fewest_tokens": 16,
            "least_expert_max_over_mean": 1.125,
            "most_expert_max_over_mean": 1.5,
        }.items()
    )
    assert [layer.get("step") for layer in stored["document"]["layers"]] == [1, 900]
    again = await client.post(URL, files=files(FIRST, SECOND), data={"top_k": "1"})
    assert (again.status_code, again.json()["routing"]["change"]) == (200, "unchanged")


async def test_faults_point_to_the_file_and_line_or_to_the_field(
    client: httpx.AsyncClient, count_rows: CountRows
) -> None:
    before = await count_rows()
    unsaid = await client.post(URL, files=files(FIRST, SECOND))
    assert unsaid.status_code == 422
    assert [error["pointer"] for error in unsaid.json()["errors"]] == ["/top_k"]
    broken = await client.post(
        URL, files=files(FIRST, SECOND.replace(b"[8, 0]", b"[7, 1]")), data={"top_k": "2"}
    )
    assert broken.status_code == 422
    errors = broken.json()["errors"]
    assert {error["pointer"] for error in errors} == {"/files/0/line/2", "/files/1/line/2"}
    assert "from 4 tokens" in errors[0]["detail"]
    assert await count_rows() == before


async def test_a_document_says_what_was_counted_twice_and_what_looks_like_a_warm_up(
    client: httpx.AsyncClient,
) -> None:
    document: dict[str, Any] = {"experts": 2, "top_k": 1, "tokens": 4, "layers": []}
    document["layers"] = [{"layer": 0, "counts": [6, 2]}]
    refused = await client.put("/v1/routings/twice", json=document)
    assert refused.status_code == 422
    [error] = refused.json()["errors"]
    assert (error["pointer"], error["code"]) == ("/layers/0/counts", "inconsistent")
    assert "state replicated 2" in error["detail"]
    stored = await client.put("/v1/routings/twice", json=document | {"replicated": 2})
    assert stored.status_code == 201
    assert stored.json()["summary"]["fewest_tokens"] == 4
    dummies = {"experts": 2, "top_k": 1, "layers": [{"layer": 0, "topk_ids": [[0]] * 65 + [[1]]}]}
    warned = await client.put("/v1/routings/dummies", json=dummies)
    assert warned.status_code == 201
    [warning] = warned.json()["warnings"]
    assert warning.startswith("layers/0: 65 of 66 tokens repeat")
