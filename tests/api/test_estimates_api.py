"""Estimates over HTTP: content addressed, complete, with a timeline in five formats."""

import csv
import io
import json
from collections.abc import Awaitable, Callable
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest

from tests.api.price_requests import FOUR_LINES, cadence_plan, store_documents, two_host_plan

CountRows = Callable[[], Awaitable[dict[str, int]]]

BEFORE = cadence_plan(18, 18, 25, 18)


async def estimate(client: httpx.AsyncClient, **request: Any) -> httpx.Response:
    response = await client.post("/v1/estimates", json=request)
    assert response.status_code in {200, 201}, response.text
    return response


async def test_a_known_digest_is_answered_with_the_stored_answer(
    client: httpx.AsyncClient, count_rows: CountRows
) -> None:
    first = await estimate(client, plan=BEFORE)
    assert first.status_code == 201
    digest = first.json()["digest"]
    assert first.headers["etag"] == f'"{digest}"'
    assert first.headers["location"] == f"/v1/estimates/{digest}"
    again = await estimate(client, plan=BEFORE)
    assert again.status_code == 200
    assert again.content == first.content
    assert again.headers["content-location"] == f"/v1/estimates/{digest}"
    assert (await count_rows())["estimates"] == 1

    read = await client.get(f"/v1/estimates/{digest}")
    assert (read.status_code, read.content) == (200, first.content)
    tag = read.headers["etag"]
    unmodified = await client.get(f"/v1/estimates/{digest}", headers={"If-None-Match": tag})
    assert (unmodified.status_code, unmodified.content) == (304, b"")


async def test_the_answer_holds_every_term(client: httpx.AsyncClient) -> None:
    await store_documents(client)
    plan = two_host_plan("host0/gpu0", "host1/gpu0")
    answer = (await estimate(client, plan=plan)).json()
    assert answer["plan"]["topology"] == "two-hosts@1"
    assert answer["iteration_seconds"] == answer["bubble"]["makespan_seconds"]
    assert answer["samples_per_second"] == pytest.approx(8 / answer["iteration_seconds"])
    assert answer["tokens_per_second"] == pytest.approx(8 * 1024 / answer["iteration_seconds"])
    names = [bound["name"] for bound in answer["lower_bounds"]]
    assert names == [
        "dependency_path",
        "busiest_device",
        "busiest_device_with_path",
        "busiest_link_with_path",
        "busiest_link",
    ]
    for bound in answer["lower_bounds"]:
        assert bound["witness"]
        assert bound["assumes"]
        assert bound["routing"] in {"pinned", "any"}
        assert bound["seconds"] <= answer["iteration_seconds"]
        assert not bound["above_prediction"]
    path = answer["critical_path"]
    shares = sum(path["stage_seconds"])
    shares += sum(share["seconds"] for share in path["transfer_seconds"])
    shares += sum(share["queued_seconds"] for share in path["link_seconds"])
    assert shares == pytest.approx(answer["iteration_seconds"])
    counts = [entry["microbatches"] for entry in answer["other_microbatch_counts"]]
    assert counts == [4, 8, 16]
    assert {stage["provenance"] for stage in answer["cadence"]["stages"]} == {"measured"}


async def test_what_follows_the_schedule_is_told_rank_by_rank(client: httpx.AsyncClient) -> None:
    """Two replicas on two hosts: 2 GB of gradients over NICs of 50 GB/s, 14 GB of a step."""
    await store_documents(client)
    stage = {"forward_seconds": 1, "backward_seconds": 2, "parameter_count": 1_000_000_000}
    plan = {
        "topology": "two-hosts",
        "costs": {"stages": [stage, stage]},
        "workload": {"microbatches": 2},
        "parallelism": {"data": 2},
        "placement": {
            "order": ["pipeline", "data"],
            "devices": ["host0/gpu[0-1]", "host1/gpu[0-1]"],
        },
        "schedule": {"kind": "1f1b"},
        "training": {"optimizer": "sgd", "weight_dtype": "bf16", "master_dtype": "none"},
    }
    answer = (await estimate(client, plan=plan)).json()
    terms = answer["iteration"]
    assert terms["seconds"] == answer["iteration_seconds"]
    assert terms["schedule_seconds"] == answer["bubble"]["makespan_seconds"] == 9
    assert terms["last_rank"] == 0
    first = terms["ranks"][0]
    whole = sum(
        first[name]
        for name in (
            "last_operation_seconds",
            "exposed_reduction_seconds",
            "optimizer_step_seconds",
        )
    )
    assert first["end_seconds"] == pytest.approx(whole)
    assert first["end_seconds"] == answer["iteration_seconds"]
    reduced = terms["gradient_reductions"][0]
    assert reduced["groups"] == [[0, 2]]
    # Any algorithm may use all NICs of the host; the ring keeps to the two of its path.
    collective = reduced["reduction"]
    assert collective["message_bytes"] == 2 * 10**9
    assert collective["lower_bound_seconds"] <= collective["alone_seconds"]
    assert collective["alone_seconds"] == pytest.approx(2e9 / 50e9, rel=0.3)
    # Gradient, weight there and back: 6 bytes of each parameter at 3.35 TB/s.
    assert first["optimizer_step_seconds"] == pytest.approx(6e9 / 3.35e12)
    codes = {statement["code"] for statement in answer["not_represented"]}
    assert not codes & {"data_parallel_reduction", "optimizer_step", "training"}
    for bound in answer["lower_bounds"]:
        assert bound["seconds"] <= answer["iteration_seconds"]


async def test_an_asserted_time_gets_a_verdict(client: httpx.AsyncClient) -> None:
    for asserted, verdict in (
        (0.3, "below_lower_bound"),
        (0.44, "below_prediction"),
        (0.5, "not_below_prediction"),
    ):
        answer = await estimate(client, plan=BEFORE, asserted_iteration_seconds=asserted)
        assert answer.json()["verdict"]["verdict"] == verdict


async def test_a_verdict_says_when_the_prediction_is_below_the_bound_too(
    client: httpx.AsyncClient,
) -> None:
    """Only where the mode of the prediction gives links no capacity and that of the bound does.

    Ten messages of 1 GB keep a link of 50 GB/s busy for 0.2 s; the stages work for 0.03 s.
    """
    await store_documents(client)
    stage = {"forward_seconds": 0.001, "backward_seconds": 0.002}
    plan = two_host_plan("host0/gpu0", "host1/gpu0")
    del plan["partition"]
    plan["costs"] = {"stages": [{**stage, "boundary_bytes": 10**9}, stage]}
    plan["workload"] = {"microbatches": 10}
    for mode in ("latency", "link"):
        plan["schedule"] = {"kind": "gpipe", "transfer_mode": mode}
        answer = (await estimate(client, plan=plan, asserted_iteration_seconds=0.1)).json()
        assert answer["verdict"]["verdict"] == "below_lower_bound"
        assert ("gives links no capacity" in answer["verdict"]["detail"]) is (mode == "latency")
        highest = max(answer["lower_bounds"], key=lambda bound: bound["seconds"])
        assert highest["mode"] == "link"
        assert highest["above_prediction"] is (mode == "latency")
        left_out = {said["code"] for said in answer["not_represented"]}
        assert "collectives_on_links" not in left_out


async def test_a_verdict_tells_numbers_apart_that_are_nearly_equal(
    client: httpx.AsyncClient,
) -> None:
    answer = (await estimate(client, plan=BEFORE)).json()
    asserted = answer["iteration_seconds"] - 1e-9
    judged = await estimate(client, plan=BEFORE, asserted_iteration_seconds=asserted)
    detail = judged.json()["verdict"]["detail"]
    assert f"{asserted!r} s" in detail
    assert f"{answer['iteration_seconds']!r} s" in detail


async def test_a_plan_by_name_and_the_same_plan_inline_are_one_estimate(
    client: httpx.AsyncClient,
) -> None:
    stored = await client.put("/v1/plans/before", json={**BEFORE, "description": "words"})
    assert stored.status_code == 201
    named = await estimate(client, plan="before")
    assert named.headers["stagefare-plan"] == "before@1"
    inline = await estimate(client, plan=BEFORE)
    assert inline.status_code == 200
    assert inline.json()["digest"] == named.json()["digest"]
    assert "stagefare-plan" not in inline.headers


async def test_an_estimate_outlives_the_archiving_of_what_it_pins(
    client: httpx.AsyncClient,
) -> None:
    await store_documents(client)
    plan = two_host_plan("host0/gpu0", "host1/gpu0")
    digest = (await estimate(client, plan=plan)).json()["digest"]
    for path in ("topologies/two-hosts", "models/chain", "profiles/chain-h100"):
        assert (await client.delete(f"/v1/{path}", headers={"If-Match": "*"})).status_code == 204
    assert (await client.get(f"/v1/estimates/{digest}/timeline")).status_code == 200
    assert (await client.post("/v1/estimates", json={"plan": plan})).status_code == 422


async def test_the_timeline_in_each_format(client: httpx.AsyncClient) -> None:
    plan = {**FOUR_LINES, "workload": {"microbatches": 4}}
    digest = (await estimate(client, plan=plan)).json()["digest"]
    base = f"/v1/estimates/{digest}/timeline"

    columns = (await client.get(base)).json()
    assert columns["operations"] == 16
    assert columns["makespan_seconds"] == pytest.approx(0.09)
    assert columns["waited_for"][0] == "start"

    response = await client.get(f"{base}.csv")
    assert response.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(response.text)))
    assert [int(row["rank"]) for row in rows] == columns["rank"]
    assert [float(row["start_seconds"]) for row in rows] == columns["start_seconds"]

    response = await client.get(f"{base}.svg")
    assert response.headers["content-type"].startswith("image/svg+xml")
    assert ElementTree.fromstring(response.text).tag.endswith("svg")

    response = await client.get(f"{base}.txt")
    assert response.headers["content-type"].startswith("text/plain")
    assert "F0" in response.text
    assert "80.0%" in response.text

    response = await client.get(f"/v1/estimates/{digest}/trace.json")
    assert response.headers["content-type"] == "application/json"
    operations = [
        event
        for event in response.json()["traceEvents"]
        if event["ph"] == "X" and event["cat"] in {"forward", "backward"}
    ]
    assert [event["args"]["waited_for"] for event in operations] == columns["waited_for"]
    assert [event["ts"] / 1e6 for event in operations] == pytest.approx(columns["start_seconds"])
    slack = [event["args"]["slack_seconds"] for event in operations]
    assert slack == columns["slack_seconds"]
    assert min(slack) == 0


async def test_a_part_of_a_timeline(client: httpx.AsyncClient) -> None:
    digest = (await estimate(client, plan=FOUR_LINES)).json()["digest"]
    base = f"/v1/estimates/{digest}/timeline"
    part = (await client.get(f"{base}?ranks=1&first_microbatch=2&last_microbatch=3")).json()
    assert set(part["rank"]) == {1}
    assert set(part["microbatch"]) == {2, 3}
    window = (await client.get(f"{base}?from_seconds=0.01&to_seconds=0.02")).json()
    assert all(end > 0.01 for end in window["end_seconds"])
    assert all(start < 0.02 for start in window["start_seconds"])
    for query in (
        "ranks=a",
        "first_microbatch=-1",
        "to_seconds=NaN",
        "colour=red",
        "ranks=0&ranks=1",
    ):
        for path in ("timeline", "timeline.csv", "timeline.svg", "timeline.txt", "trace.json"):
            response = await client.get(f"/v1/estimates/{digest}/{path}?{query}")
            assert response.status_code == 400, (query, response.text)
            assert response.headers["content-type"] == "application/problem+json"


async def test_ranks_that_a_plan_has_not_are_named(client: httpx.AsyncClient) -> None:
    digest = (await estimate(client, plan=FOUR_LINES)).json()["digest"]
    for path in ("timeline", "timeline.csv", "timeline.svg", "timeline.txt", "trace.json"):
        response = await client.get(f"/v1/estimates/{digest}/{path}?ranks=0,9")
        assert response.status_code == 422, response.text
        (error,) = response.json()["errors"]
        assert "ranks" in error["pointer"]
        assert error["detail"].startswith("the plan has pipeline ranks 0 to "), error
        assert error["detail"].endswith("; got 9")
    malformed = await client.get(f"/v1/estimates/{digest}/timeline?ranks=0-3")
    assert "numbers separated by commas" in malformed.json()["errors"][0]["detail"]


async def test_unknown_estimates_are_not_found(client: httpx.AsyncClient) -> None:
    for name in ("sha256:0", "nothing", "%00", "a" * 300):
        for suffix in (
            "",
            "/timeline",
            "/timeline.svg",
            "/timeline.csv",
            "/timeline.txt",
            "/trace.json",
        ):
            response = await client.get(f"/v1/estimates/{name}{suffix}")
            assert response.status_code == 404, response.text
            assert response.headers["content-type"] == "application/problem+json"


async def test_long_timelines_ask_for_a_part(client: httpx.AsyncClient) -> None:
    stages = [{"forward_seconds": 0.001, "backward_seconds": 0.002}] * 16
    plan = {
        "costs": {"stages": stages},
        "schedule": {"kind": "gpipe"},
        "workload": {"microbatches": 8000},
    }
    response = await estimate(client, plan=plan)
    assert len(response.content) < 2**20
    digest = response.json()["digest"]
    whole = await client.get(f"/v1/estimates/{digest}/timeline")
    assert whole.status_code == 422
    assert "choose ranks" in whole.json()["detail"]
    part = await client.get(f"/v1/estimates/{digest}/timeline?ranks=3&last_microbatch=9")
    assert part.status_code == 200
    assert len(json.loads(part.content)["rank"]) == 20
    trace = await client.get(f"/v1/estimates/{digest}/trace.json?ranks=0,1,2,3")
    assert trace.status_code == 422
    assert "choose ranks" in trace.json()["detail"]
    part = await client.get(f"/v1/estimates/{digest}/trace.json?ranks=3&last_microbatch=9")
    slices = [e for e in part.json()["traceEvents"] if e["ph"] == "X" and e["pid"] == 1]
    assert len(slices) == 20
