"""One plan on several workloads over HTTP: main numbers, the mix, and faults where they belong."""

from typing import Any

import httpx
import pytest

from tests.api.price_requests import FOUR_LINES

MODEL = {
    "layers": [{"name": "attention", "kind": "attention"}, {"name": "mlp", "kind": "mlp"}],
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
# The attention grows faster with the sequence than the MLP, so the slowest stage changes.
PROFILE = {
    "measurements": [
        {
            "layer": layer,
            "microbatch_size": 1,
            "sequence_length": length,
            "forward_seconds": milliseconds / 1000,
            "backward_seconds": milliseconds / 500,
        }
        for layer, length, milliseconds in (
            ("attention", 1024, 1),
            ("mlp", 1024, 2),
            ("attention", 4096, 6),
            ("mlp", 4096, 4),
        )
    ]
}
PLAN: dict[str, Any] = {
    "costs": {"model": "two", "profile": "two"},
    "workload": {"microbatches": 4, "microbatch_size": 1, "sequence_length": 1024},
    "parallelism": {"data": 2},
    "partition": {"layers_per_stage": [1, 1]},
    "schedule": {"kind": "1f1b"},
}
SHORT = {"name": "short", "weight": 3, "workload": {}}
LONG = {"name": "long", "workload": {"sequence_length": 4096}}


async def store(client: httpx.AsyncClient) -> None:
    for path, document in (("models/two", MODEL), ("profiles/two", PROFILE)):
        assert (await client.put(f"/v1/{path}", json=document)).status_code == 201


async def ask(client: httpx.AsyncClient, **request: Any) -> dict[str, Any]:
    response = await client.post("/v1/workload-estimates", json=request)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def refused(client: httpx.AsyncClient, **request: Any) -> dict[str, str]:
    """What is wrong, by pointer."""
    response = await client.post("/v1/workload-estimates", json=request)
    assert response.status_code == 422, response.text
    return {error["pointer"]: error["detail"] for error in response.json()["errors"]}


async def test_the_same_plan_on_two_lengths_and_their_mix(client: httpx.AsyncClient) -> None:
    """Short: 1 + 4 x 6 + 2 = 27 ms. Long, by hand along the order of 1f1b: 78 ms."""
    await store(client)
    answer = await ask(client, plan=PLAN, workloads=[SHORT, LONG])
    short, long = answer["workloads"]
    assert [one["iteration_seconds"] for one in (short, long)] == [0.027, 0.078]
    assert [one["slowest_stage"] for one in (short, long)] == [1, 0]
    assert [one["weight_fraction"] for one in (short, long)] == [0.75, 0.25]
    assert long["cadence_bound_seconds"] == 0.018
    mix = answer["mix"]
    assert mix["mean_iteration_seconds"] == pytest.approx((3 * 0.027 + 0.078) / 4)
    assert (mix["worst"], mix["worst_iteration_seconds"]) == ("long", 0.078)
    assert mix["slowest_stages"] == [
        {"stage": 0, "weight_fraction": 0.25},
        {"stage": 1, "weight_fraction": 0.75},
    ]
    # Eight samples an iteration, over both replicas.
    tokens = 8 * (0.75 * 1024 + 0.25 * 4096)
    assert mix["tokens_per_second"] == pytest.approx(tokens / mix["mean_iteration_seconds"])
    assert mix["samples_per_second"] == pytest.approx(8 / mix["mean_iteration_seconds"])


async def test_each_workload_has_the_numbers_of_its_estimate(client: httpx.AsyncClient) -> None:
    await store(client)
    workload = {"microbatches": 6, "sequence_length": 4096}
    case = {"name": "more", "workload": workload}
    (found,) = (await ask(client, plan=PLAN, workloads=[case]))["workloads"]
    response = await client.post(
        "/v1/estimates", json={"plan": PLAN, "patch": {"workload": workload}}
    )
    estimate = response.json()
    for name in ("iteration_seconds", "samples_per_second", "tokens_per_second", "workload"):
        assert found[name] == estimate[name], name
    assert found["idle_fraction"] == estimate["bubble"]["idle_fraction"]
    assert found["steady_seconds"] == estimate["cadence"]["steady_seconds"]
    peaks = [rank["peak_activations"] for rank in estimate["live_activations"]["ranks"]]
    assert found["peak_activations"] == max(peaks)


async def test_what_is_held_fixed_is_said_and_the_other_follows(
    client: httpx.AsyncClient,
) -> None:
    await store(client)
    fixed_size = {"name": "size", "workload": {"microbatches": 8}}
    fixed_batch = {
        "name": "batch",
        "workload": {"microbatches": 8, "microbatch_size": None, "global_batch_size": 16},
    }
    answer = await ask(client, plan=PLAN, workloads=[fixed_size, fixed_batch])
    found = [one["workload"] for one in answer["workloads"]]
    assert [one["held_fixed"] for one in found] == ["microbatch_size", "global_batch_size"]
    assert [one["global_batch_size"] for one in found] == [16, 16]
    codes = [{said["code"] for said in one["assumptions"]} for one in answer["workloads"]]
    assert codes == [{"batch_follows"}] * 2
    assert "batch_follows" not in {said["code"] for said in answer["assumptions"]}
    assert {"uniform_ranks", "profile"} <= {said["code"] for said in answer["assumptions"]}


async def test_a_mix_of_lengths_within_an_iteration_is_a_workload_too(
    client: httpx.AsyncClient,
) -> None:
    await store(client)
    lengths = [4096, 1024, 1024, 1024]
    mixed = {
        "name": "mixed",
        "workload": {"sequence_length": None, "microbatch_sequence_lengths": lengths},
    }
    answer = await ask(client, plan=PLAN, workloads=[SHORT, mixed])
    short, found = answer["workloads"]
    assert found["workload"]["microbatch_sequence_lengths"] == lengths
    assert found["iteration_seconds"] > short["iteration_seconds"]


async def test_faults_point_to_the_workload_that_makes_them(client: httpx.AsyncClient) -> None:
    await store(client)
    wrong = [
        {"name": "unmeasured", "workload": {"sequence_length": 9999}},
        {"name": "odd", "workload": {"microbatch_size": None, "global_batch_size": 9}},
    ]
    found = await refused(client, plan=PLAN, workloads=[SHORT, *wrong])
    assert set(found) == {"/plan/costs/profile", "/workloads/2/workload/global_batch_size"}
    assert found["/plan/costs/profile"].startswith("under workload 'unmeasured': ")
    found = await refused(
        client, plan=PLAN, workloads=[{"name": "none", "workload": {"microbatches": 0}}, SHORT]
    )
    assert list(found) == ["/workloads/0/workload/microbatches"]
    found = await refused(client, plan=PLAN, workloads=[SHORT, LONG, SHORT])
    assert list(found) == ["/workloads/2/name"]


async def test_inline_times_hold_for_the_shape_that_they_were_stated_for(
    client: httpx.AsyncClient,
) -> None:
    plan = {**FOUR_LINES, "workload": {"microbatches": 8, "microbatch_size": 2}}
    more = {"name": "more", "workload": {"microbatches": 16}}
    answer = await ask(client, plan=plan, workloads=[more])
    assert answer["workloads"][0]["workload"]["global_batch_size"] == 32
    larger = {"name": "larger", "workload": {"microbatch_size": 4}}
    found = await refused(client, plan=plan, workloads=[more, larger])
    assert list(found) == ["/workloads/1/workload/microbatch_size"]


async def test_stored_plans_and_patches_of_them(client: httpx.AsyncClient) -> None:
    await store(client)
    assert (await client.put("/v1/plans/two", json=PLAN)).status_code == 201
    patch = {"workload": {"microbatches": 6}}
    answer = await ask(client, plan="two", patch=patch, workloads=[SHORT, LONG])
    assert [one["workload"]["microbatches"] for one in answer["workloads"]] == [6, 6]
    assert [pin["kind"] for pin in answer["pins"]] == ["plans", "models", "profiles"]
    bad = {"name": "bad", "workload": {"sequence_length": None, "microbatch_sequence_lengths": [1]}}
    found = await refused(client, plan="two", patch=patch, workloads=[bad])
    assert "/workloads/0/workload/microbatch_sequence_lengths" in found


async def test_all_workloads_together_are_within_the_work_of_one_request(
    client: httpx.AsyncClient,
) -> None:
    large = [{"name": f"w{i}", "workload": {"microbatches": 40_000 + i}} for i in range(32)]
    found = await refused(client, plan=FOUR_LINES, workloads=large)
    assert list(found) == ["/workloads"]
