"""Nodes of an InfiniBand fabric as a file lists them, before their ports are joined to cables.

The three listings that people have (records, ports, simulator files) are read into these, so that
`service.formats.infiniband_fabric` joins them in one way.
"""

from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["FabricNode", "FabricNodes", "NodeKind", "PortLine"]


class NodeKind(StrEnum):
    """What a node is. Routers join subnets and forward like switches."""

    SWITCH = "switch"
    ADAPTER = "adapter"
    ROUTER = "router"


@dataclass(frozen=True, slots=True, kw_only=True)
class PortLine:
    """One port as its own node lists it: what is at the other end, and how fast it runs.

    `peer` is None for a port without a cable. `width` and `speed` are None where the file gives
    none or none that exists (`4x ???`).
    """

    line: int
    port: int
    peer: str | None = None
    peer_kind: NodeKind | None = None
    peer_port: int | None = None
    peer_title: str | None = None
    port_guid: str | None = None
    peer_port_guid: str | None = None
    width: int | None = None
    speed: str | None = None


@dataclass(slots=True, kw_only=True)
class FabricNode:
    """A switch or an adapter; `key` is its GUID (16 hexadecimal digits) or its name in the file.

    A node that is only named as somebody's peer has no record; `line` is then where it is named.
    """

    key: str
    kind: NodeKind
    line: int
    has_record: bool = True
    title: str | None = None
    guid: str | None = None
    system_guid: str | None = None
    port_count: int | None = None
    ports: dict[int, PortLine] = field(default_factory=dict)


@dataclass(slots=True)
class FabricNodes:
    """All nodes of a file by key, in its order.

    In a `symmetric` listing each cable is listed at both ends that have a record. `chassis` counts
    those that a grouped listing names.
    """

    symmetric: bool
    chassis: int = 0
    nodes: dict[str, FabricNode] = field(default_factory=dict)
