"""Allocations over HTTP: what they select, what crosses their middle, what is refused where."""

from typing import Any

import httpx
import pytest

LEAVES = {
    "hosts": [{"name": "host", "count": 4, "design": "dgx-h100"}],
    "fabric": {
        "kind": "leaf_spine",
        "hosts_per_leaf": 2,
        "spines": 2,
        "oversubscription_ratio": 4,
    },
}
ENDS = {"source": "host0/gpu0", "target": "host2/gpu0"}


async def store(client: httpx.AsyncClient) -> None:
    assert (await client.put("/v1/topologies/mine", json=LEAVES)).status_code in {200, 201}


async def ask(client: httpx.AsyncClient, allocation: dict[str, Any], **request: Any) -> Any:
    await store(client)
    body = {**ENDS, **request, "allocation": allocation}
    response = await client.post("/v1/topologies/mine/paths", json=body)
    assert response.status_code == 200, response.text
    return response.json()


RANKS = "".join(f"rank {number}=host{number // 4 * 2} slot={number % 4}\n" for number in range(8))


@pytest.mark.parametrize(
    ("allocation", "devices"),
    [
        ({"hosts": "host[0,2]"}, 16),
        ({"devices": ["host0/gpu*", "host2/gpu[0-7]"]}, 16),
        ({"rank_file": "host0:8\nhost2 slots=8\n"}, 16),
        ({"rank_file": RANKS}, 8),
    ],
    ids=["host list", "patterns", "machine file", "rankfile"],
)
async def test_the_middle_of_an_allocation(
    client: httpx.AsyncClient, allocation: dict[str, Any], devices: int
) -> None:
    """Hosts of two leaves: 800 GB/s come up to each, and a quarter of that leaves it."""
    answer = await ask(client, allocation)
    found = answer["allocation"]
    assert (found["hosts"], found["devices"]) == (2, devices)
    cut = found["host_bisection"]
    assert cut == {
        "bytes_per_second": 200e9,
        "exact": True,
        "partings": 1,
        "side": ["host0"],
        "side_size": 1,
        "others": 1,
        "crossing": ["leaf0->spine0", "leaf0->spine1"],
        "crossing_count": 2,
    }
    assert found["device_bisection"]["exact"] is (devices == 8)
    assert found["device_bisection"]["bytes_per_second"] <= 200e9
    told = [one for one in answer["assumptions"] if one["code"] == "allocation"]
    assert len(told) == ("rank_file" in allocation)


async def test_one_device_has_no_middle(client: httpx.AsyncClient) -> None:
    answer = await ask(client, {"devices": ["host0/gpu0"]}, target="host0/gpu0")
    assert answer["allocation"] == {"hosts": 1, "devices": 1}


async def test_without_an_allocation_there_is_none(client: httpx.AsyncClient) -> None:
    await store(client)
    answer = await client.post("/v1/topologies/mine/paths", json=ENDS)
    assert "allocation" not in answer.json()


@pytest.mark.parametrize(
    ("request_", "status", "expected"),
    [
        ({"allocation": {}}, 422, {"/allocation": "missing_field"}),
        (
            {"allocation": {"hosts": "host0", "devices": ["host0/gpu0"]}},
            422,
            {"/allocation": "exclusive_fields"},
        ),
        ({"allocation": {"hosts": "host[0-9]"}}, 422, {"/allocation/hosts": "unknown_name"}),
        ({"allocation": {"hosts": "host[0"}}, 422, {"/allocation/hosts": "unreadable"}),
        (
            {"allocation": {"devices": ["host0/gpu0", "host0/nic0"]}},
            422,
            {"/allocation/devices/1": "unknown_name"},
        ),
        (
            {"allocation": {"rank_file": "host0:8\n?\n"}},
            422,
            {"/allocation/rank_file": "unreadable"},
        ),
        (
            {"allocation": {"rank_file": "host0:9"}},
            422,
            {"/allocation/rank_file": "too_few_devices"},
        ),
        (
            {
                "allocation": {"hosts": "host[0-1]"},
                "concurrent": [{"source": "host1/nic0", "target": "host3/nic0"}],
            },
            422,
            {"/target": "inconsistent", "/concurrent/0/target": "inconsistent"},
        ),
        ({"allocation": {"nodes": "host0"}}, 400, {"/allocation/nodes": "unknown_field"}),
    ],
    ids=["nothing", "two", "unknown", "no list", "a NIC", "a line", "too many", "outside", "field"],
)
async def test_faults_name_their_place(
    client: httpx.AsyncClient, request_: dict[str, Any], status: int, expected: dict[str, str]
) -> None:
    await store(client)
    response = await client.post("/v1/topologies/mine/paths", json={**ENDS, **request_})
    assert response.status_code == status, response.text
    errors = response.json()["errors"]
    assert {error["pointer"]: error["code"] for error in errors} == expected
    if "/allocation/rank_file" in expected and expected["/allocation/rank_file"] == "unreadable":
        assert errors[0]["detail"].startswith("line 2: ")


async def test_only_the_allocation_shares(client: httpx.AsyncClient) -> None:
    await store(client)
    answer = (await client.get("/v1/topologies/mine/shared?hosts=host[0-2]")).json()
    (group,) = answer["host_groups"]
    assert group["names"] == ["host0", "host1", "host2"]
    assert answer["allocation"]["devices"] == 24
    # One leaf has both its hosts in it, the other one of two.
    assert [one["below_bytes_per_second"] for one in answer["uplinks"]] == [800e9, 400e9]
    answer = (
        await client.get("/v1/topologies/mine/shared?devices=host0/gpu0;host1/gpu[0-1]")
    ).json()
    assert [[gpu["gpu"] for gpu in one["gpus"]] for one in answer["host_groups"]] == [
        ["host0/gpu0"],
        ["host1/gpu0", "host1/gpu1"],
    ]


async def test_only_the_allocation_is_a_load(client: httpx.AsyncClient) -> None:
    await store(client)
    url = "/v1/topologies/mine/graph.svg?load=all_to_all&devices=host0/gpu[0-3]"
    assert "load of 12 equal transfers" in (await client.get(url)).text


@pytest.mark.parametrize("path", ["shared", "graph.svg"])
@pytest.mark.parametrize(
    ("query", "status", "pointer"),
    [
        ("hosts=host9", 422, "/hosts"),
        ("hosts=host0&devices=host0/gpu0", 422, "/devices"),
        ("devices=host0/gpu9", 422, "/devices"),
        ("devices=", 400, "/devices"),
        ("hosts=", 400, "/hosts"),
    ],
)
async def test_faults_name_the_parameter(
    client: httpx.AsyncClient, path: str, query: str, status: int, pointer: str
) -> None:
    await store(client)
    refused = await client.get(f"/v1/topologies/mine/{path}?{query}")
    assert refused.status_code == status, refused.text
    assert {error["pointer"] for error in refused.json()["errors"]} == {pointer}
