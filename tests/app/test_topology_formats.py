"""Which format a file of a cluster is read in: that of its content, and of one row alone."""

from pathlib import Path

import pytest

from service.app.topology_formats import TOPOLOGY_FORMATS, format_of
from service.core.errors import FaultCode
from tests.core.refusals import refusals

FIXTURES = Path(__file__).parents[1] / "formats" / "fixtures"
FORMATS = {
    "ibnetdiscover/two-leaves.out": "ibnetdiscover",
    "ibnetdiscover/grouped.out": "ibnetdiscover",
    "ibnetdiscover/ports.out": "ibnetdiscover",
    "ibnetdiscover/two-switches.net": "ibnetdiscover",
    "slurm/tree.conf": "slurm_conf",
    "slurm/blocks.conf": "slurm_conf",
    "slurm/rings.conf": "slurm_conf",
    "slurm/tree_and_blocks.conf": "slurm_conf",
    "slurm/all.yaml": "slurm_yaml",
    "slurm/scontrol.txt": "scontrol_topology",
    "slurm/scontrol_blocks.txt": "scontrol_topology",
    "slurm/clusters.txt": "nvlink_clusters",
    "topograph/model.yaml": "topograph",
    "topograph/model_of_lists.yaml": "topograph",
    "topograph/model_of_nodes.yaml": "topograph",
    "topograph/instances.json": "topograph",
    "topograph/netq.json": "netq",
    "topograph/netq_computes.json": "netq",
    "kubernetes/nodes.yaml": "kubernetes",
    "kubernetes/topology_and_nodes.yaml": "kubernetes",
    "kubernetes/kind.yaml": "kubernetes",
    "benchmarks/all_reduce.txt": "nccl_tests",
    "benchmarks/alltoall_two_hosts.txt": "nccl_tests",
    "benchmarks/old_broadcast.txt": "nccl_tests",
    "benchmarks/write_bw.txt": "perftest",
    "benchmarks/read_lat.txt": "perftest",
    "link_lists/simai.txt": "simai",
    "link_lists/ns3.txt": "ns3_links",
    "link_lists/astra.yml": "astra_sim",
}


@pytest.mark.parametrize("name", FORMATS)
def test_one_row_alone_recognises_a_file(name: str) -> None:
    content = (FIXTURES / name).read_bytes()
    fits = [each.name for each in TOPOLOGY_FORMATS if each.recognises(content)]
    assert fits == [FORMATS[name]]
    assert format_of(content).name == FORMATS[name]


def test_a_taccl_profile_is_recognised_in_order_to_be_refused() -> None:
    assert format_of(b'{"gpus_per_node": 8, "node_betas_list": [1]}').name == "taccl"


def test_a_format_that_is_named_is_taken_whatever_the_content() -> None:
    assert format_of(b"", "slurm_conf").name == "slurm_conf"
    assert refusals(lambda: format_of(b"", "pdf")) == [(FaultCode.NOT_SUPPORTED, ())]


@pytest.mark.parametrize("content", [b"", b"\n", b"\x00", b"\xff\xfe", b"{", b"%PDF-1.7"])
def test_nothing_recognises_what_is_none(content: bytes) -> None:
    assert refusals(lambda: format_of(content)) == [(FaultCode.UNREADABLE, ())]
