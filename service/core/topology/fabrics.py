"""Fabrics made from a few numbers: which switches exist and what joins them to the NICs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.topology.cluster import LinkKind, RateOrigin, VertexKind
from service.core.topology.spec import FabricSpec, LeafSpine, LinkSpec, RailOptimised, SwitchSpec

__all__ = [
    "FABRIC_PREFIXES",
    "MAX_FABRIC_LINKS",
    "MAX_SPINES",
    "TYPICAL_LINK_LATENCY_SECONDS",
    "FabricParts",
    "HostPorts",
    "NicPort",
    "build_fabric",
    "leaf_spine",
    "rail_optimised",
]

# Each link of the network in the topology templates that ship with SimAI.
TYPICAL_LINK_LATENCY_SECONDS = 500e-9

# How the names of the switches that a fabric makes begin.
FABRIC_PREFIXES = ("leaf", "rail", "spine")

MAX_FABRIC_LINKS = 100_000
MAX_SPINES = 1_024


@dataclass(frozen=True, slots=True)
class NicPort:
    """A NIC as a fabric sees it: its full name, its rail and its line rates when known.

    `origin` and `source` say where the nominal line rate comes from.
    """

    name: str
    rail: int
    bytes_per_second: float | None = None
    effective_bytes_per_second: float | None = None
    origin: RateOrigin = RateOrigin.STATED
    source: str | None = None


@dataclass(frozen=True, slots=True)
class HostPorts:
    """The NICs of one host, in order."""

    host: str
    nics: tuple[NicPort, ...]


@dataclass(frozen=True, slots=True)
class FabricParts:
    """What a fabric adds to a cluster, and what had to be assumed for it."""

    switches: tuple[SwitchSpec, ...]
    links: tuple[LinkSpec, ...]
    assumptions: tuple[str, ...]


def build_fabric(fabric: FabricSpec, hosts: Sequence[HostPorts]) -> FabricParts:
    """The switches and links of whichever fabric the document asks for."""
    if isinstance(fabric, LeafSpine):
        return leaf_spine(fabric, hosts)
    return rail_optimised(fabric, hosts)


def leaf_spine(fabric: LeafSpine, hosts: Sequence[HostPorts]) -> FabricParts:
    """Leaves `leaf0`, `leaf1`, ... and spines `spine0`, ...; see `LeafSpine` for the rule.

    Host number h goes to leaf h // hosts_per_leaf with all its NICs. Raises `InvalidInput`, paths
    relative to the fabric, when a number is out of range or a rate can't be known.
    """
    faults = _range_faults(fabric, fabric.hosts_per_leaf)
    leaves = -(-len(hosts) // max(fabric.hosts_per_leaf, 1))
    if fabric.spines == 0 and leaves > 1:
        detail = f"{leaves} leaves need at least one spine to reach each other; got none"
        faults.append(Fault(FaultCode.INCONSISTENT, ("spines",), detail))
    if faults:
        raise InvalidInput(faults)
    switches = {f"leaf{leaf}": SwitchSpec(f"leaf{leaf}", VertexKind.LEAF) for leaf in range(leaves)}
    plugs = [
        (f"leaf{number // fabric.hosts_per_leaf}", nic)
        for number, host in enumerate(hosts)
        for nic in host.nics
    ]
    return _join(fabric, hosts, switches, plugs)


def rail_optimised(fabric: RailOptimised, hosts: Sequence[HostPorts]) -> FabricParts:
    """Rail switches `rail0`, `rail1`, ... and, when asked for, spines that join them.

    With `hosts_per_leaf` the switches of host group g are `rail0-g`, `rail1-g`, ... Without spines
    the rails are separate networks. Raises as `leaf_spine` does.
    """
    faults = _range_faults(fabric, fabric.hosts_per_leaf)
    if faults:
        raise InvalidInput(faults)
    switches: dict[str, SwitchSpec] = {}
    plugs = []
    for number, host in enumerate(hosts):
        for nic in host.nics:
            leaf = f"rail{nic.rail}"
            if fabric.hosts_per_leaf is not None:
                leaf += f"-{number // fabric.hosts_per_leaf}"
            switches.setdefault(leaf, SwitchSpec(leaf, VertexKind.LEAF, nic.rail))
            plugs.append((leaf, nic))
    return _join(fabric, hosts, switches, plugs)


def _range_faults(fabric: FabricSpec, hosts_per_leaf: int | None) -> list[Fault]:
    faults = []

    def refuse(field: str, detail: str, code: FaultCode = FaultCode.OUT_OF_RANGE) -> None:
        faults.append(Fault(code, (field,), detail))

    if hosts_per_leaf is not None and hosts_per_leaf < 1:
        refuse("hosts_per_leaf", f"at least 1 host a leaf; got {hosts_per_leaf}")
    if not 0 <= fabric.spines <= MAX_SPINES:
        refuse("spines", f"between 0 and {MAX_SPINES} spines; got {fabric.spines}")
    ratio, uplink = fabric.rates.oversubscription_ratio, fabric.rates.uplink_bytes_per_second
    if ratio is not None and not 1e-3 <= ratio <= 1e6:
        refuse("oversubscription_ratio", f"a ratio between 0.001 and 1e6; got {ratio!r}")
    if ratio is not None and uplink is not None:
        detail = "give oversubscription_ratio or uplink_bytes_per_second, not both"
        refuse("uplink_bytes_per_second", detail, FaultCode.EXCLUSIVE_FIELDS)
    if fabric.spines == 0:
        detail = "without spines there are no uplinks: give spines, or leave this out"
        if ratio is not None:
            refuse("oversubscription_ratio", detail, FaultCode.INCONSISTENT)
        if uplink is not None:
            refuse("uplink_bytes_per_second", detail, FaultCode.INCONSISTENT)
    for name in (
        "uplink_bytes_per_second",
        "link_bytes_per_second",
        "link_effective_bytes_per_second",
    ):
        rate = getattr(fabric.rates, name)
        if rate is not None and not 1 <= rate <= 1e15:
            refuse(name, f"a rate between 1 and 1e15 bytes per second; got {rate!r}")
    latency = fabric.rates.latency_seconds
    if latency is not None and not 0 <= latency <= 1:
        refuse("latency_seconds", f"a latency between 0 and 1 second; got {latency!r}")
    return faults


def _join(
    fabric: FabricSpec,
    hosts: Sequence[HostPorts],
    leaves: Mapping[str, SwitchSpec],
    plugs: Sequence[tuple[str, NicPort]],
) -> FabricParts:
    """Plug each NIC into its leaf, then join every leaf to every spine."""
    cables = len(plugs) + len(leaves) * fabric.spines
    if cables > MAX_FABRIC_LINKS:
        detail = f"a fabric has at most {MAX_FABRIC_LINKS} links; this one would have {cables}"
        raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, ("spines",), detail)])
    latency = fabric.rates.latency_seconds
    if latency is None:
        latency = TYPICAL_LINK_LATENCY_SECONDS
    edge = _edge_links(fabric, plugs, latency)
    spines = [SwitchSpec(f"spine{s}", VertexKind.SPINE) for s in range(fabric.spines)]
    fill: dict[str, list[float]] = {leaf: [] for leaf in leaves}
    for link in edge:
        fill[link.target].append(link.bandwidth_bytes_per_second)
    uplink = fabric.rates.uplink_bytes_per_second
    origin, source = _uplink_origin(fabric, edge)
    if uplink is None and spines:
        # All leaves are the same product, so each has the uplinks that the fullest one needs.
        fullest = max((fsum(rates) for rates in fill.values()), default=0.0)
        uplink = fullest / ((fabric.rates.oversubscription_ratio or 1.0) * fabric.spines)
    trunks = [
        LinkSpec(
            source=leaf,
            target=spine.name,
            kind=LinkKind.FABRIC,
            bandwidth_bytes_per_second=uplink,
            latency_seconds=latency,
            bandwidth_origin=origin,
            bandwidth_source=source,
        )
        for leaf in leaves
        for spine in spines
        if uplink
    ]
    assumptions = _assumptions(fabric, hosts)
    return FabricParts((*leaves.values(), *spines), (*edge, *trunks), assumptions)


def _uplink_origin(fabric: FabricSpec, edge: Sequence[LinkSpec]) -> tuple[RateOrigin, str | None]:
    """Where the rate of a leaf to a spine comes from, and in words unless it is just stated."""
    if fabric.rates.uplink_bytes_per_second is not None:
        return RateOrigin.STATED, None
    if fabric.rates.oversubscription_ratio is None:
        return RateOrigin.ASSUMED, "leaves that are not oversubscribed"
    if any(link.bandwidth_origin is RateOrigin.ASSUMED for link in edge):
        return RateOrigin.ASSUMED, "the stated oversubscription of links whose rate is assumed"
    return RateOrigin.STATED, "the stated oversubscription"


def _edge_links(
    fabric: FabricSpec, plugs: Sequence[tuple[str, NicPort]], latency: float
) -> list[LinkSpec]:
    links: list[LinkSpec] = []
    unknown: list[str] = []
    for leaf, nic in plugs:
        rate, effective = nic.bytes_per_second, nic.effective_bytes_per_second
        origin, source = nic.origin, nic.source
        if fabric.rates.link_bytes_per_second is not None:
            # What was measured at the NIC's own rate says nothing about another one.
            effective = effective if rate == fabric.rates.link_bytes_per_second else None
            rate = fabric.rates.link_bytes_per_second
            origin, source = RateOrigin.STATED, None
        if fabric.rates.link_effective_bytes_per_second is not None:
            effective = fabric.rates.link_effective_bytes_per_second
        if rate is None:
            unknown.append(nic.name)
            continue
        links.append(
            LinkSpec(
                source=nic.name,
                target=leaf,
                kind=LinkKind.NETWORK,
                bandwidth_bytes_per_second=rate,
                effective_bytes_per_second=effective,
                latency_seconds=latency,
                bandwidth_origin=origin,
                bandwidth_source=source,
            )
        )
    faults = []
    if unknown:
        some = ", ".join(unknown[:3]) + (", ..." if len(unknown) > 3 else "")
        detail = (
            f"{len(unknown)} NICs ({some}) have no port_bytes_per_second: give it there, or give"
            " the rate of all links here"
        )
        faults.append(Fault(FaultCode.MISSING_FIELD, ("link_bytes_per_second",), detail))
    for link in links:
        effective = link.effective_bytes_per_second
        if effective is not None and effective > link.bandwidth_bytes_per_second:
            detail = (
                f"an effective rate is at most the nominal one; got {effective:g} over"
                f" {link.bandwidth_bytes_per_second:g} at {link.source}"
            )
            path = ("link_effective_bytes_per_second",)
            faults.append(Fault(FaultCode.INCONSISTENT, path, detail))
            break
    if faults:
        raise InvalidInput(faults)
    return links


def _assumptions(fabric: FabricSpec, hosts: Sequence[HostPorts]) -> tuple[str, ...]:
    stated = []
    if fabric.rates.link_bytes_per_second is None:
        stated.append("fabric: each link from a NIC to its switch runs at the NIC's line rate")
    uplink = (fabric.rates.oversubscription_ratio, fabric.rates.uplink_bytes_per_second)
    if fabric.spines and uplink == (None, None):
        stated.append("fabric: leaves are not oversubscribed")
    if fabric.rates.latency_seconds is None:
        nanoseconds = TYPICAL_LINK_LATENCY_SECONDS * 1e9
        stated.append(
            f"fabric: {nanoseconds:g} ns for each link is the figure of SimAI's topology templates"
        )
    lonely = [host.host for host in hosts if not host.nics]
    if lonely:
        some = ", ".join(lonely[:3]) + (", ..." if len(lonely) > 3 else "")
        stated.append(f"fabric: {len(lonely)} hosts without a NIC are not joined ({some})")
    return tuple(stated)
