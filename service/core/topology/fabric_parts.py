"""What all fabrics are made of: ports of devices, links of NICs to leaves, rates of uplinks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.topology.cluster import LinkKind, RateOrigin
from service.core.topology.spec import FabricRates, LinkSpec, SwitchSpec

__all__ = [
    "MAX_FABRIC_LINKS",
    "TYPICAL_LINK_LATENCY_SECONDS",
    "DevicePort",
    "FabricParts",
    "HostPorts",
    "edge_links",
    "effective_faults",
    "fabric_assumptions",
    "link_latency_seconds",
    "rate_faults",
    "too_many_links",
    "uplink_origin",
]

# Each link of the network in the topology templates that ship with SimAI.
TYPICAL_LINK_LATENCY_SECONDS = 500e-9

MAX_FABRIC_LINKS = 100_000


@dataclass(frozen=True, slots=True)
class DevicePort:
    """A device as a network sees it: its full name and its line rates when known.

    `rail` is that of a NIC, `lanes` counts the links that the port is made of. `origin` and
    `source` say where the nominal line rate comes from.
    """

    name: str
    rail: int = 0
    bytes_per_second: float | None = None
    effective_bytes_per_second: float | None = None
    origin: RateOrigin = RateOrigin.STATED
    source: str | None = None
    lanes: int = 1

    def on_link(
        self, link_bytes_per_second: float | None, link_effective_bytes_per_second: float | None
    ) -> "DevicePort":
        """The port at the rates of the link it is plugged into, as far as these are stated."""
        port = self
        if link_bytes_per_second is not None:
            # What was measured at the port's own rate says nothing about another one.
            is_own = self.bytes_per_second == link_bytes_per_second
            port = replace(
                port,
                bytes_per_second=link_bytes_per_second,
                effective_bytes_per_second=self.effective_bytes_per_second if is_own else None,
                origin=RateOrigin.STATED,
                source=None,
            )
        if link_effective_bytes_per_second is not None:
            port = replace(port, effective_bytes_per_second=link_effective_bytes_per_second)
        return port


@dataclass(frozen=True, slots=True)
class HostPorts:
    """The NICs of one host, and its accelerators, in order."""

    host: str
    nics: tuple[DevicePort, ...]
    gpus: tuple[DevicePort, ...] = ()


@dataclass(frozen=True, slots=True)
class FabricParts:
    """What a fabric adds to a cluster, and what had to be assumed for it."""

    switches: tuple[SwitchSpec, ...]
    links: tuple[LinkSpec, ...]
    assumptions: tuple[str, ...]


def rate_faults(rates: FabricRates, *, uplinks: bool) -> list[Fault]:
    """What the rates of a fabric have wrong; `uplinks` tells whether its leaves have any."""
    faults = []

    def refuse(field: str, detail: str, code: FaultCode = FaultCode.OUT_OF_RANGE) -> None:
        faults.append(Fault(code, (field,), detail))

    ratio, uplink = rates.oversubscription_ratio, rates.uplink_bytes_per_second
    if ratio is not None and not 1e-3 <= ratio <= 1e6:
        refuse("oversubscription_ratio", f"a ratio between 0.001 and 1e6; got {ratio!r}")
    if ratio is not None and uplink is not None:
        detail = "give oversubscription_ratio or uplink_bytes_per_second, not both"
        refuse("uplink_bytes_per_second", detail, FaultCode.EXCLUSIVE_FIELDS)
    if not uplinks:
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
        rate = getattr(rates, name)
        if rate is not None and not 1 <= rate <= 1e15:
            refuse(name, f"a rate between 1 and 1e15 bytes per second; got {rate!r}")
    latency = rates.latency_seconds
    if latency is not None and not 0 <= latency <= 1:
        refuse("latency_seconds", f"a latency between 0 and 1 second; got {latency!r}")
    return faults


def too_many_links(count: int, path: str) -> list[Fault]:
    """A fault at `path` when a network would have more links than any may have."""
    if count <= MAX_FABRIC_LINKS:
        return []
    detail = f"a fabric has at most {MAX_FABRIC_LINKS} links; this one would have {count}"
    return [Fault(FaultCode.OUT_OF_RANGE, (path,), detail)]


def link_latency_seconds(rates: FabricRates) -> float:
    """The typical latency of each link of a fabric."""
    given = rates.latency_seconds
    return TYPICAL_LINK_LATENCY_SECONDS if given is None else given


def uplink_origin(rates: FabricRates, edge: Sequence[LinkSpec]) -> tuple[RateOrigin, str | None]:
    """Where the rate of a leaf to a spine comes from, and in words unless it is just stated."""
    if rates.uplink_bytes_per_second is not None:
        return RateOrigin.STATED, None
    if rates.oversubscription_ratio is None:
        return RateOrigin.ASSUMED, "leaves that are not oversubscribed"
    if any(link.bandwidth_origin is RateOrigin.ASSUMED for link in edge):
        return RateOrigin.ASSUMED, "the stated oversubscription of links whose rate is assumed"
    return RateOrigin.STATED, "the stated oversubscription"


def edge_links(
    rates: FabricRates, plugs: Sequence[tuple[str, DevicePort]], latency: float
) -> list[LinkSpec]:
    """The links of NICs to their leaves. Raises `InvalidInput` for rates that can't be known."""
    links: list[LinkSpec] = []
    unknown: list[str] = []
    for leaf, port in plugs:
        nic = port.on_link(rates.link_bytes_per_second, rates.link_effective_bytes_per_second)
        if nic.bytes_per_second is None:
            unknown.append(nic.name)
            continue
        links.append(
            LinkSpec(
                source=nic.name,
                target=leaf,
                kind=LinkKind.NETWORK,
                bandwidth_bytes_per_second=nic.bytes_per_second,
                effective_bytes_per_second=nic.effective_bytes_per_second,
                latency_seconds=latency,
                bandwidth_origin=nic.origin,
                bandwidth_source=nic.source,
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
    faults += effective_faults(links)
    if faults:
        raise InvalidInput(faults)
    return links


def effective_faults(links: Sequence[LinkSpec]) -> list[Fault]:
    """A fault for the first link of a network that is to carry more than its nominal rate."""
    for link in links:
        effective = link.effective_bytes_per_second
        if effective is not None and effective > link.bandwidth_bytes_per_second:
            detail = (
                f"an effective rate is at most the nominal one; got {effective:g} over"
                f" {link.bandwidth_bytes_per_second:g} at {link.source}"
            )
            return [Fault(FaultCode.INCONSISTENT, ("link_effective_bytes_per_second",), detail)]
    return []


def fabric_assumptions(
    rates: FabricRates, hosts: Sequence[HostPorts], *, uplinks: bool
) -> tuple[str, ...]:
    """What a fabric takes for granted, in words."""
    stated = []
    if rates.link_bytes_per_second is None:
        stated.append("fabric: each link from a NIC to its switch runs at the NIC's line rate")
    uplink = (rates.oversubscription_ratio, rates.uplink_bytes_per_second)
    if uplinks and uplink == (None, None):
        stated.append("fabric: leaves are not oversubscribed")
    if rates.latency_seconds is None:
        nanoseconds = TYPICAL_LINK_LATENCY_SECONDS * 1e9
        stated.append(
            f"fabric: {nanoseconds:g} ns for each link is the figure of SimAI's topology templates"
        )
    lonely = [host.host for host in hosts if not host.nics]
    if lonely:
        some = ", ".join(lonely[:3]) + (", ..." if len(lonely) > 3 else "")
        stated.append(f"fabric: {len(lonely)} hosts without a NIC are not joined ({some})")
    return tuple(stated)
