"""Many transfers at once over HTTP."""

from typing import Any

import httpx
import pytest

GB = 1e9
RAILS = {
    "hosts": [{"name": "host", "count": 2, "design": "dgx-h100"}],
    "fabric": {"kind": "rail_optimised"},
}
TORN = {"hosts": RAILS["hosts"]}
SIZE = 1_600_000_000  # 100 MB for each pair of sixteen devices


async def ask(client: httpx.AsyncClient, topology: dict[str, Any], **request: Any) -> Any:
    stored = await client.put("/v1/topologies/asked", json=topology)
    assert stored.status_code in {200, 201}, stored.text
    response = await client.post("/v1/topologies/asked/flows", json=request)
    assert response.status_code == 200, response.text
    return response.json()


async def test_an_all_to_all_over_any_route(client: httpx.AsyncClient) -> None:
    collective = {"kind": "all_to_all", "message_bytes": SIZE}
    answer = await ask(client, RAILS, collective=collective)
    assert answer["routing"] == "any"
    assert answer["devices"] == 16
    assert answer["method"] == "symmetric_linear_program"
    bounds = answer["lower_bounds"]
    # 64 pairs of 100 MB out of a host over 8 x 50 GB/s.
    assert bounds["cut"]["seconds"] == pytest.approx(64 * 0.1 / 400)
    assert bounds["cut"]["binding"] == {"kind": "host", "name": "host0", "direction": "out"}
    assert bounds["cut"]["demanded_bytes"] == 6.4e9
    assert bounds["cut"]["offered_bytes_per_second"] == 400e9
    assert {one["link"] for one in bounds["cut"]["witness"]} == {
        f"host0/nic{rail}->rail{rail}" for rail in range(8)
    }
    assert bounds["cut"]["witness_links"] == 8
    assert bounds["port"]["binding"]["kind"] == "device"
    assert bounds["port"]["seconds"] < bounds["cut"]["seconds"]
    assert bounds["concurrent_flow"]["seconds"] == bounds["cut"]["seconds"]
    assert answer["lower_bound_seconds"] == bounds["cut"]["seconds"]
    uses = answer["link_uses"]
    assert uses["basis"] == "optimal_routing"
    full = [one for one in uses["links"] if one["utilisation_fraction"] > 0.999]
    assert {one["link"].partition("->")[0].rstrip("01234567") for one in full} >= {
        "host0/nic",
        "rail",
    }
    assert answer["prediction"]["method"] == "all_at_once"
    assert answer["prediction"]["seconds"] > answer["lower_bound_seconds"]
    assert answer["unreachable"] == []
    assert {"routing", "nominal_capacity", "common_start", "prediction", "topology"} <= {
        one["code"] for one in answer["assumptions"]
    }
    assert answer["pins"][0]["reference"] == "asked@1"


async def test_the_same_with_a_matrix_and_on_pinned_paths(client: httpx.AsyncClient) -> None:
    """Equal blocks as a matrix give the same; what a device keeps does not count."""
    even = [[100_000_000] * 16 for _ in range(16)]
    collective = {"kind": "all_to_all", "demand_matrix": even}
    written = await ask(client, RAILS, collective=collective)
    assert written["method"] == "linear_program"
    flow = written["lower_bounds"]["concurrent_flow"]["seconds"]
    assert flow == pytest.approx(64 * 0.1 / 400)
    size = {"kind": "all_to_all", "message_bytes": SIZE}
    pinned = await ask(client, RAILS, collective=size, routing="pinned")
    assert pinned["method"] == "pinned_loads"
    assert pinned["link_uses"]["basis"] == "pinned_paths"
    bounds = pinned["lower_bounds"]
    # What binds is one link, and it is the tightest cut and the flow as well.
    assert bounds["link"]["binding"] == bounds["cut"]["binding"]
    assert bounds["cut"]["seconds"] == bounds["concurrent_flow"]["seconds"]
    (first, *_) = pinned["link_uses"]["links"]
    assert first["link"] == bounds["link"]["binding"]["name"]
    assert first["utilisation_fraction"] == pytest.approx(1.0)
    assert first["busy_seconds"] == pytest.approx(bounds["link"]["seconds"])
    assert pinned["prediction"]["seconds"] >= bounds["link"]["seconds"]


async def test_single_messages(client: httpx.AsyncClient) -> None:
    """Two messages into one device over its NIC of 50 GB/s nominal, 48 effective."""
    flows = [
        {"source": f"host0/gpu{i}", "target": "host1/gpu0", "message_bytes": 50_000_000}
        for i in range(2)
    ]
    flows.append({"source": "host0/gpu0", "target": "host0/gpu0", "message_bytes": 1})
    answer = await ask(client, RAILS, flows=flows, routing="pinned", max_links=2)
    assert answer["lower_bounds"]["link"]["seconds"] == pytest.approx(0.002)
    # Rails without spines: both leave by the NIC on the rail of the one they arrive at.
    assert answer["lower_bounds"]["link"]["binding"]["name"] == "host0/nic0->rail0"
    assert len(answer["link_uses"]["links"]) == 2
    assert answer["link_uses"]["used_links"] > 2
    predicted = answer["prediction"]["flows"]
    assert [one["source"] for one in predicted] == ["host0/gpu0", "host0/gpu1"]
    # 500 ns for each of two links of the network.
    assert predicted[0]["predicted_seconds"] == pytest.approx(0.1 / 48 + 1e-6)
    # Over any route other NICs help, as far as they are joined to the device.
    free = await ask(client, RAILS, flows=flows)
    assert free["method"] == "linear_program"
    assert free["lower_bound_seconds"] < answer["lower_bound_seconds"]
    assert "flows" in free["prediction"]


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce"])
async def test_gathering_collectives(client: httpx.AsyncClient, kind: str) -> None:
    collective = {"kind": kind, "devices": ["host0/gpu*"], "message_bytes": 8 * 10**9}
    for routing in ("any", "pinned"):
        answer = await ask(client, RAILS, collective=collective, routing=routing)
        assert answer["devices"] == 8
        bounds = answer["lower_bounds"]
        assert bounds["port"]["seconds"] <= bounds["cut"]["seconds"]
        assert bounds["cut"]["seconds"] <= bounds["concurrent_flow"]["seconds"]
        # The ring is one algorithm among those that are bounded.
        assert answer["prediction"]["method"] == answer["link_uses"]["basis"] == "ring"
        assert answer["lower_bound_seconds"] < answer["prediction"]["seconds"]
    turns = 2 if kind == "all_reduce" else 1
    # Pinned: the NVSwitch port alone, 450 GB/s; 7/8 of the message once or twice.
    assert bounds["concurrent_flow"]["seconds"] == pytest.approx(turns * 7 / 450)
    # Effective: 396 GB/s, and two links of 936.25 ns in each step.
    latency = turns * 7 * 2 * 936.25e-9
    assert answer["prediction"]["seconds"] == pytest.approx(turns * 7 / 396 + latency)


async def test_reduction_in_the_network(client: httpx.AsyncClient) -> None:
    collective = {
        "kind": "all_reduce",
        "devices": ["host0/gpu*"],
        "message_bytes": 8 * 10**9,
        "in_network_reduction": True,
    }
    answer = await ask(client, RAILS, collective=collective, routing="pinned")
    assert answer["lower_bound_seconds"] == pytest.approx(8 / 450)
    # Effective: 396 GB/s, and two links of 936.25 ns there and back.
    prediction = answer["prediction"]
    assert prediction["method"] == answer["link_uses"]["basis"] == "reduction_trees"
    assert prediction["seconds"] == pytest.approx(8 / 396 + 4 * 936.25e-9)
    assert {use["load_bytes"] for use in answer["link_uses"]["links"]} == {8e9}
    (told,) = (one for one in answer["assumptions"] if one["code"] == "prediction")
    assert "add up and copy" in told["detail"]


async def test_what_nothing_joins_is_a_result(client: httpx.AsyncClient) -> None:
    pair = {"source": "host0/gpu0", "target": "host1/gpu0"}
    for routing in ("any", "pinned"):
        flows = [
            {**pair, "message_bytes": 1},
            {"source": "host0/gpu0", "target": "host0/gpu1", "message_bytes": 450_000_000},
        ]
        answer = await ask(client, TORN, flows=flows, routing=routing)
        assert answer["unreachable"] == [pair]
        assert 0 < answer["lower_bound_seconds"] <= 0.001
        assert "prediction" not in answer
        answer = await ask(client, TORN, flows=flows[:1], routing=routing)
        assert "lower_bound_seconds" not in answer
        for kind in ("all_to_all", "all_gather", "all_reduce"):
            collective = {"kind": kind, "message_bytes": 16}
            answer = await ask(client, TORN, collective=collective, routing=routing)
            assert answer["lower_bounds"] == {}
            assert "lower_bound_seconds" not in answer
            assert (
                pair in answer["unreachable"]
                or {
                    "source": "host1/gpu0",
                    "target": "host0/gpu0",
                }
                in answer["unreachable"]
            )
            assert "unreachable" in {one["code"] for one in answer["not_represented"]}


async def test_nothing_moves(client: httpx.AsyncClient) -> None:
    flows = [{"source": "host0/gpu0", "target": "host0/gpu0", "message_bytes": 5}]
    for routing in ("any", "pinned"):
        answer = await ask(client, RAILS, flows=flows, routing=routing)
        assert (answer["lower_bounds"], answer["lower_bound_seconds"]) == ({}, 0)
        assert answer["prediction"] == {"seconds": 0, "method": "all_at_once", "flows": []}


@pytest.mark.parametrize("routing", ["any", "pinned"])
async def test_too_much_for_a_program_is_bounded_by_cuts(
    client: httpx.AsyncClient, routing: str
) -> None:
    """Unequal hosts by the dozen, so that nothing is like anything else."""
    hosts = [
        {
            "name": f"h{number}",
            "devices": [
                *({"name": f"gpu{i}", "kind": "gpu"} for i in range(8)),
                {"name": "nic0", "kind": "nic", "port_bytes_per_second": 1e9 + number},
                {"name": "pcie0", "kind": "pcie_switch"},
            ],
            "links": [
                {
                    "source": name,
                    "target": "pcie0",
                    "kind": "pcie",
                    "bandwidth_bytes_per_second": 16e9,
                }
                for name in [*(f"gpu{i}" for i in range(8)), "nic0"]
            ],
        }
        for number in range(36)
    ]
    topology = {"hosts": hosts, "fabric": {"kind": "leaf_spine", "hosts_per_leaf": 18, "spines": 2}}
    collective = {"kind": "all_to_all", "message_bytes": 36 * 8}
    answer = await ask(client, topology, collective=collective, routing=routing)
    assert answer["method"] == "cuts"
    bounds = answer["lower_bounds"]
    assert "concurrent_flow" not in bounds
    # A host's eight devices and the other 280 over the slowest NIC, 1 GB/s.
    assert bounds["cut"]["seconds"] == pytest.approx(8 * 280 / 1e9)
    assert "concurrent_flow" in {one["code"] for one in answer["not_represented"]}
    assert "prediction" not in answer


@pytest.mark.parametrize(
    ("request_", "status", "errors"),
    [
        ({}, 422, {"/flows": "missing_field"}),
        (
            {
                "flows": [{"source": "x", "target": "host0/gpu0", "message_bytes": 1}],
                "collective": {"kind": "all_to_all", "devices": ["host0/gpu0"]},
            },
            422,
            {
                "/flows": "exclusive_fields",
                "/flows/0/source": "unknown_name",
                "/collective/devices": "too_few_devices",
                "/collective/message_bytes": "missing_field",
            },
        ),
        (
            {"collective": {"kind": "all_gather", "devices": ["host0/nic0", "host[0", "host9/*"]}},
            422,
            {
                "/collective/devices/0": "unknown_name",
                "/collective/devices/1": "unreadable",
                "/collective/devices/2": "unknown_name",
                "/collective/message_bytes": "missing_field",
            },
        ),
        (
            {
                "collective": {
                    "kind": "all_gather",
                    "devices": ["host0/gpu[0-1]"],
                    "message_bytes": 4,
                    "demand_matrix": [[0, 1, 2]],
                    "in_network_reduction": True,
                }
            },
            422,
            {
                "/collective/demand_matrix": "wrong_length",
                "/collective/demand_matrix/0": "wrong_length",
                "/collective/in_network_reduction": "inconsistent",
            },
        ),
        ({"flows": []}, 400, {"/flows": "too_short"}),
        (
            {"flows": [{"source": "host0/gpu0", "target": "host0/gpu1", "message_bytes": -1}]},
            400,
            {"/flows/0/message_bytes": "out_of_range"},
        ),
        ({"collective": {"kind": "broadcast"}}, 400, {"/collective/kind": "unknown_value"}),
    ],
    ids=["nothing", "both", "devices", "matrix", "no flow", "negative", "unknown kind"],
)
async def test_faults_name_their_place(
    client: httpx.AsyncClient, request_: dict[str, Any], status: int, errors: dict[str, str]
) -> None:
    await client.put("/v1/topologies/asked", json=RAILS)
    response = await client.post("/v1/topologies/asked/flows", json=request_)
    assert response.status_code == status, response.text
    found = {error["pointer"]: error["code"] for error in response.json()["errors"]}
    assert found.keys() == errors.keys()
    for pointer, code in errors.items():
        assert status == 400 or found[pointer] == code, pointer


async def test_a_matrix_for_too_many_devices(client: httpx.AsyncClient) -> None:
    many = {"hosts": [{"name": "host", "count": 17, "design": "dgx-h100"}]}
    await client.put("/v1/topologies/asked", json=many)
    collective = {"kind": "all_to_all", "demand_matrix": [[1]]}
    response = await client.post("/v1/topologies/asked/flows", json={"collective": collective})
    assert response.status_code == 422
    assert {one["pointer"]: one["code"] for one in response.json()["errors"]} == {
        "/collective/devices": "work_budget"
    }


async def test_no_such_topology(client: httpx.AsyncClient) -> None:
    request = {"collective": {"kind": "all_to_all", "message_bytes": 1}}
    assert (await client.post("/v1/topologies/none/flows", json=request)).status_code == 404
