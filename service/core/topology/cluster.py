"""The expanded cluster: every vertex and every directed link, with what is known of each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["Cluster", "Link", "LinkKind", "RateOrigin", "Vertex", "VertexKind"]


class VertexKind(StrEnum):
    """What stands at an end of a link."""

    GPU = "gpu"
    NIC = "nic"
    NVSWITCH = "nvswitch"
    PCIE_SWITCH = "pcie_switch"
    HOST_BRIDGE = "host_bridge"  # one of several of a CPU; of one alone the CPU itself
    CPU = "cpu"
    LEAF = "leaf"
    SPINE = "spine"
    CORE = "core"  # above the spines
    ROUTER = "router"  # of the accelerators' own network: what forwards in place of a device
    SWITCH = "switch"


class LinkKind(StrEnum):
    """What a link is, in the field's words."""

    NVLINK = "nvlink"  # between accelerators, or to their switch; xGMI too
    PCIE = "pcie"  # device or PCIe switch to PCIe switch
    HOST_BRIDGE = "host_bridge"  # PCIe into a CPU's root complex
    ON_CHIP = "on_chip"  # host bridge to its CPU, inside the processor
    SOCKET = "socket"  # CPU to CPU
    NETWORK = "network"  # NIC to its leaf (or rail) switch
    FABRIC = "fabric"  # switch to switch
    OTHER = "other"


class RateOrigin(StrEnum):
    """How the nominal rate of a link came to be known."""

    READ = "read"  # the file says it (a rate, or width and speed)
    PRODUCT = "product"  # it follows from a product that the file or the caller names
    STATED = "stated"  # the caller gave it, for this link or for links of this kind
    ASSUMED = "assumed"  # nobody said it; the source beside it says whose figure it is


@dataclass(frozen=True, slots=True)
class Vertex:
    """A device or a switch. `host` is absent for switches outside hosts.

    `rail` is the rail of a NIC or a rail switch; on a GPU it is the rail of the NIC that the host's
    wiring pairs with it. `port_bytes_per_second` is the nominal line rate of a NIC's port, or what
    an accelerator has to the NVSwitches of a domain. `port`, `card` and `slot` are names within the
    host of what a device shares with others of the same name: the line of a port, the connection of
    a card or of a slot to the host.
    """

    name: str
    kind: VertexKind
    host: str | None = None
    product: str | None = None
    rail: int | None = None
    port_bytes_per_second: float | None = None
    port: str | None = None
    card: str | None = None
    slot: str | None = None
    memory_bytes: int | None = None
    memory_bytes_per_second: float | None = None
    peak_flops: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of a link (parallel cables of one pair are one link with `lanes` > 1).

    `bandwidth_bytes_per_second` is nominal, the capacity of bounds. `effective_bytes_per_second`
    is what predictions use when it is known. `latency_floor_seconds` is guaranteed (0 when
    unknown), `latency_seconds` typical; None when unknown. `measured_date` is an ISO date.
    `bandwidth_source` says in words where the nominal rate comes from.

    `shared_capacity` names what this link has in common with others: they all have the same
    nominal rate, and together they carry no more than one of them could. None for a link whose
    capacity is its own.
    """

    source: str
    target: str
    kind: LinkKind
    bandwidth_bytes_per_second: float
    effective_bytes_per_second: float | None = None
    measured_bytes_per_second: float | None = None
    measured_source: str | None = None
    measured_date: str | None = None
    latency_floor_seconds: float = 0.0
    latency_seconds: float | None = None
    lanes: int = 1
    bandwidth_origin: RateOrigin = RateOrigin.STATED
    bandwidth_source: str | None = None
    shared_capacity: str | None = None

    @property
    def name(self) -> str:
        """`source->target`."""
        return f"{self.source}->{self.target}"

    @property
    def resource(self) -> str:
        """The capacity that traffic over this link takes up: the link's own, or the shared one."""
        return self.name if self.shared_capacity is None else self.shared_capacity

    @property
    def bandwidth_assumed(self) -> bool:
        """Whether the nominal rate is an assumption, so that a bound from it is one too."""
        return self.bandwidth_origin is RateOrigin.ASSUMED


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """Vertices by name in the order of the document, directed links by (source, target)."""

    vertices: Mapping[str, Vertex]
    links: Mapping[tuple[str, str], Link]

    @property
    def devices(self) -> tuple[Vertex, ...]:
        """The accelerators (not NICs or switches), in order: what ranks are placed on."""
        return tuple(v for v in self.vertices.values() if v.kind is VertexKind.GPU)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Host names in order."""
        return tuple(dict.fromkeys(v.host for v in self.vertices.values() if v.host is not None))
