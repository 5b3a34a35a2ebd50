"""Files of fabrics that people published, against what is in them, counted by other means."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from service.core.topology.oversubscription import leaf_uplinks
from service.core.topology.readings import Reading
from service.formats.ibnetdiscover import looks_like_ibnetdiscover, read_ibnetdiscover
from service.formats.nvlink_clusters import looks_like_nvlink_clusters, read_nvlink_clusters
from service.formats.scontrol_topology import (
    looks_like_scontrol_topology,
    read_scontrol_topology,
)
from service.formats.slurm_conf import looks_like_slurm_conf, read_slurm_conf
from service.formats.slurm_yaml import looks_like_slurm_yaml, read_slurm_yaml

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "topologies"

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="no published topologies at hand")

IMPORTERS: dict[str, tuple[Callable[[bytes], bool], Callable[[bytes], Reading]]] = {
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


def test_no_published_fabric_is_forgotten() -> None:
    folders = {Path(name).parent for name, *_rest in COUNTS}
    there = {
        f"{folder}/{path.name}"
        for folder in folders
        for path in (FOLDER / folder).iterdir()
        if path.name != "SOURCES.txt"
    }
    assert there == {name for name, *_rest in COUNTS}


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
