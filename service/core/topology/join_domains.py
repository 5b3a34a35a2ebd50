"""NVLink domains that span hosts: a port of every accelerator on the NVSwitches of its domain."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from service.core.topology.cluster import LinkKind, RateOrigin, VertexKind
from service.core.topology.designs import DESIGNS
from service.core.topology.join_hosts import HostGroup
from service.core.topology.join_names import Names
from service.core.topology.join_notes import Notes, listed
from service.core.topology.join_rates import RateSources
from service.core.topology.readings import NvlinkDomain, Rate, Reading
from service.core.topology.spec import LinkSpec, SwitchSpec

__all__ = ["JoinedDomains", "join_domains"]


@dataclass(frozen=True, slots=True)
class JoinedDomains:
    """Switches and links as a document says them."""

    switches: tuple[SwitchSpec, ...] = ()
    links: tuple[LinkSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class _Port:
    """What an accelerator has to the NVSwitches of its domain."""

    device: str
    rate: Rate
    lanes: int


def join_domains(
    readings: Sequence[Reading],
    group_of: Mapping[str, HostGroup],
    legal: Mapping[str, str],
    names: Names,
    sources: RateSources,
    notes: Notes,
) -> JoinedDomains:
    """Join the hosts of each domain to NVSwitches of their own.

    Files call blocks of hosts domains whatever joins them, so this is done for accelerators that
    are made for it only, by product or design; other domains are left out. The NVSwitch that the
    inside of such a host shows is a part of the domain's, and gives way to it.
    """
    ports = {id(group): _ports(group, sources) for group in group_of.values()}
    switches: list[SwitchSpec] = []
    links: list[LinkSpec] = []
    taken: dict[str, str] = {}
    for file, reading in enumerate(readings):
        given = {domain.name: domain for domain in reading.domains}
        titles = names.all_of(f"nvlink-{name}" for name in given)
        for domain in given.values():
            found = _plugs(domain, group_of, ports, taken, notes)
            if not found:
                notes.leave_out(
                    file,
                    domain.line,
                    f"{domain.name}: neither product nor design joins its hosts by NVSwitches",
                )
                continue
            switch = titles[f"nvlink-{domain.name}"]
            switches.append(SwitchSpec(switch, VertexKind.NVSWITCH))
            links += [_link(f"{legal[host]}/{port.device}", switch, port) for host, port in found]
    if switches:
        notes.join(
            f"{len(taken)} hosts are in {len(switches)} NVLink domains: all NVSwitch chips of a"
            " domain are one non-blocking vertex"
        )
    for group in {id(group): group for group in group_of.values()}.values():
        _give_way(group, taken, notes)
    return JoinedDomains(tuple(switches), tuple(links))


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


def _plugs(
    domain: NvlinkDomain,
    group_of: Mapping[str, HostGroup],
    ports: Mapping[int, list[_Port]],
    taken: dict[str, str],
    notes: Notes,
) -> list[tuple[str, _Port]]:
    """Hosts and ports that the domain joins; a host that is in two stays in the first."""
    twice = [host for host in domain.hosts if taken.get(host, domain.name) != domain.name]
    if twice:
        notes.conflict(
            f"{listed(twice)} hosts are in NVLink domain {domain.name} and in another, which is"
            " taken"
        )
    plugs = []
    for host in domain.hosts:
        group = group_of.get(host)
        if group is None or host in taken or not ports[id(group)]:
            continue
        taken[host] = domain.name
        plugs += [(host, port) for port in ports[id(group)]]
    return plugs


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


def _give_way(group: HostGroup, taken: Mapping[str, str], notes: Notes) -> None:
    """Take the NVSwitch out of hosts whose accelerators have their port on a domain's."""
    inside = group.inside
    if inside is None or not inside.of_kind(VertexKind.NVSWITCH):
        return
    inner = [host for host in group.hosts if host in taken]
    if len(inner) < len(group.hosts):
        if inner:
            notes.warn(
                f"{listed(inner)} hosts are in an NVLink domain, and others that are inside alike"
                " are not: state which hosts are meant"
            )
        return
    switches = {device.name for device in inside.of_kind(VertexKind.NVSWITCH)}
    kept = {name: device for name, device in inside.devices.items() if name not in switches}
    links = tuple(link for link in inside.links if not switches & {link.source, link.target})
    group.inside = replace(inside, devices=kept, links=links)
