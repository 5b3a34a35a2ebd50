"""The reference designs against a table of counts and rates that a person can check."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import networkx as nx
import pytest

from service.core.topology.cluster import LinkKind, RateOrigin, VertexKind
from service.core.topology.designs import DESIGNS, HostDesign

GB = 1e9
SAMPLES = Path(__file__).resolve().parents[4] / "shared" / "data" / "topologies" / "nccl_xml"


@dataclass(frozen=True)
class Row:
    """What one design should be; rates in GB/s in one direction.

    `nvswitch_planes` counts vertices, `gpu_rate` all NVLinks (or xGMI) of one GPU together, and
    `gpu_host_rate` its connection to the host.
    """

    design: str
    gpus: int
    nics: int
    pcie_switches: int
    nvswitch_planes: int
    gpu_rate: float
    gpu_host_rate: float
    pcie_rate: float
    nic_rate: float
    socket_rate: float
    gpus_sharing_a_nic: int
    gpu_memory: float | None
    bf16_or_fp16_tflops: float | None


TABLE = [
    Row("dgx-h100", 8, 8, 8, 1, 450, 63, 63, 50, 192, 1, 80, 989.5),
    Row("dgx-h200", 8, 8, 8, 1, 450, 63, 63, 50, 192, 1, 141, 989.5),
    Row("hgx-a100", 8, 8, 4, 1, 300, 31.5, 31.5, 25, 144, 1, 80, 312),
    Row("azure-nd-v4", 8, 8, 4, 1, 300, 31.5, 31.5, 25, 144, 1, 40, 312),
    Row("p4d", 8, 4, 4, 1, 300, 31.5, 31.5, 12.5, 62.4, 2, 40, 312),
    Row("dgx-1-v100", 8, 4, 4, 0, 150, 15.75, 15.75, 12.5, 38.4, 2, 32, 125),
    Row("dgx-2", 16, 8, 12, 2, 150, 15.75, 15.75, 12.5, 62.4, 2, 32, 125),
    Row("gb200-nvl72", 4, 4, 0, 0, 0, 450, 63, 50, 450, 1, 186, 2500),
    Row("mi300x", 8, 8, 8, 0, 448, 63, 63, 50, 192, 1, 192, 1307.4),
    Row("mi250x", 16, 8, 4, 0, 350, 15.75, 31.5, 25, 144, 2, 64, 191.5),
    Row("pcie-gen4-8gpu", 8, 2, 2, 0, 0, 31.5, 31.5, 25, 144, 4, None, None),
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
    assert counts[VertexKind.NVSWITCH] == row.nvswitch_planes
    assert counts[VertexKind.CPU] == 2
    gpus = {device.name for device in design.devices if device.kind is VertexKind.GPU}
    for link in design.links:
        if link.kind in (LinkKind.NVLINK, LinkKind.SOCKET):
            continue
        # The published figures are rounded down; a bound must not be beaten by the rest.
        stated = row.gpu_host_rate if link.source in gpus else row.pcie_rate
        assert stated * GB <= link.bandwidth_bytes_per_second <= 1.0003 * stated * GB
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
        assert nvlink == row.gpu_rate * GB
        memory = None if row.gpu_memory is None else row.gpu_memory * GB
        assert gpu.memory_bytes == memory
        peak = gpu.peak_flops.get("bf16", gpu.peak_flops.get("fp16"))
        assert peak == (None if row.bf16_or_fp16_tflops is None else row.bf16_or_fp16_tflops * 1e12)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.design)
def test_each_gpu_is_paired_with_a_nic_on_its_own_switch(row: Row) -> None:
    """Beside Grace CPUs there are no switches: GPU and NIC are on one CPU."""
    design = DESIGNS[row.design]
    joins = [link for link in design.links if link.kind is not LinkKind.NVLINK]
    nic_of_rail = {d.rail: d.name for d in design.devices if d.kind is VertexKind.NIC}
    above = {link.source: link.target for link in joins if link.source[:3] in ("gpu", "nic")}
    sharing: Counter[str] = Counter()
    for gpu in (device for device in design.devices if device.kind is VertexKind.GPU):
        nic = nic_of_rail[gpu.rail]
        assert above[nic] == above[gpu.name]
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
def test_half_of_the_host_bridges_are_on_each_socket(design: HostDesign) -> None:
    bridges = [link for link in design.links if link.kind is LinkKind.HOST_BRIDGE]
    cpus = [link.target for link in bridges]
    assert cpus == ["cpu0"] * (len(cpus) // 2) + ["cpu1"] * (len(cpus) // 2)


def links_of_pairs(design: str, gigabytes: float) -> list[list[int]]:
    """How many links each pair of GPUs has; each carries so much."""
    gpus = sum(device.kind is VertexKind.GPU for device in DESIGNS[design].devices)
    found = [[0] * gpus for _ in range(gpus)]
    for link in DESIGNS[design].links:
        if link.kind is LinkKind.NVLINK:
            one, other = int(link.source[3:]), int(link.target[3:])
            assert not found[one][other]
            found[one][other] = found[other][one] = link.lanes
            assert link.bandwidth_bytes_per_second == gigabytes * GB * link.lanes
    return found


def test_the_hybrid_cube_mesh() -> None:
    assert links_of_pairs("dgx-1-v100", 25) == HYBRID_CUBE_MESH


def test_every_pair_of_mi300x_has_one_link() -> None:
    assert links_of_pairs("mi300x", 64) == [
        [int(one != other) for other in range(8)] for one in range(8)
    ]


def test_the_dies_of_mi250x_are_joined_irregularly() -> None:
    found = links_of_pairs("mi250x", 50)
    assert [sum(row) for row in found] == [7] * 16
    # Four between the dies of a module; elsewhere one or two, and not every pair has any.
    assert all(found[die][die ^ 1] == 4 for die in range(16))
    others = Counter(
        links for die, row in enumerate(found) for to, links in enumerate(row) if to != die ^ 1
    )
    assert others == {0: 16 * 15 - 32 - 8, 1: 32, 2: 8}
    # Every die has one or two neighbours on other modules over single links.
    assert [row.count(1) for row in found] == [1, 3, 3, 1, 1, 3, 3, 1, 1, 3, 3, 1, 1, 3, 3, 1]


def test_the_planes_of_a_dgx_2_do_not_block_each_other() -> None:
    """Eight GPUs of 150 GB/s on each plane, and as much between the planes."""
    ports = Counter(
        link.target
        for link in DESIGNS["dgx-2"].links
        if link.kind is LinkKind.NVLINK and link.source.startswith("gpu")
    )
    assert ports == {"nvswitch0": 8, "nvswitch1": 8}
    (trunk,) = (link for link in DESIGNS["dgx-2"].links if link.source == "nvswitch0")
    assert (trunk.target, trunk.lanes) == ("nvswitch1", 48)
    assert trunk.bandwidth_bytes_per_second == 8 * 150 * GB


def test_a_dgx_2_has_two_tiers_of_pcie_switches() -> None:
    """Four GPUs and two NICs share an uplink of one x16 to their CPU."""
    links = DESIGNS["dgx-2"].links
    upper = [(link.source, link.target) for link in links if link.target.startswith("upper")]
    assert upper == [(f"pcie{n}", f"upper{n // 2}") for n in range(8)]
    bridges = [(link.source, link.target) for link in links if link.kind is LinkKind.HOST_BRIDGE]
    assert bridges == [(f"upper{n}", f"cpu{n // 2}") for n in range(4)]


@pytest.mark.parametrize(
    ("file", "design"),
    [("rccl_mi250_16gcd.xml", "mi250x"), ("rccl_mi300x_8gpu_8nic.xml", "mi300x")],
)
def test_xgmi_is_wired_as_the_models_of_rccl_have_it(file: str, design: str) -> None:
    if not (SAMPLES / file).is_file():
        pytest.skip("the samples are not beside this checkout")
    tree = ElementTree.parse(SAMPLES / file)
    elements = [pci for pci in tree.iter("pci") if pci.find("gpu") is not None]
    number = {pci.get("busid", ""): place for place, pci in enumerate(elements)}
    found = [[0] * len(elements) for _ in elements]
    for one, pci in enumerate(elements):
        for link in pci.iter("xgmi"):
            found[one][number[link.get("target", "")]] = int(link.get("count", ""))
    (rate,) = {
        link.bandwidth_bytes_per_second / link.lanes
        for link in DESIGNS[design].links
        if link.kind is LinkKind.NVLINK
    }
    assert links_of_pairs(design, rate / GB) == found


@pytest.mark.parametrize("design", DESIGNS.values(), ids=lambda design: design.name)
def test_what_is_assumed_is_said(design: HostDesign) -> None:
    text = "\n".join(design.assumptions)
    assert f"{design.name}: the socket link is assumed" in text
    assert ("NVSwitch chips" in text) == any(
        device.kind is VertexKind.NVSWITCH for device in design.devices
    )
    if any(link.latency_seconds is not None for link in design.links):
        assert " ns " in text
