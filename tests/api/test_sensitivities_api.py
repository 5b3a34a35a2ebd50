"""Sensitivities over HTTP: derivatives, exact gains of given changes, refusals with pointers."""

from typing import Any, get_args, get_type_hints

import httpx
import pytest

from service.api.schemas.sensitivities import ChangedOperation, sensitivity_terms
from service.core.schedules.critical_path import find_critical_path
from service.core.schedules.program import OpKind
from service.core.schedules.sensitivity import measure_sensitivity
from tests.api.price_requests import FOUR_LINES, cadence_plan, store_documents, two_host_plan
from tests.core.schedules.plans import timeline

BEFORE = cadence_plan(18, 18, 25, 18)


async def ask(client: httpx.AsyncClient, **request: Any) -> dict[str, Any]:
    response = await client.post("/v1/sensitivities", json=request)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def operation(stage: int, kind: str, **new: float) -> dict[str, Any]:
    return {"changed": "operation", "stage": stage, "kind": kind, **new}


def transfer(source: int, target: int, direction: str, **new: float) -> dict[str, Any]:
    return {
        "changed": "transfer",
        "source_stage": source,
        "target_stage": target,
        "direction": direction,
        **new,
    }


async def test_derivatives_of_the_slow_stage(client: httpx.AsyncClient) -> None:
    answer = await ask(client, plan=BEFORE)
    assert answer["changes"] == []
    assert answer["makespan_seconds"] == pytest.approx(0.447)
    operations = answer["sensitivity"]["operations"]
    slopes = {(o["stage"], o["kind"]): o["makespan_seconds_per_second"] for o in operations}
    assert [slopes[stage, "forward"] for stage in range(4)] == [1, 1, 15, 2]
    assert [slopes[stage, "backward"] for stage in range(4)] == [1, 1, 15, 2]
    assert sum(o["path_seconds"] for o in operations) == pytest.approx(0.447)
    transfers = answer["sensitivity"]["transfers"]
    boundaries = {(t["source_stage"], t["target_stage"], t["direction"]) for t in transfers}
    assert boundaries == {(s, s + 1, d) for s in range(3) for d in ("forward", "backward")}
    assert "at most" in answer["sensitivity"]["meaning"]


async def test_an_estimate_has_the_same_sensitivity_and_the_slack(
    client: httpx.AsyncClient,
) -> None:
    response = await client.post("/v1/estimates", json={"plan": BEFORE})
    estimate = response.json()
    assert estimate["sensitivity"] == (await ask(client, plan=BEFORE))["sensitivity"]
    slack = estimate["slack"]
    assert [entry["stage"] for entry in slack["stages"]] == [0, 1, 2, 3]
    assert [entry["kind"] for entry in slack["kinds"]] == ["forward", "backward"]
    assert len(slack["operations"]) == 8
    on_path = {(o["stage"], o["kind"]) for o in slack["operations"] if o["slack_seconds"] == 0}
    assert (2, "forward") in on_path
    columns = (await client.get(f"/v1/estimates/{estimate['digest']}/timeline")).json()
    for entry in slack["operations"]:
        times = zip(columns["stage"], columns["kind"], columns["slack_seconds"], strict=True)
        mine = [
            time for stage, kind, time in times if (stage, kind) == (entry["stage"], entry["kind"])
        ]
        assert entry["slack_seconds"] == min(mine)


def test_a_boundary_of_two_directions_is_one_on_the_wire() -> None:
    line = timeline("dualpipe", 4, [10, 20], latency=1, halves=([2, 3], [4, 5]))
    core = measure_sensitivity(line, find_critical_path(line))
    wire = sensitivity_terms(line, core)
    found = [(t.source_stage, t.target_stage, t.direction) for t in wire.transfers]
    assert found == [(0, 1, "forward"), (0, 1, "backward")]
    for transfer_out, gradient in zip(wire.transfers, (False, True), strict=True):
        both = [core.transfers[index, gradient] for index in (0, 1)]
        assert transfer_out.makespan_seconds_per_second == sum(d.on_path for d in both)
        assert transfer_out.path_seconds == sum(d.picoseconds for d in both) / 1e12


def test_the_kinds_that_can_be_changed_are_those_of_operations() -> None:
    kind = get_type_hints(ChangedOperation)["kind"]
    assert [OpKind[name.upper()] for name in get_args(kind)] == list(OpKind)


async def test_exact_gains_beside_their_bounds(client: httpx.AsyncClient) -> None:
    changes = [
        operation(2, "backward", factor=0.9),
        operation(2, "backward", factor=0.5),
        operation(0, "forward", seconds=0.012),
        transfer(1, 2, "forward", seconds=0.004),
    ]
    answer = await ask(client, plan=BEFORE, changes=changes)
    assert [effect["change"] for effect in answer["changes"]] == changes
    slope = {
        (o["stage"], o["kind"]): o["makespan_seconds_per_second"]
        for o in answer["sensitivity"]["operations"]
    }
    for effect, key in zip(
        answer["changes"], [(2, "backward")] * 2 + [(0, "forward")], strict=False
    ):
        saved = effect["before_seconds"] - effect["after_seconds"]
        assert effect["gain_bound_seconds"] == pytest.approx(slope[key] * saved)
    for effect in answer["changes"]:
        assert effect["gain_seconds"] <= effect["gain_bound_seconds"]
        difference = answer["makespan_seconds"] - effect["makespan_seconds"]
        assert effect["gain_seconds"] == pytest.approx(difference)
    little, much, slower, hop = answer["changes"]
    assert little["after_seconds"] == pytest.approx(0.9 * 0.05 / 3)
    assert little["gain_seconds"] == pytest.approx(little["gain_bound_seconds"])
    assert 0 < much["gain_seconds"] < much["gain_bound_seconds"]
    assert slower["gain_seconds"] < 0
    assert hop["before_seconds"] == 0


async def test_a_gain_is_what_the_patched_plan_has(client: httpx.AsyncClient) -> None:
    """1F1B keeps its order whatever the times, so both what-ifs agree."""
    faster = cadence_plan(18, 18, 25, 18)["costs"]["stages"]
    faster[2]["backward_seconds"] = 0.012
    patched = await ask(client, plan=BEFORE, patch={"costs": {"stages": faster}})
    change = operation(2, "backward", seconds=0.012)
    changed = await ask(client, plan=BEFORE, changes=[change])
    assert changed["changes"][0]["makespan_seconds"] == patched["makespan_seconds"]


async def test_a_profiled_plan_by_name_with_a_patch(client: httpx.AsyncClient) -> None:
    await store_documents(client)
    plan = two_host_plan("host0/gpu0", "host1/gpu0")
    assert (await client.put("/v1/plans/chain", json=plan)).status_code == 201
    answer = await ask(
        client,
        plan="chain",
        patch={"workload": {"microbatches": 4}},
        changes=[transfer(0, 1, "backward", factor=0)],
    )
    assert answer["workload"]["microbatches"] == 4
    assert "chain@1" in [pin["reference"] for pin in answer["pins"]]
    assert answer["changes"][0]["after_seconds"] == 0
    assert answer["changes"][0]["gain_seconds"] > 0


@pytest.mark.parametrize(
    ("change", "status", "pointer", "code"),
    [
        (operation(4, "forward", factor=1), 422, "stage", "out_of_range"),
        (operation(0, "recompute", factor=1), 422, "kind", "inconsistent"),
        (operation(0, "forward"), 422, "seconds", "missing_field"),
        (operation(0, "forward", factor=1, seconds=1), 422, "factor", "exclusive_fields"),
        (operation(0, "forward", seconds=1e-15), 422, "seconds", "too_small_to_represent"),
        (operation(0, "forward", factor=1e-14), 422, "factor", "too_small_to_represent"),
        (transfer(0, 2, "forward", seconds=1), 422, "target_stage", "inconsistent"),
        (transfer(3, 4, "forward", seconds=1), 422, "source_stage", "inconsistent"),
        (operation(-1, "forward", factor=1), 400, "stage", "out_of_range"),
        (operation(0, "sideways", factor=1), 400, "kind", "unknown_value"),
        (operation(0, "forward", factor=-1), 400, "factor", "out_of_range"),
        (operation(0, "forward", factor=1, ratio=2), 400, "ratio", "unknown_field"),
        (transfer(0, 1, "up", seconds=1), 400, "direction", "unknown_value"),
        ({"stage": 0, "kind": "forward", "factor": 1}, 400, "changed", "missing_field"),
        ({**operation(0, "forward"), "changed": "rank"}, 400, "changed", "unknown_value"),
    ],
)
async def test_changes_of_what_is_not_there(
    client: httpx.AsyncClient, change: dict[str, Any], status: int, pointer: str, code: str
) -> None:
    changes = [operation(0, "forward", factor=0.5), change]
    response = await client.post("/v1/sensitivities", json={"plan": BEFORE, "changes": changes})
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    found = [(error["pointer"], error["code"]) for error in response.json()["errors"]]
    assert found == [(f"/changes/1/{pointer}", code)]


async def test_all_faults_of_all_changes_are_listed(client: httpx.AsyncClient) -> None:
    changes = [operation(7, "forward"), transfer(0, 3, "forward"), operation(0, "recompute")]
    response = await client.post("/v1/sensitivities", json={"plan": BEFORE, "changes": changes})
    assert response.status_code == 422
    assert sorted(error["pointer"] for error in response.json()["errors"]) == [
        "/changes/0/seconds",
        "/changes/0/stage",
        "/changes/1/seconds",
        "/changes/1/target_stage",
        "/changes/2/kind",
        "/changes/2/seconds",
    ]


async def test_too_many_changes_and_too_much_work(client: httpx.AsyncClient) -> None:
    change = operation(0, "forward", factor=0.5)
    body = {"plan": FOUR_LINES, "changes": [change] * 65}
    response = await client.post("/v1/sensitivities", json=body)
    assert response.status_code == 400, response.text
    assert [error["pointer"] for error in response.json()["errors"]] == ["/changes"]

    long = {**FOUR_LINES, "workload": {"microbatches": 400_000}}
    response = await client.post("/v1/sensitivities", json={"plan": long, "changes": [change] * 64})
    assert response.status_code == 422, response.text
    (error,) = response.json()["errors"]
    assert (error["pointer"], error["code"]) == ("/plan/workload/microbatches", "work_budget")
    assert "72 runs" in error["detail"]
