"""Comparing plans that run their experts otherwise: refused as unlike, or told what differs."""

from typing import Any

import httpx

from tests.api.example_documents import store_examples

SHAPE = {"layers_per_stage": [1], "hidden_size": 64, "experts": 4, "top_k": 2, "width": 32}
PLAN: dict[str, Any] = {
    "costs": {"stages": [{"forward_seconds": 0.001, "backward_seconds": 0.002}]},
    "workload": {"microbatches": 2, "microbatch_size": 1, "sequence_length": 64},
    "schedule": {"kind": "gpipe"},
    "parallelism": {"data": 2, "expert": 2},
    "moe": {
        "shape": SHAPE,
        "skew": {"kind": "hot_rank", "rank": 1, "fraction": 1.0},
        "compute": {"peak_flops": 1e9, "memory_bytes_per_second": 1e12},
        "layer_costs_include": "nothing",
    },
}
# 64 x 2 / 4 assignments of a source are 32: half of what it asks the hot experts for is dropped.
DROPPING = {"moe": {"overflow": "drop", "capacity_factor": 1.0, "capacity_scope": "source"}}


async def test_another_overflow_is_another_training(client: httpx.AsyncClient) -> None:
    plans = [{"plan": PLAN, "name": "all"}, {"plan": PLAN, "patch": DROPPING, "name": "drop"}]
    refused = await client.post("/v1/comparisons", json={"plans": plans})
    assert refused.status_code == 422, refused.text
    pointers = {error["pointer"] for error in refused.json()["errors"]}
    assert pointers == {
        "/plans/1/patch/moe/overflow",
        "/plans/1/patch/moe/capacity_factor",
        "/plans/1/patch/moe/capacity_scope",
        "/plans/1/plan/moe/drop_order",
        "/plans/1/patch/moe",
    }
    allowed = [
        "overflow",
        "capacity_factor",
        "capacity_scope",
        "drop_order",
        "dropped_token_fraction",
    ]
    asked = {"plans": plans, "allow_unlike": allowed}
    answer = await client.post("/v1/comparisons", json=asked)
    assert answer.status_code == 200, answer.text
    assert [one["term"] for one in answer.json()["unlike"]] == allowed
    (found,) = answer.json()["comparisons"]
    experts = found["differences"]["experts"]
    assert {"pointer": "/moe/capacity_factor", "after": "1.0"} in experts["fields"]
    (layer,) = experts["layers"]
    assert (layer["layer"], layer["before"]["most_rank_rows"]) == (0, 256)
    assert layer["after"]["most_rank_rows"] == 128
    assert layer["after"]["forward_seconds"] < layer["before"]["forward_seconds"]
    effects = {one["cause"]: one["iteration_seconds"] for one in found["attribution"]["effects"]}
    assert effects["compute"] < 0


async def test_another_routing_is_another_training(client: httpx.AsyncClient) -> None:
    evenly = {"moe": {"skew": None}}
    plans = [{"plan": PLAN, "name": "hot"}, {"plan": PLAN, "patch": evenly, "name": "even"}]
    refused = await client.post("/v1/comparisons", json={"plans": plans})
    assert refused.status_code == 422, refused.text
    (error,) = refused.json()["errors"]
    assert (error["pointer"], error["code"]) == ("/plans/1/patch/moe", "unlike")
    assert "routing is" in error["detail"]
    answer = await client.post(
        "/v1/comparisons", json={"plans": plans, "allow_unlike": ["routing"]}
    )
    assert answer.status_code == 200, answer.text
    assert [one["term"] for one in answer.json()["unlike"]] == ["routing"]


async def test_the_worked_example_can_be_asked(client: httpx.AsyncClient) -> None:
    await store_examples(client)
    name = "routed-experts"
    plans = [
        {"name": "hot", "plan": name},
        {"name": "even", "plan": name, "patch": {"moe": {"routing": None, "routing_layers": None}}},
    ]
    answer = await client.post(
        "/v1/comparisons", json={"plans": plans, "allow_unlike": ["routing"]}
    )
    assert answer.status_code == 200, answer.text
    (found,) = answer.json()["comparisons"]
    assert found["difference_seconds"] < 0
    layers = found["differences"]["experts"]["layers"]
    rows = [(one["before"]["most_rank_rows"], one["after"]["most_rank_rows"]) for one in layers]
    assert rows == [(6744, 4096)] * 2 + [(9400, 4096)] * 2
