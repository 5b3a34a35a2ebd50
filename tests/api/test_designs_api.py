"""Reference designs over HTTP: looking at them before a document is written."""

import httpx

from service.core.topology.designs import DESIGNS


async def test_every_design_and_a_network_of_each_kind_is_listed(client: httpx.AsyncClient) -> None:
    items = (await client.get("/v1/designs")).json()["items"]
    names = [item["name"] for item in items if item["kind"] == "host"]
    assert names == list(DESIGNS)
    networks = {item["name"]: item["kind"] for item in items if item["kind"] != "host"}
    assert networks == {
        "rail_optimised": "fabric",
        "leaf_spine": "fabric",
        "fat_tree_by_shape": "fabric",
        "fat_tree": "fabric",
        "nvlink_domain": "device_network",
        "torus": "device_network",
    }


async def test_counts_and_rates_of_a_host_by_hand(client: httpx.AsyncClient) -> None:
    answer = (await client.get("/v1/designs/dgx-h100")).json()
    assert answer["vertices_by_kind"] == {
        "gpu": 8,
        "nic": 8,
        "nvswitch": 1,
        "pcie_switch": 8,
        "cpu": 2,
    }
    assert answer["accelerator"]["product"] == "NVIDIA H100 SXM5 80GB"
    (nvlink,) = [group for group in answer["link_groups"] if group["kind"] == "nvlink"]
    assert nvlink["between"] == ["gpu", "nvswitch"]
    # 18 NVLinks of 25 GB/s each way; 396 of 450 GB/s are measured between two GPUs.
    assert (nvlink["count"], nvlink["lanes"]) == (8, 18)
    assert nvlink["bandwidth_bytes_per_second"] == 18 * 25e9
    assert nvlink["effective_bytes_per_second"] == 396e9
    cables = sum(group["count"] for group in answer["link_groups"])
    assert len(answer["links"]) == 2 * cables
    assert len(answer["devices"]) == 27
    assert any("socket link is assumed" in text for text in answer["assumptions"])


async def test_counts_of_networks_by_hand(client: httpx.AsyncClient) -> None:
    torus = (await client.get("/v1/designs/torus")).json()
    assert torus["vertices_by_kind"] == {"gpu": 32, "router": 32}
    groups = {tuple(group["between"]): group for group in torus["link_groups"]}
    # Each of 4 x 8 routers has two neighbours in each of two dimensions.
    assert groups["router", "router"]["count"] == 32 * 4 // 2
    assert groups["router", "router"]["bandwidth_bytes_per_second"] == 80e9
    assert groups["gpu", "router"]["count"] == 32
    tree = (await client.get("/v1/designs/fat_tree")).json()
    # A tree of switches with k = 8 ports: k^3/4 hosts, k^2/2 leaves and spines, k^2/4 cores.
    assert tree["hosts"] == 128
    assert {kind: tree["vertices_by_kind"][kind] for kind in ("leaf", "spine", "core")} == {
        "leaf": 32,
        "spine": 32,
        "core": 16,
    }
    assert "links" not in tree


async def test_each_has_a_document_that_can_be_stored(client: httpx.AsyncClient) -> None:
    for item in (await client.get("/v1/designs")).json()["items"]:
        answer = (await client.get(f"/v1/designs/{item['name']}")).json()
        assert {key: answer[key] for key in item} == item
        name = item["name"].replace("_", "-")
        stored = await client.put(f"/v1/topologies/{name}", json=answer["document"])
        assert stored.status_code == 201, stored.text
        summary = stored.json()["summary"]
        assert summary["hosts"] == item["hosts"]
        for kind, count in item["vertices_by_kind"].items():
            assert summary["vertices_by_kind"][kind] == count, name


async def test_an_answer_has_a_version_and_an_unknown_name_is_told(
    client: httpx.AsyncClient,
) -> None:
    for path in ("/v1/designs", "/v1/designs/p4d"):
        tag = (await client.get(path)).headers["etag"]
        again = await client.get(path, headers={"If-None-Match": tag})
        assert (again.status_code, again.content) == (304, b"")
    missing = await client.get("/v1/designs/dgx-h101")
    assert missing.status_code == 404
    assert "known are dgx-h100, dgx-h200" in missing.json()["detail"]
