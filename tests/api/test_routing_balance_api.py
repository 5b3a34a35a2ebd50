"""How a routing loads ranks, over HTTP."""

from typing import Any

import httpx
import pytest

COUNTS = {
    "experts": 4,
    "top_k": 1,
    "layers": [{"layer": 5, "matrix": [[6, 1, 1, 0], [6, 0, 1, 1]]}],
}


async def ask(
    client: httpx.AsyncClient, routing: dict[str, Any], status: int = 200, **request: Any
) -> Any:
    stored = await client.put("/v1/routings/asked", json=routing)
    assert stored.status_code in {200, 201}, stored.text
    response = await client.post("/v1/routings/asked/balance", json=request)
    assert response.status_code == status, response.text
    return response.json()


def codes(statements: list[dict[str, str]]) -> set[str]:
    return {one["code"] for one in statements}


async def test_busiest_ranks_drops_and_advice(client: httpx.AsyncClient) -> None:
    answer = await ask(
        client,
        COUNTS,
        ranks=2,
        ranks_per_node=1,
        capacity_factor=1.5,
        capacity_scope="source",
        capacity_factors=[1.0, 3.0],
        extra_slots=2,
    )
    assert answer["pins"][0]["reference"] == "asked@1"
    assert (answer["level"], answer["experts"], answer["top_k"]) == ("source_expert", 4, 1)
    (layer,) = answer["layers"]
    assert layer["layer"] == 5
    assert layer["experts"] == {
        "busiest": 0,
        "most_rows": 12,
        "mean_rows": 4,
        "max_over_mean_ratio": 3,
        "straggler_loss_fraction": pytest.approx(2 / 3),
    }
    # Each source may send an expert three: six of expert 0 are dropped.
    assert layer["capacity_rows"] == 3
    assert layer["fates"] == {
        "assigned": 16,
        "dropped_fraction": 6 / 16,
        "fallback_fraction": 0,
        "rerouted_fraction": 0,
        "padded_fraction": 0,
    }
    assert layer["ranks"]["most_rows"] == 7
    assert layer["nodes"] == layer["ranks"]
    assert layer["slowest_rank_rows"] == 7
    assert layer["uniform_slowest_rank_rows"] == 8
    assert layer["straggler_loss_fraction"] == pytest.approx(1 - 5 / 7)
    one, three = layer["capacity_factors"]
    assert (one["capacity_rows"], one["fates"]["dropped_fraction"]) == (2, 8 / 16)
    assert (three["fates"]["dropped_fraction"], three["most_rank_rows"]) == (0, 13)
    plain, replicated = layer["advice"]
    assert (plain["slots"], plain["present_most_rows"], plain["most_rows"]) == (4, 7, 7)
    assert replicated["slots"] == 6
    assert replicated["most_rows"] == replicated["lower_bound_rows"] == 5
    assert replicated["saved_fraction"] == pytest.approx(2 / 7)
    assert replicated["proposals"][0]["is_optimal"]
    assert answer["totals"]["slowest_rank_rows"] == 7
    assert answer["totals"]["rank_rows"]["most_rows"] == 7
    assert answer["warnings"] == []
    assert {"contiguous_placement", "tokens_as_recorded"} <= codes(answer["assumptions"])
    assert codes(answer["not_represented"]) == {"exchange", "moving_experts"}

    # What is advised is a placement that can be asked about.
    advised = await ask(client, COUNTS, ranks=2, placement=replicated["placement"])
    assert advised["layers"][0]["ranks"]["most_rows"] == 8
    assert "contiguous_placement" not in codes(advised["assumptions"])


async def test_loads_without_tokens_and_replicas_that_share_a_rank(
    client: httpx.AsyncClient,
) -> None:
    loads = {"experts": 2, "layers": [{"layer": 0, "counts": [9, 3]}]}
    answer = await ask(client, loads, ranks=2, placement=[[0, 0], [1]])
    assert codes(answer["warnings"]) == {"replicas_share_rank"}
    assert "top_k" not in answer
    assert "fates" not in answer["layers"][0]
    assert answer["layers"][0]["ranks"]["most_rows"] == 9
    assert "capacity" in codes(answer["not_represented"])


async def test_a_skew_needs_a_number_of_tokens(client: httpx.AsyncClient) -> None:
    skew = {"experts": 8, "top_k": 2, "skew": {"kind": "zipf", "exponent": 1.0}}
    refused = await ask(client, skew, 422, ranks=4)
    assert [one["pointer"] for one in refused["errors"]] == ["/tokens_per_rank"]
    answer = await ask(client, skew, ranks=4, tokens_per_rank=64)
    assert answer["level"] == "skew"
    assert answer["layers"][0]["fates"]["assigned"] == 512


async def test_every_fault_of_a_request_is_told(client: httpx.AsyncClient) -> None:
    refused = await ask(
        client,
        COUNTS,
        422,
        ranks=2,
        overflow="drop",
        capacity_minimum=1,
        capacity_factors=[1.0],
        extra_slots=9,
        expert_groups=3,
        placement=[[0, 1], [2]],
        layers=[5, 6],
    )
    assert [(one["pointer"], one["code"]) for one in refused["errors"]] == [
        ("/ranks_per_node", "missing_field"),
        ("/expert_groups", "indivisible"),
        ("/extra_slots", "out_of_range"),
        ("/capacity_scope", "missing_field"),
        ("/placement", "inconsistent"),
        ("/layers/1", "unknown_reference"),
    ]


async def test_more_than_one_request_may_take_is_refused(client: httpx.AsyncClient) -> None:
    counts = [{"layer": layer, "counts": [1] * 64} for layer in range(60)]
    routing = {"experts": 64, "top_k": 1, "layers": counts}
    factors = [1 + place / 64 for place in range(64)]
    request = {"ranks": 4096, "capacity_scope": "global", "capacity_factors": factors}
    refused = await ask(client, routing, 422, **request)
    assert refused["type"].endswith("/work-budget-exceeded")
    assert refused["errors"][0]["pointer"] == "/layers"


async def test_of_what_is_not_stored_nothing_is_said(client: httpx.AsyncClient) -> None:
    response = await client.post("/v1/routings/nowhere/balance", json={"ranks": 2})
    assert response.status_code == 404
