"""Comparisons under several workloads: each by itself, and their mix."""

from itertools import pairwise
from typing import Any

import httpx
import pytest

from tests.api.price_requests import FOUR_LINES

LAYERS = ("lower0", "lower1", "upper0", "upper1")
SHORT = {"name": "short", "weight": 3, "workload": {"sequence_length": 1024}}
LONG = {"name": "long", "workload": {"sequence_length": 2048}}


def measured(layer: str, length: int, forward_seconds: float) -> dict[str, Any]:
    return {
        "layer": layer,
        "microbatch_size": 1,
        "sequence_length": length,
        "forward_seconds": forward_seconds,
    }


async def store(client: httpx.AsyncClient) -> None:
    """Layers of 1 ms, but `upper1` takes 5 ms at the longer of two lengths."""
    model = {
        "layers": [{"name": name, "kind": "block"} for name in LAYERS],
        "tensors": [
            {
                "name": f"{one}.out",
                "producer": one,
                "consumers": [other],
                "shape": ["microbatch", "sequence", 8],
                "dtype": "bf16",
            }
            for one, other in pairwise(LAYERS)
        ],
    }
    profile = {
        "device": "any",
        "measurements": [
            *(measured(name, length, 0.001) for name in LAYERS[:3] for length in (1024, 2048)),
            measured("upper1", 1024, 0.001),
            measured("upper1", 2048, 0.005),
        ],
    }
    for path, document in (("models/blocks", model), ("profiles/blocks", profile)):
        assert (await client.put(f"/v1/{path}", json=document)).status_code == 201


def plan(*layers: int) -> dict[str, Any]:
    return {
        "costs": {"model": "blocks", "profile": "blocks"},
        "workload": {"microbatches": 10, "microbatch_size": 1, "sequence_length": 1024},
        "partition": {"layers_per_stage": list(layers)},
        "schedule": {"kind": "forward_only"},
    }


def ask(*plans: Any, **more: Any) -> dict[str, Any]:
    named = [{"name": name, "plan": one} for name, one in zip("abc", plans, strict=False)]
    return {"plans": named, "workloads": [SHORT, LONG], **more}


async def test_a_partition_is_judged_on_all_lengths(client: httpx.AsyncClient) -> None:
    """Forward only: work of all stages, then nine times the slowest.

    Two and two layers: 4 + 9 x 2 = 22 ms short, 8 + 9 x 6 = 62 long. Three and one: 4 + 9 x 3 = 31
    short, 8 + 9 x 5 = 53 long. With three short iterations for each long one the mean goes from 32
    to 36.5, though the long ones gain.
    """
    await store(client)
    response = await client.post("/v1/comparisons", json=ask(plan(2, 2), plan(3, 1)))
    assert response.status_code == 200, response.text
    answer = response.json()
    assert "plans" not in answer
    assert "comparisons" not in answer
    assert answer["unlike"] == []
    seen = {
        one["name"]: (
            one["weight_fraction"],
            [round(1000 * each["iteration_seconds"], 9) for each in one["plans"]],
            [each["slowest_stage"] for each in one["plans"]],
            one["comparisons"][0]["attribution"]["cause"],
        )
        for one in answer["workloads"]
    }
    assert seen == {
        "short": (0.75, [22, 31], [0, 0], "compute"),
        "long": (0.25, [62, 53], [1, 1], "compute"),
    }
    first, second = (one["mix"] for one in answer["mix"]["plans"])
    assert first["mean_iteration_seconds"] == pytest.approx(0.032)
    assert second["mean_iteration_seconds"] == pytest.approx(0.0365)
    assert (first["worst"], second["worst"]) == ("long", "long")
    (found,) = answer["mix"]["comparisons"]
    assert found["difference_seconds"] == pytest.approx(0.0045)
    effects = {one["cause"]: one["iteration_seconds"] for one in found["attribution"]["effects"]}
    assert sum(effects.values()) == pytest.approx(found["difference_seconds"])
    assert effects["compute"] == pytest.approx(0.0045)
    assert "longer" in found["summary"]


async def test_what_differs_under_one_workload_alone_is_told_of_it(
    client: httpx.AsyncClient,
) -> None:
    await store(client)
    own = plan(2, 2)
    other = {**own, "workload": {**own["workload"], "microbatches": 5}}
    many = {"name": "many", "workload": {"microbatches": 5}}
    body = ask(own, other)
    body["workloads"] = [SHORT, many]
    response = await client.post("/v1/comparisons", json=body)
    assert response.status_code == 422
    problem = response.json()
    assert problem["type"] == "/problems/unlike-plans"
    details = [error["detail"] for error in problem["errors"]]
    assert len(details) == 2
    for detail, term in zip(
        details, ("global_batch_size", "global_batch_construction"), strict=True
    ):
        assert detail.startswith(f"under workload 'short': {term} is 1")

    allowed = ["global_batch_size", "global_batch_construction"]
    response = await client.post("/v1/comparisons", json={**body, "allow_unlike": allowed})
    assert response.status_code == 200, response.text
    answer = response.json()
    assert [one["term"] for one in answer["unlike"]] == allowed
    assert [one["workloads"] for one in answer["unlike"]] == [["short"], ["short"]]
    methods = [one["comparisons"][0]["attribution"]["method"] for one in answer["workloads"]]
    assert methods == ["difference_of_own_splits", "one_change_at_a_time"]
    (mean,) = answer["mix"]["comparisons"]
    assert "attribution" not in mean
    assert [said["code"] for said in mean["not_represented"]] == ["attribution"]


async def test_faults_point_to_the_workload_that_speaks_of_them(
    client: httpx.AsyncClient,
) -> None:
    await store(client)
    body = ask(plan(2, 2), plan(3, 1), FOUR_LINES)
    body["workloads"][1] = {"name": "long", "workload": {"sequence_length": 4096}}
    body["workloads"] += [{"name": "long", "workload": {}}]
    response = await client.post("/v1/comparisons", json=body)
    assert response.status_code == 422
    assert {error["pointer"] for error in response.json()["errors"]} == {"/workloads/2/name"}
    del body["workloads"][2]
    response = await client.post("/v1/comparisons", json=body)
    assert response.status_code == 422
    errors = response.json()["errors"]
    assert {error["code"] for error in errors} == {"missing_profile_point"}
    assert {error["pointer"] for error in errors} == {
        "/plans/0/plan/costs/profile",
        "/plans/1/plan/costs/profile",
    }
    assert all("under workload 'long'" in error["detail"] for error in errors)


@pytest.mark.parametrize(
    ("workloads", "pointer", "code"),
    [
        ([], "/workloads", "length_out_of_bounds"),
        (
            [{"name": f"w{n}", "workload": {}} for n in range(9)],
            "/workloads",
            "length_out_of_bounds",
        ),
        ([{"name": "w", "workload": {}, "weight": 0}], "/workloads/0/weight", "out_of_range"),
    ],
)
async def test_bad_workloads(
    client: httpx.AsyncClient, workloads: list[Any], pointer: str, code: str
) -> None:
    body = {**ask(FOUR_LINES, FOUR_LINES), "workloads": workloads}
    response = await client.post("/v1/comparisons", json=body)
    assert response.status_code == 400, response.text
    found = [(error["pointer"], error["code"]) for error in response.json()["errors"]]
    assert found == [(pointer, code)]
