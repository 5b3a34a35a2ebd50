"""Whether plans fit, over HTTP: every rank term by term, verdicts, options and their prices."""

from typing import Any

import httpx
import pytest

HIDDEN = 12288
TOPOLOGY = {
    "hosts": [{"name": "host", "count": 4, "design": "dgx-h100"}],
    "fabric": {"kind": "rail_optimised", "spines": 2},
}
MODEL = {
    "layers": [
        {
            "name": "block",
            "kind": "transformer_block",
            "repeat": 48,
            "parameters": [
                {"name": "matrices", "count": 12 * HIDDEN**2, "dtype": "bf16", "split": "tensor"},
                {"name": "norms", "count": 4 * HIDDEN, "dtype": "bf16", "split": "none"},
            ],
            "dimensions": {
                "hidden_size": HIDDEN,
                "attention": {"heads": 96, "head_size": 128},
                "mlp": {"width": 4 * HIDDEN, "gated": False},
            },
        }
    ],
    "tensors": [
        {
            "name": "hidden",
            "producer": "block",
            "consumers": ["block"],
            "shape": ["sequence", "microbatch", HIDDEN],
            "dtype": "bf16",
        }
    ],
}
PROFILE = {
    "device": "NVIDIA H100 SXM5",
    "precision": "bf16",
    "measurements": [
        {
            "layer": "block*",
            "microbatch_size": size,
            "sequence_length": 2048,
            "tensor_parallel": 8,
            "recompute": recompute,
            "forward_seconds": 0.003 * size,
            "backward_input_seconds": 0.003 * size,
            "backward_weight_seconds": 0.003 * size,
            **({} if recompute == "none" else {"recompute_seconds": 0.003 * size}),
        }
        for size in (1, 2)
        for recompute in ("none", "full")
    ],
}
PLAN: dict[str, Any] = {
    "topology": "four-dgx-h100",
    "costs": {"model": "gpt-48", "profile": "gpt-48-h100"},
    "workload": {"sequence_length": 2048, "microbatches": 16, "microbatch_size": 2},
    "parallelism": {"pipeline": 4, "tensor": 8, "sequence_parallel": True},
    "partition": {"layers_per_stage": [12, 12, 12, 12]},
    "schedule": {"kind": "1f1b"},
    "training": {"optimizer": "adam", "gradient_dtype": "fp32"},
}
ONE_HOST = {
    "parallelism": {"pipeline": 1},
    "partition": {"layers_per_stage": [48]},
    "placement": {"devices": ["host0/gpu*"]},
}
STAGE = {
    "forward_seconds": 0.006,
    "backward_seconds": 0.012,
    "activation_bytes": 4_000_000_000,
    "parameter_count": 1_000_000_000,
}
INLINE: dict[str, Any] = {
    "costs": {"stages": [{**STAGE, "boundary_bytes": 1000}, STAGE]},
    "workload": {"microbatches": 8},
    "schedule": {"kind": "gpipe"},
    "training": {"optimizer": "adam", "weight_dtype": "bf16"},
    "memory": {"device_memory_bytes": 40_000_000_000},
}


async def store(client: httpx.AsyncClient) -> None:
    for path, document in (
        ("topologies/four-dgx-h100", TOPOLOGY),
        ("models/gpt-48", MODEL),
        ("profiles/gpt-48-h100", PROFILE),
        ("plans/four-stages", PLAN),
    ):
        stored = await client.put(f"/v1/{path}", json=document)
        assert stored.status_code == 201, stored.text


async def estimate(client: httpx.AsyncClient, plan: dict[str, Any]) -> dict[str, Any]:
    answer = await client.post("/v1/estimates", json={"plan": plan})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def memory(client: httpx.AsyncClient, plan: Any, **more: Any) -> dict[str, Any]:
    answer = await client.post("/v1/memory", json={"plan": plan, **more})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def terms(rank: dict[str, Any]) -> dict[str, int]:
    return {term["term"]: term["at_peak_bytes"] for term in rank["terms"]}


def options(answer: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [option for option in answer["options"] if option["option"] == kind]


async def test_48_layers_fit_as_four_stages_and_not_on_one_host(client: httpx.AsyncClient) -> None:
    await store(client)
    fits = await memory(client, "four-stages")
    assert fits["feasible"] is True
    assert fits["least_headroom_bytes"] > 0
    assert "options" not in fits
    assert len(fits["ranks"]) == 4
    first, last = fits["ranks"][0], fits["ranks"][-1]
    # 12 layers: 18 bytes of an eighth of the matrices and of all norms.
    state = 12 * 18 * (12 * HIDDEN**2 // 8 + 4 * HIDDEN)
    found = terms(first)
    of_state = ("weights", "gradients", "master_weights", "optimizer_moments")
    assert sum(found[name] for name in of_state) == state
    # Four microbatches in flight on the first rank, one on the last. 4096 tokens of 32 h and of
    # statistics of twelve heads, shared by eight ranks.
    layer = 4096 * (32 * HIDDEN // 8 + 4 * 12)
    assert found["activations"] == 4 * 12 * layer
    assert terms(last)["activations"] == 12 * layer
    assert (first["peak"]["name"], last["peak"]["name"]) == ("0F3", "3F0")
    assert first["capacity_bytes"] == 80_000_000_000

    full = await memory(client, "four-stages", patch=ONE_HOST)
    assert full["feasible"] is False
    (rank,) = full["ranks"]
    assert rank["headroom_bytes"] == full["least_headroom_bytes"] < 0
    assert sum(terms(rank)[name] for name in of_state) == 4 * state
    assert rank["headroom_bytes"] == rank["usable_bytes"] - sum(terms(rank).values())
    assert rank["blame"]["term"] == "optimizer_moments"
    codes = {said["code"] for said in full["not_represented"]}
    assert codes.isdisjoint({"memory", "training", "parameter_counts"})
    # iteration_seconds has the step in it, and says what it rests on.
    assert "optimizer_step" not in codes
    assert "optimizer_step_bytes" in {said["code"] for said in full["assumptions"]}


async def test_every_option_is_priced_or_says_why_not(client: httpx.AsyncClient) -> None:
    await store(client)
    small = {"memory": {"device_memory_bytes": 60_000_000_000}, "parallelism": {"data": 1}}
    full = await memory(client, "four-stages", patch=small)
    assert full["feasible"] is False
    kinds = list(dict.fromkeys(option["option"] for option in full["options"]))
    assert kinds == [
        "smaller_microbatch",
        "fewer_in_flight",
        "recompute",
        "other_schedule",
        "moved_layer",
        "more_sharding",
    ]
    (smaller,) = options(full, "smaller_microbatch")
    assert smaller["patch"] == {"workload": {"microbatches": 32, "microbatch_size": 1}}
    # The price is that of the plan with the patch.
    patch = {**small, **smaller["patch"]}
    patched = await memory(client, "four-stages", patch=patch, options=False)
    assert "options" not in patched
    assert smaller["headroom_bytes"] == patched["least_headroom_bytes"]
    assert smaller["headroom_bytes"] > full["least_headroom_bytes"]
    assert smaller["iteration_seconds"] == patched["iteration_seconds"] < full["iteration_seconds"]
    selective, recomputed = options(full, "recompute")
    assert "selective" in selective["not_priced"]
    assert recomputed["headroom_bytes"] > smaller["headroom_bytes"]
    assert recomputed["iteration_seconds"] > full["iteration_seconds"]
    (moved,) = options(full, "moved_layer")
    assert moved["patch"] == {"partition": {"layers_per_stage": [11, 13, 12, 12]}}
    assert moved["iteration_seconds"] > full["iteration_seconds"]
    for kind, why in (
        ("fewer_in_flight", "1f1b sets"),
        ("more_sharding", "no two ranks"),
    ):
        (option,) = options(full, kind)
        assert why in option["not_priced"]
        assert option.keys() == {"option", "detail", "not_priced"}
    # Two stages a rank keep less, and each rank as many layers.
    half, third = options(full, "other_schedule")
    assert half["patch"] == {
        "schedule": {"kind": "v_half", "chunks_per_rank": 2},
        "partition": {"layers_per_stage": [6] * 8},
    }
    assert third["patch"]["schedule"]["kind"] == "v_min"
    assert full["least_headroom_bytes"] < half["headroom_bytes"] < third["headroom_bytes"]
    asked = await memory(client, "four-stages", patch={**small, **third["patch"]}, options=False)
    assert third["headroom_bytes"] == asked["least_headroom_bytes"]
    assert third["iteration_seconds"] == asked["iteration_seconds"]


async def test_options_of_a_partition_by_names(client: httpx.AsyncClient) -> None:
    """13 and 11 layers: the last of the first stage moves on, and both halve their stages."""
    await store(client)
    names = [f"block.{number}" for number in range(48)]
    by_names = {
        "memory": {"device_memory_bytes": 60_000_000_000},
        "partition": {
            "layers_per_stage": None,
            "stages": [names[:13], names[13:24], names[24:36], names[36:]],
        },
    }
    full = await memory(client, "four-stages", patch=by_names)
    (moved,) = options(full, "moved_layer")
    assert moved["patch"]["partition"]["stages"] == [
        names[:12],
        names[12:24],
        names[24:36],
        names[36:],
    ]
    assert moved["headroom_bytes"] > full["least_headroom_bytes"]
    half, _ = options(full, "other_schedule")
    sizes = [len(stage) for stage in half["patch"]["partition"]["stages"]]
    assert sizes == [7, 6, 6, 6, 6, 6, 5, 6]
    laid = half["patch"]["partition"]["stages"]
    assert [name for stage in laid for name in stage] == names
    assert half["headroom_bytes"] > full["least_headroom_bytes"]


async def test_orders_alone_decide_whether_a_plan_fits(client: httpx.AsyncClient) -> None:
    full = await memory(client, INLINE)
    assert (full["feasible"], full["ranks"][1]["peak"]["name"]) == (False, "1F7")
    (ordered,) = options(full, "other_schedule")
    assert ordered["patch"] == {"schedule": {"kind": "1f1b"}}
    assert ordered["feasible"] is True
    # Costs that were stated for other microbatches are not priced anew.
    assert all("costs" in option["not_priced"] for option in options(full, "recompute"))
    estimated = await estimate(client, INLINE)
    assert estimated["memory"]["feasible"] is False
    assert [rank["total_bytes"] for rank in estimated["memory"]["ranks"]] == [
        rank["total_bytes"] for rank in full["ranks"]
    ]
    assert "memory" in {said["code"] for said in estimated["represented"]}


async def test_options_stay_within_the_work_of_one_request(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.app.memory_options.INLINE_WORK_BUDGET", 0)
    (ordered,) = options(await memory(client, INLINE), "other_schedule")
    assert "ask for it alone" in ordered["not_priced"]
    assert ordered["patch"] == {"schedule": {"kind": "1f1b"}}


async def test_unknown_terms_leave_the_verdict_open(client: httpx.AsyncClient) -> None:
    stage = {**STAGE}
    del stage["activation_bytes"]
    plan = {**INLINE, "costs": {"stages": [stage]}}
    answer = await memory(client, plan)
    assert "feasible" not in answer
    assert answer["ranks"][0]["unknown_terms"] == ["activations"]
    assert "memory_activations" in {said["code"] for said in answer["not_represented"]}
    # What is known may be too much already.
    tiny = {**plan, "memory": {"device_memory_bytes": 10_000_000_000}}
    assert (await memory(client, tiny))["feasible"] is False
    # A plan that says nothing of its weights has no memory in its estimate, and says so.
    bare = {**plan, "costs": {"stages": [{"forward_seconds": 1, "backward_seconds": 2}]}}
    estimated = await estimate(client, bare)
    assert "memory" not in estimated
    assert "memory" in {said["code"] for said in estimated["not_represented"]}


async def test_faults_point_into_the_request(client: httpx.AsyncClient) -> None:
    plan = {
        **INLINE,
        "memory": {"cross_entropy_chunk_tokens": 5},
        "training": {"optimizer": "sgd", "optimizer_state_dtype": "fp32"},
    }
    answer = await client.post("/v1/memory", json={"plan": plan})
    assert answer.status_code == 422
    found = [(fault["pointer"], fault["code"]) for fault in answer.json()["errors"]]
    assert found == [
        ("/plan/training/optimizer_state_dtype", "inconsistent"),
        ("/plan/training/weight_dtype", "missing_field"),
        ("/plan/memory/cross_entropy_chunk_tokens", "inconsistent"),
    ]
    wide = {**INLINE, "memory": {"communicators": 4096, "communicator_bytes": 2**53 - 1}}
    for path in ("/v1/memory", "/v1/estimates"):
        answer = await client.post(path, json={"plan": wide})
        assert answer.status_code == 422, answer.text
        (fault,) = answer.json()["errors"]
        assert (fault["pointer"], fault["code"]) == ("/plan/memory", "out_of_range")


async def test_the_rank_of_an_expert_group_that_keeps_most_is_named(
    client: httpx.AsyncClient,
) -> None:
    """All tokens of both ranks ask for experts of rank 1: 2 x 64 tokens, two experts of each."""
    shape = {"layers_per_stage": [1], "hidden_size": 64, "experts": 4, "top_k": 2, "width": 32}
    plan = {
        "costs": {"stages": [{"forward_seconds": 0.01, "backward_seconds": 0.02}]},
        "workload": {"microbatches": 2, "microbatch_size": 1, "sequence_length": 64},
        "schedule": {"kind": "gpipe"},
        "parallelism": {"data": 2, "expert": 2},
        "moe": {
            "shape": shape,
            "skew": {"kind": "hot_rank", "rank": 1, "fraction": 1.0},
            "compute": {"peak_flops": 1e14, "memory_bytes_per_second": 1e12},
            "layer_costs_include": "nothing",
        },
    }
    answer = (await client.post("/v1/memory", json={"plan": plan})).json()
    (rank,) = answer["ranks"]
    assert rank["experts"] == {
        "rank": 1,
        "group": 0,
        "expert_rank": 1,
        "rows": 256,
        "mean_rows": 128,
        "experts": 2,
    }
    (buffers,) = [term for term in rank["terms"] if term["term"] == "dispatch_buffers"]
    # 128 copies come, and 128 of its own lie in both buffers: of 64 elements in bf16.
    assert buffers["at_peak_bytes"] == 3 * 128 * 128
    assert "expert_rows" in {said["code"] for said in answer["assumptions"]}
