"""Transfer modes over HTTP: what each answer says, and who held which link."""

import json
from typing import Any

import httpx
import pytest

from tests.api.price_requests import FOUR_LINES, store_documents

STAGES = [
    {"forward_seconds": 0.001, "backward_seconds": 0.002, "boundary_bytes": 200_000_000},
    {"forward_seconds": 0.001, "backward_seconds": 0.002, "boundary_bytes": 200_000_000},
    {"forward_seconds": 0.001, "backward_seconds": 0.002},
]


def plan_of(mode: str | None, **schedule: Any) -> dict[str, Any]:
    """Three stages, the middle one on another host, so both boundaries cross its one NIC."""
    asked = {} if mode is None else {"transfer_mode": mode}
    return {
        "topology": "two-hosts",
        "costs": {"stages": STAGES},
        "schedule": {"kind": "1f1b", **asked, **schedule},
        "workload": {"microbatches": 8},
        "parallelism": {"pipeline": 3},
        "placement": {"devices": ["host0/gpu0", "host1/gpu0", "host0/gpu1"]},
    }


async def post(client: httpx.AsyncClient, path: str, **request: Any) -> Any:
    response = await client.post(f"/v1/{path}", json=request)
    assert response.status_code in {200, 201}, response.text
    return response.json()


async def test_the_mode_is_named_and_its_terms_are_there(client: httpx.AsyncClient) -> None:
    await store_documents(client)
    answers = {
        mode: await post(client, "estimates", plan=plan_of(mode))
        for mode in (None, "link", "latency", "blocking")
    }
    assert answers[None]["transfer_mode"] == answers["link"]["transfer_mode"] == "link"
    assert answers[None]["bubble"] == answers["link"]["bubble"]
    for mode in ("link", "latency", "blocking"):
        answer = answers[mode]
        assert answer["transfer_mode"] == mode
        bubble, path = answer["bubble"], answer["critical_path"]
        for rank in bubble["ranks"]:
            seconds = [value for name, value in rank.items() if name.endswith("_seconds")]
            assert sum(seconds) == pytest.approx(bubble["makespan_seconds"])
        parts = sum(path["stage_seconds"])
        parts += sum(share["seconds"] for share in path["transfer_seconds"])
        of_links = path.get("link_seconds", [])
        parts += sum(share["queued_seconds"] for share in of_links)
        assert parts == pytest.approx(bubble["makespan_seconds"])
        queues = mode == "link"
        assert ("link_seconds" in path) is queues
        if queues:
            occupied = sum(share["occupied_seconds"] for share in of_links)
            transfers = sum(share["seconds"] for share in path["transfer_seconds"])
            assert occupied + path["off_link_seconds"] == pytest.approx(transfers)
            assert any("link" in step for step in path["steps"])
        for share in path["transfer_seconds"]:
            assert ("bottleneck_link" in share) is not queues
        assert ("sensitivity" in answer) is not queues
        waits = sum(rank["contention_wait_seconds"] for rank in bubble["ranks"])
        sends = sum(rank["send_seconds"] for rank in bubble["ranks"])
        assert (waits > 0, sends > 0) == (queues, mode == "blocking")
        queued = [
            way["queued_seconds"]
            for boundary in answer["boundary_transfers"]["boundaries"]
            for way in (boundary["forward"], boundary["backward"])
        ]
        assert any(queued) is queues
        left_out = {said["code"] for said in answer["not_represented"]}
        assert ("contention" in left_out) is not queues
        assert ("critical_path_links" in left_out) is not queues
    assert answers["link"]["bubble"]["contention_seconds"] > 0
    for share in answers["link"]["critical_path"]["link_seconds"]:
        queued = share["queued_seconds"] > 0
        assert not queued or "nic0" in share["link"] or "gpu0" in share["link"]
        assert share["occupied_seconds"] + share["queued_seconds"] > 0
    for mode in ("latency", "blocking"):
        for share in answers[mode]["critical_path"]["transfer_seconds"]:
            (boundary,) = (
                boundary
                for boundary in answers[mode]["boundary_transfers"]["boundaries"]
                if boundary["source_stage"] == share["source_stage"]
                and boundary["target_stage"] == share["target_stage"]
            )
            (pair,) = boundary["pairs"]
            assert share["bottleneck_link"] == pair[share["direction"]]["path"]["bottleneck"]
    assert any(step.get("queued_behind") for step in answers["link"]["critical_path"]["steps"])
    # The middle device works 3 ms for a microbatch and sends 400 MB: 8 ms at 50 GB/s.
    cadence = answers["link"]["cadence"]
    assert cadence["bound_seconds"] == pytest.approx(0.008)
    assert "nic0" in cadence["bound_set_by"]
    assert answers["latency"]["cadence"]["bound_set_by"] == "rank 0"


async def test_timelines_show_who_held_which_link(client: httpx.AsyncClient) -> None:
    await store_documents(client)
    answer = await post(client, "estimates", plan=plan_of(None))
    at = f"/v1/estimates/{answer['digest']}"
    timeline = (await client.get(f"{at}/timeline")).json()
    links = {link["link"]: link for link in timeline["links"]}
    assert len(links) == len(timeline["links"])
    for link in links.values():
        assert link["link"] == f"{link['source']}->{link['target']}"
        ends = [interval["end_seconds"] for interval in link["intervals"]]
        starts = [interval["start_seconds"] for interval in link["intervals"]]
        assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
        busy = sum(end - start for start, end in zip(starts, ends, strict=True))
        assert busy == pytest.approx(link["busy_seconds"])
        share = link["busy_seconds"] / timeline["makespan_seconds"]
        assert link["utilisation_fraction"] == pytest.approx(share)
    busiest = max(links.values(), key=lambda link: link["busy_seconds"])
    users = {(i["source_stage"], i["target_stage"], i["direction"]) for i in busiest["intervals"]}
    assert users in (
        {(0, 1, "backward"), (1, 2, "forward")},
        {(0, 1, "forward"), (1, 2, "backward")},
    )

    part = (await client.get(f"{at}/timeline?first_microbatch=2&last_microbatch=3&ranks=0")).json()
    shown = [interval for link in part["links"] for interval in link["intervals"]]
    assert {interval["microbatch"] for interval in shown} == {2, 3}
    assert {interval["target_stage"] for interval in shown} == {1}
    late = (await client.get(f"{at}/timeline?from_seconds=0.02&to_seconds=0.03")).json()
    for link in late["links"]:
        for interval in link["intervals"]:
            assert interval["end_seconds"] > 0.02
            assert interval["start_seconds"] < 0.03

    trace = json.loads((await client.get(f"{at}/trace.json")).content)
    lanes = {
        event["args"]["name"]
        for event in trace["traceEvents"]
        if event["ph"] == "M" and event["name"] == "thread_name" and event["pid"] == 4
    }
    assert lanes == set(links)
    on_links = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["pid"] == 4]
    assert len(on_links) == sum(len(link["intervals"]) for link in links.values())
    names = {e["name"] for e in trace["traceEvents"] if e["ph"] == "X" and e["pid"] == 2}
    assert "contention wait" in names

    without = await post(client, "estimates", plan=plan_of("blocking"))
    at = f"/v1/estimates/{without['digest']}"
    assert "links" not in (await client.get(f"{at}/timeline")).json()
    trace = json.loads((await client.get(f"{at}/trace.json")).content)
    names = {e["name"] for e in trace["traceEvents"] if e["ph"] == "X" and e["pid"] == 2}
    assert "send" in names
    assert not any(event["pid"] == 4 for event in trace["traceEvents"])


async def test_exact_gains_are_offered_in_every_mode(client: httpx.AsyncClient) -> None:
    await store_documents(client)
    changes = [
        {
            "changed": "transfer",
            "source_stage": 0,
            "target_stage": 1,
            "direction": "forward",
            "factor": 0.5,
        },
        {"changed": "operation", "stage": 1, "kind": "backward", "seconds": 0.001},
    ]
    for mode in ("latency", "blocking", "link"):
        answer = await post(client, "sensitivities", plan=plan_of(mode), changes=changes)
        queues = mode == "link"
        assert ("sensitivity" in answer) is not queues
        for effect in answer["changes"]:
            gain = answer["makespan_seconds"] - effect["makespan_seconds"]
            assert effect["gain_seconds"] == pytest.approx(gain)
            assert ("gain_bound_seconds" in effect) is not queues
            if not queues:
                assert effect["gain_seconds"] <= effect["gain_bound_seconds"] + 1e-12
        left_out = {said["code"] for said in answer["not_represented"]}
        assert ("sensitivity" in left_out) is queues


async def test_links_without_a_topology_are_refused(client: httpx.AsyncClient) -> None:
    plan = {**FOUR_LINES, "schedule": {"kind": "1f1b", "transfer_mode": "link"}}
    response = await client.post("/v1/bubble", json={"plan": plan})
    assert response.status_code == 422
    (error,) = response.json()["errors"]
    assert error["pointer"] == "/plan/schedule/transfer_mode"
    assert "name the topology" in error["detail"]


async def test_without_a_pace_a_pipeline_that_is_never_drained_has_bounds_and_no_prediction(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.core.schedules.simulated_pace.MOST_SIMULATED_EVENTS", 0)
    await store_documents(client)
    plan = plan_of("link", kind="pipedream")
    answer = await post(client, "estimates", plan=plan, asserted_iteration_seconds=100.0)
    assert "iteration_seconds" not in answer
    assert "steady_seconds" not in answer["cadence"]
    assert answer["cadence"]["no_steady_reason"] == "too_large"
    left_out = {said["code"]: said["detail"] for said in answer["not_represented"]}
    assert "never drained" in left_out["iteration"]
    assert "too many" in left_out["steady_cadence"]
    assert answer["bubble"]["makespan_seconds"] > 0
    assert answer["lower_bounds"]
    for bound in answer["lower_bounds"]:
        assert "above_prediction" not in bound
    assert answer["verdict"]["verdict"] == "not_below_lower_bound"
    least = max(bound["seconds"] for bound in answer["lower_bounds"])
    below = await post(client, "estimates", plan=plan, asserted_iteration_seconds=least / 2)
    assert below["verdict"]["verdict"] == "below_lower_bound"
    text = await client.get(f"/v1/estimates/{answer['digest']}/timeline.svg")
    assert text.status_code == 200
