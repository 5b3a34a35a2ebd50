"""Importing a model that another tool describes, over HTTP."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from tests.api.price_requests import store_documents

CountRows = Callable[[], Awaitable[dict[str, int]]]

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 100,
}
URL = "/v1/models/small/imports"
# Embedding and head, three blocks (attention, gated MLP, two norms), the last norm.
PARAMETERS = 2 * 6400 + 3 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96 + 128) + 64


def config_file(**changes: Any) -> dict[str, tuple[str, bytes]]:
    return {"file": ("config.json", json.dumps({**CONFIG, **changes}, indent=1).encode())}


async def test_a_config_becomes_a_model(client: httpx.AsyncClient, count_rows: CountRows) -> None:
    imported = await client.post(URL, files=config_file())
    assert imported.status_code == 201, imported.text
    answer = imported.json()
    assert (answer["format"], answer["dry_run"]) == ("hugging_face", False)
    assert answer["read"]["parameters"] == PARAMETERS
    part = answer["model"]
    assert (part["name"], part["revision"], part["change"]) == ("small", 1, "created")
    assert part["summary"] == {"layers": 6, "tensors": 8, "parameters": PARAMETERS}
    model = (await client.get("/v1/models/small")).json()
    assert model["digest"] == part["digest"]
    assert [layer["name"] for layer in model["document"]["layers"]] == [
        "embedding",
        "block",
        "final_norm",
        "head",
    ]
    assert model["document"]["layers"][1]["repeat"] == 3

    before = await count_rows()
    again = await client.post(URL, files=config_file())
    assert (again.status_code, again.json()["model"]["change"]) == (200, "unchanged")
    assert await count_rows() == before


async def test_a_dry_run_stores_nothing(client: httpx.AsyncClient, count_rows: CountRows) -> None:
    before = await count_rows()
    looked = await client.post(URL, files=config_file(), data={"dry_run": "true", "dtype": "fp32"})
    assert looked.status_code == 200
    assert looked.json()["dry_run"]
    assert "revision" not in looked.json()["model"]
    assert [item["line"] for item in looked.json()["left_out"]] == [9]  # the file's own type
    assert await count_rows() == before


async def test_a_repeated_key_answers_what_was_answered(
    client: httpx.AsyncClient, count_rows: CountRows
) -> None:
    key = {"Idempotency-Key": "small-once"}
    first = await client.post(URL, files=config_file(), headers=key)
    before = await count_rows()
    again = await client.post(URL, files=config_file(), headers=key)
    assert (again.status_code, again.content) == (201, first.content)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert await count_rows() == before
    other = await client.post(URL, files=config_file(), data={"dtype": "fp32"}, headers=key)
    assert other.status_code == 422
    assert other.json()["type"] == "/problems/idempotency-key-reused"


async def test_a_model_that_was_imported_is_priced_with_a_profile(
    client: httpx.AsyncClient,
) -> None:
    """Six layers of 1 ms and twice that back, on two stages: 9 ms a microbatch and stage."""
    assert (await client.post(URL, files=config_file())).status_code == 201
    rows = [
        {
            "layer": layer,
            "microbatch_size": 1,
            "sequence_length": 8,
            "forward_seconds": 0.001,
            "backward_seconds": 0.002,
        }
        for layer in ("embedding", "block.*", "final_norm", "head")
    ]
    stored = await client.put("/v1/profiles/small", json={"measurements": rows})
    assert stored.status_code == 201, stored.text
    plan = {
        "costs": {"model": "small", "profile": "small"},
        "workload": {"microbatches": 4, "microbatch_size": 1, "sequence_length": 8},
        "partition": {"layers_per_stage": [3, 3]},
        "schedule": {"kind": "1f1b"},
    }
    response = await client.post("/v1/boundary-transfers", json={"plan": plan})
    assert response.status_code == 200, response.text
    (boundary,) = response.json()["boundaries"]
    assert boundary["forward"]["bytes"] == 8 * 64 * 2
    assert [tensor["name"] for tensor in boundary["tensors"]] == ["block.output.1"]
    cadence = (await client.post("/v1/cadence", json={"plan": plan})).json()
    assert [stage["work_seconds"] for stage in cadence["stages"]] == [0.009, 0.009]


LAUNCH = """torchrun --nproc_per_node 4 pretrain_gpt.py --num-layers 4 --hidden-size 64 \\
  --num-attention-heads 4 --seq-length 8 --max-position-embeddings 8 \\
  --untie-embeddings-and-output-weights --pipeline-model-parallel-size 2 \\
  --micro-batch-size 1 --global-batch-size 8 --bf16
"""
ROWS = [
    {
        "layer": layer,
        "microbatch_size": 1,
        "sequence_length": 8,
        "forward_seconds": 0.001,
        "backward_seconds": 0.002,
    }
    for layer in ("embedding", "block.*", "final_norm", "head")
]


def launch_file(text: str = LAUNCH) -> dict[str, tuple[str, bytes]]:
    return {"file": ("launch.sh", text.encode())}


async def test_a_launch_becomes_a_model_and_a_plan_that_is_priced(
    client: httpx.AsyncClient, count_rows: CountRows
) -> None:
    """3 layers on the first stage and 4 on the last: 12 ms a microbatch, 4 microbatches on each of
    2 replicas.
    """
    stored = await client.put("/v1/profiles/small", json={"measurements": ROWS})
    assert stored.status_code == 201, stored.text
    fields = {"vocabulary_size": "100", "profile": "small", "plan_name": "launch"}
    before = await count_rows()
    looked = await client.post(URL, files=launch_file(), data={**fields, "dry_run": "true"})
    assert looked.status_code == 200, looked.text
    assert await count_rows() == before
    imported = await client.post(URL, files=launch_file(), data=fields)
    assert imported.status_code == 201, imported.text
    answer = imported.json()
    assert (answer["format"], answer["read"]["has_plan"]) == ("megatron", True)
    assert answer["plan"]["digest"] == looked.json()["plan"]["digest"]
    assert (answer["model"]["name"], answer["plan"]["name"]) == ("small", "launch")
    estimate = await client.post("/v1/estimates", json={"plan": "launch"})
    assert estimate.status_code == 201, estimate.text
    body = estimate.json()
    stages = body["cadence"]["stages"]
    assert [stage["work_seconds"] for stage in stages] == [0.009, 0.012]
    assert body["workload"]["microbatches"] == 4
    assert body["workload"]["global_batch_size"] == 8
    plan = (await client.get("/v1/plans/launch")).json()["document"]
    assert plan["costs"] == {"model": "small", "profile": "small"}
    assert plan["partition"]["layers_per_stage"] == [3, 4]
    again = await client.post(URL, files=launch_file(), data=fields)
    assert (again.status_code, again.json()["plan"]["change"]) == (200, "unchanged")


async def test_a_launch_with_tied_embeddings_is_priced_with_a_copy_at_each_end(
    client: httpx.AsyncClient,
) -> None:
    """A vocabulary of 128 x 64: 8,192 weights at both ends of the pipeline.

    Their gradients are in fp32, as a launch keeps them beside weights in bf16: 32 KiB.
    """
    await store_documents(client)
    stored = await client.put("/v1/profiles/small", json={"measurements": ROWS})
    assert stored.status_code == 201, stored.text
    tied = launch_file(LAUNCH.replace("--untie-embeddings-and-output-weights ", ""))
    fields = {"vocabulary_size": "100", "profile": "small", "plan_name": "launch"}
    imported = await client.post(URL, files=tied, data=fields)
    assert imported.status_code == 201, imported.text
    plan = (await client.get("/v1/plans/launch")).json()["document"]
    assert plan["partition"]["tied_parameters"] == "duplicate"
    request = {"plan": "launch", "patch": {"topology": "two-hosts"}}
    answer = (await client.post("/v1/boundary-transfers", json=request)).json()
    (copies,) = answer["tied_copies"]
    assert (copies["weights"], copies["stages"]) == (["embedding"], [0, 1])
    assert (copies["parameter_count"], copies["rank_gradient_bytes"]) == (8192, 32768)
    assert [group["ranks"] for group in copies["groups"]] == [[0, 2], [1, 3]]
    assert [len(group["paths"]) for group in copies["groups"]] == [2, 2]
    assert 0 < copies["lower_bound_seconds"] <= copies["exchange_seconds"]
    assert "tied_copies_exchange" in {said["code"] for said in answer["not_represented"]}
    estimate = (await client.post("/v1/estimates", json=request)).json()
    assert estimate["boundary_transfers"]["tied_copies"] == answer["tied_copies"]
    weights = [stage["weights"] for stage in estimate["cadence"]["stages"]]
    assert [stage["tied_parameter_count"] for stage in weights] == [8192, 8192]
    assert [stage["copied_parameter_count"] for stage in weights] == [0, 8192]


async def test_a_launch_without_a_profile_can_be_priced_by_assumption(
    client: httpx.AsyncClient,
) -> None:
    fields = {"vocabulary_size": "100", "plan_name": "launch"}
    answer = await client.post(URL, files=launch_file(), data=fields)
    assert answer.status_code == 201, answer.text
    plan = (await client.get("/v1/plans/launch")).json()["document"]
    assert plan["costs"] == {"model": "small", "assumed": {}}
    rates = {"peak_flops": 1e15, "memory_bytes_per_second": 1e12}
    patch = {"costs": {"assumed": rates}}
    priced = await client.post("/v1/cadence", json={"plan": "launch", "patch": patch})
    assert priced.status_code == 200, priced.text
    assert {stage["provenance"] for stage in priced.json()["stages"]} == {"assumed"}


async def test_without_a_profile_a_launch_is_a_model(client: httpx.AsyncClient) -> None:
    answer = await client.post(URL, files=launch_file(), data={"vocabulary_size": "100"})
    assert answer.status_code == 201
    assert answer.json()["read"]["has_plan"]
    assert "plan" not in answer.json()
    assert (await client.get("/v1/plans/small")).status_code == 404


@pytest.mark.parametrize(
    ("files", "fields", "status", "pointers"),
    [
        (config_file(hidden_size=0, vocab_size=0), {}, 422, {"/file/line/3", "/file/line/10"}),
        (config_file(torch_dtype=None), {}, 422, {"/dtype"}),
        (config_file(torch_dtype=None, vocab_size=0), {}, 422, {"/dtype", "/file/line/10"}),
        (config_file(model_type="bert"), {}, 422, {"/file/line/2"}),
        ({"file": ("a", b"<xml/>")}, {}, 422, {"/file"}),
        ({"file": ("a", b"<xml/>")}, {"format": "hugging_face"}, 422, {"/file/line/1"}),
        (config_file(), {"format": "pipedream"}, 400, {"/format"}),
        (config_file(), {"dtype": "int4"}, 400, {"/dtype"}),
        (config_file(), {"microbatch_size": "1"}, 400, {"/microbatch_size"}),
        (config_file(), {"profile": "small"}, 422, {"/profile"}),
        (config_file(), {"vocabulary_size": "9"}, 422, {"/vocabulary_size"}),
        (config_file(), {"plan_name": "mine"}, 422, {"/plan_name"}),
        (launch_file(), {}, 422, {"/vocabulary_size"}),
        (launch_file(), {"vocabulary_size": "9", "profile": "nil"}, 422, {"/profile"}),
        (
            launch_file(),
            {"vocabulary_size": "9", "profile": "nil", "dry_run": "true"},
            422,
            {"/profile"},
        ),
        (
            launch_file(LAUNCH.replace("size 64", "size x")),
            {},
            422,
            {"/vocabulary_size", "/file/line/1"},
        ),
        (
            launch_file(LAUNCH.replace("batch-size 8", "batch-size 9")),
            {"vocabulary_size": "9"},
            422,
            {"/file"},
        ),
        (
            config_file(hidden_size=10**7, num_hidden_layers=10_000, intermediate_size=10**8),
            {},
            422,
            {"/file"},
        ),
    ],
)
async def test_a_bad_import_is_refused_and_leaves_nothing(
    client: httpx.AsyncClient,
    count_rows: CountRows,
    files: Any,
    fields: dict[str, Any],
    status: int,
    pointers: set[str],
) -> None:
    before = await count_rows()
    response = await client.post(URL, files=files, data=fields)
    assert response.status_code == status
    assert {error["pointer"] for error in response.json()["errors"]} == pointers
    assert await count_rows() == before
