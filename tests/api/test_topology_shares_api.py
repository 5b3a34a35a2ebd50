"""What GPUs share on their way out, over HTTP."""

from typing import Any

import httpx
import pytest

from service.core.topology import nic_sharing

P4D = {
    "hosts": [
        {"name": "host", "count": 40, "design": "p4d"},
        {"name": "big", "design": "dgx-h100"},
    ],
    "fabric": {"kind": "leaf_spine", "hosts_per_leaf": 4, "spines": 2, "oversubscription_ratio": 4},
}


async def ask(client: httpx.AsyncClient, query: str = "") -> Any:
    assert (await client.put("/v1/topologies/mine", json=P4D)).status_code in {200, 201}
    response = await client.get(f"/v1/topologies/mine/shared{query}")
    assert response.status_code == 200, response.text
    return response.json()


async def test_like_hosts_are_told_once(client: httpx.AsyncClient) -> None:
    answer = await ask(client)
    assert [(one["host"], one["hosts"]) for one in answer["host_groups"]] == [
        ("host0", 40),
        ("big", 1),
    ]
    assert len(answer["host_groups"][0]["names"]) == 32
    first = answer["host_groups"][0]
    assert first["gpus"][1] == {
        "gpu": "host0/gpu1",
        "nics": [
            {
                "nic": "host0/nic0",
                "kind": "pix",
                "links": ["host0/gpu1->host0/pcie0", "host0/pcie0->host0/nic0"],
            }
        ],
        "ambiguous": False,
        "equal_share_bytes_per_second": 6.25e9,
    }
    port = first["common"][1]
    assert port == {
        "level": "port",
        "link": "host0/nic0->leaf0",
        "bandwidth_bytes_per_second": 12.5e9,
        "effective_bytes_per_second": 12e9,
        "gpus": ["host0/gpu0", "host0/gpu1"],
        "equal_share_bytes_per_second": 6.25e9,
    }
    # Four hosts of 4 x 12.5 GB/s a leaf; the last leaf has the big host alone, 8 x 50.
    assert [
        (one["switches"], one["below_bytes_per_second"], one["oversubscription_ratio"])
        for one in answer["uplinks"]
    ] == [(10, 200e9, 2.0), (1, 400e9, 4.0)]
    assert answer["pins"][0]["reference"] == "mine@1"
    assert answer["unlisted_host_groups"] == answer["unlisted_uplinks"] == 0


async def test_one_host_stands_for_those_like_it(client: httpx.AsyncClient) -> None:
    answer = await ask(client, "?host=host7")
    (group,) = answer["host_groups"]
    assert (group["host"], group["hosts"], group["names"][:2]) == ("host7", 40, ["host7", "host0"])
    assert group["gpus"][0]["gpu"] == "host7/gpu0"


async def test_oddities_have_a_sentence(client: httpx.AsyncClient) -> None:
    devices = [
        {"name": "gpu0", "kind": "gpu"},
        {"name": "nic0", "kind": "nic"},
        {"name": "nic1", "kind": "nic"},
        {"name": "pcie0", "kind": "pcie_switch"},
    ]
    links = [
        {
            "source": name,
            "target": "pcie0",
            "kind": "pcie",
            "bandwidth_bytes_per_second": 1e9,
        }
        for name in ("gpu0", "nic0", "nic1")
    ]
    body = {"hosts": [{"name": "odd", "devices": devices, "links": links}]}
    assert (await client.put("/v1/topologies/odd", json=body)).status_code == 201
    answer = (await client.get("/v1/topologies/odd/shared")).json()
    # NICs without a rail are given that of their place; a GPU without one is paired with none.
    (oddity,) = answer["host_groups"][0]["oddities"]
    assert (oddity["code"], oddity["devices"]) == ("ambiguous_nic", ["odd/gpu0"])
    assert oddity["detail"].startswith("1 GPUs have several NICs")


async def test_conditional_reading(client: httpx.AsyncClient) -> None:
    await ask(client)
    answer = await client.get("/v1/topologies/mine/shared")
    tag = {"If-None-Match": answer.headers["ETag"]}
    assert (await client.get("/v1/topologies/mine/shared", headers=tag)).status_code == 304
    await client.put("/v1/topologies/mine", json={"hosts": [{"name": "x", "design": "p4d"}]})
    assert (await client.get("/v1/topologies/mine/shared", headers=tag)).status_code == 200


async def test_faults(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    await ask(client)
    refused = await client.get("/v1/topologies/mine/shared?host=host99")
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/host"
    assert "'host0'" in refused.json()["errors"][0]["detail"]
    assert (await client.get("/v1/topologies/mine/shared?node=2")).status_code == 400
    assert (await client.get("/v1/topologies/none/shared")).status_code == 404
    monkeypatch.setattr(nic_sharing, "MAX_COMPARED_NICS", 95)
    refused = await client.get("/v1/topologies/mine/shared")
    assert (refused.status_code, refused.json()["type"]) == (422, "/problems/work-budget-exceeded")
    assert (await client.get("/v1/topologies/mine/shared?host=host1")).status_code == 200
