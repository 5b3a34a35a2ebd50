"""Comparisons over HTTP: the moved block, unlike plans, refusals with pointers."""

from copy import deepcopy
from typing import Any

import httpx
import pytest

from service.core.plans.likeness import ContractField
from tests.api.price_requests import FOUR_LINES, cadence_plan, store_documents, two_host_plan

BEFORE = cadence_plan(18, 18, 25, 18)


async def send(client: httpx.AsyncClient, *plans: Any, **more: Any) -> httpx.Response:
    """Compare plans called a, b, c ...; each a plan or what stands in place of one."""
    named = [
        {"name": name, **(plan if isinstance(plan, dict) and "plan" in plan else {"plan": plan})}
        for name, plan in zip("abcdefghi", plans, strict=False)
    ]
    return await client.post("/v1/comparisons", json={"plans": named, **more})


async def compare(client: httpx.AsyncClient, *plans: Any, **more: Any) -> dict[str, Any]:
    response = await send(client, *plans, **more)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def effects(comparison: dict[str, Any]) -> dict[str, Any]:
    """In milliseconds, those that are not zero."""
    return {
        one["cause"]: pytest.approx(1000 * one["iteration_seconds"])
        for one in comparison["attribution"]["effects"]
        if one["iteration_seconds"]
    }


async def test_stored_and_inline_plans_each_against_the_first(client: httpx.AsyncClient) -> None:
    assert (await client.put("/v1/plans/after", json=cadence_plan(18, 21, 20, 18))).is_success
    answer = await compare(
        client, BEFORE, "after", {"plan": "after@1", "patch": {"schedule": {"kind": "gpipe"}}}
    )
    assert [plan["name"] for plan in answer["plans"]] == ["a", "b", "c"]
    assert [[pin["reference"] for pin in plan["pins"]] for plan in answer["plans"]] == [
        [],
        ["after@1"],
        ["after@1"],
    ]
    assert [plan["slowest_stage_seconds"] for plan in answer["plans"]] == [
        pytest.approx(cadence) for cadence in (0.025, 0.021, 0.021)
    ]
    moved, reordered = answer["comparisons"]
    assert (moved["plan"], reordered["plan"]) == ("b", "c")
    assert moved["difference_seconds"] == pytest.approx(0.388 - 0.447)
    assert moved["iteration_ratio"] == pytest.approx(0.388 / 0.447)
    assert effects(moved) == {"compute": -59}
    assert moved["attribution"]["cause"] == "compute"
    assert "59 ms (13.2%) shorter" in moved["summary"]
    assert [stage["stage"] for stage in moved["differences"]["stages"]] == [1, 2]
    assert moved["differences"]["cuts"] == moved["differences"]["lifetimes"] == []
    assert reordered["differences"]["lifetimes"][3] == {
        "rank": 3,
        "before": {"peak_activations": 1},
        "after": {"peak_activations": 16},
    }
    assert "gpipe" in reordered["represented"]["after"][0]["detail"]
    assert "1f1b" in reordered["represented"]["before"][0]["detail"]


async def test_what_is_unlike_is_refused_by_name_and_told_first_when_allowed(
    client: httpx.AsyncClient,
) -> None:
    longer = {"plan": BEFORE, "patch": {"workload": {"microbatches": 32}}}
    stated = {**BEFORE, "contract": {"loss_scaling": "dynamic"}}
    response = await send(client, BEFORE, longer, stated)
    assert response.status_code == 422
    problem = response.json()
    assert problem["type"] == "/problems/unlike-plans"
    found = {
        (error["pointer"], error["detail"].split(" ")[0]): error for error in problem["errors"]
    }
    assert {error["code"] for error in problem["errors"]} == {"unlike"}
    assert set(found) == {
        ("/plans/1/patch/workload", "global_batch_size"),
        ("/plans/1/patch/workload", "global_batch_construction"),
        ("/plans/2/plan/contract/loss_scaling", "loss_scaling"),
    }
    size = found["/plans/1/patch/workload", "global_batch_size"]["detail"]
    assert "is 16 for 'a' and 32 for 'b'" in size
    assert "name global_batch_size in allow_unlike" in size
    silent = found["/plans/2/plan/contract/loss_scaling", "loss_scaling"]["detail"]
    assert "is not said for 'a' and dynamic for 'c'" in silent

    allowed = ["global_batch_size", "global_batch_construction", "loss_scaling"]
    answer = await compare(client, BEFORE, longer, stated, allow_unlike=allowed)
    assert next(iter(answer)) == "unlike"
    assert [one["term"] for one in answer["unlike"]] == allowed
    assert answer["unlike"][0]["values"] == [
        {"plan": "a", "value": "16"},
        {"plan": "b", "value": "32"},
        {"plan": "c", "value": "16"},
    ]
    assert answer["unlike"][2]["values"][0] == {"plan": "a"}
    assert "random_state" in answer["unknown_terms"]
    assert "loss_scaling" not in answer["unknown_terms"]
    own_splits = answer["comparisons"][0]
    assert own_splits["attribution"]["method"] == "difference_of_own_splits"
    assert [said["code"] for said in own_splits["not_represented"]["between"]] == ["moving"]

    # Where the pipeline is never drained there is nothing to split, and the answer says so.
    never = {"schedule": {"kind": "pipedream"}}
    answer = await compare(
        client,
        {"plan": BEFORE, "patch": never},
        {"plan": BEFORE, "patch": {**never, "workload": {"microbatches": 32}}},
        allow_unlike=["global_batch_size", "global_batch_construction"],
    )
    (found,) = answer["comparisons"]
    assert "attribution" not in found
    _, said = found["not_represented"]["between"]
    assert said["code"] == "attribution"
    assert "never drained" in said["detail"]


async def test_profiled_plans_on_other_devices(client: httpx.AsyncClient) -> None:
    await store_documents(client)
    near = two_host_plan("host0/gpu0", "host0/gpu1")
    far = two_host_plan("host0/gpu0", "host1/gpu0")
    answer = await compare(client, near, far)
    model = {"term": "model", "value": "chain@1: 4 layers, 0 trained elements", "origin": "derived"}
    assert model in answer["plans"][0]["contract"]
    (found,) = answer["comparisons"]
    assert found["attribution"]["cause"] == "transfer"
    assert found["difference_seconds"] > 0
    (cut,) = found["differences"]["cuts"]
    assert cut["alone_iteration_seconds"] == pytest.approx(found["difference_seconds"])
    kinds = [
        {hop["kind"] for hop in cut[side]["pairs"][0]["forward"]["path"]["hops"]}
        for side in ("before", "after")
    ]
    assert "network" not in kinds[0]
    assert "network" in kinds[1]
    assert cut["before"]["tensors"] == cut["after"]["tensors"]
    links = found["differences"]["links"]
    assert {"network", "nvlink"} <= {link["kind"] for link in links}
    for link in links:
        assert ("before" in link) != ("after" in link)  # no link of either path is on the other
    assert found["differences"]["more_links"] == 0


async def test_faults_of_all_plans_are_listed_where_they_are(client: httpx.AsyncClient) -> None:
    short = deepcopy(FOUR_LINES)
    del short["costs"]["stages"][0]["backward_seconds"]
    wrong = {**FOUR_LINES, "contract": {"weight_update": "per_microbatch"}}
    response = await send(
        client, short, wrong, "nobody", {"plan": BEFORE, "patch": {"schedule": {"kind": "zb_h1"}}}
    )
    assert response.status_code == 422
    assert response.json()["type"] == "/problems/invalid-input"
    (error,) = response.json()["errors"]
    assert (error["pointer"], error["code"]) == ("/plans/2/plan", "unknown_reference")
    response = await send(
        client, short, wrong, {"plan": BEFORE, "patch": {"schedule": {"kind": "zb_h1"}}}
    )
    assert response.status_code == 422
    pointers = [error["pointer"] for error in response.json()["errors"]]
    assert pointers == [
        "/plans/0/plan/costs/stages/0/backward_seconds",
        "/plans/1/plan/contract/weight_update",
        *(f"/plans/2/plan/costs/stages/{stage}/backward_seconds" for stage in range(4)),
    ]


async def test_what_only_its_terms_refuse_points_into_the_plan(
    client: httpx.AsyncClient,
) -> None:
    """Four microbatches of 2^52 bytes are simulated as any, but are more than JSON can count."""
    heavy = deepcopy(FOUR_LINES)
    for stage in heavy["costs"]["stages"]:
        stage["activation_bytes"] = 2**52
    response = await send(client, FOUR_LINES, heavy)
    assert response.status_code == 422
    found = [(error["pointer"], error["code"]) for error in response.json()["errors"]]
    assert found == [("/plans/1/plan/costs/stages", "out_of_range")]


@pytest.mark.parametrize(
    ("plans", "more", "status", "pointer", "code"),
    [
        ([BEFORE], {}, 400, "/plans", "length_out_of_bounds"),
        ([BEFORE] * 9, {}, 400, "/plans", "length_out_of_bounds"),
        ([BEFORE] * 2, {"allow_unlike": ["colour"]}, 400, "/allow_unlike/0", "unknown_value"),
        ([BEFORE] * 2, {"baseline": "a"}, 400, "/baseline", "unknown_field"),
        (
            [BEFORE, {"plan": BEFORE, "patch": {"contract": {"loss_scaling": "some"}}}],
            {},
            422,
            "/plans/1/patch/contract/loss_scaling",
            "unknown_value",
        ),
        (
            [BEFORE, *[{"plan": BEFORE, "patch": {"workload": {"microbatches": 100_000}}}] * 2],
            {"allow_unlike": list(ContractField)},
            422,
            "/plans",
            "work_budget",
        ),
    ],
    ids=["one", "nine", "term", "field", "patch", "work"],
)
async def test_bad_requests(
    client: httpx.AsyncClient,
    plans: list[Any],
    more: dict[str, Any],
    status: int,
    pointer: str,
    code: str,
) -> None:
    response = await send(client, *plans, **more)
    assert response.status_code == status, response.text
    found = [(error["pointer"], error["code"]) for error in response.json()["errors"]]
    assert found == [(pointer, code)]


async def test_names_are_unique(client: httpx.AsyncClient) -> None:
    named = [{"name": "same", "plan": FOUR_LINES}] * 3
    response = await client.post("/v1/comparisons", json={"plans": named})
    assert response.status_code == 422
    found = [(error["pointer"], error["code"]) for error in response.json()["errors"]]
    assert found == [(f"/plans/{place}/name", "duplicate_name") for place in (1, 2)]


async def test_a_contract_is_stored_with_its_plan(client: httpx.AsyncClient) -> None:
    contract = {"weight_update": "per_global_batch", "random_state": "seed 1234"}
    stored = await client.put("/v1/plans/stated", json={**FOUR_LINES, "contract": contract})
    assert stored.status_code == 201, stored.text
    answer = await compare(client, "stated", {**FOUR_LINES, "contract": contract})
    terms = {one["term"]: one for one in answer["plans"][0]["contract"]}
    assert terms["random_state"] == {
        "term": "random_state",
        "value": "seed 1234",
        "origin": "stated",
    }
    assert terms["weight_update"]["origin"] == "derived"
    refused = await client.put(
        "/v1/plans/stated", json={**FOUR_LINES, "contract": {"weight_update": "per_microbatch"}}
    )
    assert refused.status_code == 422
    (error,) = refused.json()["errors"]
    assert (error["pointer"], error["code"]) == ("/contract/weight_update", "inconsistent")
