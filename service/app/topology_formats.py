"""The formats of files that tell of a cluster, one row each."""

from collections.abc import Callable
from dataclasses import dataclass

from service.app.file_formats import find_format
from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.topology.readings import Reading
from service.formats.astra_sim import looks_like_astra_sim, read_astra_sim
from service.formats.hwloc_xml import looks_like_hwloc_xml, read_hwloc_xml
from service.formats.ibnetdiscover import looks_like_ibnetdiscover, read_ibnetdiscover
from service.formats.kubernetes import looks_like_kubernetes, read_kubernetes
from service.formats.nccl_tests import looks_like_nccl_tests, read_nccl_tests
from service.formats.nccl_xml import looks_like_nccl_xml, read_nccl_xml
from service.formats.netq import looks_like_netq, read_netq
from service.formats.ns3_links import looks_like_ns3_links, read_ns3_links
from service.formats.nvidia_smi_nvlink import (
    looks_like_nvidia_smi_nvlink,
    read_nvidia_smi_nvlink,
)
from service.formats.nvidia_smi_topo import looks_like_nvidia_smi_topo, read_nvidia_smi_topo
from service.formats.nvlink_clusters import looks_like_nvlink_clusters, read_nvlink_clusters
from service.formats.perftest import looks_like_perftest, read_perftest
from service.formats.scontrol_topology import looks_like_scontrol_topology, read_scontrol_topology
from service.formats.simai import looks_like_simai, read_simai
from service.formats.slurm_conf import looks_like_slurm_conf, read_slurm_conf
from service.formats.slurm_yaml import looks_like_slurm_yaml, read_slurm_yaml
from service.formats.taccl import looks_like_taccl, read_taccl
from service.formats.topograph import looks_like_topograph, read_topograph

__all__ = ["TOPOLOGY_FORMATS", "TopologyFormat", "format_of"]


@dataclass(frozen=True, slots=True)
class TopologyFormat:
    """A format by name: whether content looks like it, and what a file of it tells.

    `recognises` is quick and never raises. It also answers for look-alikes that `read` refuses by
    name. `read` raises `InvalidInput` with paths `("line", n)`, or `()` for the file as a whole.
    """

    name: str
    recognises: Callable[[bytes], bool]
    read: Callable[[bytes], Reading]


# The first that recognises a file reads it, so those with the plainer marks stand first.
TOPOLOGY_FORMATS = (
    TopologyFormat("nccl_xml", looks_like_nccl_xml, read_nccl_xml),
    TopologyFormat("hwloc_xml", looks_like_hwloc_xml, read_hwloc_xml),
    TopologyFormat("nvidia_smi_nvlink", looks_like_nvidia_smi_nvlink, read_nvidia_smi_nvlink),
    TopologyFormat("nvidia_smi_topo", looks_like_nvidia_smi_topo, read_nvidia_smi_topo),
    TopologyFormat("ibnetdiscover", looks_like_ibnetdiscover, read_ibnetdiscover),
    TopologyFormat("simai", looks_like_simai, read_simai),
    TopologyFormat("ns3_links", looks_like_ns3_links, read_ns3_links),
    TopologyFormat("nccl_tests", looks_like_nccl_tests, read_nccl_tests),
    TopologyFormat("perftest", looks_like_perftest, read_perftest),
    TopologyFormat("nvlink_clusters", looks_like_nvlink_clusters, read_nvlink_clusters),
    TopologyFormat("scontrol_topology", looks_like_scontrol_topology, read_scontrol_topology),
    TopologyFormat("slurm_conf", looks_like_slurm_conf, read_slurm_conf),
    TopologyFormat("slurm_yaml", looks_like_slurm_yaml, read_slurm_yaml),
    TopologyFormat("netq", looks_like_netq, read_netq),
    TopologyFormat("topograph", looks_like_topograph, read_topograph),
    TopologyFormat("kubernetes", looks_like_kubernetes, read_kubernetes),
    TopologyFormat("astra_sim", looks_like_astra_sim, read_astra_sim),
    TopologyFormat("taccl", looks_like_taccl, read_taccl),
)


def format_of(content: bytes, name: str | None = None) -> TopologyFormat:
    """The format of this name, or the one that recognises the content.

    Raises `InvalidInput` with path `()` when there is none.
    """
    found = find_format(TOPOLOGY_FORMATS, content, name)
    if found is not None:
        return found
    known = ", ".join(each.name for each in TOPOLOGY_FORMATS)
    if name is not None:
        detail = f"{name[:80]!r} is no format of clusters; known are: {known}"
        raise InvalidInput([Fault(FaultCode.NOT_SUPPORTED, (), detail)])
    what = "the file is in no format that is read here" if content.strip() else "the file is empty"
    detail = f"{what}; known are: {known}"
    raise InvalidInput([Fault(FaultCode.UNREADABLE, (), detail)])
