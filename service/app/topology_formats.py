"""The formats of files that tell of a cluster, one row each."""

from collections.abc import Callable
from dataclasses import dataclass

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.topology.readings import Reading
from service.formats.hwloc_xml import looks_like_hwloc_xml, read_hwloc_xml
from service.formats.ibnetdiscover import looks_like_ibnetdiscover, read_ibnetdiscover
from service.formats.nccl_xml import looks_like_nccl_xml, read_nccl_xml
from service.formats.nvidia_smi_nvlink import (
    looks_like_nvidia_smi_nvlink,
    read_nvidia_smi_nvlink,
)
from service.formats.nvidia_smi_topo import looks_like_nvidia_smi_topo, read_nvidia_smi_topo

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
)


def format_of(content: bytes, name: str | None = None) -> TopologyFormat:
    """The format of this name, or the one that recognises the content.

    Raises `InvalidInput` with path `()` when there is none.
    """
    known = ", ".join(each.name for each in TOPOLOGY_FORMATS)
    if name is not None:
        for each in TOPOLOGY_FORMATS:
            if each.name == name:
                return each
        detail = f"{name[:80]!r} is no format of clusters; known are: {known}"
        raise InvalidInput([Fault(FaultCode.NOT_SUPPORTED, (), detail)])
    for each in TOPOLOGY_FORMATS:
        if each.recognises(content):
            return each
    what = "the file is in no format that is read here" if content.strip() else "the file is empty"
    detail = f"{what}; known are: {known}"
    raise InvalidInput([Fault(FaultCode.UNREADABLE, (), detail)])
