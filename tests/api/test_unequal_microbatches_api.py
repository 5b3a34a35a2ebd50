"""Plans whose microbatches differ, over HTTP: means with their ends, refusals at their place."""

import csv
import io
from typing import Any

import httpx
import pytest

from tests.api.price_requests import CALCULATIONS, DOCUMENTS, store_documents, two_host_plan

# 1F1B by hand, in milliseconds. First stage: F0 0-1, F1 1-4, B0 7-9, B1 17-23.
# Second stage: F0 2-4, B0 4-7, F1 7-11, B1 11-16.
SHORT_THEN_LONG: dict[str, Any] = {
    "costs": {
        "stages": [
            {
                "forward_seconds": [0.001, 0.003],
                "backward_seconds": [0.002, 0.006],
                "activation_bytes": [10, 30],
                "boundary_bytes": [1000, 2000],
                "transfer_seconds": [0.001, 0.002],
                "backward_transfer_seconds": [0, 0.001],
            },
            {
                "forward_seconds": [0.002, 0.004],
                "backward_seconds": [0.003, 0.005],
                "activation_bytes": 20,
            },
        ]
    },
    "schedule": {"kind": "1f1b"},
    "workload": {
        "microbatches": 2,
        "microbatch_size": 1,
        "microbatch_sequence_lengths": [1000, 3000],
    },
}


async def estimate(client: httpx.AsyncClient, plan: dict[str, Any]) -> dict[str, Any]:
    response = await client.post("/v1/estimates", json={"plan": plan})
    assert response.status_code == 201, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def test_the_answer_by_hand(client: httpx.AsyncClient) -> None:
    answer = await estimate(client, SHORT_THEN_LONG)
    assert answer["iteration_seconds"] == 0.023
    assert answer["tokens_per_second"] == pytest.approx(4000 / 0.023)
    assert answer["workload"]["microbatch_sequence_lengths"] == [1000, 3000]
    assert "sequence_length" not in answer["workload"]
    bubble = answer["bubble"]
    terms = ("transfer", "imbalance", "structural")
    assert [bubble[f"{term}_seconds"] for term in terms] == [0.002, 0.001, 0.007]
    bounds = {bound["name"]: bound["seconds"] for bound in answer["lower_bounds"]}
    assert bounds["dependency_path"] == 0.021
    peaks = [rank["peak_bytes"] for rank in answer["live_activations"]["ranks"]]
    assert peaks == [40, 20]
    codes = {said["code"] for said in answer["assumptions"]}
    assert "microbatches_differ" in codes
    left_out = {said["code"] for said in answer["not_represented"]}
    assert {"steady_cadence", "other_microbatch_counts"} <= left_out


async def test_what_differs_has_its_ends(client: httpx.AsyncClient) -> None:
    answer = await estimate(client, SHORT_THEN_LONG)
    first, second = answer["cadence"]["stages"]
    assert (first["forward_seconds"], first["work_seconds"]) == (0.002, 0.006)
    ranges = first["seconds_ranges"]
    assert ranges["forward_seconds"] == {"least_seconds": 0.001, "most_seconds": 0.003}
    assert ranges["work_seconds"] == {"least_seconds": 0.003, "most_seconds": 0.009}
    assert ranges["transfer_seconds"] == {"least_seconds": 0.001, "most_seconds": 0.002}
    assert set(second["seconds_ranges"]) == {"forward_seconds", "backward_seconds", "work_seconds"}
    (boundary,) = answer["boundary_transfers"]["boundaries"]
    forward = boundary["forward"]
    assert "bytes" not in forward
    assert forward["bytes_ranges"] == {
        "bytes": {"least_bytes": 1000, "most_bytes": 2000, "bytes_per_iteration": 3000}
    }
    assert forward["transfer_seconds"] == 0.0015
    assert forward["messages_per_iteration"] == 2


async def test_the_timeline_has_each_microbatch_at_its_own_time(client: httpx.AsyncClient) -> None:
    answer = await estimate(client, SHORT_THEN_LONG)
    text = (await client.get(f"/v1/estimates/{answer['digest']}/timeline.csv")).text
    ends = {
        (row["kind"], int(row["stage"]), int(row["microbatch"])): float(row["end_seconds"])
        for row in csv.DictReader(io.StringIO(text))
    }
    assert ends["forward", 0, 0] == 0.001
    assert ends["forward", 0, 1] == 0.004
    assert ends["backward", 1, 1] == 0.016
    assert ends["backward", 0, 1] == 0.023
    for suffix in ("timeline", "timeline.svg", "trace.json"):
        response = await client.get(f"/v1/estimates/{answer['digest']}/{suffix}")
        assert response.status_code == 200


async def test_equal_microbatches_say_nothing_of_ranges(client: httpx.AsyncClient) -> None:
    stage = {"forward_seconds": [0.001, 0.001], "backward_seconds": 0.002}
    plan = {**SHORT_THEN_LONG, "costs": {"stages": [stage]}, "workload": {"microbatches": 2}}
    answer = await estimate(client, plan)
    plain = {**plan, "costs": {"stages": [{**stage, "forward_seconds": 0.001}]}}
    other = await estimate(client, plain)
    assert answer.pop("digest") != other.pop("digest")
    assert answer.pop("plan") != other.pop("plan")
    assert answer == other


def with_lengths(*lengths: int) -> dict[str, Any]:
    plan = two_host_plan("host0/gpu0", "host1/gpu0")
    workload = {
        "microbatches": len(lengths),
        "microbatch_size": 1,
        "microbatch_sequence_lengths": list(lengths),
    }
    return {**plan, "workload": workload}


async def store_two_lengths(client: httpx.AsyncClient) -> None:
    await store_documents(client)
    (known, _) = DOCUMENTS["profiles/chain-h100"]["measurements"]
    other = {**known, "sequence_length": 512, "forward_seconds": 0.0004}
    profile = {**DOCUMENTS["profiles/chain-h100"], "measurements": [known, other]}
    response = await client.put("/v1/profiles/chain-h100", json=profile)
    assert response.status_code == 200, response.text


async def test_lengths_are_priced_by_a_profile(client: httpx.AsyncClient) -> None:
    await store_two_lengths(client)
    answer = await estimate(client, with_lengths(1024, 512, 1024, 512))
    (boundary,) = answer["boundary_transfers"]["boundaries"]
    # One sample of 1024 or 512 tokens, 1024 numbers of 2 bytes for each.
    size = {"least_bytes": 1_048_576, "most_bytes": 2_097_152, "bytes_per_iteration": 6_291_456}
    assert boundary["forward"]["bytes_ranges"]["bytes"] == size
    (tensor,) = boundary["tensors"]
    assert "forward_bytes" not in tensor
    assert tensor["bytes_ranges"]["forward_bytes"] == size
    (pair,) = boundary["pairs"]
    ranges = pair["forward"]["seconds_ranges"]
    assert set(ranges) == {"lower_bound_seconds", "transfer_seconds"}
    assert ranges["transfer_seconds"]["least_seconds"] < ranges["transfer_seconds"]["most_seconds"]
    # The lengths repeat, so there is a pace.
    assert answer["cadence"]["steady_seconds"] >= answer["cadence"]["bound_seconds"]
    for bound in answer["lower_bounds"]:
        if bound["mode"] == "latency":
            assert bound["seconds"] <= answer["iteration_seconds"]


async def test_links_of_unequal_microbatches_carry_a_total(client: httpx.AsyncClient) -> None:
    await store_two_lengths(client)
    plan = {
        **with_lengths(1024, 512),
        "parallelism": {"pipeline": 2, "data": 2},
        "placement": {"devices": ["host0/gpu[0-3]"]},
    }
    answer = await estimate(client, plan)
    shared = answer["boundary_transfers"]["shared_links"]
    for link in shared:
        assert "bytes_per_microbatch" not in link
        assert link["bytes_per_iteration"] % (1_048_576 + 2_097_152) == 0
        expected = link["bytes_per_iteration"] / link["bandwidth_bytes_per_second"] / 2
        assert link["lower_bound_seconds"] == pytest.approx(expected)


def changed(stage: dict[str, Any], **workload: Any) -> dict[str, Any]:
    plan = SHORT_THEN_LONG
    stages = [{**plan["costs"]["stages"][0], **stage}, plan["costs"]["stages"][1]]
    return {**plan, "costs": {"stages": stages}, "workload": {**plan["workload"], **workload}}


@pytest.mark.parametrize(
    ("plan", "status", "pointers"),
    [
        (changed({"forward_seconds": [0.001]}), 422, ["/costs/stages/0/forward_seconds"]),
        (changed({"boundary_bytes": [1] * 3}), 422, ["/costs/stages/0/boundary_bytes"]),
        (changed({"forward_seconds": [1, -1]}), 400, ["/costs/stages/0/forward_seconds/1"]),
        (changed({"forward_seconds": [1, "1"]}), 400, ["/costs/stages/0/forward_seconds/1"]),
        (changed({"forward_seconds": "1"}), 400, ["/costs/stages/0/forward_seconds"]),
        (changed({"forward_seconds": []}), 400, ["/costs/stages/0/forward_seconds"]),
        (changed({"forward_seconds": [1, 1e-14]}), 422, ["/costs/stages/0/forward_seconds/1"]),
        (changed({}, sequence_length=5), 422, ["/workload/microbatch_sequence_lengths"]),
        (
            changed({}, microbatch_sequence_lengths=[1, 2, 3]),
            422,
            ["/workload/microbatch_sequence_lengths"],
        ),
        (
            changed({}, microbatch_sequence_lengths=[1, 0]),
            400,
            ["/workload/microbatch_sequence_lengths/1"],
        ),
    ],
)
async def test_refusals_name_the_list_and_the_entry(
    client: httpx.AsyncClient, plan: dict[str, Any], status: int, pointers: list[str]
) -> None:
    for path in CALCULATIONS:
        response = await client.post(f"/v1/{path}", json={"plan": plan})
        assert response.status_code == status, response.text
        found = [error["pointer"] for error in response.json()["errors"]]
        assert found == [f"/plan{pointer}" for pointer in pointers]
    stored = await client.put("/v1/plans/unequal", json=plan)
    assert stored.status_code == status, stored.text
    assert [error["pointer"] for error in stored.json()["errors"]] == pointers


async def test_lengths_that_were_not_measured_are_named(client: httpx.AsyncClient) -> None:
    await store_documents(client)
    response = await client.post("/v1/estimates", json={"plan": with_lengths(1024, 512, 256)})
    assert response.status_code == 422
    errors = response.json()["errors"]
    assert [error["pointer"] for error in errors] == ["/plan/costs/profile"] * 2
    for length, error in zip((512, 256), errors, strict=True):
        assert f"sequence_length {length}" in error["detail"]
        assert error["code"] == "missing_profile_point"


async def test_a_patch_of_the_count_is_refused_where_lists_stay(client: httpx.AsyncClient) -> None:
    await client.put("/v1/plans/unequal", json=SHORT_THEN_LONG)
    request = {"plan": "unequal", "patch": {"workload": {"microbatches": 4}}}
    for path in CALCULATIONS:
        response = await client.post(f"/v1/{path}", json=request)
        assert response.status_code == 422
        (error,) = response.json()["errors"]
        assert error["pointer"] == "/patch/workload/microbatches"
        assert "with 4 numbers or one for all" in error["detail"]


async def test_the_peak_by_bytes_has_an_instant_of_its_own(client: httpx.AsyncClient) -> None:
    """The third microbatch keeps most; by then no rank keeps more of them than before.

    Rank 0 runs F0 F1 B0 F2 from 0, 1, 4, 6 s, and rank 1 F0 B0 F1 B1 F2 from 1, 2, 4, 5, 7 s.
    """
    stage = {"forward_seconds": 1, "backward_seconds": 2, "activation_bytes": [1, 1, 100]}
    plan = {
        "costs": {"stages": [stage, stage]},
        "schedule": {"kind": "1f1b"},
        "workload": {"microbatches": 3},
    }
    answer = (await client.post("/v1/live-activations", json={"plan": plan})).json()
    estimate = (await client.post("/v1/estimates", json={"plan": plan})).json()
    for ranks in (answer["ranks"], estimate["live_activations"]["ranks"]):
        by_count = [(rank["peak_activations"], rank["at_seconds"]) for rank in ranks]
        by_bytes = [(rank["peak_bytes"], rank["peak_bytes_at_seconds"]) for rank in ranks]
        assert by_count == [(2, 1), (1, 1)]
        assert by_bytes == [(101, 6), (100, 7)]
        assert ranks[0]["alive"] == [{"stage": 0, "microbatch": 0}, {"stage": 0, "microbatch": 1}]
    stage.pop("activation_bytes")
    answer = (await client.post("/v1/live-activations", json={"plan": plan})).json()
    for rank in answer["ranks"]:
        assert not {"peak_bytes", "peak_bytes_at_seconds"} & rank.keys()
