"""Plans whose experts are asked by a stored routing, over HTTP."""

from typing import Any

import httpx

ROUTING = {
    "experts": 8,
    "top_k": 2,
    "layers": [{"layer": 0, "matrix": [[256, 256, 0, 0, 0, 0, 0, 0]] * 2}],
}
PLAN: dict[str, Any] = {
    "costs": {"stages": [{"forward_seconds": 0.001, "backward_seconds": 0.002}] * 2},
    "workload": {"microbatches": 4, "microbatch_size": 1, "sequence_length": 256},
    "parallelism": {"pipeline": 2, "data": 2, "expert": 2},
    "schedule": {"kind": "1f1b"},
    "moe": {
        "routing": "seen",
        "layer_costs_include": "nothing",
        "compute": {"peak_flops": 1e14, "memory_bytes_per_second": 1e12},
        "shape": {
            "layers_per_stage": [1, 0],
            "hidden_size": 64,
            "experts": 8,
            "top_k": 2,
            "width": 32,
        },
    },
}


async def test_a_plan_is_priced_by_the_routing_it_names(client: httpx.AsyncClient) -> None:
    """All tokens go to the first rank: 1,024 rows at 50 TFLOP/s, and twice 111.992 ns to pack."""
    await client.put("/v1/routings/seen", json=ROUTING)
    answer = await client.post("/v1/cadence", json={"plan": PLAN})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert [one["reference"] for one in body["pins"]] == ["seen@1"]
    routed = 1e-3 + (2 * 125_829 + 2 * 111_992) * 1e-12
    assert body["stages"][0]["forward_seconds"] == routed
    even = {"moe": {"routing": None}}
    body = (await client.post("/v1/cadence", json={"plan": PLAN, "patch": even})).json()
    assert body["pins"] == []
    assert body["stages"][0]["forward_seconds"] == 1e-3 + (125_829 + 2 * 111_992) * 1e-12


async def test_a_routing_that_is_not_stored_is_told_where_it_is_named(
    client: httpx.AsyncClient,
) -> None:
    refused = await client.post("/v1/cadence", json={"plan": PLAN})
    assert refused.status_code == 422
    (error,) = refused.json()["errors"]
    assert (error["pointer"], error["code"]) == ("/plan/moe/routing", "unknown_reference")
    refused = await client.put("/v1/plans/mine", json=PLAN)
    assert [one["pointer"] for one in refused.json()["errors"]] == ["/moe/routing"]


async def test_another_routing_makes_another_estimate(client: httpx.AsyncClient) -> None:
    """The revision is pinned, so what was estimated under one stays what it is."""
    await client.put("/v1/routings/seen", json=ROUTING)
    first = await client.post("/v1/estimates", json={"plan": PLAN})
    again = await client.post("/v1/estimates", json={"plan": PLAN})
    assert first.json()["digest"] == again.json()["digest"]
    layers = [{"layer": 0, "matrix": [[128] * 4 + [0] * 4] * 2}]
    await client.put("/v1/routings/seen", json=ROUTING | {"layers": layers})
    other = await client.post("/v1/estimates", json={"plan": PLAN})
    assert other.json()["digest"] != first.json()["digest"]
    before = await client.get(f"/v1/estimates/{first.json()['digest']}")
    assert before.json()["pins"] == first.json()["pins"]
