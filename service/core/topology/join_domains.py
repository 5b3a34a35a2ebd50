"""NVLink domains that span hosts: a port of every accelerator on the NVSwitches of its domain."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace

from service.core.topology.cluster import LinkKind, RateOrigin, VertexKind
from service.core.topology.designs import DESIGNS
from service.core.topology.join_hosts import HostGroup
from service.core.topology.join_names import Names
from service.core.topology.join_notes import Notes, listed
from service.core.topology.join_rates import RateSources
from service.core.topology.readings import Rate, Reading
from service.core.topology.spec import LinkSpec, SwitchSpec

__all__ = ["JoinedDomains", "join_domains"]


@dataclass(frozen=True, slots=True)
class JoinedDomains:
    """Switches and links as a document says them, and all groups: where only some of those that are
    inside alike are in a domain, the others are a group of their own.
    """

    switches: tuple[SwitchSpec, ...]
    links: tuple[LinkSpec, ...]
    groups: tuple[HostGroup, ...]


@dataclass(frozen=True, slots=True)
class _Port:
    """What an accelerator has to the NVSwitches of its domain."""

    device: str
    rate: Rate
    lanes: int


def join_domains(
    readings: Sequence[Reading],
    groups: Sequence[HostGroup],
    legal: Mapping[str, str],
    names: Names,
    sources: RateSources,
    notes: Notes,
) -> JoinedDomains:
    """Join the hosts of each domain to NVSwitches of their own.

    Files call blocks of hosts domains whatever joins them, so this is done for accelerators that
    are made for it only, by product or design; other domains are left out. What NVLinks the inside
    of such a host shows between its accelerators are a part of the domain's, and give way to them.
    """
    of_group = [_ports(group, sources) for group in groups]
    ports = {
        host: found for group, found in zip(groups, of_group, strict=True) for host in group.hosts
    }
    domains = _Domains(ports, notes)
    for file, reading in enumerate(readings):
        domains.add(file, reading)
    titles = names.all_of(f"nvlink-{name}" for name in domains.hosts_of)
    switches = {name: titles[f"nvlink-{name}"] for name in domains.hosts_of}
    links = tuple(
        _link(f"{legal[host]}/{port.device}", switches[name], port)
        for name, hosts in domains.hosts_of.items()
        for host in hosts
        for port in ports[host]
    )
    if switches:
        notes.join(
            f"{len(domains.domain_of)} hosts are in {len(switches)} NVLink domains: all NVSwitch"
            " chips of a domain are one non-blocking vertex"
        )
    split = tuple(part for group in groups for part in _split(group, domains.domain_of))
    _tell_unjoined(split, ports, domains.domain_of, notes)
    specs = tuple(SwitchSpec(name, VertexKind.NVSWITCH) for name in switches.values())
    return JoinedDomains(specs, links, split)


@dataclass(slots=True)
class _Domains:
    """Which hosts with ports are in which domain, as far as files were gone through."""

    ports: Mapping[str, list[_Port]]
    notes: Notes
    hosts_of: dict[str, list[str]] = field(default_factory=dict)
    domain_of: dict[str, str] = field(default_factory=dict)

    def add(self, file: int, reading: Reading) -> None:
        """Take the domains of a file; a host that is in two stays in the first."""
        bare: dict[str, int] = {}
        for domain in {each.name: each for each in reading.domains}.values():
            hosts = [host for host in domain.hosts if self.ports.get(host)]
            before = {self.domain_of[host] for host in hosts if host in self.domain_of}
            if not hosts:
                bare[domain.name] = domain.line
            elif len(before) == 1 and set(hosts) == set(self.hosts_of[min(before)]):
                if domain.name not in before:
                    self.notes.join(
                        f"NVLink domains {min(before)} and {domain.name} are one: two files say"
                        " that of the same hosts"
                    )
            else:
                self._take(domain.name, hosts)
        if bare:
            self.notes.leave_out(
                file,
                min(bare.values()),
                f"{listed(bare)} domains: neither product nor design joins their hosts by"
                " NVSwitches",
            )

    def _take(self, name: str, hosts: Sequence[str]) -> None:
        twice = [host for host in hosts if self.domain_of.get(host, name) != name]
        if twice:
            self.notes.conflict(
                f"{listed(twice)} hosts are in NVLink domain {name} and in another, which is taken"
            )
        free = [host for host in hosts if host not in self.domain_of]
        if free:
            self.hosts_of.setdefault(name, []).extend(free)
            self.domain_of |= dict.fromkeys(free, name)


def _ports(group: HostGroup, sources: RateSources) -> list[_Port]:
    """The ports of a host's accelerators, none where they are not made for domains of hosts."""
    if group.design is not None:
        return [
            _Port(
                device.name,
                Rate(
                    device.port_bytes_per_second,
                    device.port_origin,
                    device.port_source or f"the accelerator of {group.design}",
                ),
                device.port_lanes,
            )
            for device in DESIGNS[group.design].devices
            if device.kind is VertexKind.GPU and device.port_bytes_per_second is not None
        ]
    ports = []
    for gpu in () if group.inside is None else group.inside.of_kind(VertexKind.GPU):
        product = sources.product_of(gpu)
        if product is None or product.generation is None or not product.in_domains_of_hosts:
            continue
        lanes = product.links if gpu.nvlinks is None else gpu.nvlinks
        rate = product.generation.link_bytes_per_second * lanes
        if lanes:
            source = product.generation.source
            ports.append(_Port(gpu.name, Rate(rate, RateOrigin.PRODUCT, source), lanes))
    return ports


def _link(source: str, target: str, port: _Port) -> LinkSpec:
    return LinkSpec(
        source=source,
        target=target,
        kind=LinkKind.NVLINK,
        bandwidth_bytes_per_second=port.rate.bytes_per_second,
        lanes=port.lanes,
        bandwidth_origin=port.rate.origin,
        bandwidth_source=port.rate.source[:200],
    )


def _split(group: HostGroup, domain_of: Mapping[str, str]) -> list[HostGroup]:
    """The hosts that are in no domain as they are, and the others without NVLinks of their own."""
    inside = group.inside
    inner = [host for host in group.hosts if host in domain_of]
    if inside is None or not inner:
        return [group]
    ends = (VertexKind.GPU, VertexKind.NVSWITCH)
    links = tuple(
        link
        for link in inside.links
        if link.kind is not LinkKind.NVLINK
        or any(inside.devices[end].kind not in ends for end in (link.source, link.target))
    )
    devices = {
        name: device
        for name, device in inside.devices.items()
        if device.kind is not VertexKind.NVSWITCH
    }
    outer = copy(group)
    outer.hosts = [host for host in group.hosts if host not in domain_of]
    group.hosts, group.inside = inner, replace(inside, devices=devices, links=links)
    return [group, outer] if outer.hosts else [group]


def _tell_unjoined(
    groups: Sequence[HostGroup],
    ports: Mapping[str, list[_Port]],
    domain_of: Mapping[str, str],
    notes: Notes,
) -> None:
    """Hosts whose accelerators have ports for a domain, which no file has them in."""
    alone = [
        host for group in groups for host in group.hosts if ports[host] and host not in domain_of
    ]
    if alone:
        notes.assume(
            f"{listed(alone)} hosts are in no NVLink domain, since no file says which they share:"
            " their accelerators are joined by what is inside a host and by the fabric alone, and"
            " where NVSwitches join them, what is computed between them bounds nothing"
        )
