"""Published files of hosts, each with its true counts or refused for its true reason.

They are other people's files and not part of the project; where they are absent this is skipped.
"""

from pathlib import Path

import pytest

from service.app.topology_formats import format_of
from service.core.errors import InvalidInput
from service.core.topology.cluster import VertexKind
from service.core.topology.expand import expand
from service.core.topology.join import Stated, join
from service.core.topology.readings import Reading
from service.formats.documents.topology import to_core
from service.formats.documents.topology_from_core import from_core
from tests.app.path_words import differing_words

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "topologies"
FOLDERS = ("nccl_xml", "nvidia_smi_topo", "hwloc")

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="no published files here")

# (GPUs, NICs, PCIe switches, NVSwitches, NVLinks), and the product where the file does not tell it.
READ: dict[str, tuple[tuple[int, int, int, int, int], str | None]] = {
    "nccl_xml/aws_p4d_a100.xml": ((8, 4, 4, 0, 0), None),
    "nccl_xml/azure_ncv4_a100.xml": ((4, 1, 0, 0, 0), None),  # each names itself as its peer
    "nccl_xml/azure_ndv4_a100.xml": ((8, 8, 4, 0, 0), None),
    "nccl_xml/oci_a100_flattened.xml": ((8, 8, 4, 0, 0), None),
    "nccl_xml/oci_h100_8gpu_16net_dump.xml": ((8, 16, 8, 1, 8 * 18), None),
    "nccl_xml/rccl_3gpu_pcie.xml": ((3, 1, 0, 0, 0), None),
    "nccl_xml/rccl_8gpu_collnet_4nic.xml": ((8, 4, 4, 0, 12), None),
    "nccl_xml/rccl_8gpu_ts1_nps4_3net.xml": ((8, 3, 0, 0, 8), None),
    "nccl_xml/rccl_mi100_8gpu_rome_nps4_4nic.xml": ((8, 4, 4, 0, 12), None),
    "nccl_xml/rccl_mi250_16gcd.xml": ((16, 8, 4, 0, 56), None),
    "nccl_xml/rccl_mi250_8gcd_alt.xml": ((8, 1, 0, 0, 12), None),
    "nccl_xml/rccl_mi300x_8gpu_8nic.xml": ((8, 8, 8, 0, 8 * 7 // 2), None),
    "nccl_xml/rccl_vega20_8gpu_2hive_2nic.xml": ((8, 2, 2, 0, 8), None),
    "nccl_xml/rccl_vega20_8gpu_pcie_2nic.xml": ((8, 2, 2, 0, 0), None),
    "nvidia_smi_topo/a100_pcie_8gpu_nvlink_pairs.txt": ((8, 0, 0, 0, 4 * 12), "A100 PCIe"),
    "nvidia_smi_topo/a30_8gpu_2nic_phb.txt": ((8, 2, 0, 0, 0), "A30"),
    "nvidia_smi_topo/a800_8gpu_nv8_4nic.txt": ((8, 4, 3, 1, 8 * 8), "A800 SXM4"),
    "nvidia_smi_topo/dgx1_v100_8gpu_4nic_oldformat.txt": ((8, 4, 4, 0, 8 * 6 // 2), "V100 SXM2"),
    "nvidia_smi_topo/gh200_quad_nv6_numa_ids.txt": ((4, 0, 0, 0, 6 * 6), "GH200"),
    "nvidia_smi_topo/h20_8gpu_8nic_numbering_offset.txt": ((8, 8, 8, 1, 8 * 18), "H20"),
    "nvidia_smi_topo/hgx_h200_8gpu_6nic_cross_numa_node.txt": ((8, 6, 4, 1, 8 * 18), "H200"),
    "nvidia_smi_topo/p40_8gpu_pcie_soc_token.txt": ((8, 1, 3, 0, 0), "P40"),
    "nvidia_smi_topo/rtx6000ada_4gpu_4nic.txt": ((4, 4, 2, 0, 0), "RTX 6000 Ada"),
    "nvidia_smi_topo/single_gpu_no_peer.txt": ((1, 0, 0, 0, 0), "L4"),
    "hwloc/nvidiaDGX2.xml": ((16, 0, 12, 1, 16 * 6), None),
    "hwloc/32em64t-2n8c2t-pci-normalio.xml": ((4, 3, 2, 0, 0), "A30"),
}
REFUSED = {
    "nccl_xml/aws_g5_48xl_a10g.xml": "neither a class nor <gpu> or <nic>",
    "nccl_xml/azure_ncv4_GRAPH.xml": "a graph that NCCL has chosen",
    "nvidia_smi_topo/dgx_h100_8gpu_12nic_truncated_rows.txt": "without the rows of NIC6, NIC7",
    "nvidia_smi_topo/dgx_h100_p2p_matrix_OK.txt": "topo -p2p",
    "nvidia_smi_topo/l4_2gpu_p2p_matrix_CNS.txt": "topo -p2p",
}


def read(name: str) -> Reading:
    content = (FOLDER / name).read_bytes()
    return format_of(content).read(content)


def test_every_published_file_is_in_the_table() -> None:
    found = {
        f"{folder}/{file.name}"
        for folder in FOLDERS
        for file in (FOLDER / folder).iterdir()
        if file.name != "SOURCES.txt"
    }
    assert found == READ.keys() | REFUSED.keys()


@pytest.mark.parametrize("name", READ)
def test_a_file_is_read_with_its_true_counts(name: str) -> None:
    counts, _ = READ[name]
    reading = read(name)
    (host,) = reading.hosts
    kinds = [device.kind for device in host.devices]
    found = (
        kinds.count(VertexKind.GPU),
        kinds.count(VertexKind.NIC),
        kinds.count(VertexKind.PCIE_SWITCH),
        kinds.count(VertexKind.NVSWITCH),
        reading.facts["nvlinks"],
    )
    assert found == counts


@pytest.mark.parametrize("name", READ)
def test_it_becomes_a_host_when_the_product_is_known(name: str) -> None:
    (gpus, nics, *_), product = READ[name]
    joined = join([read(name)], Stated(hosts=("host0", "host1"), gpu=product))
    assert to_core(from_core(joined.spec)) == joined.spec
    kinds = [vertex.kind for vertex in expand(joined.spec).cluster.vertices.values()]
    assert (kinds.count(VertexKind.GPU), kinds.count(VertexKind.NIC)) == (2 * gpus, 2 * nics)


# (word of the matrix, kind of the path) where affinities contradict a driver's words.
CONTRADICTED = {
    "nvidia_smi_topo/a30_8gpu_2nic_phb.txt": {("SYS", "node")},
    "nvidia_smi_topo/hgx_h200_8gpu_6nic_cross_numa_node.txt": {("NODE", "sys")},
}


@pytest.mark.parametrize("name", [name for name in READ if name.startswith("nvidia_smi_topo/")])
def test_paths_are_called_what_the_matrix_calls_them(name: str) -> None:
    product = READ[name][1]
    assert product is not None
    found = differing_words((FOLDER / name).read_bytes(), product)
    assert set(found.values()) == CONTRADICTED.get(name, set())
    assert bool(found) == any("whose affinities are those of" in note for note in read(name).notes)


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_tells_no_host_is_refused_for_what_it_is(name: str) -> None:
    with pytest.raises(InvalidInput, match=REFUSED[name]):
        read(name)
