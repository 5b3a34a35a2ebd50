"""The ways between two devices over HTTP."""

from typing import Any

import httpx
import pytest

RAILS = {
    "hosts": [{"name": "host", "count": 2, "design": "dgx-h100"}],
    "fabric": {"kind": "rail_optimised"},
}


async def ask(client: httpx.AsyncClient, topology: dict[str, Any], **request: Any) -> Any:
    stored = await client.put("/v1/topologies/asked", json=topology)
    assert stored.status_code in {200, 201}, stored.text
    response = await client.post("/v1/topologies/asked/paths", json=request)
    assert response.status_code == 200, response.text
    return response.json()


async def test_the_pinned_path_and_what_forwards(client: httpx.AsyncClient) -> None:
    answer = await ask(
        client,
        RAILS,
        source="host0/gpu0",
        target="host1/gpu3",
        message_bytes=50_000_000,
        concurrent=[{"source": "host0/gpu3", "target": "host1/gpu3"}],
    )
    assert [(one["role"], one["kind"]) for one in answer["paths"]] == [
        ("pinned", "rail"),
        ("equal_cost", "rail"),
        ("pxn", "rail"),
    ]
    assert answer["equal_cost_alternatives"] == answer["forwarding_alternatives"] == 1
    assert answer["concurrent"] == [
        {"source": "host0/gpu3", "target": "host1/gpu3", "reachable": True, "kind": "rail"}
    ]
    pinned, _, forwarded = answer["paths"]
    assert [hop["kind"] for hop in pinned["hops"]] == [
        *("pcie", "host_bridge", "host_bridge", "pcie", "network", "network", "pcie", "pcie")
    ]
    assert pinned["source_nic"] == {"nic": "host0/nic3", "kind": "phb"}
    assert forwarded["source_nic"] == {"nic": "host0/nic3", "kind": "pxn"}
    assert forwarded["forwarded_by"] == "host0/gpu3"
    # 50 MB over a NIC of 50 GB/s nominal, 48 effective; 500 ns for each link of the network.
    assert pinned["lower_bound_seconds"] == pytest.approx(0.001)
    assert pinned["predicted_seconds"] == pytest.approx(50e6 / 48e9 + 1e-6)
    port = next(one for one in pinned["shared"] if one["level"] == "port")
    assert port == {
        "level": "port",
        "link": "host0/nic3->rail3",
        "bandwidth_bytes_per_second": 50e9,
        "pairs": [0],
        "equal_share_bytes_per_second": 25e9,
        "together_lower_bound_seconds": pytest.approx(0.002),
    }
    assert answer["pins"][0]["reference"] == "asked@1"
    assert {"pinned_paths", "cut_through", "latency_unknown", "topology"} <= {
        one["code"] for one in answer["assumptions"]
    }


async def test_what_is_unknown_of_a_path_is_absent_and_counted(client: httpx.AsyncClient) -> None:
    answer = await ask(client, RAILS, source="host0/gpu0", target="host1/gpu3")
    pinned = answer["paths"][0]
    # Nobody knows the latency of the six links inside the hosts, or the rate of host bridges.
    assert "latency_seconds" not in pinned
    assert pinned["links_without_latency"] == 6
    assert pinned["latency_floor_seconds"] == 0.0
    known = {hop["kind"]: hop.get("latency_seconds") for hop in pinned["hops"]}
    assert known == {"pcie": None, "host_bridge": None, "network": 5e-7}
    within = (await ask(client, RAILS, source="host0/gpu0", target="host0/gpu1"))["paths"][0]
    assert within["latency_seconds"] == pytest.approx(2 * 936.25e-9)
    assert "links_without_latency" not in within
    assert not any("bandwidth_assumed" in hop for hop in pinned["hops"] + within["hops"])


async def test_an_assumed_rate_is_marked_at_its_link(client: httpx.AsyncClient) -> None:
    answer = await ask(client, RAILS, source="host0/cpu0", target="host0/cpu1")
    (hop,) = answer["paths"][0]["hops"]
    assert (hop["kind"], hop["bandwidth_assumed"]) == ("socket", True)


async def test_without_a_size_there_are_no_times(client: httpx.AsyncClient) -> None:
    answer = await ask(client, RAILS, source="host0/gpu0", target="host0/gpu0")
    assert answer["reachable"] is True
    assert answer["paths"] == [
        {
            "hops": [],
            "latency_floor_seconds": 0.0,
            "latency_seconds": 0.0,
            "equal_cost_alternatives": 0,
            "role": "pinned",
            "kind": "local",
            "shared": [],
        }
    ]


async def test_what_nothing_joins_is_a_result(client: httpx.AsyncClient) -> None:
    answer = await ask(
        client,
        {"hosts": RAILS["hosts"]},
        source="host0/gpu0",
        target="host1/gpu0",
        message_bytes=1,
        concurrent=[{"source": "host0/gpu0", "target": "host1/gpu1"}],
    )
    assert (answer["reachable"], answer["paths"]) == (False, [])
    assert answer["concurrent"][0]["reachable"] is False


async def test_alternatives_are_listed_up_to_a_limit(client: httpx.AsyncClient) -> None:
    fabric = {"kind": "leaf_spine", "hosts_per_leaf": 1, "spines": 12}
    ends = {"source": "host0/gpu0", "target": "host1/gpu0"}
    answer = await ask(client, RAILS | {"fabric": fabric}, **ends, max_alternatives=3)
    assert answer["equal_cost_alternatives"] == 11
    spines = [one["hops"][3]["target"] for one in answer["paths"]]
    assert len(set(spines)) == 4
    answer = await ask(client, RAILS | {"fabric": fabric}, **ends, max_alternatives=0)
    assert [one["role"] for one in answer["paths"]] == ["pinned"]


async def test_an_old_revision_still_answers(client: httpx.AsyncClient) -> None:
    await ask(client, RAILS, source="host0/gpu0", target="host1/gpu0")
    await client.put("/v1/topologies/asked", json={"hosts": [{"name": "x", "design": "p4d"}]})
    request = {"source": "host0/gpu0", "target": "host1/gpu0"}
    assert (await client.post("/v1/topologies/asked@1/paths", json=request)).status_code == 200
    refused = await client.post("/v1/topologies/asked/paths", json=request)
    assert refused.status_code == 422
    assert {error["pointer"]: error["code"] for error in refused.json()["errors"]} == {
        "/source": "unknown_name",
        "/target": "unknown_name",
    }


@pytest.mark.parametrize(
    ("request_", "status", "pointers"),
    [
        ({"source": "host0/gpu0"}, 400, {"/target"}),
        ({"source": "host0/gpu0", "target": ""}, 400, {"/target"}),
        ({"source": "host0/gpu0", "target": "host1/gpu0", "size": 1}, 400, {"/size"}),
        (
            {"source": "host0/gpu0", "target": "host1/gpu0", "message_bytes": 2**53},
            400,
            {"/message_bytes"},
        ),
        (
            {
                "source": "host0/gpu0",
                "target": "host7/gpu0",
                "concurrent": [
                    {"source": "host0/gpu0", "target": "host1/gpu0"},
                    {"source": "host0", "target": "host1/gpu0"},
                ],
            },
            422,
            {"/target", "/concurrent/1/source"},
        ),
    ],
    ids=["no target", "empty", "unknown field", "too large", "unknown names"],
)
async def test_faults_name_their_place(
    client: httpx.AsyncClient, request_: dict[str, Any], status: int, pointers: set[str]
) -> None:
    await client.put("/v1/topologies/asked", json=RAILS)
    response = await client.post("/v1/topologies/asked/paths", json=request_)
    assert response.status_code == status, response.text
    assert {error["pointer"] for error in response.json()["errors"]} == pointers


async def test_no_such_topology(client: httpx.AsyncClient) -> None:
    request = {"source": "a", "target": "b"}
    assert (await client.post("/v1/topologies/none/paths", json=request)).status_code == 404
