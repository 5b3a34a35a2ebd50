"""The reference designs against a table of counts and rates that a person can check."""

from collections import Counter
from dataclasses import dataclass

import networkx as nx
import pytest

from service.core.topology.cluster import LinkKind, RateOrigin, VertexKind
from service.core.topology.designs import DESIGNS, HostDesign

GB = 1e9


@dataclass(frozen=True)
class Row:
    """What one design should be; rates in GB/s in one direction."""

    design: str
    gpus: int
    nics: int
    pcie_switches: int
    nvlink_rate_of_a_gpu: float
    pcie_rate: float
    nic_rate: float
    socket_rate: float
    gpus_sharing_a_nic: int
    gpu_memory: float | None
    bf16_or_fp16_tflops: float | None


TABLE = [
    Row("dgx-h100", 8, 8, 8, 450, 63, 50, 192, 1, 80, 989.5),
    Row("hgx-a100", 8, 8, 4, 300, 31.5, 25, 144, 1, 80, 312),
    Row("p4d", 8, 4, 4, 300, 31.5, 12.5, 62.4, 2, 40, 312),
    Row("dgx-1-v100", 8, 4, 4, 150, 15.75, 12.5, 38.4, 2, 32, 125),
    Row("pcie-gen4-8gpu", 8, 2, 2, 0, 31.5, 25, 144, 4, None, None),
]

# NVLinks between pairs of a DGX-1, as `nvidia-smi topo -m` of such a machine prints them.
HYBRID_CUBE_MESH = [
    [0, 1, 1, 2, 2, 0, 0, 0],
    [1, 0, 2, 1, 0, 2, 0, 0],
    [1, 2, 0, 2, 0, 0, 1, 0],
    [2, 1, 2, 0, 0, 0, 0, 1],
    [2, 0, 0, 0, 0, 1, 1, 2],
    [0, 2, 0, 0, 1, 0, 2, 1],
    [0, 0, 1, 0, 1, 2, 0, 2],
    [0, 0, 0, 1, 2, 1, 2, 0],
]


def rates(design: HostDesign, kind: LinkKind) -> set[float]:
    return {link.bandwidth_bytes_per_second for link in design.links if link.kind is kind}


def test_the_table_is_complete() -> None:
    assert [row.design for row in TABLE] == list(DESIGNS)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.design)
def test_counts_and_rates(row: Row) -> None:
    design = DESIGNS[row.design]
    counts = Counter(device.kind for device in design.devices)
    assert counts[VertexKind.GPU] == row.gpus
    assert counts[VertexKind.NIC] == row.nics
    assert counts[VertexKind.PCIE_SWITCH] == row.pcie_switches
    assert counts[VertexKind.CPU] == 2
    # The published figures are rounded down; a bound must not be beaten by the rest.
    for kind in (LinkKind.PCIE, LinkKind.HOST_BRIDGE):
        (rate,) = rates(design, kind)
        assert row.pcie_rate * GB <= rate <= 1.0003 * row.pcie_rate * GB
    assert list(rates(design, LinkKind.SOCKET)) == pytest.approx([row.socket_rate * GB])
    nics = [device for device in design.devices if device.kind is VertexKind.NIC]
    assert {nic.port_bytes_per_second for nic in nics} == {row.nic_rate * GB}
    assert [nic.rail for nic in nics] == list(range(row.nics))
    for gpu in (device for device in design.devices if device.kind is VertexKind.GPU):
        nvlink = sum(
            link.bandwidth_bytes_per_second
            for link in design.links
            if link.kind is LinkKind.NVLINK and gpu.name in (link.source, link.target)
        )
        assert nvlink == row.nvlink_rate_of_a_gpu * GB
        memory = None if row.gpu_memory is None else row.gpu_memory * GB
        assert gpu.memory_bytes == memory
        peak = gpu.peak_flops.get("bf16", gpu.peak_flops.get("fp16"))
        assert peak == (None if row.bf16_or_fp16_tflops is None else row.bf16_or_fp16_tflops * 1e12)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.design)
def test_each_gpu_is_paired_with_a_nic_on_its_own_pcie_switch(row: Row) -> None:
    design = DESIGNS[row.design]
    switch = {link.source: link.target for link in design.links if link.kind is LinkKind.PCIE}
    nic_of_rail = {d.rail: d.name for d in design.devices if d.kind is VertexKind.NIC}
    sharing: Counter[str] = Counter()
    for gpu in (device for device in design.devices if device.kind is VertexKind.GPU):
        nic = nic_of_rail[gpu.rail]
        assert switch[nic] == switch[gpu.name]
        sharing[nic] += 1
    assert set(sharing.values()) == {row.gpus_sharing_a_nic}


@pytest.mark.parametrize("design", DESIGNS.values(), ids=lambda design: design.name)
def test_a_design_is_whole(design: HostDesign) -> None:
    graph: nx.Graph[str] = nx.Graph((link.source, link.target) for link in design.links)
    names = [device.name for device in design.devices]
    assert len(set(names)) == len(names)
    assert set(graph) == set(names)
    assert nx.is_connected(graph)
    assert graph.number_of_edges() == len(design.links)
    for link in design.links:
        effective = link.effective_bytes_per_second
        assert effective is None or effective <= link.bandwidth_bytes_per_second
        assert link.latency_floor_seconds == 0
        assumed = link.bandwidth_origin is RateOrigin.ASSUMED
        assert assumed == (link.kind is LinkKind.SOCKET)
        assert link.bandwidth_source


@pytest.mark.parametrize("design", DESIGNS.values(), ids=lambda design: design.name)
def test_half_of_the_pcie_switches_hang_under_each_socket(design: HostDesign) -> None:
    bridges = [link for link in design.links if link.kind is LinkKind.HOST_BRIDGE]
    cpus = [link.target for link in bridges]
    assert cpus == ["cpu0"] * (len(cpus) // 2) + ["cpu1"] * (len(cpus) // 2)


def test_the_hybrid_cube_mesh() -> None:
    found = [[0] * 8 for _ in range(8)]
    for link in DESIGNS["dgx-1-v100"].links:
        if link.kind is LinkKind.NVLINK:
            one, other = int(link.source[3:]), int(link.target[3:])
            found[one][other] = found[other][one] = link.lanes
            assert link.bandwidth_bytes_per_second == 25 * GB * link.lanes
    assert found == HYBRID_CUBE_MESH


@pytest.mark.parametrize("design", DESIGNS.values(), ids=lambda design: design.name)
def test_what_is_assumed_is_said(design: HostDesign) -> None:
    text = "\n".join(design.assumptions)
    assert f"{design.name}: the socket link is assumed" in text
    assert ("NVSwitch chips" in text) == any(
        device.kind is VertexKind.NVSWITCH for device in design.devices
    )
    if any(link.latency_seconds is not None for link in design.links):
        assert " ns " in text
