"""Bad input is refused with pointers, never fails the service, and leaves nothing behind."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from service.app.document_kinds import MAX_LARGE_DOCUMENT_BYTES

JSON = {"Content-Type": "application/json"}
KINDS = ("topologies", "models", "profiles", "routings", "plans")
CountRows = Callable[[], Awaitable[dict[str, int]]]

STAGES = [{"forward_seconds": 0.006, "backward_seconds": 0.012}] * 2
PLAN: dict[str, Any] = {
    "costs": {"stages": STAGES},
    "schedule": {"kind": "1f1b"},
    "workload": {"microbatches": 8},
}


def plan(**changes: Any) -> bytes:
    return json.dumps(PLAN | changes).encode()


def stage(text: str) -> bytes:
    """A plan whose first forward time is written as `text`."""
    return plan(costs={"stages": [{"forward_seconds": 7, "backward_seconds": 1}]}).replace(
        b"7", text.encode()
    )


# (the body of a plan, status, pointers to code)
BAD_PLANS = [
    pytest.param(b"", 400, {"": "malformed"}, id="empty"),
    pytest.param(b'{"costs": ', 400, {"": "malformed"}, id="cut off"),
    pytest.param(b"{]", 400, {"": "malformed"}, id="no JSON"),
    pytest.param(b'"plan"', 400, {"": "wrong_type"}, id="no object"),
    pytest.param(b'{"a": "\xff"}', 400, {"": "malformed"}, id="no UTF-8"),
    pytest.param(b'{"description": "\\ud800"}', 400, {"": "malformed"}, id="lone surrogate"),
    pytest.param(b"[" * 10_000, 400, {"": "too_deep"}, id="deep lists"),
    pytest.param(b'{"a":' * 10_000, 400, {"": "too_deep"}, id="deep objects"),
    pytest.param(
        plan(description="a\0b"), 400, {"/description": "nul_character"}, id="NUL character"
    ),
    pytest.param(stage("NaN"), 400, {"": "malformed"}, id="NaN"),
    pytest.param(stage("Infinity"), 400, {"": "malformed"}, id="Infinity"),
    pytest.param(
        stage("1e999"), 400, {"/costs/stages/0/forward_seconds": "not_finite"}, id="1e999"
    ),
    pytest.param(
        stage("-0.001"), 400, {"/costs/stages/0/forward_seconds": "out_of_range"}, id="negative"
    ),
    pytest.param(
        stage("-0.0"), 422, {"/costs/stages/0/forward_seconds": "out_of_range"}, id="-0.0"
    ),
    pytest.param(
        stage("1e-15"),
        422,
        {"/costs/stages/0/forward_seconds": "too_small_to_represent"},
        id="below half a picosecond",
    ),
    pytest.param(
        plan(costs={"stages": [{"backward_seconds": 1}]}),
        400,
        {"/costs/stages/0/forward_seconds": "missing_field"},
        id="no forward time",
    ),
    pytest.param(
        plan(costs={"stages": [{"forward_seconds": 1}]}),
        422,
        {"/costs/stages/0/backward_seconds": "missing_field"},
        id="no backward time",
    ),
    pytest.param(
        plan(workload={"microbatches": "8"}),
        400,
        {"/workload/microbatches": "wrong_type"},
        id="text for an integer",
    ),
    pytest.param(
        plan(workload={"microbatches": 8.5}),
        400,
        {"/workload/microbatches": "wrong_type"},
        id="float for an integer",
    ),
    pytest.param(
        plan(workload={"microbatches": None}),
        400,
        {"/workload/microbatches": "wrong_type"},
        id="null",
    ),
    pytest.param(
        plan(workload={"microbatches": 0}),
        400,
        {"/workload/microbatches": "out_of_range"},
        id="no microbatches",
    ),
    pytest.param(
        plan(workload={"microbatches": 10**9}),
        422,
        {"/workload/microbatches": "work_budget"},
        id="a milliard microbatches",
    ),
    pytest.param(
        plan(workload={"microbatches": 2**70}),
        400,
        {"/workload/microbatches": "out_of_range"},
        id="2**70 microbatches",
    ),
    pytest.param(
        plan(workload={"microbatches": 8, "batches": 1}, extra={}),
        400,
        {"/workload/batches": "unknown_field", "/extra": "unknown_field"},
        id="unknown fields",
    ),
    pytest.param(
        plan(schedule={"kind": "zigzag"}),
        400,
        {"/schedule/kind": "unknown_value"},
        id="unknown schedule",
    ),
    pytest.param(
        plan(topology="none@3"), 422, {"/topology": "unknown_reference"}, id="unknown topology"
    ),
    pytest.param(plan(topology="None"), 400, {"/topology": "pattern_mismatch"}, id="no reference"),
    pytest.param(
        plan(costs={"model": "none", "profile": "none@1"}, partition={"cuts": [1]}),
        422,
        {
            "/costs/model": "unknown_reference",
            "/costs/profile": "unknown_reference",
            "/workload/microbatch_size": "missing_field",
        },
        id="unknown model and profile",
    ),
    pytest.param(
        plan(
            costs={"model": "none", "profile": "none"},
            partition={"layers_per_stage": [2, 0]},
            workload={"microbatches": 8, "microbatch_size": 1},
        ),
        422,
        {
            "/costs/model": "unknown_reference",
            "/costs/profile": "unknown_reference",
            "/partition/layers_per_stage/1": "empty_stage",
        },
        id="an empty stage",
    ),
    pytest.param(
        plan(parallelism={"pipeline": 3}),
        422,
        {"/costs/stages": "wrong_length"},
        id="more ranks than stages",
    ),
    pytest.param(
        plan(parallelism={"data": 3}, workload={"microbatches": 8, "global_batch_size": 32}),
        422,
        {"/workload/global_batch_size": "indivisible"},
        id="indivisible degrees",
    ),
]


@pytest.mark.parametrize(("body", "status", "errors"), BAD_PLANS)
async def test_a_bad_plan_is_refused_and_leaves_nothing(
    client: httpx.AsyncClient,
    count_rows: CountRows,
    body: bytes,
    status: int,
    errors: dict[str, str],
) -> None:
    before = await count_rows()
    response = await client.put("/v1/plans/mine", content=body, headers=JSON)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == status
    assert problem["request_id"] == response.headers["x-request-id"]
    assert {error["pointer"]: error["code"] for error in problem["errors"]} == errors
    assert await count_rows() == before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("body", "headers", "status", "slug"),
    [
        (b"{}", {"Content-Type": "text/plain"}, 415, "unsupported-media-type"),
        (b"{}", {}, 415, "unsupported-media-type"),
        (b" " * (MAX_LARGE_DOCUMENT_BYTES + 1), JSON, 413, "payload-too-large"),
        (b"[" * 2**20, JSON, 400, "malformed-body"),
        (b'"' + b'\\"' * (2**19 - 1), JSON, 400, "malformed-body"),
        (b'{"a": NaN}', JSON, 400, "malformed-body"),
        (b"{}", JSON, 400, "invalid-body"),
        (b"[]", JSON, 400, "invalid-body"),
        (b'{"unknown": 1}', JSON, 400, "invalid-body"),
        (b'{"a\\u0000": "\\u0000"}', JSON, 400, "invalid-body"),
        (b"{}", JSON | {"If-Match": "broken"}, 400, "invalid-body"),
    ],
)
async def test_every_kind_refuses_the_same_way(
    client: httpx.AsyncClient,
    count_rows: CountRows,
    kind: str,
    body: bytes,
    headers: dict[str, str],
    status: int,
    slug: str,
) -> None:
    before = await count_rows()
    response = await client.put(f"/v1/{kind}/mine", content=body, headers=headers)
    assert (response.status_code, response.json()["type"]) == (status, f"/problems/{slug}")
    assert await count_rows() == before
    assert (await client.get(f"/v1/{kind}/mine")).status_code == 404


@pytest.mark.parametrize(
    ("kind", "body", "pointers"),
    [
        (
            "topologies",
            {"hosts": [{"name": "a", "design": "none"}, {"name": "a", "design": "none"}]},
            {"/hosts/0/design", "/hosts/1/design", "/hosts/1/name"},
        ),
        (
            "models",
            {
                "layers": [{"name": "a", "kind": "k"}, {"name": "a", "kind": "k"}],
                "tensors": [{"name": "t", "producer": "z", "consumers": ["a"], "shape": [1]}],
            },
            {"/layers/1/name", "/tensors/0/producer", "/tensors/0/dtype"},
        ),
        (
            "profiles",
            {
                "measurements": [
                    {"layer": "a", "microbatch_size": 1, "forward_seconds": 1},
                    {"layer": "a", "microbatch_size": 1, "forward_seconds": 1},
                    {
                        "layer": "b",
                        "microbatch_size": 1,
                        "forward_seconds": 1e-15,
                        "backward_input_seconds": 1,
                    },
                ]
            },
            {
                "/measurements/1",
                "/measurements/2/forward_seconds",
                "/measurements/2/backward_weight_seconds",
            },
        ),
    ],
)
async def test_the_core_names_every_fault(
    client: httpx.AsyncClient,
    count_rows: CountRows,
    kind: str,
    body: dict[str, Any],
    pointers: set[str],
) -> None:
    before = await count_rows()
    response = await client.put(f"/v1/{kind}/mine", json=body)
    assert response.status_code == 422
    assert {error["pointer"] for error in response.json()["errors"]} == pointers
    assert await count_rows() == before


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("limit=0", "/limit"),
        ("limit=201", "/limit"),
        ("limit=x", "/limit"),
        ("limit=5&limit=6", "/limit"),
        ("size=5", "/size"),
        ("cursor=!", "/cursor"),
        ("cursor=" + "a" * 1001, "/cursor"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
async def test_bad_parameters_are_refused(
    client: httpx.AsyncClient, kind: str, query: str, pointer: str
) -> None:
    response = await client.get(f"/v1/{kind}?{query}")
    assert response.status_code == 400
    (error,) = response.json()["errors"]
    assert (error["in"], error["pointer"]) == ("query", pointer)


@pytest.mark.parametrize("cursor", ["none", "WzFd", "a" * 1000])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_cursor_of_no_list_or_another_one_is_refused(
    client: httpx.AsyncClient, kind: str, cursor: str
) -> None:
    response = await client.get(f"/v1/{kind}?cursor={cursor}")
    assert response.status_code == 422
    (error,) = response.json()["errors"]
    assert (error["in"], error["pointer"], error["code"]) == ("query", "/cursor", "invalid_cursor")


async def test_a_cluster_beyond_the_limits_is_refused_before_it_is_built(
    client: httpx.AsyncClient,
) -> None:
    hosts = [{"name": f"h{n}x", "count": 4096, "design": "dgx-h100"} for n in range(100)]
    response = await client.put("/v1/topologies/huge", json={"hosts": hosts})
    assert response.status_code == 422
    assert response.json()["errors"]
