"""From what a topology document says to the cluster it means, or to every fault in it."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from service.core.errors import Fault, FaultCode, InvalidInput, Path
from service.core.topology.capacities import device_group_faults, shared_capacity
from service.core.topology.cluster import Cluster, Link, RateOrigin, Vertex, VertexKind
from service.core.topology.designs import DESIGNS
from service.core.topology.device_networks import DEVICE_NETWORK_PREFIXES, build_device_network
from service.core.topology.edits import apply_edits
from service.core.topology.fabric_parts import DevicePort, FabricParts, HostPorts
from service.core.topology.fabrics import FABRIC_PREFIXES, build_fabric
from service.core.topology.link_checks import link_faults
from service.core.topology.spec import (
    ClusterSpec,
    DeviceSpec,
    Duplex,
    HostSpec,
    LinkSpec,
    SwitchSpec,
)

__all__ = ["MAX_DEVICES", "MAX_HOSTS", "MAX_LINKS", "MAX_VERTICES", "Expansion", "expand"]

MAX_HOSTS = 4_096
MAX_DEVICES = 20_000
MAX_VERTICES = 120_000
MAX_LINKS = 500_000


@dataclass(frozen=True, slots=True, eq=False)
class Expansion:
    """A cluster, and in words what had to be assumed about it."""

    cluster: Cluster
    assumptions: tuple[str, ...]


def expand(spec: ClusterSpec) -> Expansion:
    """Expand hosts, switches, networks and links into one cluster, and apply the edits.

    Raises `InvalidInput` with every fault found, its path pointing into the document: unknown
    designs, names given twice, link ends that do not exist, rates and latencies out of range or
    contradicting each other, fabrics that can't be built, edits that hit nothing. A document that
    would become larger than the limits of this module is refused before anything is built.
    """
    faults = _size_faults(spec)
    if faults:
        raise InvalidInput(faults)
    assembly = _Assembly()
    for number, host in enumerate(spec.hosts):
        assembly.add_hosts(number, host)
    for number, switch in enumerate(spec.switches):
        assembly.add_switch(switch, ("switches", number, "name"))
    if spec.fabric is not None:
        build = partial(build_fabric, spec.fabric)
        assembly.add_network(build, "fabric", FABRIC_PREFIXES)
    if spec.device_network is not None:
        build = partial(build_device_network, spec.device_network)
        assembly.add_network(build, "device_network", DEVICE_NETWORK_PREFIXES)
    for number, link in enumerate(spec.links):
        assembly.add_stated_link(number, link)
    edited = apply_edits(
        spec.edits, assembly.vertices, assembly.links, may_be_missing=assembly.may_be_missing
    )
    faults = [*assembly.faults, *(fault.under("edits") for fault in edited.faults)]
    if faults:
        raise InvalidInput(faults)
    cluster = Cluster(edited.vertices, edited.links)
    found = (*spec.assumptions, *assembly.assumptions, *edited.said, *_unknowns(cluster))
    return Expansion(cluster, tuple(dict.fromkeys(found)))


def _size_faults(spec: ClusterSpec) -> list[Fault]:
    """What the document would become, counted without expanding it."""
    faults = []
    hosts, totals = 0, Counter(vertices=len(spec.switches), links=2 * len(spec.links))
    for number, host in enumerate(spec.hosts):
        count = 1 + len(host.alike) if host.count is None else host.count
        if count < 1:
            detail = f"a host counts at least once; got {count}"
            faults.append(Fault(FaultCode.OUT_OF_RANGE, ("hosts", number, "count"), detail))
            continue
        devices, links = _inside(host)
        hosts += count
        totals["devices"] += count * sum(device.kind is VertexKind.GPU for device in devices)
        totals["vertices"] += count * len(devices)
        totals["links"] += 2 * count * len(links)
    for what, size, limit in (
        ("hosts", hosts, MAX_HOSTS),
        ("devices", totals["devices"], MAX_DEVICES),
        ("devices and switches", totals["vertices"], MAX_VERTICES),
        ("directed links", totals["links"], MAX_LINKS),
    ):
        if size > limit:
            detail = f"a topology has at most {limit} {what}; this one would have {size}"
            faults.append(Fault(FaultCode.OUT_OF_RANGE, ("hosts",), detail))
    return faults


def _inside(host: HostSpec) -> tuple[tuple[DeviceSpec, ...], tuple[LinkSpec, ...]]:
    """Devices and links of one host; nothing for a design that does not exist."""
    if host.design is None:
        return tuple(_with_rails(host.devices)), host.links
    design = DESIGNS.get(host.design)
    return (design.devices, design.links) if design else ((), ())


def _with_rails(devices: tuple[DeviceSpec, ...]) -> Iterator[DeviceSpec]:
    """The devices; a NIC whose rail is not said is on the rail of its place among the NICs.

    Functions of one port have one place.
    """
    places: dict[str, int] = {}
    for device in devices:
        if device.kind is not VertexKind.NIC:
            yield device
            continue
        port = device.name if device.port is None else device.port
        place = places.setdefault(port, len(places))
        yield device if device.rail is not None else replace(device, rail=place)


def _names(host: HostSpec) -> Iterator[str]:
    if host.count is None:
        yield from (host.name, *host.alike)
    else:
        yield from (f"{host.name}{index}" for index in range(host.count))


def _unknowns(cluster: Cluster) -> Iterator[str]:
    links = cluster.links.values()
    without_latency = sum(link.latency_seconds is None for link in links)
    if without_latency:
        yield (
            f"latency is unknown on {without_latency} of {len(links)} directed links: predictions"
            " count only the guaranteed floor there"
        )
    without_effective = sum(link.effective_bytes_per_second is None for link in links)
    if without_effective:
        yield (
            f"effective bandwidth is unknown on {without_effective} of {len(links)} directed links:"
            " predictions use the nominal one there"
        )


@dataclass(slots=True)
class _Assembly:
    """A cluster in the making."""

    vertices: dict[str, Vertex] = field(default_factory=dict)
    links: dict[tuple[str, str], Link] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    ports: list[HostPorts] = field(default_factory=list)
    # The nominal rate of each capacity that links share, by its name.
    capacities: dict[str, float] = field(default_factory=dict)
    hosts: set[str] = field(default_factory=set)
    # Where a fault that many like hosts have was told.
    told: set[Path] = field(default_factory=set)
    # Ends that can't be looked up because what should have made them is at fault itself.
    broken_hosts: set[str] = field(default_factory=set)
    broken_prefixes: tuple[str, ...] = ()

    def refuse(self, code: FaultCode, path: Path, detail: str) -> None:
        self.faults.append(Fault(code, path, detail))

    def add_hosts(self, number: int, host: HostSpec) -> None:
        """Add all hosts of one entry; a fault inside is told once, not once for each host."""
        sound = self._check_inside(("hosts", number), host)
        devices, links = _inside(host)
        if host.count is not None and host.alike:
            detail = "like hosts are counted, or named in alike, not both"
            self.refuse(FaultCode.EXCLUSIVE_FIELDS, ("hosts", number, "alike"), detail)
        for place, name in enumerate(_names(host)):
            if name in self.hosts:
                detail = f"a host's name is given once; {name!r} is taken by an earlier one"
                field = ("alike", place - 1) if host.alike and place else ("name",)
                self.refuse(FaultCode.DUPLICATE_NAME, ("hosts", number, *field), detail)
                break
            self.hosts.add(name)
            if not sound:
                self.broken_hosts.add(name)
                continue
            for device in devices:
                self.vertices[f"{name}/{device.name}"] = _vertex(name, device)
            for index, link in enumerate(links):
                ends = f"{name}/{link.source}", f"{name}/{link.target}"
                self._add_link(link, *ends, ("hosts", number, "links", index))
            self.ports.append(
                HostPorts(
                    name,
                    tuple(_ports(name, devices, VertexKind.NIC)),
                    tuple(_ports(name, devices, VertexKind.GPU)),
                )
            )
        if host.design is not None and host.design in DESIGNS:
            self.assumptions += [
                text for text in DESIGNS[host.design].assumptions if text not in self.assumptions
            ]

    def _check_inside(self, path: Path, host: HostSpec) -> bool:
        before = len(self.faults)
        if host.design is not None and (host.devices or host.links):
            detail = "a host is of a reference design or lists its devices, not both"
            self.refuse(FaultCode.EXCLUSIVE_FIELDS, (*path, "design"), detail)
        elif host.design is not None:
            if host.design not in DESIGNS:
                known = ", ".join(DESIGNS)
                detail = f"{host.design!r} is no reference design; known are {known}"
                self.refuse(FaultCode.UNKNOWN_NAME, (*path, "design"), detail)
        elif not host.devices:
            detail = "a host needs a reference design or at least one device"
            self.refuse(FaultCode.MISSING_FIELD, (*path, "design"), detail)
        else:
            self._check_listed(path, host)
        return len(self.faults) == before

    def _check_listed(self, path: Path, host: HostSpec) -> None:
        names: set[str] = set()
        for index, device in enumerate(host.devices):
            if device.name in names:
                detail = f"a device's name is given once in its host; {device.name!r} is twice"
                where = (*path, "devices", index, "name")
                self.refuse(FaultCode.DUPLICATE_NAME, where, detail)
            names.add(device.name)
            self._check_port(device, (*path, "devices", index))
        groups = device_group_faults(host.devices)
        self.faults += [fault.under(*path, "devices") for fault in groups]
        pairs: set[tuple[str, str]] = set()
        for index, link in enumerate(host.links):
            where = (*path, "links", index)
            self.faults += [fault.under(*where) for fault in link_faults(link)]
            for end, name in (("source", link.source), ("target", link.target)):
                if name not in names:
                    detail = f"{name!r} is no device of this host; a link joins listed devices"
                    self.refuse(FaultCode.UNKNOWN_NAME, (*where, end), detail)
            for pair in _directions(link, link.source, link.target):
                if pair in pairs:
                    self._refuse_second_link(pair, where)
                    break
                pairs.add(pair)

    def _check_port(self, device: DeviceSpec, path: Path) -> None:
        nominal, effective = device.port_bytes_per_second, device.port_effective_bytes_per_second
        if device.port_origin is not RateOrigin.STATED and device.port_source is None:
            detail = f"a rate that is {device.port_origin.value} names where it comes from"
            self.refuse(FaultCode.MISSING_FIELD, (*path, "port_source"), detail)
        if effective is not None and (nominal is None or effective > nominal):
            detail = "an effective port rate needs a nominal one that is at least as high"
            where = (*path, "port_effective_bytes_per_second")
            self.refuse(FaultCode.INCONSISTENT, where, detail)

    def add_switch(self, switch: SwitchSpec, path: Path) -> None:
        if switch.name in self.vertices:
            detail = f"a switch's name is given once; {switch.name!r} is taken"
            self.refuse(FaultCode.DUPLICATE_NAME, path, detail)
            return
        self.vertices[switch.name] = Vertex(switch.name, switch.kind, rail=switch.rail)

    def add_network(
        self,
        build: Callable[[Sequence[HostPorts]], FabricParts],
        field: str,
        prefixes: tuple[str, ...],
    ) -> None:
        """Build a network over all hosts so far; `prefixes` begin the names of its switches."""
        try:
            parts = build(self.ports)
        except InvalidInput as refused:
            self.faults += [fault.under(field) for fault in refused.faults]
            self.broken_prefixes += prefixes
            return
        for switch in parts.switches:
            # A clash is the listed switch's to solve: the names of a network are fixed.
            self.add_switch(switch, (field,))
        for link in parts.links:
            self._add_link(link, link.source, link.target, (field,))
        self.assumptions += parts.assumptions

    def add_stated_link(self, number: int, link: LinkSpec) -> None:
        """Add a link of the document itself, which names its ends in full."""
        path: Path = ("links", number)
        found = [fault.under(*path) for fault in link_faults(link)]
        dangling = False
        for end, name in (("source", link.source), ("target", link.target)):
            if name in self.vertices:
                continue
            dangling = True
            if self.may_be_missing(name):
                continue
            host, _, device = name.partition("/")
            detail = (
                f"{name!r} is neither a device (host/device) nor a switch of this topology"
                if host not in self.hosts
                else f"host {host!r} has no device {device!r}; a link ends at host/device"
            )
            found.append(Fault(FaultCode.UNKNOWN_NAME, (*path, end), detail))
        self.faults += found
        if found or dangling:
            return
        for pair in _directions(link, link.source, link.target):
            if pair in self.links:
                self._refuse_second_link(pair, path)
                return
        self._add_link(link, link.source, link.target, path)

    def may_be_missing(self, name: str) -> bool:
        """Whether a name may be missing because what should have made it is at fault itself."""
        return name.partition("/")[0] in self.broken_hosts or name.startswith(self.broken_prefixes)

    def _refuse_second_link(self, pair: tuple[str, str], path: Path) -> None:
        detail = (
            f"there is a link from {pair[0]} to {pair[1]} already: parallel cables are one link"
            " with their total bandwidth and lanes"
        )
        self.refuse(FaultCode.DUPLICATE_NAME, path, detail)

    def _add_link(self, link: LinkSpec, source: str, target: str, path: Path) -> None:
        way = link
        for one, other in _directions(link, source, target):
            half = link.duplex is Duplex.HALF
            ends = self.vertices[one], self.vertices[other]
            shared = shared_capacity(link.kind, *ends, half=half)
            if shared is not None:
                self._check_shared(shared, way.bandwidth_bytes_per_second, path)
            self.links[one, other] = _directed(way, one, other, shared)
            way = link if link.reverse is None else link.backward()

    def _check_shared(self, name: str, rate: float, path: Path) -> None:
        """One capacity has one nominal rate; a fault of like hosts is told once."""
        first = self.capacities.setdefault(name, rate)
        where = (*path, "bandwidth_bytes_per_second")
        if rate != first and where not in self.told:
            self.told.add(where)
            detail = (
                f"the links that share the capacity of {name} have one nominal rate; got {rate!r}"
                f" here and {first!r} on an earlier one"
            )
            self.refuse(FaultCode.INCONSISTENT, where, detail)


def _directions(link: LinkSpec, source: str, target: str) -> Iterator[tuple[str, str]]:
    yield source, target
    if link.duplex is not Duplex.SIMPLEX:
        yield target, source


def _directed(link: LinkSpec, source: str, target: str, shared: str | None) -> Link:
    measured = link.measured
    return Link(
        source=source,
        target=target,
        kind=link.kind,
        bandwidth_bytes_per_second=link.bandwidth_bytes_per_second,
        effective_bytes_per_second=link.effective_bytes_per_second,
        measured_bytes_per_second=measured.bytes_per_second if measured else None,
        measured_source=measured.source if measured else None,
        measured_date=measured.date if measured else None,
        latency_floor_seconds=link.latency_floor_seconds,
        latency_seconds=link.latency_seconds,
        lanes=link.lanes,
        bandwidth_origin=link.bandwidth_origin,
        bandwidth_source=link.bandwidth_source,
        shared_capacity=shared,
    )


def _vertex(host: str, device: DeviceSpec) -> Vertex:
    return Vertex(
        name=f"{host}/{device.name}",
        kind=device.kind,
        host=host,
        product=device.product,
        rail=device.rail,
        port_bytes_per_second=device.port_bytes_per_second,
        port=device.port,
        card=device.card,
        slot=device.slot,
        memory_bytes=device.memory_bytes,
        memory_bytes_per_second=device.memory_bytes_per_second,
        peak_flops=device.peak_flops,
    )


def _ports(host: str, devices: tuple[DeviceSpec, ...], kind: VertexKind) -> Iterator[DevicePort]:
    for device in devices:
        if device.kind is kind:
            yield DevicePort(
                name=f"{host}/{device.name}",
                rail=device.rail or 0,
                bytes_per_second=device.port_bytes_per_second,
                effective_bytes_per_second=device.port_effective_bytes_per_second,
                origin=device.port_origin,
                source=device.port_source,
                lanes=device.port_lanes,
            )
