"""Every schedule over HTTP: estimates, timelines, refusals with pointers."""

import csv
import io
from typing import Any

import httpx
import pytest

from service.core.schedules.catalogue import SCHEDULES
from service.formats.documents.schedule import ScheduleKind
from tests.api.example_documents import store_examples
from tests.api.price_requests import CALCULATIONS

STAGE = {
    "forward_seconds": 0.010,
    "backward_input_seconds": 0.010,
    "backward_weight_seconds": 0.010,
    "activation_bytes": 1000,
}
# On 2 ranks: the order of 1F1B with the weight half of the first backward late.
ORDER = [
    "0F0 0F1 0I0 0F2 0I1 0W0 0W1 0F3 0B2 0B3",
    "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3",
]


def plan(kind: str, **schedule: Any) -> dict[str, Any]:
    """Two ranks, four microbatches, equal thirds."""
    chunks = SCHEDULES[kind].chunks or 1
    if kind == "explicit":
        schedule = {"order": ORDER, **schedule}
    return {
        "costs": {"stages": [STAGE] * (2 * schedule.get("chunks_per_rank", chunks))},
        "workload": {"microbatches": 4, "microbatch_size": 1},
        "schedule": {"kind": kind, **schedule},
    }


async def refused(client: httpx.AsyncClient, asked: dict[str, Any]) -> list[tuple[str, str]]:
    response = await client.post("/v1/estimates", json={"plan": asked})
    assert response.status_code == 422, response.text
    return [(error["pointer"], error["code"]) for error in response.json()["errors"]]


def test_the_contract_names_every_schedule() -> None:
    assert {kind.value for kind in ScheduleKind} == set(SCHEDULES)


@pytest.mark.parametrize("kind", SCHEDULES)
async def test_every_schedule_is_estimated_and_drawn(client: httpx.AsyncClient, kind: str) -> None:
    response = await client.post("/v1/estimates", json={"plan": plan(kind)})
    assert response.status_code == 201, response.text
    answer = response.json()
    for bound in answer["lower_bounds"]:
        assert bound["seconds"] <= answer["iteration_seconds"] or bound["above_prediction"]
    assert ("steady_seconds" in answer["cadence"]) == (SCHEDULES[kind].period is not None)
    assert ("weight_versions" in answer) == (SCHEDULES[kind].update is not None)

    place = f"/v1/estimates/{answer['digest']}"
    timeline = (await client.get(f"{place}/timeline")).json()
    assert len(timeline["kind"]) == timeline["operations"]
    rows = list(csv.DictReader(io.StringIO((await client.get(f"{place}/timeline.csv")).text)))
    assert len(rows) == timeline["operations"]
    for suffix in ("timeline.svg", "timeline.txt", "trace.json"):
        drawn = await client.get(f"{place}/{suffix}")
        assert drawn.status_code == 200, (suffix, drawn.text)
    for path in CALCULATIONS[:-2]:
        assert (await client.post(f"/v1/{path}", json={"plan": plan(kind)})).status_code == 200


async def test_the_closed_form_is_named_and_so_is_why_it_fails(client: httpx.AsyncClient) -> None:
    asked = plan("zb_h2")
    bubble = (await client.post("/v1/bubble", json={"plan": asked})).json()
    assert bubble["ideal_utilisation"]["span_seconds"] == pytest.approx(bubble["span_seconds"])
    assert bubble["ideal_utilisation"]["utilisation_fraction"] == 1
    assert "closed_form_fails" not in bubble
    patch = {"workload": {"microbatches": 2}}
    bubble = (await client.post("/v1/bubble", json={"plan": asked, "patch": patch})).json()
    assert "ideal_utilisation" not in bubble
    assert "fewer than 2P - 1 microbatches" in bubble["closed_form_fails"]["reason"]
    gpipe = (await client.post("/v1/bubble", json={"plan": plan("gpipe")})).json()
    assert gpipe["ideal_utilisation"]["makespan_seconds"] == gpipe["makespan_seconds"]


async def test_two_directions_and_turns_are_told_apart(client: httpx.AsyncClient) -> None:
    async def boundaries(kind: str) -> list[dict[str, Any]]:
        response = await client.post("/v1/boundary-transfers", json={"plan": plan(kind)})
        found: list[dict[str, Any]] = response.json()["boundaries"]
        return found

    two_way = await boundaries("chimera")
    assert [b["pipeline_direction"] for b in two_way] == [0, 1]
    assert [b["pairs"][0]["source_rank"] for b in two_way] == [0, 1]
    assert [b["forward"]["messages_per_iteration"] for b in two_way] == [2, 2]
    v_shaped = await boundaries("zb_v")
    assert [b["origin"] for b in v_shaped] == ["assumed_zero", "local", "assumed_zero"]
    assert v_shaped[1]["forward"]["messages_per_iteration"] == 0
    assert "pipeline_direction" not in v_shaped[0]
    cadence = (await client.post("/v1/cadence", json={"plan": plan("chimera")})).json()
    assert [(s["rank"], s["second_rank"]) for s in cadence["stages"]] == [(0, 1), (1, 0)]


async def test_fused_pairs_are_shown_with_both_halves(client: httpx.AsyncClient) -> None:
    asked = plan("dualpipe_v")
    asked["costs"]["stages"] = [{**STAGE, "pair_seconds": 0.025}] * 4
    answer = (await client.post("/v1/estimates", json={"plan": asked})).json()
    timeline = (await client.get(f"/v1/estimates/{answer['digest']}/timeline")).json()
    pairs = [i for i, kind in enumerate(timeline["kind"]) if kind == "forward_backward"]
    assert pairs
    for i in pairs:
        assert timeline["stage"][i] + timeline["backward_stage"][i] == 3
        lasted = timeline["end_seconds"][i] - timeline["start_seconds"][i]
        assert lasted == pytest.approx(0.025)
    serial = {"schedule": {"pair_mode": "serial"}}
    other = (await client.post("/v1/estimates", json={"plan": asked, "patch": serial})).json()
    assert "forward_backward" not in other["critical_path"]["kind_seconds"]


async def test_weight_versions_of_what_is_never_drained(client: httpx.AsyncClient) -> None:
    answer = (await client.post("/v1/estimates", json={"plan": plan("pipedream")})).json()
    assert answer["iteration_seconds"] == pytest.approx(4 * 0.03)
    assert answer["bubble"]["makespan_seconds"] == pytest.approx(5 * 0.03)
    assert answer["samples_per_second"] == pytest.approx(1 / 0.03)
    assert answer["weight_versions"]["ranks"] == [
        {"rank": 0, "copies": 2, "delay_updates": 1, "versions": [0, 0, 1, 2]},
        {"rank": 1, "copies": 1, "delay_updates": 0, "versions": [0, 1, 2, 3]},
    ]
    assert "drained_run" in {said["code"] for said in answer["assumptions"]}


async def test_a_patch_of_the_kind_is_a_what_if(client: httpx.AsyncClient) -> None:
    times = {}
    for kind in ("1f1b", "zb_h1", "zb_h2", "pipedream"):
        patch = {"schedule": {"kind": kind}, "workload": {"microbatches": 8}}
        asked = {"plan": plan("gpipe"), "patch": patch}
        times[kind] = (await client.post("/v1/estimates", json=asked)).json()["iteration_seconds"]
    assert times["1f1b"] > times["zb_h1"] >= times["zb_h2"] > times["pipedream"]


@pytest.mark.parametrize(
    ("kind", "schedule", "pointer", "code"),
    [
        ("zb_v", {"chunks_per_rank": 1}, "/plan/schedule/chunks_per_rank", "illegal_schedule"),
        ("1f1b", {"group_size": 2}, "/plan/schedule/group_size", "exclusive_fields"),
        ("1f1b", {"pair_mode": "fused"}, "/plan/schedule/pair_mode", "exclusive_fields"),
        ("1f1b", {"order": ORDER}, "/plan/schedule/order", "exclusive_fields"),
        ("interleaved_1f1b", {"group_size": 3}, "/plan/schedule/group_size", "illegal_schedule"),
        ("explicit", {"order": ["0F0 0B0", "1F0 X"]}, None, None),
        ("explicit", {"order": ["0F0 0", "1F0 1B0"]}, "/plan/schedule/order/0", "unreadable"),
        ("explicit", {"order": ORDER[:1]}, "/plan/costs/stages", "wrong_length"),
        (
            "zb_h1",
            {"memory_limit_activations": 2},
            "/plan/schedule/memory_limit_activations",
            "exclusive_fields",
        ),
    ],
)
async def test_what_a_schedule_refuses_is_pointed_at(
    client: httpx.AsyncClient,
    kind: str,
    schedule: dict[str, Any],
    pointer: str | None,
    code: str | None,
) -> None:
    asked = plan(kind, **schedule)
    if pointer is None:
        response = await client.post("/v1/estimates", json={"plan": asked})
        assert response.status_code == 400
        assert response.json()["errors"][0]["pointer"] == "/plan/schedule/order/1"
        return
    assert (pointer, code) in await refused(client, asked)
    stored = await client.put("/v1/plans/refused", json=asked)
    assert stored.status_code == 422
    found = {error["pointer"] for error in stored.json()["errors"]}
    assert pointer.removeprefix("/plan") in found


async def test_zb_auto_keeps_its_limit_and_says_what_it_was_made_for(
    client: httpx.AsyncClient,
) -> None:
    times = []
    for limit in (1, 2, 4):
        asked = plan("zb_auto", memory_limit_activations=limit)
        answer = (await client.post("/v1/estimates", json={"plan": asked})).json()
        assert max(r["peak_activations"] for r in answer["live_activations"]["ranks"]) <= limit
        (said,) = [a for a in answer["assumptions"] if a["code"] == "order_for_times"]
        assert f"at most {limit} activation" in said["detail"]
        assert answer["plan"]["schedule"]["memory_limit_activations"] == limit
        times.append(answer["iteration_seconds"])
    assert times == sorted(times, reverse=True)
    assert times[0] > times[-1]
    asked = plan("zb_auto", transfer_mode="blocking")
    answer = (await client.post("/v1/estimates", json={"plan": asked})).json()
    (said,) = [a for a in answer["assumptions"] if a["code"] == "order_for_times"]
    assert "as if no transfer held its sender" in said["detail"]
    # Two activations on two ranks are the default, but another plan, so another digest.
    usual = (await client.post("/v1/estimates", json={"plan": plan("zb_auto")})).json()
    assert usual["iteration_seconds"] == times[1]


async def test_zb_auto_keeps_its_limit_where_microbatches_differ(client: httpx.AsyncClient) -> None:
    sizes = [300, 1000, 200, 700]
    stage = {
        **STAGE,
        "forward_seconds": [0.01, 0.03, 0.005, 0.02],
        "activation_bytes": sizes,
        "transfer_seconds": [0.001, 0.003, 0.0005, 0.002],
    }
    last = {key: value for key, value in stage.items() if key != "transfer_seconds"}
    for limit in (1, 2):
        asked = plan("zb_auto", memory_limit_activations=limit)
        asked["costs"]["stages"] = [stage, last]
        response = await client.post("/v1/estimates", json={"plan": asked})
        assert response.status_code == 201, response.text
        answer = response.json()
        peaks = [rank["peak_bytes"] for rank in answer["live_activations"]["ranks"]]
        assert max(peaks) <= limit * max(sizes)
        (said,) = [a for a in answer["assumptions"] if a["code"] == "order_for_times"]
        assert "means of stage times and transfers" in said["detail"]


async def test_a_whole_backward_is_not_enough_where_it_is_split(client: httpx.AsyncClient) -> None:
    asked = plan("zb_h1")
    asked["costs"]["stages"] = [{"forward_seconds": 0.01, "backward_seconds": 0.02}] * 2
    assert await refused(client, asked) == [
        (f"/plan/costs/stages/{number}/backward_seconds", "missing_field") for number in range(2)
    ]
    asked = plan("zb_h1")
    deltas = {"forward_bytes": 10, "backward_input_bytes": -4, "backward_weight_bytes": -5}
    stage = {k: v for k, v in STAGE.items() if k != "activation_bytes"}
    asked["costs"]["stages"] = [{**stage, "activation_deltas": deltas}, STAGE]
    assert await refused(client, asked) == [
        ("/plan/costs/stages/0/activation_deltas", "inconsistent")
    ]


async def test_work_is_refused_before_it_is_done(client: httpx.AsyncClient) -> None:
    for kind in SCHEDULES:
        if kind == "explicit":
            continue
        asked = plan(kind)
        asked["workload"]["microbatches"] = 2**30
        response = await client.post("/v1/estimates", json={"plan": asked})
        assert response.status_code == 422
        assert {error["code"] for error in response.json()["errors"]} == {"work_budget"}


@pytest.mark.parametrize("kind", ["1f1b", "gpipe", "zb_h1", "zb_h2", "zb_auto"])
async def test_the_example_plan_can_be_asked_under_other_schedules(
    client: httpx.AsyncClient, kind: str
) -> None:
    # Its profile has both halves of every backward, so that what splits it needs nothing more.
    await store_examples(client)
    body = {"plan": "gpt-two-hosts", "patch": {"schedule": {"kind": kind}}}
    answer = (await client.post("/v1/bubble", json=body)).json()
    plain = (await client.post("/v1/bubble", json={"plan": "gpt-two-hosts"})).json()
    if kind.startswith("zb"):
        assert answer["span_seconds"] < plain["span_seconds"]
    else:
        assert answer["span_seconds"] >= plain["span_seconds"]
