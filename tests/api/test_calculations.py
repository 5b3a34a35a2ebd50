"""The calculations over HTTP: the worked examples, both forms of costs, patches, bad input."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from tests.api.price_requests import (
    CALCULATIONS,
    FOUR_LINES,
    cadence_plan,
    store_documents,
    two_host_plan,
)

CountRows = Callable[[], Awaitable[dict[str, int]]]


async def ask(client: httpx.AsyncClient, path: str, plan: Any, **more: Any) -> dict[str, Any]:
    """The answer of a calculation that must be given."""
    response = await client.post(f"/v1/{path}", json={"plan": plan, **more})
    assert response.status_code in {200, 201}, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def test_the_plan_of_four_lines_needs_no_document(client: httpx.AsyncClient) -> None:
    for path in CALCULATIONS:
        answer = await ask(client, path, FOUR_LINES)
        assert answer["pins"] == []
        assert answer["workload"] == {"microbatches": 8}
        assert [placed["coordinates"]["pipeline"] for placed in answer["placement"]] == [0, 1]
        represented = {statement["code"] for statement in answer["represented"]}
        assert represented == {"operations", "devices", "transfers"}
        assert "zero_transfers" in {statement["code"] for statement in answer["assumptions"]}
        left_out = {statement["code"] for statement in answer["not_represented"]}
        assert {"contention", "physical_paths", "memory", "optimizer_step"} <= left_out
        for statement in answer["assumptions"] + answer["not_represented"]:
            assert statement["detail"]


async def test_answers_say_what_a_profile_says_of_itself(client: httpx.AsyncClient) -> None:
    await store_documents(client)
    for path in CALCULATIONS:
        answer = await ask(client, path, two_host_plan("host0/gpu0", "host1/gpu0"))
        said = {statement["code"]: statement["detail"] for statement in answer["assumptions"]}
        assert "@1, of " in said["profile"]


async def test_activations_beyond_the_memory_of_a_device_are_told(
    client: httpx.AsyncClient,
) -> None:
    topology = {"hosts": [{"name": "host", "design": "dgx-h100"}]}
    stored = await client.put("/v1/topologies/one-host", json=topology)
    assert stored.status_code == 201, stored.text
    stage = {"forward_seconds": 0.006, "backward_seconds": 0.012}
    for size, told in ((20_000_000_000, False), (50_000_000_000, True)):
        stages = [{**stage, "activation_bytes": size}, {**stage, "activation_bytes": size}]
        plan = {**FOUR_LINES, "costs": {"stages": stages}, "topology": "one-host"}
        for path in ("live-activations", "estimates"):
            answer = await ask(client, path, plan)
            said = {statement["code"]: statement["detail"] for statement in answer["assumptions"]}
            assert ("live_above_memory" in said) is told
            # A device of 80 GB takes one activation of 50 GB: rank 1 keeps no more.
            assert not told or "rank 0 (100000000000 bytes" in said["live_above_memory"]
            assert "memory" in {statement["code"] for statement in answer["not_represented"]}


async def test_no_prediction_of_a_boundary_is_shown_below_a_bound(
    client: httpx.AsyncClient,
) -> None:
    """Also where both are the same rate and latency, and only their rounding could differ."""
    stages = [
        {"forward_seconds": 0.001, "backward_seconds": 0.002, "boundary_bytes": size}
        for size in (13, 15, 22, 4_001, 123_457)
    ]
    last = {"forward_seconds": 0.001, "backward_seconds": 0.002}
    gpus = {"name": "host", "devices": [{"name": f"gpu{i}", "kind": "gpu"} for i in range(6)]}
    wires = [
        {
            "source": f"gpu{i}",
            "target": f"gpu{i + 1}",
            "kind": "pcie",
            "bandwidth_bytes_per_second": 31.5e9,
            "latency_seconds": 0,
        }
        for i in range(5)
    ]
    topology = {"hosts": [{**gpus, "links": wires}]}
    assert (await client.put("/v1/topologies/wires", json=topology)).status_code == 201
    plan = {**FOUR_LINES, "topology": "wires", "costs": {"stages": [*stages, last]}}
    answer = await ask(client, "boundary-transfers", plan)
    for boundary in answer["boundaries"]:
        for direction in ("forward", "backward"):
            (pair,) = boundary["pairs"]
            shown = boundary[direction]["transfer_seconds"]
            assert shown == pair[direction]["transfer_seconds"] > 0
            assert boundary[direction]["lower_bound_seconds"] <= shown
            assert pair[direction]["lower_bound_seconds"] <= shown


async def test_nothing_to_send_is_no_message(client: httpx.AsyncClient) -> None:
    first = {**FOUR_LINES["costs"]["stages"][0], "boundary_bytes": 9, "backward_boundary_bytes": 0}
    plan = {**FOUR_LINES, "costs": {"stages": [first, FOUR_LINES["costs"]["stages"][1]]}}
    (boundary,) = (await ask(client, "boundary-transfers", plan))["boundaries"]
    assert boundary["forward"]["messages_per_iteration"] == 8
    assert boundary["backward"]["messages_per_iteration"] == 0
    assert boundary["backward"]["messages_per_second"] == 0


async def test_a_steady_state_that_is_not_given_is_named(client: httpx.AsyncClient) -> None:
    """Stage 0 hands nothing on: the slowest stage of gpipe's phases need not be one chain."""
    await store_documents(client)
    apart = {"layers": [{"name": name, "kind": "block"} for name in ("layer0", "layer1")]}
    response = await client.put("/v1/models/apart", json={**apart, "tensors": []})
    assert response.status_code == 201
    plan = {
        "costs": {"model": "apart", "profile": "chain-h100"},
        "workload": {"microbatches": 8, "microbatch_size": 1, "sequence_length": 1024},
        "partition": {"layers_per_stage": [1, 1], "skip_routing": "direct"},
        "schedule": {"kind": "gpipe"},
    }
    for path in ("cadence", "estimates"):
        answer = await ask(client, path, plan)
        cadence = answer if path == "cadence" else answer["cadence"]
        assert "steady_seconds" not in cadence
        assert "steady_cadence" in {said["code"] for said in answer["not_represented"]}


@pytest.mark.parametrize(
    ("milliseconds", "slowest", "bound", "makespans", "idle"),
    [
        ((18, 18, 25, 18), 2, 0.025, (0.247, 0.447, 0.847), (0.3603, 0.2931, 0.2538)),
        ((18, 21, 20, 18), 1, 0.021, (0.220, 0.388, 0.724), (0.3000, 0.2062, 0.1492)),
    ],
)
async def test_before_and_after_moving_a_block(
    client: httpx.AsyncClient,
    milliseconds: tuple[int, ...],
    slowest: int,
    bound: float,
    makespans: tuple[float, ...],
    idle: tuple[float, ...],
) -> None:
    plan = cadence_plan(*milliseconds)
    cadence = await ask(client, "cadence", plan)
    assert cadence["slowest_stage"] == slowest
    assert cadence["bound_seconds"] == pytest.approx(bound, abs=1e-12)
    assert cadence["steady_seconds"] == pytest.approx(bound, abs=1e-12)
    for microbatches, makespan, fraction in zip((8, 16, 32), makespans, idle, strict=True):
        patch = {"workload": {"microbatches": microbatches}}
        bubble = await ask(client, "bubble", plan, patch=patch)
        assert bubble["makespan_seconds"] == pytest.approx(makespan, abs=1e-10)
        assert round(bubble["idle_fraction"], 4) == fraction
        parts = ("structural", "imbalance", "transfer", "contention")
        excess = sum(bubble[f"{part}_seconds"] for part in parts)
        assert bubble["ideal_seconds"] + excess == pytest.approx(bubble["makespan_seconds"])
        for rank in bubble["ranks"]:
            seconds = sum(v for k, v in rank.items() if k.endswith("_seconds"))
            assert seconds == pytest.approx(bubble["makespan_seconds"])
        live = await ask(client, "live-activations", plan, patch=patch)
        assert [rank["peak_activations"] for rank in live["ranks"]] == [4, 3, 2, 1]


@pytest.mark.parametrize("microbatches", [4, 8, 16])
async def test_equal_stages_forward_only(client: httpx.AsyncClient, microbatches: int) -> None:
    plan = {
        "costs": {"stages": [{"forward_seconds": 1.0}] * 4},
        "schedule": {"kind": "forward_only"},
        "workload": {"microbatches": microbatches},
    }
    bubble = await ask(client, "bubble", plan)
    assert bubble["makespan_seconds"] == microbatches + 3
    assert bubble["idle_fraction"] == pytest.approx(1 - microbatches / (microbatches + 3))
    assert bubble["ideal_utilisation"]["utilisation_fraction"] == microbatches / (microbatches + 3)


async def test_a_profiled_plan_on_two_hosts(client: httpx.AsyncClient) -> None:
    await store_documents(client)
    answer = await ask(client, "boundary-transfers", two_host_plan("host0/gpu0", "host1/gpu0"))
    assert [pin["reference"] for pin in answer["pins"]] == [
        "two-hosts@1",
        "chain@1",
        "chain-h100@1",
    ]
    (boundary,) = answer["boundaries"]
    # 1 x 1024 x 1024 numbers of two bytes; the network card of 50 GB/s is the narrowest link.
    assert boundary["forward"]["bytes"] == boundary["backward"]["bytes"] == 2_097_152
    (pair,) = boundary["pairs"]
    assert pair["forward"]["path"]["bandwidth_bytes_per_second"] == 50e9
    assert pair["forward"]["lower_bound_seconds"] == pytest.approx(2_097_152 / 50e9)
    assert pair["forward"]["transfer_seconds"] >= pair["forward"]["lower_bound_seconds"]
    hops = pair["forward"]["path"]["hops"]
    assert (hops[0]["source"], hops[-1]["target"]) == ("host0/gpu0", "host1/gpu0")
    assert "network" in {hop["kind"] for hop in hops}
    assert boundary["forward"]["messages_per_iteration"] == 8
    for direction in ("forward", "backward"):
        total = boundary[direction]["exposed_seconds"] + boundary[direction]["hidden_seconds"]
        assert total == pytest.approx(8 * boundary[direction]["transfer_seconds"])


async def test_moving_a_stage_to_another_host_changes_path_and_bound(
    client: httpx.AsyncClient,
) -> None:
    await store_documents(client)
    near = await ask(client, "boundary-transfers", two_host_plan("host0/gpu0", "host0/gpu1"))
    far = await ask(client, "boundary-transfers", two_host_plan("host0/gpu0", "host1/gpu1"))
    near_pair, far_pair = (answer["boundaries"][0]["pairs"][0] for answer in (near, far))
    assert {hop["kind"] for hop in near_pair["forward"]["path"]["hops"]} == {"nvlink"}
    assert near_pair["forward"]["path"] != far_pair["forward"]["path"]
    ratio = far_pair["forward"]["lower_bound_seconds"] / near_pair["forward"]["lower_bound_seconds"]
    assert ratio == pytest.approx(450 / 50)


async def test_a_changed_microbatch_size_prices_the_new_shape(client: httpx.AsyncClient) -> None:
    await store_documents(client)
    plan = two_host_plan("host0/gpu0", "host1/gpu0")
    small = await ask(client, "cadence", plan)
    large = await ask(client, "cadence", plan, patch={"workload": {"microbatch_size": 2}})
    assert large["stages"][0]["work_seconds"] == 2 * small["stages"][0]["work_seconds"]
    missing = await client.post(
        "/v1/cadence", json={"plan": plan, "patch": {"workload": {"microbatch_size": 3}}}
    )
    assert missing.status_code == 422
    codes = {error["code"] for error in missing.json()["errors"]}
    assert codes == {"missing_profile_point"}


async def test_the_fluid_queue(client: httpx.AsyncClient) -> None:
    for arrival_rate, service_rate, level in ((4, 3, 5), (4, 5, 3), (2, 3, 3), (0, 100, 0)):
        response = await client.post(
            "/v1/queues/backlog",
            json={
                "initial_backlog": 4,
                "arrival_rate": arrival_rate,
                "service_rate": service_rate,
                "step_seconds": 0.5,
                "steps": 2,
            },
        )
        assert response.status_code == 200, response.text
        assert response.json()["final_backlog"] == level
        assert response.json()["not_represented"]


def changed(**changes: Any) -> dict[str, Any]:
    return {"plan": {**FOUR_LINES, **changes}}


def stages(**changes: Any) -> dict[str, Any]:
    first, second = FOUR_LINES["costs"]["stages"]
    return changed(costs={"stages": [{**first, **changes}, second]})


ABSENT_TIME = {"stages": [{"forward_seconds": 0.1}, {"backward_seconds": 0.1}]}

# (request, status, pointers of the faults)
REFUSED = [
    pytest.param({}, 400, [""], id="no plan"),
    pytest.param(changed(surprise=1), 400, ["/plan/surprise"], id="unknown field"),
    pytest.param(
        changed(workload={"microbatches": "2"}), 400, ["/plan/workload/microbatches"], id="text"
    ),
    pytest.param(
        changed(workload={"microbatches": 2.5}), 400, ["/plan/workload/microbatches"], id="fraction"
    ),
    pytest.param(
        changed(workload={"microbatches": 10**9}), 422, ["/plan/workload/microbatches"], id="work"
    ),
    pytest.param(
        stages(forward_seconds=-1), 400, ["/plan/costs/stages/0/forward_seconds"], id="negative"
    ),
    pytest.param(
        changed(costs=ABSENT_TIME), 400, ["/plan/costs/stages/1"], id="absent forward time"
    ),
    pytest.param(
        changed(costs={"stages": [{"forward_seconds": 0.1}] * 2}),
        422,
        ["/plan/costs/stages/0/backward_seconds", "/plan/costs/stages/1/backward_seconds"],
        id="absent backward times",
    ),
    pytest.param({"plan": "nobody"}, 422, ["/plan"], id="unknown plan"),
    pytest.param(changed(topology="nowhere@3"), 422, ["/plan/topology"], id="unknown topology"),
    pytest.param(
        changed(parallelism={"pipeline": 3}), 422, ["/plan/costs/stages"], id="too few stages"
    ),
    pytest.param(
        changed(schedule={"kind": "1f1b", "chunks_per_rank": 2}),
        422,
        ["/plan/schedule/chunks_per_rank"],
        id="chunks",
    ),
    pytest.param(
        changed(workload={"microbatches": 3, "global_batch_size": 8}),
        422,
        ["/plan/workload/global_batch_size"],
        id="indivisible",
    ),
    pytest.param(
        {"plan": FOUR_LINES, "patch": {"workload": {"microbatches": "many"}}},
        422,
        ["/patch/workload/microbatches"],
        id="bad patch",
    ),
    pytest.param(
        {
            "plan": {**FOUR_LINES, "workload": {"microbatches": 8, "microbatch_size": 1}},
            "patch": {"workload": {"microbatch_size": 2}},
        },
        422,
        ["/patch/workload/microbatch_size"],
        id="stale times",
    ),
]


@pytest.mark.parametrize(("body", "status", "pointers"), REFUSED)
async def test_bad_plans_are_refused_and_leave_nothing(
    client: httpx.AsyncClient,
    count_rows: CountRows,
    body: Any,
    status: int,
    pointers: list[str],
) -> None:
    before = await count_rows()
    for path in CALCULATIONS:
        response = await client.post(f"/v1/{path}", json=body)
        assert response.status_code == status, response.text
        problem = response.json()
        assert response.headers["content-type"] == "application/problem+json"
        assert problem["type"].startswith("/problems/")
        found = sorted({error["pointer"] for error in problem["errors"]})
        assert all(any(f.startswith(p) for f in found) for p in pointers), problem["errors"]
        assert all(any(f.startswith(p) for p in pointers) for f in found), problem["errors"]
    assert await count_rows() == before


@pytest.mark.parametrize(
    ("changes", "pointer", "code"),
    [
        ({"parallelism": {"pipeline": 5}}, "/plan/partition", "wrong_length"),
        ({"partition": {"layers_per_stage": [4, 0]}}, "/plan/partition", "empty_stage"),
        ({"partition": {"cuts": [0]}}, "/plan/partition", "empty_stage"),
        (
            {"partition": {"layers_per_stage": [1, 1, 1, 1, 1]}, "parallelism": {"pipeline": 5}},
            "/plan/parallelism/pipeline",
            "too_few_layers",
        ),
        ({"placement": {"devices": ["host0/gpu0"]}}, "/plan/placement", "too_few_devices"),
        ({"placement": {"devices": ["host7/*"]}}, "/plan/placement/devices/0", "unknown_name"),
        (
            {"parallelism": {"pipeline": 2, "tensor": 2}},
            "/plan/costs/profile",
            "missing_profile_point",
        ),
        (
            {"workload": {"microbatches": 8, "global_batch_size": 12, "sequence_length": 1024}},
            "/plan/workload",
            "indivisible",
        ),
    ],
)
async def test_plans_that_do_not_fit_their_model_or_cluster(
    client: httpx.AsyncClient, changes: dict[str, Any], pointer: str, code: str
) -> None:
    await store_documents(client)
    plan = {**two_host_plan("host0/gpu0", "host1/gpu0"), **changes}
    for path in CALCULATIONS:
        response = await client.post(f"/v1/{path}", json={"plan": plan})
        assert response.status_code == 422, response.text
        errors = response.json()["errors"]
        found = {(error["code"], error["pointer"]) for error in errors}
        assert any(c == code and p.startswith(pointer) for c, p in found), errors


async def test_bodies_that_are_no_json_of_ours(client: httpx.AsyncClient) -> None:
    for content, content_type, status in (
        (_four_lines(), "text/plain", 415),
        (b'{"plan": ', "application/json", 400),
        (b'{"plan":' * 10_000, "application/json", 400),
        (b'{"plan": NaN}', "application/json", 400),
        (_four_lines().replace(b"0.006", b"1e999"), "application/json", 400),
        (b" " * (2**20 + 1), "application/json", 413),
    ):
        for path in CALCULATIONS:
            response = await client.post(
                f"/v1/{path}", content=content, headers={"Content-Type": content_type}
            )
            assert response.status_code == status, (content[:40], response.text)
            assert response.headers["content-type"] == "application/problem+json"


def _four_lines() -> bytes:
    return json.dumps({"plan": FOUR_LINES}).encode()


async def test_a_patch_that_spoils_a_stored_plan_is_pointed_at(client: httpx.AsyncClient) -> None:
    assert (await client.put("/v1/plans/four-lines", json=FOUR_LINES)).status_code == 201
    for path in CALCULATIONS:
        request = {"plan": "four-lines", "patch": {"parallelism": {"pipeline": 3}}}
        refused = await client.post(f"/v1/{path}", json=request)
        assert refused.status_code == 422
        (error,) = refused.json()["errors"]
        assert (error["pointer"], error["code"]) == ("/patch/parallelism/pipeline", "wrong_length")
        assert error["detail"].startswith("costs/stages: pipeline 3 x chunks_per_rank 1 = 3 stages")


async def test_peaks_are_the_same_without_simulating(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = {**FOUR_LINES["costs"]["stages"][0], "activation_bytes": 7, "recompute_seconds": 0.001}
    plan = {**FOUR_LINES, "costs": {"stages": [stage, stage]}}
    usual = (await client.post("/v1/live-activations", json={"plan": plan})).json()
    assert usual["simulated"] is True

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("nothing is simulated")

    monkeypatch.setattr("service.core.estimates.simulation.simulate_together", fail)
    asked = {"plan": plan, "simulate": False}
    response = await client.post("/v1/live-activations", json=asked)
    assert response.status_code == 200, response.text
    found = response.json()
    assert found["simulated"] is False
    for rank, other in zip(found["ranks"], usual["ranks"], strict=True):
        assert other.keys() - rank.keys() == {"at_seconds", "peak_bytes_at_seconds"}
        assert other["series"].keys() - rank["series"].keys() == {"at_seconds"}
        same = [name for name in rank if name != "series"]
        assert {name: rank[name] for name in same} == {name: other[name] for name in same}
        assert rank["series"]["activations"] == other["series"]["activations"]
        assert rank["series"]["recomputed"] == other["series"]["recomputed"]
    # Of what is said of it, that transfers and devices take time is no part.
    assert [said["code"] for said in found["represented"]] == ["operations"]
    assert found["not_represented"] == usual["not_represented"]
    assert found["ranks"][0]["at_operation"] == "0F1"
    assert found["ranks"][0]["peak_bytes_at_operation"] == "0F1"


async def test_what_is_wrong_with_an_order_is_told_without_simulating(
    client: httpx.AsyncClient,
) -> None:
    plan = {**FOUR_LINES, "schedule": {"kind": "chimera"}, "workload": {"microbatches": 3}}
    answers = [
        await client.post("/v1/live-activations", json={"plan": plan, "simulate": simulate})
        for simulate in (True, False)
    ]
    problems = [answer.json()["errors"] for answer in answers]
    assert answers[1].status_code == 422
    assert problems[0] == problems[1]
    assert problems[0][0]["pointer"] == "/plan/workload/microbatches"
