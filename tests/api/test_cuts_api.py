"""What crosses a cut, over HTTP: the contract of both ends, and what is held on the way."""

from typing import Any

import httpx

STREAM = {"shape": ["sequence", "microbatch", 64], "dtype": "bf16", "layout": "row_major"}
MODEL: dict[str, Any] = {
    "layers": [{"name": f"l{i}", "kind": "block"} for i in range(3)],
    "tensors": [
        {"name": "t0", "producer": "l0", "consumers": ["l1"], **STREAM},
        {"name": "t1", "producer": "l1", "consumers": ["l2"], **STREAM},
        {
            "name": "skip",
            "producer": "l0",
            "consumers": ["l2"],
            "gradient_dtype": "fp32",
            "expected": [{"consumer": "l2", "shape": [8, 1, 64], "dtype": "bf16"}],
            **STREAM,
        },
    ],
}
PLAN: dict[str, Any] = {
    "costs": {"model": "skipping", "profile": "skipping"},
    "workload": {"microbatches": 4, "microbatch_size": 1, "sequence_length": 8},
    "partition": {"layers_per_stage": [1, 1, 1]},
    "schedule": {"kind": "1f1b"},
}


async def store(client: httpx.AsyncClient, model: dict[str, Any]) -> None:
    rows = [
        {
            "layer": "l*",
            "microbatch_size": 1,
            "sequence_length": length,
            "forward_seconds": 0.001,
            "backward_seconds": 0.002,
            "saved_activation_bytes": 4096,
        }
        for length in (8, 16)
    ]
    for path, document in (
        ("/v1/models/skipping", model),
        ("/v1/profiles/skipping", {"measurements": rows}),
    ):
        response = await client.put(path, json=document)
        assert response.status_code in {200, 201}, response.text


async def test_the_contract_of_a_cut_and_what_is_held_on_the_way(
    client: httpx.AsyncClient,
) -> None:
    """8 x 1 x 64 elements: 1,024 bytes forward, 2,048 of a gradient in fp32."""
    await store(client, MODEL)
    answer = (await client.post("/v1/boundary-transfers", json={"plan": PLAN})).json()
    first, second = answer["boundaries"]
    skip = {
        "name": "skip",
        "producer": "l0",
        "produced_stage": 0,
        "consumers": [],
        "consumed_stages": [2],
        "shape": [8, 1, 64],
        "shape_symbols": ["sequence", "microbatch", 64],
        "dtype": "bf16",
        "layout": "row_major",
        "forward_bytes": 1024,
        "gradient_dtype": "fp32",
        "backward_bytes": 2048,
    }
    assert first["tensors"][1] == skip
    assert second["tensors"][1] == {**skip, "consumers": ["l2"]}
    live = (await client.post("/v1/live-activations", json={"plan": PLAN})).json()
    relayed = {"stage": 1, "tensors": ["skip"], "forward_bytes": 1024, "backward_bytes": 2048}
    assert live["relayed"] == [relayed]
    assert [rank["peak_bytes"] for rank in live["ranks"]] == [3 * 4096, 2 * 4096 + 2048, 4096]
    request = {"plan": PLAN, "patch": {"partition": {"skip_routing": "direct"}}}
    straight = (await client.post("/v1/live-activations", json=request)).json()
    assert "relayed" not in straight
    assert straight["ranks"][1]["peak_bytes"] == 2 * 4096


async def test_ends_that_disagree_are_refused_with_tensor_and_layers(
    client: httpx.AsyncClient,
) -> None:
    await store(client, MODEL)
    longer = {"plan": PLAN, "patch": {"workload": {"sequence_length": 16}}}
    refused = await client.post("/v1/boundary-transfers", json=longer)
    assert refused.status_code == 422
    (error,) = refused.json()["errors"]
    assert error["pointer"] == "/plan/partition"
    for words in ("'skip'", "'l0' on stage 0", "'l2' on stage 2", "[8, 1, 64] and not [16, 1, 64]"):
        assert words in error["detail"]
