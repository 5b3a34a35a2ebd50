"""Importing a cluster from the files people have of it, over HTTP."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from service.api.schemas.topology_imports import TopologyImportFields, stated_of
from service.api.topology_imports import MAX_IMPORT_FILES
from service.core.topology.cluster import LinkKind

CountRows = Callable[[], Awaitable[dict[str, int]]]

FIXTURES = Path(__file__).resolve().parents[1] / "formats" / "fixtures" / "hosts"
DUMP = (FIXTURES / "nvswitch-dual-port.nccl.xml").read_bytes()
STUB = (FIXTURES / "stub.nccl.xml").read_bytes()
URL = "/v1/topologies/cluster/imports"
# The dump does not say how fast the NIC without a speed is connected; the product does.
FIELDS = {"hosts": "2", "gpu": "H100 SXM5"}


def files(*contents: bytes) -> list[tuple[str, tuple[str, bytes]]]:
    return [("files", (f"file{place}.xml", content)) for place, content in enumerate(contents)]


async def test_a_dump_becomes_a_topology(client: httpx.AsyncClient, count_rows: CountRows) -> None:
    imported = await client.post(URL, files=files(DUMP), data=FIELDS)
    assert imported.status_code == 201, imported.text
    answer = imported.json()
    assert not answer["dry_run"]
    (file,) = answer["files"]
    assert (file["name"], file["format"], file["read"]["nics"]) == ("file0.xml", "nccl_xml", 4)
    assert "all NVSwitch chips of a host are one non-blocking vertex" in answer["assumptions"]
    assert any(text.startswith("socket links of 192 GB/s") for text in answer["assumptions"])
    assert {(item["file"], item["line"]) for item in answer["left_out"]} >= {(0, 3), (0, 23)}
    assert any("no links join" in warning for warning in answer["warnings"])
    assert answer["conflicts"] == answer["renamed"] == []
    made = answer["topology"]
    assert (made["name"], made["revision"], made["change"]) == ("cluster", 1, "created")
    assert made["summary"]["devices"] == 4
    stored = (await client.get("/v1/topologies/cluster")).json()
    assert stored["digest"] == made["digest"]
    assert stored["document"]["hosts"][0]["count"] == 2
    links = (await client.get("/v1/topologies/cluster/links?host=host1&kind=nvlink")).json()
    port = next(item for item in links["items"] if item["source"] == "host1/gpu1")
    assert (port["target"], port["lanes"]) == ("host1/nvswitch0", 18)
    assert (port["bandwidth_bytes_per_second"], port["bandwidth_origin"]) == (450e9, "product")

    before = await count_rows()
    again = await client.post(URL, files=files(DUMP), data=FIELDS)
    assert (again.status_code, again.json()["topology"]["change"]) == (200, "unchanged")
    assert await count_rows() == before


async def test_a_dry_run_stores_nothing(client: httpx.AsyncClient, count_rows: CountRows) -> None:
    before = await count_rows()
    looked = await client.post(URL, files=files(DUMP), data={**FIELDS, "dry_run": "true"})
    assert looked.status_code == 200
    answer = looked.json()
    assert answer["dry_run"]
    assert "revision" not in answer["topology"]
    assert await count_rows() == before
    stored = await client.post(URL, files=files(DUMP), data=FIELDS)
    assert stored.json()["topology"]["digest"] == answer["topology"]["digest"]


async def test_files_of_unlike_hosts_say_whose_they_are(client: httpx.AsyncClient) -> None:
    sent = files(DUMP, STUB)
    product = {"gpu": "H100 SXM5"}
    refused = await client.post(URL, files=sent, data=product)
    assert refused.status_code == 422
    assert "say in hosts_by_file which hosts each is of" in refused.json()["errors"][0]["detail"]
    lists = {"hosts_by_file": "gpu[1-2]; login1"}
    imported = await client.post(URL, files=sent, data={**product, **lists})
    assert imported.status_code == 201, imported.text
    document = (await client.get("/v1/topologies/cluster")).json()["document"]
    assert [(host["name"], host.get("alike")) for host in document["hosts"]] == [
        ("gpu1", ["gpu2"]),
        ("login1", None),
    ]
    for text, said in (
        ("a;b;c", "of which there are 2"),
        ("a;a,a", "'a' stands twice"),
        ("a;b[1-", "b[1-"),
    ):
        broken = await client.post(URL, files=sent, data={**product, "hosts_by_file": text})
        (error,) = broken.json()["errors"]
        assert (broken.status_code, error["pointer"]) == (422, "/hosts_by_file")
        assert said in error["detail"]


async def test_the_imported_document_can_be_put_back(client: httpx.AsyncClient) -> None:
    await client.post(URL, files=files(DUMP), data=FIELDS)
    document = (await client.get("/v1/topologies/cluster")).json()["document"]
    again = await client.put("/v1/topologies/cluster", json=document)
    assert (again.status_code, again.json()["revision"]) == (200, 1)


async def test_an_import_with_a_key_is_done_once(
    client: httpx.AsyncClient, count_rows: CountRows
) -> None:
    key = {"Idempotency-Key": "one"}
    first = await client.post(URL, files=files(DUMP), data=FIELDS, headers=key)
    after = await count_rows()
    again = await client.post(URL, files=files(DUMP), data=FIELDS, headers=key)
    assert (again.status_code, again.content) == (201, first.content)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert await count_rows() == after
    other = await client.post(URL, files=files(STUB), data=FIELDS, headers=key)
    assert other.json()["type"] == "/problems/idempotency-key-reused"


async def test_a_plan_is_priced_on_an_imported_host(client: httpx.AsyncClient) -> None:
    await client.post(URL, files=files(DUMP), data={"gpu": "H100 SXM5"})
    costs = {"forward_seconds": 0.002, "backward_seconds": 0.004}
    plan = {
        "topology": "cluster",
        "costs": {
            "stages": [
                {**costs, "boundary_bytes": 450_000_000},
                costs,
            ]
        },
        "parallelism": {"pipeline": 2},
        "schedule": {"kind": "1f1b"},
        "workload": {"microbatches": 3},
    }
    answer = await client.post("/v1/boundary-transfers", json={"plan": plan})
    assert answer.status_code == 200, answer.text
    transfer = answer.json()["boundaries"][0]["forward"]
    # One of the ports has 17 links up of 25 GB/s each, and the way is gpu0 - switch - gpu1.
    assert transfer["lower_bound_seconds"] == pytest.approx(450e6 / (17 * 25e9))


async def test_what_an_import_assumed_is_told_with_every_number(client: httpx.AsyncClient) -> None:
    imported = (await client.post(URL, files=files(DUMP), data=FIELDS)).json()
    assert imported["assumptions"]
    stored = (await client.get("/v1/topologies/cluster")).json()
    assert stored["document"]["assumptions"] == imported["assumptions"]
    ends = {"source": "host0/gpu0", "target": "host0/gpu1"}
    paths = await client.post("/v1/topologies/cluster/paths", json=ends)
    flows = await client.post(
        "/v1/topologies/cluster/flows", json={"flows": [{**ends, "message_bytes": 1000}]}
    )
    stage = {"forward_seconds": 0.002, "backward_seconds": 0.004}
    plan = {
        "topology": "cluster",
        "costs": {"stages": [{**stage, "boundary_bytes": 1000}, stage]},
        "parallelism": {"pipeline": 2},
        "schedule": {"kind": "1f1b"},
        "workload": {"microbatches": 2},
    }
    estimate = await client.post("/v1/estimates", json={"plan": plan})
    for answer in (paths, flows, estimate):
        assert answer.is_success, answer.text
        told = {one["detail"] for one in answer.json()["assumptions"]}
        assert set(imported["assumptions"]) <= told


FABRIC = b"""vendid=0x2c9
devid=0xd2f0
sysimgguid=0xa00000000000010
switchguid=0xa00000000000010(a00000000000010)
Switch	41 "S-0a00000000000010"		# "MF0;leaf:QM97/U1" enhanced port 0 lid 1 lmc 0
[1]	"H-0b00000000000011"[1](b0000000000a011) 		# "GPU_a mlx5_0" lid 11 4xHDR
[2]	"H-0b00000000000012"[1](b0000000000a012) 		# "gpu-b mlx5_0" lid 12 4xHDR

vendid=0x2c9
devid=0x1021
sysimgguid=0xb00000000000011
caguid=0xb00000000000011
Ca	2 "H-0b00000000000011"		# "GPU_a mlx5_0"
[1](b0000000000a011) 	"S-0a00000000000010"[1]		# lid 11 lmc 0 "MF0;leaf:QM97/U1" lid 1 4xHDR

vendid=0x2c9
devid=0x1021
sysimgguid=0xb00000000000012
caguid=0xb00000000000012
Ca	2 "H-0b00000000000012"		# "gpu-b mlx5_0"
[1](b0000000000a012) 	"S-0a00000000000010"[2]		# lid 12 lmc 0 "MF0;leaf:QM97/U1" lid 1 4xHDR
"""


async def test_a_plan_is_priced_on_hosts_joined_to_their_fabric(client: httpx.AsyncClient) -> None:
    imported = await client.post(URL, files=files(FABRIC, DUMP), data={"gpu": "H100 SXM5"})
    assert imported.status_code == 201, imported.text
    answer = imported.json()
    assert [file["format"] for file in answer["files"]] == ["ibnetdiscover", "nccl_xml"]
    assert answer["renamed"] == [{"old": "GPU_a", "new": "gpu-a"}]
    found = "adapters of 2 (GPU_a, gpu-b) hosts are found in their inside: 2 by name"
    assert found in answer["joined"]
    assert answer["topology"]["summary"]["vertices_by_kind"]["leaf"] == 1
    costs = {"forward_seconds": 0.002, "backward_seconds": 0.004}
    plan = {
        "topology": "cluster",
        "costs": {"stages": [{**costs, "boundary_bytes": 50_000_000}, costs]},
        "parallelism": {"pipeline": 2},
        "placement": {"devices": ["gpu-a/gpu0", "gpu-b/gpu1"]},
        "schedule": {"kind": "1f1b"},
        "workload": {"microbatches": 3},
    }
    transfers = await client.post("/v1/boundary-transfers", json={"plan": plan})
    assert transfers.status_code == 200, transfers.text
    transfer = transfers.json()["boundaries"][0]["forward"]
    # Over port 1 of the card, 200 Gb/s: the narrowest of all links between the two.
    assert transfer["lower_bound_seconds"] == pytest.approx(50e6 / 25e9)
    estimate = await client.post("/v1/estimates", json={"plan": plan})
    assert estimate.status_code == 201, estimate.text
    assert estimate.json()["iteration_seconds"] > 3 * 0.006


BOMB = b'<!DOCTYPE a [<!ENTITY x "ha"><!ENTITY y "&x;&x;">]><system version="1">&y;</system>'
NAMELESS = DUMP.replace(b'device="0x2330"', b'device="0xffff"')
CUT = DUMP[: len(DUMP) // 2]


@pytest.mark.parametrize(
    ("sent", "fields", "status", "pointers"),
    [
        (files(CUT), {}, 422, {"/files/0/line/15"}),
        (files(DUMP, CUT), {}, 422, {"/files/1/line/15"}),
        (files(BOMB), {"formats": "nccl_xml"}, 422, {"/files/0/line/1"}),
        (files(BOMB), {}, 422, {"/files/0"}),
        (files(b""), {}, 422, {"/files/0"}),
        (files(b"\0\xff"), {}, 422, {"/files/0"}),
        (files(DUMP), {"formats": "csv"}, 422, {"/files/0"}),
        (files(DUMP), {"formats": "nccl_xml,,"}, 422, {"/formats"}),
        (files(DUMP, STUB), FIELDS, 422, {"/files"}),
        (files(NAMELESS), {}, 422, {"/host_bridge_bytes_per_second"}),
        (files(DUMP), {**FIELDS, "gpu": "H9"}, 422, {"/gpu"}),
        (files(DUMP), {**FIELDS, "design": "dgx-9"}, 422, {"/design"}),
        (files(DUMP), {**FIELDS, "hosts": "0"}, 422, {"/hosts"}),
        (files(DUMP), {**FIELDS, "hosts": "999999999"}, 422, {"/hosts"}),
        (files(DUMP), {**FIELDS, "hosts": "a,b,a"}, 422, {"/hosts"}),
        (files(DUMP), {**FIELDS, "hosts": "a,,b"}, 422, {"/hosts"}),
        (files(DUMP), {**FIELDS, "hosts": ""}, 400, {"/hosts"}),
        (files(DUMP), {**FIELDS, "formats": "A"}, 400, {"/formats"}),
        (files(DUMP), {**FIELDS, "pcie_bytes_per_second": "0"}, 400, {"/pcie_bytes_per_second"}),
        (files(DUMP), {**FIELDS, "more": "1"}, 400, {"/more"}),
        (files(DUMP), {**FIELDS, "dry_run": "yes"}, 400, {"/dry_run"}),
        ({"file": ("a", b"b")}, {}, 400, {"/files", "/file"}),
        ([("files", (None, DUMP))], {}, 400, {"/files/0"}),
        (files(*[DUMP] * (MAX_IMPORT_FILES + 1)), {}, 400, {"/files"}),
    ],
)
async def test_a_bad_import_is_refused_and_leaves_nothing(
    client: httpx.AsyncClient,
    count_rows: CountRows,
    sent: Any,
    fields: dict[str, str],
    status: int,
    pointers: set[str],
) -> None:
    before = await count_rows()
    response = await client.post(URL, files=sent, data=fields)
    assert response.status_code == status, response.text
    assert {error["pointer"] for error in response.json()["errors"]} == pointers
    assert await count_rows() == before


async def test_a_cluster_larger_than_one_may_be_is_refused(client: httpx.AsyncClient) -> None:
    nets = b"".join(b'<net name="m%d" dev="%d" speed="1000"/>' % (n, n) for n in range(1000))
    content = b'<system version="1"><cpu numaid="0"><nic>%b</nic></cpu></system>' % nets
    response = await client.post(URL, files=files(content), data={"hosts": "4096"})
    assert response.status_code == 422
    (error,) = response.json()["errors"][:1]
    assert (error["pointer"], error["code"]) == ("/files", "out_of_range")


async def test_an_import_needs_a_name(client: httpx.AsyncClient) -> None:
    response = await client.post("/v1/topologies/Big/imports", files=files(DUMP))
    assert response.status_code == 400
    assert response.json()["errors"][0]["pointer"] == "/name"


async def test_several_files_of_a_host_are_laid_over_each_other(client: httpx.AsyncClient) -> None:
    matrix = (FIXTURES / "nvswitch-permuted.topo.txt").read_bytes()
    status = b"".join(
        b"GPU %d: NVIDIA H100 80GB HBM3 (UUID: GPU-%d)\n" % (gpu, gpu)
        + b"".join(b"\t Link %d: 26.562 GB/s\n" % link for link in range(18 - gpu))
        for gpu in range(3)
    )
    fields = {"hosts": "gpu[01-02],login", "formats": ",nvidia_smi_nvlink"}
    response = await client.post(URL, files=files(matrix, status), data=fields)
    assert response.status_code == 201, response.text
    answer = response.json()
    assert [file["format"] for file in answer["files"]] == ["nvidia_smi_topo", "nvidia_smi_nvlink"]
    assert answer["conflicts"] == [
        f"nvidia_smi_topo says 18 NVLinks of gpu{gpu}, nvidia_smi_nvlink says {18 - gpu}"
        for gpu in (1, 2)
    ]
    links = (await client.get("/v1/topologies/cluster/links?host=gpu02&kind=nvlink")).json()
    ports = {item["source"]: item["bandwidth_bytes_per_second"] for item in links["items"]}
    assert ports["gpu02/gpu1"] == pytest.approx(17 * 25e9)
    assert ports["gpu02/gpu0"] == pytest.approx(18 * 25e9)


def test_a_rate_can_be_stated_for_every_kind_of_link() -> None:
    stated = {f"{kind.value}_bytes_per_second" for kind in LinkKind}
    assert stated <= set(TopologyImportFields.__struct_fields__)
    fields = msgspec.convert(dict.fromkeys(stated, 2.0), TopologyImportFields)
    assert stated_of(fields, (), {}).rates == dict.fromkeys(LinkKind, 2.0)
