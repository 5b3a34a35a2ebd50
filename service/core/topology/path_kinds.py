"""What a path is called: the types that tools for GPU clusters rank paths by.

Inside a host the words are those of `nvidia-smi topo -m` and of NCCL, between hosts those of
fabrics. A path has exactly one kind, which follows from what it passes between its ends:

    local   nothing: both ends are the same
    nvlink  NVLinks (or xGMI) only, directly or through NVSwitches, within a host or beyond it
    nvb     NVLinks only, with a GPU between that forwards
    pix     PCIe, through at most one PCIe switch
    pxb     PCIe, through several PCIe switches and no CPU
    pxn     NVLink to another GPU that forwards, and on from there by PCIe
    phb     one host bridge
    node    several host bridges of one NUMA node, no link between sockets
    sys     a link between sockets
    rail    one switch of the fabric, which is of the rail of the NICs on both sides
    leaf    one switch of the fabric, any other way
    spine   several switches of the fabric
    torus   routers of the accelerators' own network
    other   nothing of the above: links whose kind says nothing

What a path passes outside hosts decides before what it passes inside, and there the farthest thing
it passes does. A CPU without host bridges of its own below it stands for one. The reference
designs have no others, so there `phb` also stands for what is called `node` where a socket has
several.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from service.core.topology.cluster import Cluster, Link, LinkKind, Vertex, VertexKind

__all__ = ["NicReach", "PathKind", "nic_reaches", "path_kind"]


class PathKind(StrEnum):
    """The types of path, the nearer ones first."""

    LOCAL = "local"
    NVLINK = "nvlink"
    NVB = "nvb"
    PIX = "pix"
    PXB = "pxb"
    PXN = "pxn"
    PHB = "phb"
    NODE = "node"
    SYS = "sys"
    RAIL = "rail"
    LEAF = "leaf"
    SPINE = "spine"
    TORUS = "torus"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class NicReach:
    """A NIC that a path leaves a host or enters it by, and the kind of the way inside."""

    nic: str
    kind: PathKind


def path_kind(cluster: Cluster, links: Sequence[Link]) -> PathKind:
    """The kind of the path over `links`, which follow each other; `local` without any."""
    if not links:
        return PathKind.LOCAL
    vertices = [cluster.vertices[link.target] for link in links[:-1]]
    kinds = [vertex.kind for vertex in vertices]
    forwards = VertexKind.GPU in kinds
    over = {link.kind for link in links}
    if over == {LinkKind.NVLINK}:
        return PathKind.NVB if forwards else PathKind.NVLINK
    if VertexKind.ROUTER in kinds:
        return PathKind.TORUS
    # An NVSwitch of several hosts belongs to no fabric.
    switches = [
        vertex
        for vertex in vertices
        if vertex.host is None and vertex.kind is not VertexKind.NVSWITCH
    ]
    if switches:
        return _outside(vertices, switches)
    if LinkKind.SOCKET in over:
        return PathKind.SYS
    bridges, cpus = kinds.count(VertexKind.HOST_BRIDGE), kinds.count(VertexKind.CPU)
    if bridges or cpus:
        return PathKind.NODE if max(bridges, cpus) > 1 else PathKind.PHB
    if LinkKind.PCIE not in over:
        return PathKind.OTHER
    if forwards:
        return PathKind.PXN
    return PathKind.PXB if kinds.count(VertexKind.PCIE_SWITCH) > 1 else PathKind.PIX


def _outside(vertices: Sequence[Vertex], switches: Sequence[Vertex]) -> PathKind:
    if len(switches) > 1:
        return PathKind.SPINE
    rails = {vertex.rail for vertex in vertices if vertex.kind is VertexKind.NIC}
    rail = switches[0].rail
    return PathKind.RAIL if rail is not None and rails == {rail} else PathKind.LEAF


def nic_reaches(cluster: Cluster, links: Sequence[Link]) -> tuple[NicReach | None, NicReach | None]:
    """The NICs next to the fabric on both sides of a path; None where a side has none.

    That is the last NIC of the first host and the first NIC of the last one, when the path leaves
    hosts at all. An end that is a NIC itself is reached by the `local` kind.
    """
    places = [number for number, link in enumerate(links) if _is_outside(cluster, link)]
    if not places:
        return None, None
    first, last = places[0], places[-1]
    return (
        _reach(cluster, links[first].source, links[:first]),
        _reach(cluster, links[last].target, links[last + 1 :]),
    )


def _reach(cluster: Cluster, name: str, inside: Sequence[Link]) -> NicReach | None:
    if cluster.vertices[name].kind is not VertexKind.NIC:
        return None
    return NicReach(name, path_kind(cluster, inside))


def _is_outside(cluster: Cluster, link: Link) -> bool:
    ends = {cluster.vertices[link.source].host, cluster.vertices[link.target].host}
    return None in ends or len(ends) > 1
