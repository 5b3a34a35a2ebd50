"""The verbs of every kind of document, over HTTP and on both databases."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

ANY_VERSION = {"If-Match": "*"}
TOPOLOGY: dict[str, Any] = {
    "hosts": [{"name": "host", "count": 2, "design": "dgx-h100"}],
    "fabric": {"kind": "rail_optimised", "spines": 2},
}
MODEL: dict[str, Any] = {
    "layers": [
        {
            "name": "embedding",
            "kind": "embedding",
            "parameters": [
                {"name": "table", "count": 10, "dtype": "bf16", "tied_group": "table"},
            ],
        },
        {
            "name": "head",
            "kind": "head",
            "parameters": [
                {"name": "weight", "count": 10, "dtype": "bf16", "tied_group": "table"},
                {"name": "bias", "count": 3, "dtype": "bf16"},
            ],
        },
    ],
    "tensors": [
        {
            "name": "hidden",
            "producer": "embedding",
            "consumers": ["head"],
            "shape": ["sequence", "microbatch", 8],
            "dtype": "bf16",
        }
    ],
}
PROFILE: dict[str, Any] = {
    "device": "H100",
    "precision": "bf16",
    "measurements": [
        {"layer": "embedding", "microbatch_size": 1, "forward_seconds": 0.001},
        {"layer": "head", "microbatch_size": 1, "forward_seconds": 0.002, "samples": 5},
        {"layer": "head", "microbatch_size": 2, "forward_seconds": 0.003},
    ],
}
ROUTING: dict[str, Any] = {
    "experts": 2,
    "top_k": 1,
    "layers": [{"layer": 3, "counts": [5, 3]}],
}
PLAN: dict[str, Any] = {
    "costs": {
        "stages": [
            {"forward_seconds": 0.006, "backward_seconds": 0.012},
            {"forward_seconds": 0.006, "backward_seconds": 0.012},
        ]
    },
    "schedule": {"kind": "1f1b"},
    "workload": {"microbatches": 8},
}
# (plural, a document, another one, what the summary of the first says)
KINDS = [
    pytest.param(
        "topologies",
        TOPOLOGY,
        {"hosts": [{"name": "host", "count": 3, "design": "p4d"}]},
        {"hosts": 2, "devices": 16},
        id="topologies",
    ),
    pytest.param(
        "models",
        MODEL,
        {"layers": [{"name": "a", "kind": "k"}], "tensors": []},
        {"layers": 2, "tensors": 1, "parameters": 13},
        id="models",
    ),
    pytest.param(
        "profiles",
        PROFILE,
        {"measurements": [{"layer": "a", "microbatch_size": 1, "forward_seconds": 1}]},
        {"device": "H100", "precision": "bf16", "measurements": 3, "layers": 2},
        id="profiles",
    ),
    pytest.param(
        "routings",
        ROUTING,
        {"experts": 4, "top_k": 1, "skew": {"kind": "uniform"}},
        {"level": "expert_counts", "experts": 2, "top_k": 1, "layers": 1, "steps": 1},
        id="routings",
    ),
    pytest.param(
        "plans",
        PLAN,
        PLAN | {"workload": {"microbatches": 9}},
        {"schedule": "1f1b", "pipeline": 2, "world_size": 2, "microbatches": 8},
        id="plans",
    ),
]


@pytest.mark.parametrize(("kind", "first", "second", "summary"), KINDS)
async def test_a_document_has_numbered_revisions(
    client: httpx.AsyncClient,
    kind: str,
    first: dict[str, Any],
    second: dict[str, Any],
    summary: dict[str, Any],
) -> None:
    url = f"/v1/{kind}/mine"
    created = await client.put(url, json=first)
    assert created.status_code == 201
    answer = created.json()
    assert list(answer) == [
        "name",
        "revision",
        "digest",
        "created_at",
        "summary",
        "warnings",
        "document",
    ]
    assert (answer["name"], answer["revision"]) == ("mine", 1)
    assert answer["created_at"].endswith("Z")
    assert answer["document"] == first
    assert answer["summary"].items() >= summary.items()
    assert created.headers["content-location"] == f"{url}@1"

    same = await client.put(url, json=first)
    assert (same.status_code, same.json()) == (200, answer)
    assert same.headers["etag"] == created.headers["etag"]

    changed = await client.put(url, json=second)
    assert (changed.status_code, changed.json()["revision"]) == (200, 2)
    back = await client.put(url, json=first)
    assert (back.status_code, back.json()["revision"]) == (200, 3)
    assert back.json()["digest"] == answer["digest"]
    assert back.headers["etag"] != created.headers["etag"]

    assert (await client.get(f"{url}@1")).json() == answer
    assert (await client.get(f"{url}@2")).json() == changed.json()
    assert (await client.get(url)).json() == back.json()
    history = (await client.get(f"{url}/revisions")).json()
    assert [entry["revision"] for entry in history["items"]] == [3, 2, 1]
    assert "document" not in history["items"][0]
    assert "next" not in history


async def test_a_topology_in_parts_is_stored_with_a_warning(client: httpx.AsyncClient) -> None:
    hosts = [{"name": "host", "count": 2, "design": "dgx-h100"}]
    stored = await client.put("/v1/topologies/mine", json={"hosts": hosts})
    assert stored.status_code == 201
    found = [text for text in stored.json()["warnings"] if "2 parts that no links join" in text]
    assert ["'host0/gpu0', the next with 'host1/gpu0'" in text for text in found] == [True]
    assert (await client.get("/v1/topologies/mine")).json()["warnings"] == stored.json()["warnings"]
    fabric = {"kind": "rail_optimised", "spines": 1}
    joined = await client.put("/v1/topologies/mine", json={"hosts": hosts, "fabric": fabric})
    assert not [text for text in joined.json()["warnings"] if "parts" in text]


@pytest.mark.parametrize(("kind", "first", "second", "summary"), KINDS)
async def test_archiving_takes_a_document_out_of_lists_but_not_out_of_pins(
    client: httpx.AsyncClient,
    kind: str,
    first: dict[str, Any],
    second: dict[str, Any],
    summary: dict[str, Any],
) -> None:
    url = f"/v1/{kind}/mine"
    await client.put(url, json=first)
    archived = await client.delete(url, headers=ANY_VERSION)
    assert (archived.status_code, archived.content) == (204, b"")
    gone = await client.get(url)
    assert (gone.status_code, "'mine@1' still resolves" in gone.json()["detail"]) == (404, True)
    assert (await client.delete(url, headers=ANY_VERSION)).status_code == 404
    assert (await client.get(f"/v1/{kind}")).json() == {"items": []}
    assert (await client.get(f"{url}@1")).status_code == 200
    assert len((await client.get(f"{url}/revisions")).json()["items"]) == 1
    again = await client.put(url, json=first)
    assert (again.status_code, again.json()["revision"]) == (201, 2)


async def test_archiving_asks_which_version_is_meant(client: httpx.AsyncClient) -> None:
    url = "/v1/plans/mine"
    await client.put(url, json=PLAN)
    for headers in ({}, {"If-None-Match": '"other"'}):
        refused = await client.delete(url, headers=headers)
        assert refused.status_code == 428
        assert refused.json()["type"] == "/problems/precondition-required"
    page = await client.get("/problems/precondition-required")
    assert "If-Match" in page.text
    assert (await client.get(url)).status_code == 200
    absent = await client.delete("/v1/plans/other", headers=ANY_VERSION)
    assert absent.status_code == 404


async def test_only_reading_is_answered_with_not_modified(client: httpx.AsyncClient) -> None:
    url = "/v1/plans/mine"
    tag = (await client.put(url, json=PLAN)).headers["etag"]
    estimate = await client.post("/v1/estimates", json={"plan": "mine"})
    for path, known in ((url, tag), (estimate.headers["location"], estimate.headers["etag"])):
        for method in ("GET", "HEAD"):
            unmodified = await client.request(method, path, headers={"If-None-Match": known})
            assert (unmodified.status_code, unmodified.content) == (304, b"")
            assert unmodified.headers["etag"] == known
    stored = await client.put(url, json=PLAN, headers={"If-None-Match": tag})
    assert stored.status_code == 412
    again = await client.post(
        "/v1/estimates", json={"plan": "mine"}, headers={"If-None-Match": estimate.headers["etag"]}
    )
    assert (again.status_code, again.content) == (200, estimate.content)
    both = {"If-Match": "*", "If-None-Match": tag}
    assert (await client.delete(url, headers=both)).status_code == 412
    assert (await client.delete(url, headers={"If-Match": tag})).status_code == 204


async def test_versions_are_guarded(client: httpx.AsyncClient) -> None:
    url = "/v1/plans/mine"
    other = PLAN | {"workload": {"microbatches": 9}}
    missing = await client.put(url, json=PLAN, headers={"If-Match": '"1-x"'})
    assert missing.status_code == 412
    assert "etag" not in missing.headers
    assert (await client.put(url, json=PLAN, headers={"If-None-Match": "*"})).status_code == 201
    tag = (await client.get(url)).headers["etag"]
    refused = await client.put(url, json=other, headers={"If-None-Match": "*"})
    assert (refused.status_code, refused.headers["etag"]) == (412, tag)
    assert (await client.put(url, json=other, headers={"If-Match": tag})).status_code == 200
    stale = await client.put(url, json=PLAN, headers={"If-Match": tag})
    assert stale.status_code == 412
    assert stale.headers["etag"] == (await client.get(url)).headers["etag"] != tag
    assert (await client.delete(url, headers={"If-Match": tag})).status_code == 412
    assert (await client.get(url)).json()["revision"] == 2
    assert (
        await client.delete(url, headers={"If-Match": stale.headers["etag"]})
    ).status_code == 204
    # What is archived has no current version: it can be created, not matched.
    assert (await client.put(url, json=PLAN, headers={"If-Match": "*"})).status_code == 412
    assert (await client.put(url, json=PLAN, headers={"If-None-Match": "*"})).status_code == 201


async def test_what_the_caller_has_is_not_sent_again(client: httpx.AsyncClient) -> None:
    await client.put("/v1/plans/mine", json=PLAN)
    got = await client.get("/v1/plans/mine")
    tag = got.headers["etag"]
    for headers in ({"If-None-Match": tag}, {"If-None-Match": f'W/{tag}, "other"'}):
        same = await client.get("/v1/plans/mine", headers=headers)
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    head = await client.head("/v1/plans/mine")
    assert head.headers["etag"] == tag
    assert head.headers["content-length"] == str(len(got.content))
    assert head.content == b""
    other = await client.get("/v1/plans/mine", headers={"If-None-Match": '"other"'})
    assert other.status_code == 200


async def test_lists_are_paged_by_name_and_stable_under_inserts(client: httpx.AsyncClient) -> None:
    for name in ("d", "b", "f", "a", "e"):
        await client.put(f"/v1/plans/{name}", json=PLAN)
    page = (await client.get("/v1/plans?limit=2")).json()
    assert [item["name"] for item in page["items"]] == ["a", "b"]
    await client.put("/v1/plans/aa", json=PLAN)
    await client.put("/v1/plans/c", json=PLAN)
    names = []
    while "next" in page:
        page = (await client.get(page["next"])).json()
        names += [item["name"] for item in page["items"]]
    assert names == ["c", "d", "e", "f"]
    assert len((await client.get("/v1/plans")).json()["items"]) == 7


async def test_history_is_paged(client: httpx.AsyncClient) -> None:
    for microbatches in range(1, 6):
        await client.put("/v1/plans/a", json=PLAN | {"workload": {"microbatches": microbatches}})
    numbers: list[int] = []
    url: str | None = "/v1/plans/a/revisions?limit=2"
    while url is not None:
        page = (await client.get(url)).json()
        numbers += [item["revision"] for item in page["items"]]
        url = page.get("next")
    assert numbers == [5, 4, 3, 2, 1]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/plans/none",
        "/v1/plans/none@1",
        "/v1/plans/mine@2",
        "/v1/plans/mine@0",
        "/v1/plans/mine@01",
        "/v1/plans/mine@99999999999999999999",
        "/v1/plans/Mine",
        "/v1/plans/mine%00",
        "/v1/plans/" + "a" * 64,
        "/v1/plans/none/revisions",
        "/v1/plans/mine@1/revisions",
        "/v1/topologies/none/devices",
        "/v1/topologies/none/links",
        "/problems/none",
    ],
)
async def test_what_is_not_stored_is_not_found(client: httpx.AsyncClient, path: str) -> None:
    await client.put("/v1/plans/mine", json=PLAN)
    response = await client.get(path)
    assert (response.status_code, response.json()["type"]) == (404, "/problems/not-found")


@pytest.mark.parametrize("name", ["A", "a_b", "a.b", "1a", "-", "a@1", "a%00", "a%0A", "a" * 64])
async def test_what_is_no_name_names_nothing(client: httpx.AsyncClient, name: str) -> None:
    response = await client.put(f"/v1/plans/{name}", json=PLAN)
    assert response.status_code == 400
    (error,) = response.json()["errors"]
    assert (error["in"], error["pointer"]) == ("path", "/name")


async def test_a_plan_may_only_refer_to_what_is_stored(client: httpx.AsyncClient) -> None:
    plan = {
        "topology": "two",
        "costs": {"model": "gpt@1", "profile": "gpt-h100"},
        "partition": {"layers_per_stage": [1, 1]},
        "schedule": {"kind": "1f1b"},
        "workload": {"microbatches": 8, "microbatch_size": 1},
    }
    refused = await client.put("/v1/plans/mine", json=plan)
    assert refused.status_code == 422
    assert [(e["pointer"], e["code"]) for e in refused.json()["errors"]] == [
        ("/topology", "unknown_reference"),
        ("/costs/model", "unknown_reference"),
        ("/costs/profile", "unknown_reference"),
    ]
    await client.put("/v1/topologies/two", json=TOPOLOGY)
    await client.put("/v1/models/gpt", json=MODEL)
    await client.put("/v1/profiles/gpt-h100", json=PROFILE)
    stored = await client.put("/v1/plans/mine", json=plan)
    assert stored.status_code == 201
    assert stored.json()["document"] == plan  # the references stay as they were written

    await client.delete("/v1/models/gpt", headers=ANY_VERSION)
    assert (await client.put("/v1/plans/mine", json=plan)).status_code == 200
    refused = await client.put("/v1/plans/other", json=plan | {"description": "new"})
    assert [e["pointer"] for e in refused.json()["errors"]] == ["/costs/model"]


async def test_faults_of_a_plan_and_unknown_references_come_together(
    client: httpx.AsyncClient,
) -> None:
    plan = {
        "topology": "none",
        "costs": {"model": "none", "profile": "none"},
        "schedule": {"kind": "1f1b", "chunks_per_rank": 2},
        "workload": {"microbatches": 8, "microbatch_size": 1, "global_batch_size": 8},
    }
    response = await client.put("/v1/plans/mine", json=plan)
    assert response.status_code == 422
    assert {error["code"] for error in response.json()["errors"]} >= {
        "missing_field",
        "illegal_schedule",
        "exclusive_fields",
        "unknown_reference",
    }


async def test_concurrent_writers_lose_nothing(client: httpx.AsyncClient) -> None:
    async def write(microbatches: int) -> int:
        plan = PLAN | {"workload": {"microbatches": microbatches}}
        response = await client.put("/v1/plans/shared", json=plan)
        assert response.status_code in {200, 201}
        return int(response.json()["revision"])

    numbers = await asyncio.gather(*(write(n) for n in range(1, 17)))
    assert sorted(numbers) == list(range(1, 17))


async def test_documents_leave_rows(
    client: httpx.AsyncClient, count_rows: Callable[[], Awaitable[dict[str, int]]]
) -> None:
    await client.put("/v1/topologies/two", json=TOPOLOGY)
    await client.put("/v1/profiles/gpt-h100", json=PROFILE)
    await client.put("/v1/profiles/gpt-h100", json=PROFILE)
    await client.put("/v1/plans/mine", json=PLAN | {"topology": "two"})
    counts = await count_rows()
    assert (counts["documents"], counts["revisions"]) == (3, 3)
    assert (counts["measurements"], counts["topology_summaries"]) == (3, 1)
    assert counts["document_pins"] == 1


async def test_measurements_are_compared_across_profiles(client: httpx.AsyncClient) -> None:
    await client.put("/v1/profiles/b", json=PROFILE)
    await client.put("/v1/profiles/a", json=PROFILE | {"device": "A100"})
    await client.put("/v1/profiles/a", json=PROFILE)

    async def found(query: str) -> list[tuple[str, int]]:
        items = (await client.get(f"/v1/measurements?{query}")).json()["items"]
        return [(item["profile"], item["position"]) for item in items]

    assert await found("layer=head&microbatch_size=1") == [("a@2", 1), ("b@1", 1)]
    assert await found("profile=b") == [("b@1", 0), ("b@1", 1), ("b@1", 2)]
    assert await found("profile=a@1&layer=embedding") == [("a@1", 0)]
    assert await found("device=A100") == []
    assert await found("profile=a@1&device=A100&precision=bf16&tensor_parallel=2") == []
    assert await found("sequence_length=4096") == []
    page = (await client.get("/v1/measurements?limit=4")).json()
    assert len(page["items"]) == 4
    assert (await client.get(page["next"])).json()["items"][0]["position"] == 1
    entry = (await client.get("/v1/measurements?profile=a&layer=head&microbatch_size=1")).json()
    assert entry["items"] == [
        {
            "profile": "a@2",
            "position": 1,
            "layer": "head",
            "device": "H100",
            "precision": "bf16",
            "microbatch_size": 1,
            "tensor_parallel": 1,
            "recompute": "none",
            "forward_seconds": 0.002,
            "samples": 5,
        }
    ]
    await client.delete("/v1/profiles/b", headers=ANY_VERSION)
    assert await found("layer=head&microbatch_size=1") == [("a@2", 1)]


async def test_the_expanded_cluster_is_listed(client: httpx.AsyncClient) -> None:
    await client.put("/v1/topologies/two", json=TOPOLOGY)
    gpus = (await client.get("/v1/topologies/two/devices?kind=gpu&limit=200")).json()
    assert [device["name"] for device in gpus["items"][:2]] == ["host0/gpu0", "host0/gpu1"]
    assert len(gpus["items"]) == 16
    inside = (await client.get("/v1/topologies/two@1/devices?host=host1&kind=nic")).json()
    assert {device["host"] for device in inside["items"]} == {"host1"}
    assert len(inside["items"]) == 8
    links = (await client.get("/v1/topologies/two/links?host=host0&kind=nvlink&limit=200")).json()
    assert len(links["items"]) == 16
    assert {link["bandwidth_bytes_per_second"] for link in links["items"]} == {450e9}
    assert links["items"][0]["resource"] == "host0/gpu0->host0/nvswitch0"
    assert {(link["bandwidth_origin"], link["bandwidth_source"]) for link in links["items"]} == {
        ("product", "18 x NVLink 4")
    }
    assert (await client.get("/v1/topologies/two/devices?host=none")).json() == {"items": []}


async def test_what_is_shared_and_what_is_edited_is_listed(client: httpx.AsyncClient) -> None:
    pcie = {"kind": "pcie", "bandwidth_bytes_per_second": 3.15e10}
    nics = [
        {"name": f"nic{n}", "kind": "nic", "port": f"port{n}", "card": "card0", "slot": "slot0"}
        for n in range(2)
    ]
    switch = {"name": "pcie0", "kind": "pcie_switch"}
    links = [{"source": f"nic{n}", "target": "pcie0", **pcie} for n in range(2)]
    links.append({"source": "gpu0", "target": "pcie0", **pcie, "duplex": "half"})
    measured = {"value": 3e10, "source": "a tool", "date": "2025-05-01"}
    document = {
        "hosts": [
            {
                "name": "host",
                "count": 2,
                "devices": [{"name": "gpu0", "kind": "gpu"}, *nics, switch],
                "links": links,
            }
        ],
        "edits": [
            {"kind": "failed_host", "name": "host1"},
            {
                "kind": "changed_link",
                "source": "host0/nic0",
                "target": "host0/pcie0",
                "one_way": True,
                "measured_bytes_per_second": measured,
            },
        ],
    }
    stored = await client.put("/v1/topologies/edited", json=document)
    assert stored.status_code == 201
    assert stored.json()["document"] == document
    assert stored.json()["summary"]["devices"] == 1
    assert (
        "edits: 1 of the directed links differ from what the rest says" in stored.json()["warnings"]
    )
    devices = (await client.get("/v1/topologies/edited/devices")).json()["items"]
    assert [device["name"] for device in devices] == [
        f"host0/{name}" for name in ("gpu0", "nic0", "nic1", "pcie0")
    ]
    assert [device.get("card") for device in devices] == [None, "card0", "card0", None]
    assert (devices[1]["port"], devices[1]["slot"]) == ("port0", "slot0")
    found = (await client.get("/v1/topologies/edited/links")).json()["items"]
    assert [link["resource"] for link in found] == [
        *("host0/slot0->host0/pcie0", "host0/pcie0->host0/slot0") * 2,
        *("host0/gpu0<->host0/pcie0",) * 2,
    ]
    assert found[0]["measured_bytes_per_second"] == 3e10
    assert (found[0]["measured_source"], found[0]["measured_date"]) == ("a tool", "2025-05-01")
    assert "measured_bytes_per_second" not in found[1]


async def test_accelerators_have_networks_of_their_own(client: httpx.AsyncClient) -> None:
    rack = {
        "hosts": [{"name": "tray", "count": 18, "design": "gb200-nvl72"}],
        "fabric": {"kind": "rail_optimised"},
        "device_network": {"kind": "nvlink_domain"},
    }
    stored = await client.put("/v1/topologies/rack", json=rack)
    assert stored.status_code == 201
    assert stored.json()["summary"]["vertices_by_kind"]["nvswitch"] == 1
    chips = [{"name": f"gpu{n}", "kind": "gpu"} for n in range(4)]
    pod = {
        "hosts": [{"name": "host", "count": 8, "devices": chips}],
        "device_network": {
            "kind": "torus",
            "dimensions": [4, 8],
            "link_bytes_per_second": 8e10,
            "latency_seconds": 1e-6,
        },
    }
    assert (await client.put("/v1/topologies/pod", json=pod)).status_code == 201
    routers = await client.get("/v1/topologies/pod/devices?kind=router&limit=200")
    assert len(routers.json()["items"]) == 32
    for name, source, target, kind, rate in (
        ("rack", "tray0/gpu0", "tray17/gpu3", "nvlink", 9e11),
        ("pod", "host0/gpu0", "host5/gpu1", "torus", 8e10),
    ):
        asked = {"source": source, "target": target, "message_bytes": 1_000_000}
        answer = (await client.post(f"/v1/topologies/{name}/paths", json=asked)).json()
        assert answer["paths"][0]["kind"] == kind
        assert answer["paths"][0]["bandwidth_bytes_per_second"] == rate


async def test_edits_at_fault_are_told_by_their_place(client: httpx.AsyncClient) -> None:
    edits = [
        {"kind": "failed_device", "name": "host0/gpu9"},
        {"kind": "failed_link", "source": "host0/nic0", "target": "rail1"},
        {"kind": "failed_link", "source": "host0/nic0", "target": "rail0"},
    ]
    refused = await client.put("/v1/topologies/edited", json={**TOPOLOGY, "edits": edits})
    assert refused.status_code == 422
    assert [error["pointer"] for error in refused.json()["errors"]] == [
        "/edits/0/name",
        "/edits/1/target",
    ]


async def test_pages_of_a_cluster_stay_with_their_revision(client: httpx.AsyncClient) -> None:
    await client.put("/v1/topologies/two", json=TOPOLOGY)
    page = (await client.get("/v1/topologies/two/devices?kind=gpu&limit=9")).json()
    await client.put("/v1/topologies/two", json={"hosts": [{"name": "other", "design": "p4d"}]})
    rest = await client.get(page["next"])
    assert [d["name"] for d in rest.json()["items"]] == [f"host1/gpu{n}" for n in range(1, 8)]
    tag = rest.headers["etag"]
    assert (await client.get(page["next"], headers={"If-None-Match": tag})).status_code == 304
    newest = (await client.get("/v1/topologies/two/devices?kind=gpu")).json()
    assert newest["items"][0]["name"] == "other/gpu0"
