"""Tables of nccl-tests and perftest beside the other files of a cluster, over HTTP."""

from pathlib import Path
from typing import Any

import httpx

FIXTURES = Path(__file__).resolve().parents[1] / "formats" / "fixtures"
MATRIX = (FIXTURES / "hosts" / "nvswitch-permuted.topo.txt").read_bytes()
BROADCAST = (FIXTURES / "benchmarks" / "old_broadcast.txt").read_bytes()
WRITES = (FIXTURES / "benchmarks" / "write_bw.txt").read_bytes()
URL = "/v1/topologies/cluster/imports"
PORTS = [(1, "node-a mlx5_0"), (2, "node-a mlx5_1"), (3, "node-b mlx5_0"), (4, "node-b mlx5_1")]


def fabric(rate: str) -> bytes:
    """Two hosts with two adapters each at one InfiniBand switch, as ibnetdiscover prints them."""
    lines = [
        "vendid=0x2c9",
        "devid=0xd2f0",
        "sysimgguid=0xa00000000000010",
        "switchguid=0xa00000000000010(a00000000000010)",
        'Switch\t41 "S-0a00000000000010"\t\t# "MF0;leaf:MQM9700/U1" enhanced port 0 lid 1 lmc 0',
    ]
    for port, name in PORTS:
        guid = f"0b0000000000001{port}"
        far = f'"H-{guid}"[1]({guid[1:]})'
        lines.append(f'[{port}]\t{far} \t\t# "{name}" lid 1{port} 4x{rate}')
    return "\n".join([*lines, ""]).encode()


async def imported(client: httpx.AsyncClient, *contents: bytes, **fields: str) -> Any:
    sent = [("files", (f"file{place}.txt", content)) for place, content in enumerate(contents)]
    answer = await client.post(URL, files=sent, data={"gpu": "H100 SXM5", **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def links(client: httpx.AsyncClient, kind: str) -> set[tuple[float, float | None]]:
    """The nominal and effective rates of the stored links of one kind."""
    page = (await client.get(f"/v1/topologies/cluster/links?kind={kind}&limit=200")).json()
    return {
        (one["bandwidth_bytes_per_second"], one.get("effective_bytes_per_second"))
        for one in page["items"]
    }


async def test_a_table_of_nccl_tests_gives_nvlink_its_effective_rate(
    client: httpx.AsyncClient,
) -> None:
    answer = await imported(client, MATRIX, BROADCAST, hosts="2")
    assert [file["format"] for file in answer["files"]] == ["nvidia_smi_topo", "nccl_tests"]
    assert answer["files"][1]["read"] == {"ranks": 2, "hosts": 1, "rows": 1}
    assert await links(client, "nvlink") == {(450e9, 20.97e9)}
    assert any("nccl-tests, broadcast of 8388608 bytes" in text for text in answer["assumptions"])


async def test_a_table_of_perftest_gives_cables_theirs(client: httpx.AsyncClient) -> None:
    answer = await imported(client, MATRIX, fabric("NDR"), WRITES)
    assert [file["format"] for file in answer["files"]][2] == "perftest"
    # 392.40 Gb/s of 65,536 bytes, over a cable of 400 Gb/s; nothing else was measured.
    assert await links(client, "network") == {(50e9, 49.05e9)}
    assert {rate for _, rate in await links(client, "pcie")} == {None}
    # A bound keeps to the nominal rate, a prediction uses what was measured.
    pair = {"source": "node-a/gpu1", "target": "node-b/gpu1", "message_bytes": 10**9}
    (path, *_) = (await client.post("/v1/topologies/cluster/paths", json=pair)).json()["paths"]
    assert path["lower_bound_seconds"] <= 1e9 / 50e9 < path["predicted_seconds"]


async def test_what_a_cable_cannot_carry_is_left_out_with_its_line(
    client: httpx.AsyncClient,
) -> None:
    long_ones = b"".join(line for line in WRITES.splitlines(True) if not line.startswith(b" 2 "))
    answer = await imported(client, MATRIX, fabric("HDR"), long_ones)
    assert await links(client, "network") == {(25e9, None)}
    (left,) = [item for item in answer["left_out"] if "measurements" in item["detail"]]
    assert (left["file"], left["line"]) == (2, 11)
    assert "asks more of network links" in left["detail"]
