"""Files of fabrics that people published, against what is in them, counted by other means."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from service.core.topology.oversubscription import leaf_uplinks
from service.core.topology.readings import Reading
from service.formats.astra_sim import looks_like_astra_sim, read_astra_sim
from service.formats.ibnetdiscover import looks_like_ibnetdiscover, read_ibnetdiscover
from service.formats.kubernetes import looks_like_kubernetes, read_kubernetes
from service.formats.netq import looks_like_netq, read_netq
from service.formats.ns3_links import looks_like_ns3_links, read_ns3_links
from service.formats.nvlink_clusters import looks_like_nvlink_clusters, read_nvlink_clusters
from service.formats.scontrol_topology import (
    looks_like_scontrol_topology,
    read_scontrol_topology,
)
from service.formats.simai import looks_like_simai, read_simai
from service.formats.slurm_conf import looks_like_slurm_conf, read_slurm_conf
from service.formats.slurm_yaml import looks_like_slurm_yaml, read_slurm_yaml
from service.formats.taccl import looks_like_taccl, read_taccl
from service.formats.topograph import looks_like_topograph, read_topograph
from tests.core.refusals import refusal_text

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "topologies"

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="no published topologies at hand")

IMPORTERS: dict[str, tuple[Callable[[bytes], bool], Callable[[bytes], Reading]]] = {
    "astra_sim": (looks_like_astra_sim, read_astra_sim),
    "kubernetes": (looks_like_kubernetes, read_kubernetes),
    "netq": (looks_like_netq, read_netq),
    "ns3_links": (looks_like_ns3_links, read_ns3_links),
    "simai": (looks_like_simai, read_simai),
    "taccl": (looks_like_taccl, read_taccl),
    "topograph": (looks_like_topograph, read_topograph),
    "ibnetdiscover": (looks_like_ibnetdiscover, read_ibnetdiscover),
    "nvlink_clusters": (looks_like_nvlink_clusters, read_nvlink_clusters),
    "scontrol_topology": (looks_like_scontrol_topology, read_scontrol_topology),
    "slurm_conf": (looks_like_slurm_conf, read_slurm_conf),
    "slurm_yaml": (looks_like_slurm_yaml, read_slurm_yaml),
}

# File, importer, and counts that the reading must have among its facts.
COUNTS = [
    (
        "ibnetdiscover/ndr_dgx_cluster.out",
        "ibnetdiscover",
        {
            "switches": 40,
            "leaf_switches": 31,
            "adapters": 582,
            "aggregation_nodes": 40,
            "cables": 1114,
            "switch_cables": 532,
            "hosts": 120,
            "adapters_without_host": 74,
        },
    ),
    (
        "ibnetdiscover/ibm_small.out",
        "ibnetdiscover",
        {"switches": 1, "adapters": 2, "hosts": 2, "cables": 2},
    ),
    (
        "ibnetdiscover/qdr_sun_dcs36_single_ca.out",
        "ibnetdiscover",
        {"switches": 1, "adapters": 1, "hosts": 1, "cables": 1},
    ),
    (
        "ibnetdiscover/truncated_no_switch.out",
        "ibnetdiscover",
        {"switches": 0, "adapters": 1, "hosts": 1, "cables": 0},
    ),
    (
        "ibnetdiscover/list_format_p_edr.out",
        "ibnetdiscover",
        {"switches": 4, "adapters": 3, "cables": 4, "switch_cables": 1, "unconnected_ports": 2},
    ),
    (
        "ibnetdiscover/ibsim_net_documented",
        "ibnetdiscover",
        {"switches": 2, "adapters": 2, "cables": 4, "switch_cables": 2},
    ),
    (
        "ibnetdiscover/ibsim_net.2sw2path4hca",
        "ibnetdiscover",
        {"switches": 2, "adapters": 4, "cables": 6, "switch_cables": 2},
    ),
    (
        "slurm/tree_3level_large.conf",
        "slurm_conf",
        {"switches": 529, "hosts": 10_000, "levels": 4, "roots": 1},
    ),
    (
        "slurm/tree_2group_20leaf.conf",
        "slurm_conf",
        {"switches": 23, "hosts": 400, "levels": 3, "roots": 1},
    ),
    ("slurm/block_8x4.conf", "slurm_conf", {"blocks": 8, "hosts": 32, "block_sizes": 5}),
    ("slurm/cyclecloud_tree_ndv.conf", "slurm_conf", {"switches": 6, "hosts": 16, "levels": 2}),
    ("slurm/cyclecloud_block_gb200.conf", "slurm_conf", {"blocks": 4, "hosts": 72}),
    ("slurm/cyclecloud_node_clusteruuid.txt", "nvlink_clusters", {"domains": 4, "hosts": 72}),
    (
        "slurm/topograph_slinky_tree.conf",
        "slurm_conf",
        {"switches": 19, "hosts": 96, "levels": 3, "roots": 1},
    ),
    (
        "slurm/scontrol_show_topology_soperator.txt",
        "scontrol_topology",
        {"switches": 6, "hosts": 4, "levels": 3, "roots": 1},
    ),
    ("slurm/topology_yaml_all_plugins.yaml", "slurm_yaml", {"switches": 3, "hosts": 4}),
    (
        "topograph/model_medium.yaml",
        "topograph",
        {"switches": 7, "hosts": 8, "levels": 3, "domains": 4},
    ),
    (
        "topograph/model_nvl72.yaml",
        "topograph",
        {"switches": 7, "hosts": 72, "levels": 3, "domains": 4},
    ),
    (
        "topograph/model_dual-xclr-regular.yaml",
        "topograph",
        {"switches": 19, "hosts": 96, "levels": 3, "domains": 2},
    ),
    (
        "topograph/netq_topologyGraph.json",
        "netq",
        {"switches": 3, "hosts": 8, "cables": 79, "switch_cables": 47},
    ),
    ("topograph/netq_computeNodes.json", "netq", {"hosts": 2, "domains": 1, "gpus": 8}),
    ("k8s/kueue_kind_node_labels.yaml", "kubernetes", {"switches": 6, "hosts": 8, "levels": 2}),
    (
        "astra_sim/Ring_FullyConnected_Switch.yml",
        "astra_sim",
        {"gpus": 64, "links": 320, "switches": 16},
    ),
    ("astra_sim/dgx_v100_8gpu.yml", "astra_sim", {"gpus": 8, "links": 12, "switches": 0}),
    ("astra_sim/hgx_h100_8gpu.yml", "astra_sim", {"gpus": 8, "links": 8, "switches": 1}),
    ("astra_sim/hgx_h100_16gpu.yml", "astra_sim", {"gpus": 16, "links": 24, "switches": 2}),
    ("astra_sim/tpu_v3_32_2dtorus.yml", "astra_sim", {"gpus": 32, "links": 64, "switches": 0}),
    (
        "simai/Spectrum-X_16g_8gps_400Gbps_H100",
        "simai",
        {"gpus": 16, "hosts": 2, "nvswitches": 2, "switches": 10, "links": 48},
    ),
    (
        "simai/AlibabaHPN_64g_8gps_DualToR_DualPlane_200Gbps_H100",
        "simai",
        {"gpus": 64, "hosts": 8, "nvswitches": 8, "switches": 32, "links": 320},
    ),
    (
        "simai/Rail_Opti_SingleToR_32g_8gps_400Gbps_H100",
        "simai",
        {"gpus": 32, "hosts": 4, "nvswitches": 4, "switches": 72, "links": 576},
    ),
]

# File, importer, and what it is refused for.
REFUSED = [
    ("k8s/kueue_topology_oci.yaml", "kubernetes", "it names labels and no node"),
    ("taccl/topo-ndv2-1MB.json", "taccl", "not which GPUs a class joins"),
    ("taccl/topo-dgx2-1MB.json", "taccl", "not which GPUs a class joins"),
]


def content_of(name: str) -> bytes:
    return (FOLDER / name).read_bytes()


@pytest.mark.parametrize(("name", "importer", "counts"), COUNTS, ids=[row[0] for row in COUNTS])
def test_a_published_file_has_its_true_counts(
    name: str, importer: str, counts: dict[str, int]
) -> None:
    content = content_of(name)
    assert [each for each, (fits, _read) in IMPORTERS.items() if fits(content)] == [importer]
    found = IMPORTERS[importer][1](content)
    assert {key: found.facts[key] for key in counts} == counts


@pytest.mark.parametrize(("name", "importer", "reason"), REFUSED, ids=[row[0] for row in REFUSED])
def test_a_published_file_is_refused_for_what_it_lacks(
    name: str, importer: str, reason: str
) -> None:
    content = content_of(name)
    assert [each for each, (fits, _read) in IMPORTERS.items() if fits(content)] == [importer]
    assert reason in refusal_text(lambda: IMPORTERS[importer][1](content))


def test_no_published_fabric_is_forgotten() -> None:
    told = {name for name, *_rest in (*COUNTS, *REFUSED)}
    folders = {Path(name).parent for name in told}
    there = {
        f"{folder}/{path.name}"
        for folder in folders
        for path in (FOLDER / folder).iterdir()
        if path.name != "SOURCES.txt"
    }
    assert there == told


def test_spines_of_the_ndr_cluster_are_cabled_twice_as_a_rule() -> None:
    found = read_ibnetdiscover(content_of("ibnetdiscover/ndr_dgx_cluster.out"))
    levels = Counter(switch.level for switch in found.switches)
    assert levels == {0: 31, 1: 9}
    pairs = Counter(
        frozenset((cable.source.switch, cable.target.switch))
        for cable in found.cables
        if cable.source.switch and cable.target.switch
    )
    assert Counter(pairs.values()) == {2: 263, 1: 6}


def test_leaves_of_the_ndr_cluster_are_oversubscribed_as_their_cables_are() -> None:
    found = read_ibnetdiscover(content_of("ibnetdiscover/ndr_dgx_cluster.out"))
    leaves = leaf_uplinks(found.switches, found.cables)
    assert len(leaves) == 31
    assert {leaf.host_cables for leaf in leaves} == {16, 17, 18, 19}
    assert {leaf.uplink_cables for leaf in leaves} <= set(range(14, 19))
    ratios = [leaf.oversubscription_ratio or 0.0 for leaf in leaves]
    assert min(ratios) == pytest.approx(16 / 18)
    assert max(ratios) == pytest.approx(18 / 15)
