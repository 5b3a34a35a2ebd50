"""Many estimates in one request over HTTP: the same bytes as one by one, faults kept apart."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import msgspec
import pytest
from litestar import Litestar
from sqlalchemy import event

from service.app import estimate_batches
from service.store.database import SqlDatabase
from tests.api.price_requests import FOUR_LINES, cadence_plan, store_documents, two_host_plan

CountRows = Callable[[], Awaitable[dict[str, int]]]

BEFORE = cadence_plan(18, 18, 25, 18)


class RawEstimate(msgspec.Struct):
    """An entry of the answer whose estimate is left as it was sent."""

    outcome: str
    created: bool = False
    estimate: msgspec.Raw = msgspec.Raw()


class RawAnswer(msgspec.Struct):
    plans: list[RawEstimate]


async def batch(client: httpx.AsyncClient, **request: Any) -> httpx.Response:
    response = await client.post("/v1/estimates/batches", json=request)
    assert response.status_code == 200, response.text
    return response


def interleaved(microbatches: int) -> dict[str, Any]:
    return {
        **cadence_plan(*[6] * 8),
        "schedule": {"kind": "interleaved_1f1b", "chunks_per_rank": 2},
        "parallelism": {"pipeline": 4},
        "workload": {"microbatches": microbatches},
    }


# Plans that share an order with other times, other orders, patches, a topology, a claim, the same
# plan twice, one by name, and one that is asked for by its revision.
MIXED: list[dict[str, Any]] = [
    {"plan": BEFORE},
    {"plan": cadence_plan(18, 19, 25, 17)},
    {"plan": FOUR_LINES},
    {"plan": interleaved(8)},
    {"plan": BEFORE, "patch": {"workload": {"microbatches": 32}}},
    {"plan": two_host_plan("host0/gpu0", "host1/gpu0")},
    {"plan": "mixed-before"},
    {"plan": BEFORE, "asserted_iteration_seconds": 0.44},
    {"plan": two_host_plan("host0/gpu0", "host0/gpu1")},
    {"plan": "mixed-before@1", "patch": {"schedule": {"kind": "gpipe"}}},
    {"plan": interleaved(12)},
    {"plan": BEFORE},
]


async def test_answers_are_those_of_single_requests_byte_for_byte(
    client: httpx.AsyncClient, count_rows: CountRows
) -> None:
    await store_documents(client)
    await client.put("/v1/plans/mixed-before", json={**BEFORE, "description": "words"})
    answers = msgspec.json.decode((await batch(client, plans=MIXED)).content, type=RawAnswer).plans
    assert [entry.outcome for entry in answers] == ["estimate"] * len(MIXED)
    assert all(entry.created for entry in answers)
    # Three of them are the same plan.
    assert (await count_rows())["estimates"] == len(MIXED) - 2

    body = (await batch(client, plans=MIXED)).json()
    for request, entry, raw in zip(MIXED, body["plans"], answers, strict=True):
        single = await client.post("/v1/estimates", json=request)
        assert single.status_code == 200, "it was stored by the batch"
        assert bytes(raw.estimate) == single.content
        assert entry["etag"] == single.headers["etag"]
        assert entry["location"] == single.headers["content-location"]
        assert entry.get("plan_reference") == single.headers.get("stagefare-plan")
        assert entry["digest"] == entry["estimate"]["digest"]
        assert entry["created"] is False


async def test_what_single_requests_compute_a_batch_computes_to_the_byte(
    client: httpx.AsyncClient,
) -> None:
    """The other way round: here each answer was computed alone, and the batch is on its own."""
    await store_documents(client)
    await client.put("/v1/plans/mixed-before", json=BEFORE)
    alone = [(await client.post("/v1/estimates", json=request)).content for request in MIXED]
    # A claim that nobody made before gives each a digest of its own, so that all are computed.
    claimed = [{**request, "asserted_iteration_seconds": 123.0} for request in MIXED]
    answers = msgspec.json.decode((await batch(client, plans=claimed)).content, type=RawAnswer)
    for before, entry in zip(alone, answers.plans, strict=True):
        assert entry.created
        expected, computed = json.loads(before), json.loads(bytes(entry.estimate))
        for answer in (expected, computed):
            answer.pop("digest")
            answer.pop("verdict", None)
        assert json.dumps(computed) == json.dumps(expected)


async def test_one_fault_does_not_touch_the_others(
    client: httpx.AsyncClient, count_rows: CountRows
) -> None:
    await client.put("/v1/plans/gone", json=BEFORE)
    await client.delete("/v1/plans/gone", headers={"If-Match": "*"})
    plans: list[dict[str, Any]] = [
        {"plan": BEFORE},
        {"plan": "nobody"},
        {"plan": "gone"},
        {"plan": {**BEFORE, "topology": "nowhere"}},
        {"plan": BEFORE, "patch": {"workload": {"microbatch_size": 2}}},
        {"plan": BEFORE, "patch": {"workload": {"microbatches": 0}}},
        {"plan": {**BEFORE, "schedule": {"kind": "chimera"}, "workload": {"microbatches": 7}}},
        {"plan": BEFORE, "patch": {"workload": {"microbatches": 1_000_000}}},
        {"plan": FOUR_LINES},
    ]
    answers = (await batch(client, plans=plans)).json()["plans"]
    outcomes = [entry["outcome"] for entry in answers]
    assert outcomes == ["estimate", *["problem"] * 7, "estimate"]
    assert (await count_rows())["estimates"] == 2
    for index, (request, entry) in enumerate(zip(plans, answers, strict=True)):
        single = await client.post("/v1/estimates", json=request)
        if entry["outcome"] == "estimate":
            assert single.status_code == 200
            continue
        alone, problem = single.json(), entry["problem"]
        assert problem["status"] == single.status_code
        for name in ("type", "title", "detail"):
            assert problem[name] == alone[name]
        assert problem["instance"] == "/v1/estimates/batches"
        assert [
            {**error, "pointer": f"/plans/{index}{error['pointer']}"} for error in alone["errors"]
        ] == problem["errors"]
    statuses = [entry["problem"]["status"] for entry in answers[1:-1]]
    assert statuses == [422] * 7


async def test_many_patches_of_one_plan(client: httpx.AsyncClient) -> None:
    await client.put("/v1/plans/swept", json=BEFORE)
    for base in ("swept", BEFORE):
        counts = range(4, 40)
        answer = await batch(
            client,
            plan=base,
            plans=[{"patch": {"workload": {"microbatches": count}}} for count in counts],
        )
        plans = answer.json()["plans"]
        found = [entry["estimate"]["workload"]["microbatches"] for entry in plans]
        assert found == list(counts)
        seconds = [entry["estimate"]["iteration_seconds"] for entry in plans]
        assert seconds == sorted(seconds)


async def test_pointers_lead_to_the_common_plan_or_to_the_entry(client: httpx.AsyncClient) -> None:
    base = {**BEFORE, "topology": "nowhere"}
    answer = await batch(
        client, plan=base, plans=[{}, {"patch": {"topology": "elsewhere"}}, {"plan": base}]
    )
    pointers = [
        [error["pointer"] for error in entry["problem"]["errors"]]
        for entry in answer.json()["plans"]
    ]
    assert pointers == [["/plan/topology"], ["/plans/1/patch/topology"], ["/plans/2/plan/topology"]]


@pytest.mark.parametrize(
    ("body", "status", "pointers"),
    [
        ({}, 400, ["/plans"]),
        ({"plans": []}, 400, ["/plans"]),
        ({"plans": [{"plan": FOUR_LINES}] * 257}, 400, ["/plans"]),
        (
            {"plans": [{"plan": FOUR_LINES}, {"plan": FOUR_LINES, "plane": 1}]},
            400,
            ["/plans/1/plane"],
        ),
        ({"plans": [{}, {"plan": FOUR_LINES}, {}]}, 422, ["/plans/0/plan", "/plans/2/plan"]),
        ({"plan": FOUR_LINES, "plans": [{"plan": FOUR_LINES}]}, 422, ["/plan"]),
        (
            {
                "plan": FOUR_LINES,
                "plans": [{"patch": {"workload": {"microbatches": 100_000}}}] * 40,
            },
            422,
            ["/plans"],
        ),
        (
            {
                "plan": {**FOUR_LINES, "description": "x" * 2000},
                "plans": [{"plan": {**FOUR_LINES, "topology": f"t{n}"}} for n in range(80)] + [{}],
            },
            422,
            ["/plans"],
        ),
    ],
)
async def test_a_request_that_fails_as_a_whole(
    client: httpx.AsyncClient,
    count_rows: CountRows,
    body: dict[str, Any],
    status: int,
    pointers: list[str],
) -> None:
    response = await client.post("/v1/estimates/batches", json=body)
    assert response.status_code == status, response.text
    assert [error["pointer"] for error in response.json()["errors"]] == pointers
    assert (await count_rows())["estimates"] == 0


async def test_long_plans_fit_and_the_limit_of_the_body_is_its_own(
    client: httpx.AsyncClient,
) -> None:
    long_plan = {**cadence_plan(*[7] * 48), "workload": {"microbatches": 2}}
    plans = [{"plan": long_plan, "asserted_iteration_seconds": n + 1} for n in range(256)]
    body = json.dumps({"plans": plans}).encode()
    assert 2**20 < len(body) < 2**22
    headers = {"Content-Type": "application/json"}
    fits = await client.post("/v1/estimates/batches", content=body, headers=headers)
    assert fits.status_code == 200, fits.text[:300]
    assert len({entry["digest"] for entry in fits.json()["plans"]}) == 256
    larger = body + b" " * 2**22
    refused = await client.post("/v1/estimates/batches", content=larger, headers=headers)
    assert refused.status_code == 413
    assert (await client.post("/v1/estimates", content=larger, headers=headers)).status_code == 413


async def test_a_batch_reads_and_writes_as_often_whatever_its_size(
    app: Litestar, client: httpx.AsyncClient, database: SqlDatabase
) -> None:
    """References are read once and answers stored in one statement; the statements are counted."""
    await store_documents(client)
    await client.put("/v1/plans/counted", json=two_host_plan("host0/gpu0", "host1/gpu0"))
    counts = []
    for size in (2, 40):
        statements: list[str] = []
        engine = database._engine.sync_engine

        def note(_c: Any, _cursor: Any, statement: str, *_: Any, seen: Any = statements) -> None:
            seen.append(statement)

        event.listen(engine, "before_cursor_execute", note)
        plans = [{"asserted_iteration_seconds": size * 1000 + n + 1} for n in range(size)]
        answer = await batch(client, plan="counted", plans=plans)
        event.remove(engine, "before_cursor_execute", note)
        assert all(entry["created"] for entry in answer.json()["plans"])
        counts.append(len(statements))
    assert counts[0] == counts[1]


async def test_a_batch_is_answered_once_under_a_key(client: httpx.AsyncClient) -> None:
    """Also when what the plan refers to has a newer revision meanwhile."""
    await store_documents(client)
    plan = two_host_plan("host0/gpu0", "host1/gpu0")
    body = {"plan": plan, "plans": [{}, {"patch": {"workload": {"microbatches": 4}}}]}
    headers = {"Idempotency-Key": "sweep-1"}
    first = await client.post("/v1/estimates/batches", json=body, headers=headers)
    topology = {"hosts": [{"name": "host", "count": 3, "design": "dgx-h100"}]}
    fabric = {"kind": "rail_optimised", "spines": 1}
    newer = await client.put("/v1/topologies/two-hosts", json={**topology, "fabric": fabric})
    assert newer.status_code == 200
    again = await client.post("/v1/estimates/batches", json=body, headers=headers)
    assert (again.status_code, again.content) == (200, first.content)
    assert again.headers["idempotency-replayed"] == "true"
    afresh = await batch(client, **body)
    assert afresh.json()["plans"][0]["digest"] != first.json()["plans"][0]["digest"]


async def test_turns_on_links_are_counted_over_the_whole_batch(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They show only while plans are priced: what comes after too many is refused by itself."""
    await store_documents(client)
    monkeypatch.setattr(estimate_batches, "BATCH_WORK_BUDGET", 1)
    plan = two_host_plan("host0/gpu0", "host1/gpu0")
    counts = range(4, 10)
    patches = [{"patch": {"workload": {"microbatches": count}}} for count in counts]
    entries = (await batch(client, plan=plan, plans=patches)).json()["plans"]
    outcomes = [entry["outcome"] for entry in entries]
    # As many as are priced together, whose work is known only then.
    assert outcomes == ["estimate"] * 4 + ["problem"] * 2
    problem = entries[-1]["problem"]
    assert (problem["status"], problem["type"]) == (422, "/problems/work-budget-exceeded")
    assert [error["code"] for error in problem["errors"]] == ["work_budget"]
    assert problem["errors"][0]["pointer"] == "/plan/schedule/transfer_mode"
