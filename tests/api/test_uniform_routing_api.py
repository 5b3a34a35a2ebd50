"""Every answer of a plan whose tokens choose unevenly has what an even choice would say beside."""

from typing import Any

import httpx
import pytest

PLAN: dict[str, Any] = {
    "costs": {"stages": [{"forward_seconds": 0.001, "backward_seconds": 0.002}] * 2},
    "workload": {"microbatches": 4, "microbatch_size": 1, "sequence_length": 256},
    "parallelism": {"pipeline": 2, "data": 2, "expert": 2},
    "schedule": {"kind": "1f1b"},
    "moe": {
        "skew": {"kind": "hot_rank", "fraction": 1.0, "rank": 0},
        "layer_costs_include": "nothing",
        "compute": {"peak_flops": 1e12, "memory_bytes_per_second": 1e12, "tile_rows": 1},
        "shape": {
            "layers_per_stage": [1, 0],
            "hidden_size": 64,
            "experts": 8,
            "top_k": 2,
            "width": 32,
        },
    },
}
EVENLY = {"moe": {"skew": None}}


@pytest.mark.parametrize(
    "path",
    ["cadence", "bubble", "boundary-transfers", "live-activations", "sensitivities", "estimates"],
)
async def test_answers_have_both_routings_and_their_difference(
    client: httpx.AsyncClient, path: str
) -> None:
    routed = (await client.post(f"/v1/{path}", json={"plan": PLAN})).json()
    beside = routed["uniform_routing"]
    evenly = await client.post(f"/v1/{path}", json={"plan": PLAN, "patch": EVENLY})
    assert evenly.status_code in {200, 201}
    assert "uniform_routing" not in evenly.json()
    bubbles = [
        (await client.post("/v1/bubble", json={"plan": PLAN, "patch": patch})).json()
        for patch in ({}, EVENLY)
    ]
    for one, bubble in zip(("routed", "uniform"), bubbles, strict=True):
        assert beside[one]["makespan_seconds"] == bubble["makespan_seconds"]
        assert beside[one]["slowest_stage"] == 0
    difference = bubbles[0]["makespan_seconds"] - bubbles[1]["makespan_seconds"]
    assert difference > 0
    assert beside["difference"]["makespan_seconds"] == pytest.approx(difference)
    paces = [
        (await client.post("/v1/cadence", json={"plan": PLAN, "patch": patch})).json()
        for patch in ({}, EVENLY)
    ]
    for one, pace in zip(("routed", "uniform"), paces, strict=True):
        assert beside[one]["steady_seconds"] == pace["steady_seconds"]
    assert beside["difference"]["steady_seconds"] > 0


async def test_what_follows_from_the_order_alone_has_both_too(client: httpx.AsyncClient) -> None:
    asked = {"plan": PLAN, "simulate": False}
    answer = (await client.post("/v1/live-activations", json=asked)).json()
    assert answer["uniform_routing"] == {"routed": {}, "uniform": {}, "difference": {}}


async def test_compared_plans_have_both(client: httpx.AsyncClient) -> None:
    plans = [{"name": "hot", "plan": PLAN}, {"name": "even", "plan": PLAN, "patch": EVENLY}]
    request = {"plans": plans, "allow_unlike": ["routing"]}
    response = await client.post("/v1/comparisons", json=request)
    assert response.status_code == 200, response.text
    hot, even = response.json()["plans"]
    assert hot["uniform_routing"]["uniform"]["makespan_seconds"] == even["makespan_seconds"]
    assert hot["uniform_routing"]["routed"]["makespan_seconds"] == hot["makespan_seconds"]
    assert "uniform_routing" not in even
