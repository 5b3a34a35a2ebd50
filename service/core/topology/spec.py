"""What a topology document says, before it is expanded: hosts, switches, links and a fabric.

Everything here is unchecked; `service.core.topology.expand` finds the faults. Rates are bytes per
second in one direction and nominal unless the name says otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum

from service.core.topology.cluster import LinkKind, RateOrigin, VertexKind

__all__ = [
    "ChangedLink",
    "ClusterSpec",
    "DeviceNetworkSpec",
    "DeviceSpec",
    "Duplex",
    "Edit",
    "FabricRates",
    "FabricSpec",
    "FailedDevice",
    "FailedHost",
    "FailedLink",
    "FatTree",
    "HostSpec",
    "LeafSpine",
    "LinkSpec",
    "MeasuredRate",
    "NvlinkDomain",
    "RailOptimised",
    "ReverseSpec",
    "SwitchSpec",
    "Torus",
]


class Duplex(StrEnum):
    """How the two directions of a link relate.

    `full` is two directed links of the stated rate each. `half` is two directed links that share
    one capacity of the stated rate: what one carries the other can't. `simplex` is source to
    target only.
    """

    FULL = "full"
    HALF = "half"
    SIMPLEX = "simplex"


@dataclass(frozen=True, slots=True)
class MeasuredRate:
    """An observed rate of one direction, by whom or what, and the ISO date it was observed."""

    bytes_per_second: float
    source: str
    date: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """A device or a switch inside a host, named within it (`gpu0`). Absent facts are unknown.

    `port_bytes_per_second` is the line rate of a NIC, or what an accelerator has to the NVSwitches
    of a domain, of `port_lanes` links together; the links of a fabric or of a device network take
    it as theirs, with where it comes from.

    Devices that name the same `port` (functions of one NIC port) share its line; those of one
    `card` share its connection to the host, or one for each `slot` where the card or several cards
    have any. Without a `card` or `slot` functions of one port share that too.
    """

    name: str
    kind: VertexKind
    product: str | None = None
    rail: int | None = None
    port_bytes_per_second: float | None = None
    port_effective_bytes_per_second: float | None = None
    port_origin: RateOrigin = RateOrigin.STATED
    port_source: str | None = None
    port_lanes: int = 1
    port: str | None = None
    card: str | None = None
    slot: str | None = None
    memory_bytes: int | None = None
    memory_bytes_per_second: float | None = None
    peak_flops: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReverseSpec:
    """What is different from target to source; all that is None is as from source to target."""

    bandwidth_bytes_per_second: float | None = None
    bandwidth_origin: RateOrigin | None = None
    bandwidth_source: str | None = None
    effective_bytes_per_second: float | None = None
    measured: MeasuredRate | None = None
    latency_floor_seconds: float | None = None
    latency_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpec:
    """A link between two named ends; `bandwidth_bytes_per_second` is that of all lanes together.

    `bandwidth_source` says in words where that rate comes from, and is there for every origin but
    `stated`. Where something is known of one direction and not of the other, two simplex links say
    so; `reverse` can only replace.
    """

    source: str
    target: str
    kind: LinkKind
    bandwidth_bytes_per_second: float
    effective_bytes_per_second: float | None = None
    measured: MeasuredRate | None = None
    latency_floor_seconds: float = 0.0
    latency_seconds: float | None = None
    lanes: int = 1
    duplex: Duplex = Duplex.FULL
    bandwidth_origin: RateOrigin = RateOrigin.STATED
    bandwidth_source: str | None = None
    reverse: ReverseSpec | None = None

    def backward(self) -> "LinkSpec":
        """The way from target to source, as a link of its own."""
        different = {}
        if self.reverse is not None:
            given = ((each.name, getattr(self.reverse, each.name)) for each in fields(ReverseSpec))
            different = {name: value for name, value in given if value is not None}
        swapped = replace(self, source=self.target, target=self.source, reverse=None)
        return replace(swapped, **different)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpec:
    """One host, or `count` like ones named `name0`, `name1`, ..., or one and those `alike` it.

    `alike` names further hosts with the same inside; with a `count` there are none. Exactly one of
    `design` (a reference design by name) and `devices` is given. `links` join listed devices by
    their names within the host.
    """

    name: str
    count: int | None = None
    alike: tuple[str, ...] = ()
    design: str | None = None
    devices: tuple[DeviceSpec, ...] = ()
    links: tuple[LinkSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class SwitchSpec:
    """A switch outside any host."""

    name: str
    kind: VertexKind = VertexKind.SWITCH
    rail: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricRates:
    """How fast the links of a fabric are.

    At most one of `oversubscription_ratio` (what the fullest leaf takes from its hosts over what
    it gives to its spines; 1 when neither is given) and `uplink_bytes_per_second` (one leaf to one
    spine) is given. `link_bytes_per_second` is NIC to leaf and defaults to the NIC's line rate.
    `latency_seconds` is that of each link of the fabric.
    """

    oversubscription_ratio: float | None = None
    uplink_bytes_per_second: float | None = None
    link_bytes_per_second: float | None = None
    link_effective_bytes_per_second: float | None = None
    latency_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafSpine:
    """All NICs of `hosts_per_leaf` consecutive hosts share one leaf; each leaf meets each spine."""

    hosts_per_leaf: int
    spines: int
    rates: FabricRates = FabricRates()


@dataclass(frozen=True, slots=True, kw_only=True)
class RailOptimised:
    """NIC i of every host goes to rail switch i; spines, when there are any, join the rails.

    With `hosts_per_leaf` each group of so many consecutive hosts has rail switches of its own.
    """

    hosts_per_leaf: int | None = None
    spines: int = 0
    rates: FabricRates = FabricRates()


@dataclass(frozen=True, slots=True, kw_only=True)
class FatTree:
    """Pods of leaves and spines, joined by cores.

    Either `ports_per_switch` is given, for a k-ary tree in which all links have one rate, or the
    four numbers of its shape: all NICs of `hosts_per_leaf` consecutive hosts share one leaf,
    `leaves_per_pod` leaves meet each of `spines_per_pod` spines, and spine j of every pod meets
    each of the `cores_per_spine` cores of group j. `core_oversubscription_ratio` is what a spine
    takes from the leaves of a full pod over what it gives to cores; 1 when absent.
    """

    ports_per_switch: int | None = None
    hosts_per_leaf: int | None = None
    leaves_per_pod: int | None = None
    spines_per_pod: int | None = None
    cores_per_spine: int | None = None
    core_oversubscription_ratio: float | None = None
    rates: FabricRates = FabricRates()


FabricSpec = LeafSpine | RailOptimised | FatTree


@dataclass(frozen=True, slots=True, kw_only=True)
class NvlinkDomain:
    """The accelerators of `hosts_per_domain` consecutive hosts (all by default) share NVSwitches.

    `link_bytes_per_second` is what each accelerator has to them, by all of its `lanes` links; by
    default its port's.
    """

    hosts_per_domain: int | None = None
    link_bytes_per_second: float | None = None
    link_effective_bytes_per_second: float | None = None
    latency_seconds: float | None = None
    lanes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Torus:
    """Accelerators in one to three dimensions, each with a link to the next one both ways.

    They take the coordinates in order, the last dimension first. With `wraparound` the last of a
    row meets the first. `link_bytes_per_second` is that of one link.
    """

    dimensions: tuple[int, ...]
    link_bytes_per_second: float
    link_effective_bytes_per_second: float | None = None
    latency_seconds: float | None = None
    wraparound: bool = True


DeviceNetworkSpec = NvlinkDomain | Torus


@dataclass(frozen=True, slots=True)
class FailedHost:
    """A host that is out of order, with all that is in it."""

    name: str


@dataclass(frozen=True, slots=True)
class FailedDevice:
    """A device or a switch that is out of order, with all its links."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedLink:
    """A link that is out of order: in the directions that it has, or from source to target only."""

    source: str
    target: str
    one_way: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedLink:
    """A link that is not as it was made; what is None stays as it is.

    At most one of `lanes` (how many are left; rates follow) and `bandwidth_bytes_per_second` is
    given.
    """

    source: str
    target: str
    one_way: bool = False
    lanes: int | None = None
    bandwidth_bytes_per_second: float | None = None
    bandwidth_origin: RateOrigin | None = None
    bandwidth_source: str | None = None
    effective_bytes_per_second: float | None = None
    measured: MeasuredRate | None = None
    latency_floor_seconds: float | None = None
    latency_seconds: float | None = None


Edit = FailedHost | FailedDevice | FailedLink | ChangedLink


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """A whole topology document. Links name devices as `host/device` and switches by name.

    `fabric` joins the NICs of all hosts, `device_network` the accelerators without NICs. `edits`
    are exceptions to all the rest, whatever made what they name. `assumptions` are those of whoever
    wrote the document, in words.
    """

    hosts: tuple[HostSpec, ...]
    switches: tuple[SwitchSpec, ...] = ()
    links: tuple[LinkSpec, ...] = ()
    fabric: FabricSpec | None = None
    device_network: DeviceNetworkSpec | None = None
    edits: tuple[Edit, ...] = ()
    assumptions: tuple[str, ...] = ()
