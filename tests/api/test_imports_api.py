"""Importing a profile made by another tool, over HTTP."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

PLANNED = (
    Path(__file__).resolve().parents[1]
    / "formats"
    / "fixtures"
    / "profiles"
    / "tied.dnn-partitioning.json"
)
CountRows = Callable[[], Awaitable[dict[str, int]]]

GRAPH = (
    b"node1 -- Input0 -- forward_compute_time=9.000, backward_compute_time=0.000, "
    b"activation_size=1024.0, parameter_size=0.000\n"
    b"node2 -- Conv2d(3, 64) -- forward_compute_time=2.000, backward_compute_time=4.000, "
    b"activation_size=2048.0, parameter_size=400.000\n"
    b"node3 -- Linear(64, 10) -- forward_compute_time=1.000, backward_compute_time=2.000, "
    b"activation_size=40.0, parameter_size=40.000\n"
    b"\tnode1 -- node2\n"
    b"\tnode2 -- node3\n"
)
URL = "/v1/profiles/small/imports"


def graph_file(content: bytes = GRAPH) -> dict[str, tuple[str, bytes]]:
    return {"file": ("graph.txt", content)}


async def test_a_file_becomes_a_model_and_a_profile(
    client: httpx.AsyncClient, count_rows: CountRows
) -> None:
    fields = {"microbatch_size": "4", "device": "V100", "precision": "fp32"}
    imported = await client.post(URL, files=graph_file(), data=fields)
    assert imported.status_code == 201
    answer = imported.json()
    assert (answer["format"], answer["dry_run"]) == ("pipedream", False)
    assert answer["read"]["layers"] == 3
    assert answer["read"]["forward_seconds"] == 0.003
    assert any("microbatch_size 4" in sentence for sentence in answer["assumptions"])
    assert [item["line"] for item in answer["left_out"]] == [1]  # the loader's time
    for part in (answer["model"], answer["profile"]):
        assert (part["name"], part["revision"], part["change"]) == ("small", 1, "created")
    model = (await client.get("/v1/models/small")).json()
    assert model["digest"] == answer["model"]["digest"]
    assert model["summary"] == answer["model"]["summary"]
    rows = (await client.get("/v1/measurements?profile=small")).json()["items"]
    assert [(row["layer"], row["forward_seconds"]) for row in rows] == [
        ("node2", 0.002),
        ("node3", 0.001),
    ]
    assert {(row["device"], row["precision"], row["microbatch_size"]) for row in rows} == {
        ("V100", "fp32", 4)
    }

    before = await count_rows()
    again = await client.post(URL, files=graph_file(), data=fields)
    assert (again.status_code, again.json()["profile"]["change"]) == (200, "unchanged")
    assert await count_rows() == before


async def test_a_planner_s_graph_has_loads_by_its_rule(client: httpx.AsyncClient) -> None:
    """Milliseconds: 3.5 of work on the first device, 9.25 on the second; two tensors of 0.05 and
    0.001 go on, and one of 0.05 comes back.
    """
    content = PLANNED.read_bytes()
    fields = {"microbatch_size": "8"}
    imported = await client.post(URL, files=graph_file(content), data=fields)
    assert imported.status_code == 201, imported.text
    plan = {
        "costs": {"model": "small", "profile": "small"},
        "workload": {"microbatches": 4, "microbatch_size": 8},
        "partition": {
            "stages": [["node1", "node3"], ["node4"]],
            "skip_routing": "direct",
            "load_rule": "dnn_partitioning",
        },
        "schedule": {"kind": "1f1b"},
    }
    answer = await client.post("/v1/cadence", json={"plan": plan})
    assert answer.status_code == 200, answer.text
    loads = answer.json()["loads"]
    assert (loads["rule"], loads["busiest_rank"]) == ("dnn_partitioning", 1)
    assert loads["largest_load_seconds"] == 0.009351
    assert loads["ranks"][0] == {
        "rank": 0,
        "compute_seconds": 0.0035,
        "sending_seconds": 0.000051,
        "receiving_seconds": 0.00005,
        "load_seconds": 0.003601,
    }
    assert "load_rule" in {said["code"] for said in answer.json()["assumptions"]}
    request = {"plan": plan, "patch": {"costs": {"profile": "other"}}}
    document = (await client.get("/v1/profiles/small")).json()["document"]
    stored = await client.put("/v1/profiles/other", json={"measurements": document["measurements"]})
    assert stored.status_code == 201, stored.text
    refused = await client.post("/v1/cadence", json=request)
    assert refused.status_code == 422
    assert [error["pointer"] for error in refused.json()["errors"]] == ["/plan/partition/load_rule"]


async def test_a_dry_run_stores_nothing(client: httpx.AsyncClient, count_rows: CountRows) -> None:
    before = await count_rows()
    fields = {"microbatch_size": "4", "dry_run": "true", "format": "pipedream"}
    looked = await client.post(URL, files=graph_file(), data=fields)
    assert looked.status_code == 200
    answer = looked.json()
    assert answer["dry_run"]
    assert "revision" not in answer["model"]
    assert await count_rows() == before
    stored = await client.post(URL, files=graph_file(), data={"microbatch_size": "4"})
    assert stored.json()["profile"]["digest"] == answer["profile"]["digest"]


async def test_the_model_can_have_a_name_of_its_own(client: httpx.AsyncClient) -> None:
    fields = {"microbatch_size": "4", "model_name": "net"}
    answer = (await client.post(URL, files=graph_file(), data=fields)).json()
    assert (answer["model"]["name"], answer["profile"]["name"]) == ("net", "small")
    assert (await client.get("/v1/models/small")).status_code == 404
    assert (await client.get("/v1/models/net")).status_code == 200


CSV = b"""layer,device,microbatch_size,sequence_length,forward_seconds,backward_seconds
embedding,H100,1,8,0.001,0.002
block.*,H100,1,8,0.003,0.006
block.*,A100,1,8,0.005,0.011
"""
GALVATRON = b"""{
  "layernum[2]_bsz1_seq8": 10.0,
  "layernum[4]_bsz1_seq8": 16.0
}"""
PIPER = b"""{"maxDevices": 1, "maxMemoryPerDevice": 1, "bandwidth": 1, "mbsInBatch": 1, "edges": [],
 "nodes": [{"id": 1, "TMPCs": {"1": [{"id": "vanilla", "timePerSample": 0.003,
  "parameterSize": 8, "memoryUsageA": 4, "memoryUsageB": 4, "syncTimeFw": {}, "syncTimeBw": {}}]}}]}
"""


async def test_a_table_becomes_a_profile_without_a_model(
    client: httpx.AsyncClient, count_rows: CountRows
) -> None:
    fields = {"device": "H100"}
    imported = await client.post(URL, files=graph_file(CSV), data=fields)
    assert imported.status_code == 201, imported.text
    answer = imported.json()
    assert answer["format"] == "csv"
    assert "model" not in answer
    assert [item["line"] for item in answer["left_out"]] == [4]
    assert (await client.get("/v1/models/small")).status_code == 404
    rows = (await client.get("/v1/measurements?profile=small")).json()["items"]
    assert [(row["layer"], row["forward_seconds"], row["device"]) for row in rows] == [
        ("embedding", 0.001, "H100"),
        ("block.*", 0.003, "H100"),
    ]
    before = await count_rows()
    again = await client.post(URL, files=graph_file(CSV), data=fields)
    assert (again.status_code, again.json()["profile"]["change"]) == (200, "unchanged")
    assert await count_rows() == before


async def test_a_table_is_held_against_the_model_it_is_for(
    client: httpx.AsyncClient, count_rows: CountRows
) -> None:
    fields = {"device": "H100", "model_name": "net"}
    before = await count_rows()
    unknown = await client.post(URL, files=graph_file(CSV), data=fields)
    assert unknown.status_code == 422
    assert [error["pointer"] for error in unknown.json()["errors"]] == ["/model_name"]
    assert await count_rows() == before
    layers: list[dict[str, Any]] = [
        {"name": "tokens", "kind": "input"},
        {"name": "block", "kind": "block", "repeat": 3},
        {"name": "head", "kind": "head"},
    ]
    await client.put("/v1/models/net", json={"layers": layers, "tensors": []})
    imported = await client.post(URL, files=graph_file(CSV), data=fields)
    assert imported.status_code == 201, imported.text
    read = imported.json()["read"]
    assert read["model"] == "net@1"
    assert read["measured_layers"] == 3
    assert read["unmeasured_layers"] == ["head"]
    assert read["measurements_of_no_layer"] == ["embedding"]
    assert "model" not in imported.json()
    other = [{"name": "mlp", "kind": "mlp"}]
    await client.put("/v1/models/net", json={"layers": other, "tensors": []})
    unlike = await client.post(URL, files=graph_file(CSV), data=fields)
    assert unlike.status_code == 422
    assert unlike.json()["errors"][0]["pointer"] == "/model_name"


async def test_a_backward_that_no_file_tells_is_stated(client: httpx.AsyncClient) -> None:
    """3 ms in all, twice as long back as forth: 1 and 2 ms. Blocks of (16 - 10) / 2 = 3 ms."""
    for content, fields, seconds in (
        (PIPER, {"microbatch_size": "2", "backward_ratio": "2"}, (0.001, 0.002)),
        (GALVATRON, {"backward_ratio": "2"}, (0.003, 0.006)),
        (GALVATRON, {}, (0.003, None)),
    ):
        answer = await client.post(URL, files=graph_file(content), data=fields)
        assert answer.status_code == 201, answer.text
        row, *_ = (await client.get("/v1/measurements?profile=small")).json()["items"]
        assert (row["forward_seconds"], row.get("backward_seconds")) == seconds


BEHIND_IT = {f"/file/line/{line}" for line in (4, 5, 6)}
BROKEN = GRAPH.replace(b"=2.000, backward", b"=fast, backward", 1) + b"\tnode3 -- node9\n"


@pytest.mark.parametrize(
    ("files", "fields", "status", "pointers"),
    [
        # A node that can't be read is missing at both of its edges.
        (
            graph_file(BROKEN),
            {"microbatch_size": "4"},
            422,
            {"/file/line/2", *BEHIND_IT},
        ),
        (graph_file(PIPER), {}, 422, {"/microbatch_size", "/backward_ratio"}),
        (
            graph_file(PIPER),
            {"microbatch_size": "1", "backward_ratio": "-1"},
            400,
            {"/backward_ratio"},
        ),
        (graph_file(CSV), {}, 422, {"/device"}),
        (graph_file(CSV), {"device": "H100", "microbatch_size": "4"}, 422, {"/microbatch_size"}),
        (graph_file(CSV.replace(b"0.003", b"3 ms")), {"device": "H100"}, 422, {"/file/line/3"}),
        (graph_file(b'{"model_type": "llama"}'), {}, 422, {"/file"}),
        (graph_file(b"<xml/>"), {"microbatch_size": "4"}, 422, {"/file"}),
        (graph_file(b""), {"microbatch_size": "4"}, 422, {"/file"}),
        (graph_file(b"\0\xff"), {"microbatch_size": "4"}, 422, {"/file"}),
        # What the format can't say is asked for beside what is wrong with the file.
        (graph_file(), {}, 422, {"/microbatch_size"}),
        (graph_file(BROKEN), {}, 422, {"/microbatch_size", "/file/line/2", *BEHIND_IT}),
        (graph_file(), {"microbatch_size": "0"}, 400, {"/microbatch_size"}),
        (graph_file(), {"microbatch_size": "4.0"}, 400, {"/microbatch_size"}),
        (graph_file(), {"microbatch_size": ["4", "5"]}, 400, {"/microbatch_size"}),
        (graph_file(), {"microbatch_size": "4", "batch": "1"}, 400, {"/batch"}),
        (graph_file(), {"microbatch_size": "4", "dry_run": "yes"}, 400, {"/dry_run"}),
        (graph_file(), {"microbatch_size": "4", "format": "tsv"}, 400, {"/format"}),
        (graph_file(), {"microbatch_size": "4", "device": "a\0b"}, 400, {"/device"}),
        (graph_file(), {"microbatch_size": "4", "model_name": "A"}, 400, {"/model_name"}),
        ({"other": ("a", b"b")}, {"microbatch_size": "4"}, 400, {"/file", "/other"}),
        ({"file": (None, GRAPH)}, {"microbatch_size": "4"}, 400, {"/file"}),
    ],
)
async def test_a_bad_import_is_refused_and_leaves_nothing(
    client: httpx.AsyncClient,
    count_rows: CountRows,
    files: Any,
    fields: dict[str, Any],
    status: int,
    pointers: set[str],
) -> None:
    before = await count_rows()
    response = await client.post(URL, files=files, data=fields)
    assert response.status_code == status
    assert {error["pointer"] for error in response.json()["errors"]} == pointers
    assert await count_rows() == before


BOUNDARY = {"Content-Type": "multipart/form-data; boundary=xx"}
PART = b'--xx\r\nContent-Disposition: form-data; name="microbatch_size"'


@pytest.mark.parametrize(
    ("content", "headers", "status", "slug"),
    [
        (b"{}", {"Content-Type": "application/json"}, 415, "unsupported-media-type"),
        (b"", {}, 415, "unsupported-media-type"),
        (b"", {"Content-Type": "multipart/form-data"}, 400, "malformed-request"),
        (b"", BOUNDARY, 400, "malformed-request"),
        (b"no form", BOUNDARY, 400, "malformed-request"),
        (PART, BOUNDARY, 400, "malformed-request"),
        (PART + b"\r\n\r\n4", BOUNDARY, 400, "malformed-request"),
        (PART + b"\r\n\r\n\xff\r\n--xx--\r\n", BOUNDARY, 400, "invalid-body"),
        (
            PART + b"\r\nContent-Type: text/plain; charset=none\r\n\r\n4\r\n--xx--\r\n",
            BOUNDARY,
            400,
            "invalid-body",
        ),
        (
            PART + b"\r\nContent-Type: text/plain; charset=utf-7\r\n\r\n+2AA-\r\n--xx--\r\n",
            BOUNDARY,
            400,
            "invalid-body",
        ),
        (
            (PART + b"\r\n\r\n4\r\n") * 100 + b"--xx--\r\n",
            BOUNDARY,
            400,
            "malformed-request",
        ),
    ],
)
async def test_what_is_no_form_is_refused(
    client: httpx.AsyncClient, content: bytes, headers: dict[str, str], status: int, slug: str
) -> None:
    response = await client.post(URL, content=content, headers=headers)
    assert (response.status_code, response.json()["type"]) == (status, f"/problems/{slug}")


async def test_an_import_needs_a_name(client: httpx.AsyncClient) -> None:
    response = await client.post(
        "/v1/profiles/Small/imports", files=graph_file(), data={"microbatch_size": "4"}
    )
    assert response.status_code == 400
    assert response.json()["errors"][0]["pointer"] == "/name"
