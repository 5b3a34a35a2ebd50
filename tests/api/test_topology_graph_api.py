"""Pictures of topologies over HTTP."""

import xml.etree.ElementTree as ET

import httpx
import pytest

SVG = "{http://www.w3.org/2000/svg}"
RAILS = {
    "hosts": [{"name": "host", "count": 2, "design": "dgx-h100"}],
    "fabric": {"kind": "rail_optimised"},
}


async def draw(client: httpx.AsyncClient, query: str = "") -> list[str]:
    assert (await client.put("/v1/topologies/mine", json=RAILS)).status_code in {200, 201}
    answer = await client.get(f"/v1/topologies/mine/graph.svg{query}")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "image/svg+xml"
    return [str(one.text) for one in ET.fromstring(answer.text).iter(f"{SVG}text")]


async def test_the_fabric_and_a_host(client: httpx.AsyncClient) -> None:
    assert {"mine@1", "rail7", "host1"} <= set(await draw(client))
    assert {"mine@1 · host1", "nvswitch0", "gpu7"} <= set(await draw(client, "?host=host1"))


async def test_a_path_and_loads(client: httpx.AsyncClient) -> None:
    path = "?path=host0/gpu0,host1/gpu0"
    note = "path from host0/gpu0 to host1/gpu0 (rail): at most 50 GB/s nominal"
    for query in (path, f"{path}&host=host0"):
        assert any(word.startswith(note) for word in await draw(client, query))
    load = "?load=host0/gpu0,host1/gpu0;host0/gpu1,host1/gpu1"
    note = "load of 2 equal transfers on their pinned paths"
    assert any(word.startswith(note) for word in await draw(client, load))
    unequal = "?load=host0/gpu0,host1/gpu0,4000000;host0/gpu1,host1/gpu1,1000000"
    words = await draw(client, unequal)
    assert any(word.startswith("load of 2 transfers on their pinned paths") for word in words)
    everything = await draw(client, "?load=all_to_all&host=host0")
    assert any(word.startswith("load of 56 equal transfers") for word in everything)
    everything = await draw(client, "?load=all_to_all")
    assert any(word.startswith("load of 240 equal transfers") for word in everything)


async def test_a_host_alone_is_drawn_as_a_host(client: httpx.AsyncClient) -> None:
    body = {"hosts": [{"name": "one", "design": "p4d"}]}
    assert (await client.put("/v1/topologies/one", json=body)).status_code == 201
    answer = await client.get("/v1/topologies/one/graph.svg")
    assert "one@1 · one" in answer.text


async def test_conditional_reading(client: httpx.AsyncClient) -> None:
    await draw(client)
    answer = await client.get("/v1/topologies/mine/graph.svg")
    tag = {"If-None-Match": answer.headers["ETag"]}
    again = await client.get("/v1/topologies/mine/graph.svg", headers=tag)
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    ("query", "status", "pointers"),
    [
        ("?host=host9", 422, {"/host"}),
        ("?path=host0/gpu0", 400, {"/path"}),
        ("?path=host0/gpu0,a,b", 400, {"/path"}),
        ("?path=host0/gpu0,host0/gpu9", 422, {"/path"}),
        ("?load=host0/gpu0,host0/gpu1;", 400, {"/load"}),
        ("?load=host0/gpu0,x;y,host0/gpu1", 422, {"/load"}),
        ("?load=host0/gpu0,host0/gpu1,5;host0/gpu0,host0/gpu2", 422, {"/load"}),
        ("?load=host0/gpu0,host0/gpu1,9999999999999999", 422, {"/load"}),
        ("?load=host0/gpu0,host0/gpu1,-5", 400, {"/load"}),
        ("?load=all_to_all&path=host0/gpu0,host0/gpu1", 422, {"/load"}),
        ("?width=3", 400, {"/width"}),
    ],
)
async def test_faults_name_the_parameter(
    client: httpx.AsyncClient, query: str, status: int, pointers: set[str]
) -> None:
    await draw(client)
    refused = await client.get(f"/v1/topologies/mine/graph.svg{query}")
    assert refused.status_code == status, refused.text
    assert {error["pointer"] for error in refused.json()["errors"]} == pointers


async def test_too_many_for_all_to_all(client: httpx.AsyncClient) -> None:
    body = {"hosts": [{"name": "host", "count": 17, "design": "dgx-h100"}]}
    assert (await client.put("/v1/topologies/large", json=body)).status_code == 201
    refused = await client.get("/v1/topologies/large/graph.svg?load=all_to_all")
    assert (refused.status_code, refused.json()["type"]) == (422, "/problems/work-budget-exceeded")
    assert (await client.get("/v1/topologies/none/graph.svg")).status_code == 404
