"""Costs of a profile over HTTP: where they come from, what hides, what each layer recomputes."""

from typing import Any

import httpx
import pytest

LAYERS = ("attention", "mlp")
MODEL = {
    "layers": [{"name": name, "kind": name} for name in LAYERS],
    "tensors": [
        {
            "name": "residual",
            "producer": "attention",
            "consumers": ["mlp"],
            "shape": ["microbatch", "sequence", 64],
            "dtype": "bf16",
        }
    ],
}
PROFILE = {
    "measurements": [
        {
            "layer": "*",
            "microbatch_size": size,
            "sequence_length": 1024,
            "tensor_parallel": 2,
            "forward_seconds": size / 1000,
            "backward_seconds": size / 500,
            "tensor_parallel_forward_communication_seconds": size / 10_000,
            "tensor_parallel_forward_exposed_seconds": size / 40_000,
            "tensor_parallel_backward_communication_seconds": 0,
            "samples": 50,
            "relative_deviation": 0.02,
            **extra,
        }
        for size in (1, 2, 4)
        for extra in ({}, {"recompute": "full", "recompute_seconds": size / 1000})
    ]
}
PLAN: dict[str, Any] = {
    "costs": {"model": "two", "profile": "two"},
    "workload": {"microbatches": 4, "microbatch_size": 4, "sequence_length": 1024},
    "parallelism": {"tensor": 2},
    "partition": {"layers_per_stage": [1, 1]},
    "schedule": {"kind": "1f1b"},
}


@pytest.fixture
async def stored(client: httpx.AsyncClient) -> httpx.AsyncClient:
    for path, document in (("models/two", MODEL), ("profiles/two", PROFILE)):
        assert (await client.put(f"/v1/{path}", json=document)).status_code == 201
    return client


async def stages(client: httpx.AsyncClient, **patch: Any) -> list[dict[str, Any]]:
    response = await client.post("/v1/cadence", json={"plan": PLAN, "patch": patch})
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["stages"]
    return found


async def test_a_measured_stage_says_what_it_rests_on(stored: httpx.AsyncClient) -> None:
    first, _ = await stages(stored)
    assert first["provenance"] == "measured"
    assert first["forward_seconds"] == 0.0041
    assert first["cost_sources"] == {
        "layers": {"measured": 1},
        "tensor_parallel_communication": {
            "forward_exposed_seconds": 0.0001,
            "forward_hidden_seconds": 0.0003,
            "backward_exposed_seconds": 0,
            "backward_hidden_seconds": 0,
            "recompute_exposed_seconds": 0,
            "recompute_hidden_seconds": 0,
        },
        "relative_deviation_at_most": pytest.approx(0.02),
        "relative_deviation_if_independent": pytest.approx(0.02),
        "relative_error": 0,
        "samples": 50,
    }


async def test_measurements_are_listed_with_all_that_they_say(stored: httpx.AsyncClient) -> None:
    query: dict[str, str | int] = {
        "profile": "two",
        "recompute": "full",
        "microbatch_size": 2,
        "tensor_parallel": 2,
    }
    (found,) = (await stored.get("/v1/measurements", params=query)).json()["items"]
    (stated,) = [
        row
        for row in PROFILE["measurements"]
        if row["microbatch_size"] == 2 and row.get("recompute") == "full"
    ]
    assert found == {"profile": "two@1", "position": 3, **stated}
    query["recompute"] = "selective"
    assert (await stored.get("/v1/measurements", params=query)).json()["items"] == []


async def test_another_microbatch_size_is_interpolated_and_marked(
    stored: httpx.AsyncClient,
) -> None:
    first, _ = await stages(stored, workload={"microbatch_size": 3})
    assert first["provenance"] == "interpolated"
    assert first["cost_sources"]["layers"] == {"interpolated": 1}
    assert first["forward_seconds"] == pytest.approx(0.003075)
    assert first["cost_sources"]["relative_error"] == pytest.approx(0, abs=1e-9)


async def test_beyond_the_measured_shapes_the_plan_has_to_ask(stored: httpx.AsyncClient) -> None:
    patch: dict[str, Any] = {"workload": {"microbatch_size": 8}}
    response = await stored.post("/v1/cadence", json={"plan": PLAN, "patch": patch})
    assert response.status_code == 422
    (error,) = response.json()["errors"]
    assert (error["pointer"], error["code"]) == ("/plan/costs/profile", "missing_profile_point")
    patch["costs"] = {"unmeasured_shapes": "extrapolate"}
    response = await stored.post("/v1/cadence", json={"plan": PLAN, "patch": patch})
    answer = response.json()
    assert {stage["provenance"] for stage in answer["stages"]} == {"extrapolated"}
    assert "extrapolated_costs" in {said["code"] for said in answer["assumptions"]}


async def test_one_stage_recomputes_what_it_is_told_to(stored: httpx.AsyncClient) -> None:
    first, second = await stages(stored, recompute={"layers": {"ml?": "full"}})
    assert (first["recompute_seconds"], second["recompute_seconds"]) == (0, 0.004)
    response = await stored.post(
        "/v1/cadence", json={"plan": PLAN, "patch": {"recompute": {"layers": {"x/y": "full"}}}}
    )
    (error,) = response.json()["errors"]
    assert error["pointer"] == "/patch/recompute/layers/x~1y"


async def test_without_a_profile_costs_are_assumed_and_marked(client: httpx.AsyncClient) -> None:
    """2 x 2 x 4096 x 16384 FLOPs a token, 4096 tokens, over half of an H100's 989.5 TFLOP/s."""
    width, hidden = 16_384, 4_096
    layer = {
        "name": "mlp",
        "kind": "mlp",
        "repeat": 2,
        "parameters": [{"name": "w", "count": 2 * width * hidden, "dtype": "bf16"}],
        "dimensions": {"hidden_size": hidden, "mlp": {"width": width, "gated": False}},
    }
    topology = {
        "hosts": [{"name": "host", "count": 1, "design": "dgx-h100"}],
    }
    for path, document in (("models/mlps", {"layers": [layer], "tensors": []}),):
        stored = await client.put(f"/v1/{path}", json=document)
        assert stored.status_code == 201, stored.text
    assert (await client.put("/v1/topologies/one", json=topology)).status_code == 201
    plan = {
        "topology": "one",
        "costs": {"model": "mlps", "assumed": {}},
        "workload": {"microbatches": 4, "microbatch_size": 1, "sequence_length": 4096},
        "partition": {"layers_per_stage": [1, 1]},
        "schedule": {"kind": "zb_h1"},
    }
    response = await client.post("/v1/estimates", json={"plan": plan})
    assert response.status_code == 201, response.text
    answer = response.json()
    first, _ = answer["cadence"]["stages"]
    forward = 4 * width * hidden * 4096 / (989.5e12 / 2)
    assert first["forward_seconds"] == pytest.approx(forward)
    assert first["backward_input_seconds"] == first["backward_weight_seconds"]
    assert first["provenance"] == "assumed"
    assert first["cost_sources"] == {"layers": {"assumed": 1}}
    assert "assumed_costs" in {said["code"] for said in answer["assumptions"]}
    assert "assumed_inside" in {said["code"] for said in answer["not_represented"]}
    assert answer["plan"]["costs"]["assumed"] == {}

    patch: dict[str, Any] = {"costs": {"assumed": {"compute_efficiency": 0.25}}}
    response = await client.post("/v1/cadence", json={"plan": plan, "patch": patch})
    assert response.json()["stages"][0]["forward_seconds"] == pytest.approx(2 * forward)
    response = await client.post(
        "/v1/cadence",
        json={"plan": plan, "patch": {"costs": {"assumed": {"compute_dtype": "fp64"}}}},
    )
    (error,) = response.json()["errors"]
    assert (error["code"], error["pointer"]) == (
        "missing_field",
        "/plan/costs/assumed/peak_flops",
    )
