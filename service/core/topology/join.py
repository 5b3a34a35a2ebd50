"""One cluster from several files: insides of hosts, fabrics, trees of names, and what is stated.

The inside of a host is that of every host it is taken for; fabrics join hosts by the name of an
adapter, by GUID, or by the order of adapters. What is assumed, left out, renamed, or told
differently by two files is listed, and never settled in silence.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from service.core.errors import FaultCode
from service.core.topology.cluster import LinkKind, RateOrigin
from service.core.topology.designs import DESIGNS
from service.core.topology.expand import MAX_HOSTS
from service.core.topology.gpu_products import GPU_PRODUCTS, find_product
from service.core.topology.join_domains import join_domains
from service.core.topology.join_fabric import (
    HostEnd,
    HostFinder,
    fabric_readings,
    join_fabric,
)
from service.core.topology.join_hosts import (
    AdapterKey,
    HostGroup,
    adapter_key,
    group_of_adapters,
)
from service.core.topology.join_insides import Inside, merge_insides
from service.core.topology.join_names import Names, Renamed, as_count
from service.core.topology.join_notes import FileLine, Notes, listed
from service.core.topology.join_nvlinks import with_nvswitch
from service.core.topology.join_rates import RateSources
from service.core.topology.measured import apply_measurements
from service.core.topology.readings import CableEnd, FoundHost, Rate, Reading
from service.core.topology.spec import ClusterSpec, HostSpec, LinkSpec

__all__ = ["Joined", "Stated", "join"]

_DEFAULT_HOST = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What the caller says besides the files.

    `hosts` are the hosts that an inside without a name, or the design where no file has one, is
    taken for (all that are named anywhere when empty). `gpu` is the accelerators' product, `design`
    the reference design of hosts whose inside no file has. `rates` are nominal bytes per second in
    one direction of one NVLink, one PCIe connection, one cable, and so on, for links whose rate
    nothing else says.
    """

    hosts: tuple[str, ...] = ()
    gpu: str | None = None
    design: str | None = None
    rates: Mapping[LinkKind, float] = field(default_factory=dict)


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
        names = Names(_DEFAULT_HOST)
        self._legal = names.all_of(self._group_of)
        self._compare_hosts()
        switch_names = Names("switch")
        finder = HostFinder(self._host_end, self._nics_of)
        fabric = join_fabric(fabrics, finder, switch_names, sources, notes)
        domains = join_domains(
            self._readings, self._group_of, self._legal, switch_names, sources, notes
        )
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

    # Which hosts there are, and what is inside each.

    def _make_groups(self, fabrics: Sequence[tuple[int, Reading]], sources: RateSources) -> None:
        named, nameless = self._insides()
        named = {
            host: with_nvswitch(inside, sources, self._notes) for host, inside in named.items()
        }
        if nameless is not None:
            nameless = with_nvswitch(nameless, sources, self._notes)
        ends = _ends_by_host(reading for _, reading in fabrics)
        attached = {a.host: None for _, reading in fabrics for a in reading.attached}
        titles = dict.fromkeys((*self._stated.hosts, *ends, *attached))
        for title, inside in named.items():
            titles.pop(title, None)
            self._groups.append(HostGroup([title], inside))
        stated = [host for host in self._stated.hosts if host not in named]
        if nameless is not None:
            hosts = stated or list(titles) or [_DEFAULT_HOST]
            self._groups.append(HostGroup(hosts, nameless))
            if not self._stated.hosts and len(hosts) > 1:
                self._notes.assume(f"all {listed(hosts)} hosts are inside as the one in the files")
            for host in hosts:
                titles.pop(host, None)
        # An inside that a file has stands before a design for the hosts that are stated.
        meant = list(titles) if nameless is not None else stated or list(titles)
        if self._stated.design is not None and meant:
            self._groups.append(HostGroup(meant, design=self._stated.design))
            for host in meant:
                titles.pop(host, None)
        self._add_hosts_of_adapters(titles, ends)
        self._group_of = {host: group for group in self._groups for host in group.hosts}
        if len(self._group_of) > MAX_HOSTS:
            detail = (
                f"a topology has at most {MAX_HOSTS} hosts, and the files name"
                f" {len(self._group_of)}: state those that are meant"
            )
            self._notes.refuse(FaultCode.OUT_OF_RANGE, ("hosts",), detail)
        # A GUID tells its host where an inside is that of one host alone.
        self._host_of = {
            guid: group.hosts[0]
            for group in self._groups
            if len(group.hosts) == 1
            for guid in group.guids
        }
        for group in self._groups:
            group.match_adapters(ends, self._notes)
        if not self._groups and not self._notes.faults:
            self._refuse_no_hosts()

    def _add_hosts_of_adapters(
        self, titles: Mapping[str, None], ends: Mapping[str, Mapping[CableEnd, Rate | None]]
    ) -> None:
        """Hosts of which only adapters are known, and a fault for those without even these."""
        bare = [title for title in titles if title not in ends]
        stated = set(self._stated.hosts)
        others = [title for title in bare if stated and title not in stated]
        needed = [title for title in bare if not stated or title in stated]
        if others:
            self._notes.warn(
                f"{listed(others)} hosts that the request does not name are left out: nothing says"
                " what is inside"
            )
        if needed and not self._notes.faults:
            detail = (
                f"nothing says what is inside of {listed(needed)} hosts: give a file of one of"
                " them, or a reference design"
            )
            self._notes.refuse(FaultCode.MISSING_FIELD, ("design",), detail)
        like: dict[tuple[tuple[AdapterKey, Rate | None], ...], HostGroup] = {}
        for title in titles:
            rates: dict[AdapterKey, Rate | None] = {}
            for end, rate in ends.get(title, {}).items():
                key = adapter_key(end)
                if key is not None:
                    rates[key] = rates.get(key) or rate
            if not rates:
                continue
            alike = tuple(sorted(rates.items(), key=str))
            if alike in like:
                like[alike].hosts.append(title)
            else:
                like[alike] = group_of_adapters(title, rates)
                self._groups.append(like[alike])
        known = [host for group in like.values() for host in group.hosts]
        if known:
            self._notes.warn(
                f"of {listed(known)} hosts only NICs are known, and no accelerators: no plan can be"
                " placed there"
            )

    def _insides(self) -> tuple[dict[str, Inside], Inside | None]:
        """Insides by the name of their host, and the one that has no name."""
        named: dict[str, list[tuple[int, str, FoundHost]]] = {}
        nameless: list[tuple[int, str, FoundHost]] = []
        for file, reading in enumerate(self._readings):
            for host in reading.hosts:
                told = nameless if host.name is None else named.setdefault(host.name, [])
                told.append((file, reading.format, host))
        formats = [format_ for _, format_, _ in nameless]
        twice = sorted({format_ for format_ in formats if formats.count(format_) > 1})
        for format_ in twice:
            files = [str(file + 1) for file, each, _ in nameless if each == format_]
            detail = (
                f"files {' and '.join(files)} ({format_}) each describe a host without naming it:"
                " give one of them, and import clusters of unlike hosts one kind at a time"
            )
            self._notes.refuse(FaultCode.INCONSISTENT, ("files",), detail)
        inside = merge_insides(nameless, self._notes) if nameless and not twice else None
        merged = {name: merge_insides(told, self._notes) for name, told in named.items()}
        return merged, inside

    def _refuse_no_hosts(self) -> None:
        detail = (
            "the files name no host: give the file of a host's inside, or hosts with a reference"
            " design"
        )
        self._notes.refuse(FaultCode.MISSING_FIELD, ("hosts",), detail)

    def _compare_hosts(self) -> None:
        """Hosts that one file, or the caller, names and another does not."""
        named: dict[str, set[str]] = {}
        if self._stated.hosts:
            named["the request"] = set(self._stated.hosts)
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
        """Once for each kind of link and whose figure it is."""
        told = {
            (link.kind, link.bandwidth_source, link.bandwidth_bytes_per_second / link.lanes)
            for link in links
            if link.bandwidth_origin is RateOrigin.ASSUMED
        }
        for kind, source, rate in sorted(told, key=str):
            self._notes.assume(f"{kind.value} links of {rate / 1e9:g} GB/s: {source}")

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


def _ends_by_host(readings: Iterator[Reading]) -> dict[str, dict[CableEnd, Rate | None]]:
    """The ends of cables by the host they are in, with the rate of the cable."""
    ends: dict[str, dict[CableEnd, Rate | None]] = {}
    for reading in readings:
        for cable in reading.cables:
            for end in (cable.source, cable.target):
                if end.host is not None:
                    ends.setdefault(end.host, {})[end] = cable.rate
    return ends
