"""One cluster from several files: insides of hosts, fabrics, trees of names, and what is stated.

The inside of a host is that of every host it is taken for; fabrics join hosts by the name of an
adapter, by GUID, or by the order of adapters. What is assumed, left out, renamed, or told
differently by two files is listed, and never settled in silence.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from service.core.errors import FaultCode
from service.core.topology.cluster import RateOrigin
from service.core.topology.designs import DESIGNS
from service.core.topology.gpu_products import GPU_PRODUCTS, find_product
from service.core.topology.join_domains import join_domains
from service.core.topology.join_fabric import (
    HostEnd,
    HostFinder,
    fabric_readings,
    join_fabric,
)
from service.core.topology.join_groups import DEFAULT_HOST, host_groups
from service.core.topology.join_hosts import HostGroup
from service.core.topology.join_names import Names, Renamed, as_count
from service.core.topology.join_notes import FileLine, Notes, listed
from service.core.topology.join_rates import RateSources
from service.core.topology.measured import apply_measurements
from service.core.topology.readings import CableEnd, Reading
from service.core.topology.spec import ClusterSpec, HostSpec, LinkSpec
from service.core.topology.stated import Stated

__all__ = ["Joined", "Stated", "join"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The cluster, and what a person should know before using it.

    `left_out` names files by their place (from 0), `renamed` lists hosts and switches whose names
    are not legal here, `adapters` what the system calls each NIC.
    """

    spec: ClusterSpec
    joined: tuple[str, ...]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    conflicts: tuple[str, ...]
    left_out: tuple[FileLine, ...]
    renamed: tuple[Renamed, ...]


def join(readings: Sequence[Reading], stated: Stated) -> Joined:
    """Join readings, in the order of their files, into one cluster.

    Raises `InvalidInput` with every fault: a link whose rate nothing says (path: the field that
    would say it), an unknown product or design, hosts whose inside nothing says, files that
    describe different hosts without naming them.
    """
    return _Join(readings, stated).run()


class _Join:
    """A cluster in the making."""

    def __init__(self, readings: Sequence[Reading], stated: Stated) -> None:
        self._readings = readings
        self._stated = stated
        self._notes = Notes()
        self._groups: list[HostGroup] = []
        self._group_of: dict[str, HostGroup] = {}
        self._host_of: dict[str | None, str] = {}
        self._legal: dict[str, str] = {}

    def run(self) -> Joined:
        notes = self._notes
        sources = self._sources()
        notes.raise_faults()
        for file, reading in enumerate(self._readings):
            notes.take_over(file, reading.left_out)
            for sentence in reading.assumptions:
                notes.assume(sentence)
            for sentence in reading.notes:
                notes.warn(sentence)
        fabrics = fabric_readings(self._readings, notes)
        self._make_groups(fabrics, sources)
        notes.raise_faults()
        names = Names(DEFAULT_HOST)
        self._legal = names.all_of(self._group_of)
        self._compare_hosts()
        switch_names = Names("switch")
        finder = HostFinder(self._host_end, self._nics_of)
        fabric = join_fabric(fabrics, finder, switch_names, sources, notes)
        domains = join_domains(
            self._readings, self._groups, self._legal, switch_names, sources, notes
        )
        self._groups = list(domains.groups)
        hosts = tuple(self._spec(group, sources) for group in self._groups)
        self._tell_lonely_hosts(fabric.links)
        self._tell_unplugged_ports(fabric.links)
        self._tell_assumed_rates((*fabric.links, *(link for host in hosts for link in host.links)))
        sources.refuse_missing()
        notes.raise_faults()
        bare = ClusterSpec(
            hosts=hosts,
            switches=(*fabric.switches, *domains.switches),
            links=(*fabric.links, *domains.links),
        )
        spec = self._measured(bare)
        return Joined(
            spec=spec,
            joined=tuple(notes.joined),
            assumptions=tuple(notes.assumptions),
            warnings=tuple(notes.warnings),
            conflicts=tuple(notes.conflicts),
            left_out=tuple(notes.left_out),
            renamed=(*names.renamed, *switch_names.renamed),
        )

    def _measured(self, spec: ClusterSpec) -> ClusterSpec:
        """The cluster with what benchmarks among the files say of its links."""
        file_of = {
            id(transfer): file
            for file, reading in enumerate(self._readings)
            for transfer in reading.measurements
        }
        transfers = [each for reading in self._readings for each in reading.measurements]
        found = apply_measurements(spec, transfers)
        for sentence in found.assumptions:
            self._notes.assume(sentence)
        for unused in found.unused:
            first = unused.first
            detail = f"{unused.count} measurements of {first.collective}: {unused.reason}"
            self._notes.leave_out(file_of[id(first)], first.line, detail)
        return found.spec

    def _sources(self) -> RateSources:
        stated, product = self._stated, None
        if stated.gpu is not None:
            product = find_product(stated.gpu)
            if product is None:
                known = ", ".join(product.name for product in GPU_PRODUCTS)
                detail = f"{stated.gpu[:80]!r} is no product that is known; known are: {known}"
                self._notes.refuse(FaultCode.UNKNOWN_NAME, ("gpu",), detail)
        if stated.design is not None and stated.design not in DESIGNS:
            known = ", ".join(DESIGNS)
            detail = f"{stated.design[:80]!r} is no reference design; known are {known}"
            self._notes.refuse(FaultCode.UNKNOWN_NAME, ("design",), detail)
        return RateSources(self._notes, product, stated.rates)

    def _make_groups(self, fabrics: Sequence[tuple[int, Reading]], sources: RateSources) -> None:
        self._groups = host_groups(self._readings, fabrics, self._stated, sources, self._notes)
        self._group_of = {host: group for group in self._groups for host in group.hosts}
        # A GUID tells its host where an inside is that of one host alone.
        self._host_of = {
            guid: group.hosts[0]
            for group in self._groups
            if len(group.hosts) == 1
            for guid in group.guids
        }

    def _compare_hosts(self) -> None:
        """Hosts that one file, or the caller, names and another does not."""
        named: dict[str, set[str]] = {}
        if self._stated.every_host:
            named["the request"] = set(self._stated.every_host)
        for file, reading in enumerate(self._readings):
            hosts = {host.name for host in reading.hosts if host.name is not None}
            hosts |= {attached.host for attached in reading.attached}
            hosts |= {
                end.host
                for cable in reading.cables
                for end in (cable.source, cable.target)
                if end.host is not None
            }
            if hosts:
                named[f"file {file + 1} ({reading.format})"] = hosts
        everyone = set().union(*named.values()) if named else set()
        for source, hosts in named.items():
            lacking = sorted(everyone - hosts)
            if lacking:
                self._notes.warn(f"{source} does not name {listed(lacking)} hosts that others name")

    # What a fabric finds in them.

    def _host_end(self, end: CableEnd) -> HostEnd | None:
        host = end.host
        if host is None:
            host = self._host_of_guid(end)
        group = None if host is None else self._group_of.get(host)
        if host is None or group is None:
            return None
        device = group.device_at(end)
        return None if device is None else self._end_of(host, group, device)

    def _host_of_guid(self, end: CableEnd) -> str | None:
        """The host of an adapter that has only a GUID: that of the one host whose inside has it."""
        guids = (end.port_guid, end.system_guid)
        return next((self._host_of[guid] for guid in guids if guid in self._host_of), None)

    def _nics_of(self, host: str) -> list[HostEnd]:
        group = self._group_of.get(host)
        return [] if group is None else [self._end_of(host, group, nic) for nic in group.ports]

    def _end_of(self, host: str, group: HostGroup, device: str) -> HostEnd:
        name = f"{self._legal[host]}/{device}"
        return HostEnd(name, group.ports.get(device), group.rails.get(device))

    # How it is written down.

    def _spec(self, group: HostGroup, sources: RateSources) -> HostSpec:
        devices, links = group.inner(sources)
        names = [self._legal[host] for host in group.hosts]
        prefix = as_count(names)
        if prefix is not None:
            return HostSpec(
                name=prefix, count=len(names), design=group.design, devices=devices, links=links
            )
        first, *alike = names
        return HostSpec(
            name=first, alike=tuple(alike), design=group.design, devices=devices, links=links
        )

    def _tell_assumed_rates(self, links: Sequence[LinkSpec]) -> None:
        """Once for each kind of link and whose figure it is, with all the rates it comes to."""
        told: dict[tuple[str, str], set[float]] = {}
        for link in links:
            if link.bandwidth_origin is RateOrigin.ASSUMED:
                whose = link.kind.value, link.bandwidth_source or ""
                rate = link.bandwidth_bytes_per_second / link.lanes
                told.setdefault(whose, set()).add(rate)
        for (kind, source), rates in sorted(told.items()):
            lowest, highest = (f"{rate / 1e9:g}" for rate in (min(rates), max(rates)))
            words = lowest if len(rates) == 1 else f"{lowest} to {highest}"
            self._notes.assume(f"{kind} links of {words} GB/s: {source}")

    def _tell_lonely_hosts(self, links: Sequence[LinkSpec]) -> None:
        joined = {end.partition("/")[0] for link in links for end in (link.source, link.target)}
        lonely = [
            host
            for group in self._groups
            for host in group.hosts
            if not group.ports and self._legal[host] not in joined
        ]
        if lonely:
            self._notes.warn(f"{listed(lonely)} hosts have no NIC")

    def _tell_unplugged_ports(self, links: Sequence[LinkSpec]) -> None:
        """Hosts that a fabric joins by fewer ports than their inside has, by how many."""
        ends = {end for link in links for end in (link.source, link.target)}
        some: dict[tuple[int, int], list[str]] = {}
        for group in self._groups:
            for host in group.hosts:
                plugged = sum(f"{self._legal[host]}/{port}" in ends for port in group.ports)
                if 0 < plugged < len(group.ports):
                    some.setdefault((plugged, len(group.ports)), []).append(host)
        for (plugged, ports), hosts in some.items():
            self._notes.warn(
                f"{listed(hosts)} hosts are joined by {plugged} of the {ports} ports of their"
                " NICs: no file has a cable at the others"
            )
