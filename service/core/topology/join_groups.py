"""Which hosts a cluster has, and what is inside each: by a file or by a design.

Fabrics name hosts that are no part of this: servers that manage the fabric. A host that nobody
stated gets an inside only when its adapters in the fabric fit that inside.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from service.core.errors import FaultCode
from service.core.topology.cluster import VertexKind
from service.core.topology.expand import MAX_HOSTS
from service.core.topology.join_hosts import (
    AdapterKey,
    HostGroup,
    adapter_key,
    group_of_adapters,
)
from service.core.topology.join_insides import Inside, merge_insides
from service.core.topology.join_notes import Notes, listed
from service.core.topology.join_nvlinks import with_nvswitch
from service.core.topology.join_rates import RateSources
from service.core.topology.readings import CableEnd, FoundHost, Rate, Reading
from service.core.topology.stated import Stated

__all__ = ["DEFAULT_HOST", "host_groups"]

DEFAULT_HOST = "host"

_Ends = Mapping[str, Mapping[CableEnd, Rate | None]]
# A host as a file has it, with the place and the format of the file.
_Told = tuple[int, str, FoundHost]


def host_groups(
    readings: Sequence[Reading],
    fabrics: Sequence[tuple[int, Reading]],
    stated: Stated,
    sources: RateSources,
    notes: Notes,
) -> list[HostGroup]:
    """Groups of hosts that are alike, with the adapters of `fabrics` found in them.

    What can't be is refused through `notes`: files that describe unlike hosts without saying which,
    hosts that nothing says the inside of, none at all.
    """
    return _Groups(readings, fabrics, stated, sources, notes).make()


class _Groups:
    """The groups in the making; `_titles` are the hosts that have none yet, as files name them."""

    def __init__(
        self,
        readings: Sequence[Reading],
        fabrics: Sequence[tuple[int, Reading]],
        stated: Stated,
        sources: RateSources,
        notes: Notes,
    ) -> None:
        self._readings = readings
        self._stated = stated
        self._sources = sources
        self._notes = notes
        self._groups: list[HostGroup] = []
        self._ends = _ends_by_host(reading for _, reading in fabrics)
        attached = (each.host for _, reading in fabrics for each in reading.attached)
        in_fabrics = dict.fromkeys((*self._ends, *attached))
        self._titles = dict.fromkeys((*stated.every_host, *in_fabrics))
        if in_fabrics and stated.every_host and in_fabrics.keys().isdisjoint(stated.every_host):
            field = "hosts" if stated.hosts else "hosts_by_file"
            detail = (
                f"the files name {listed(in_fabrics)} hosts, of which the request names none: give"
                " their names, or none"
            )
            notes.refuse(FaultCode.INCONSISTENT, (field,), detail)

    def make(self) -> list[HostGroup]:
        named, of_lists, nameless = self._told()
        for title, told in named.items():
            self._add([title], self._inside(told))
        for hosts, told in of_lists.items():
            self._require_one_each(told, f"of {listed(hosts)} hosts")
            self._add(list(hosts), self._inside(told))
        stated = [host for host in self._stated.hosts if host in self._titles]
        if nameless and self._require_one_each(nameless, "without naming it"):
            self._take_for_all(nameless, stated)
        if self._stated.design is not None:
            # An inside that a file has stands before a design for the hosts that are stated.
            self._take_design(self._stated.design, [] if nameless else stated)
        self._add_hosts_of_adapters()
        self._require_few()
        self._match_adapters()
        if not self._groups and not self._notes.faults:
            detail = (
                "the files name no host: give the file of a host's inside, or hosts with a"
                " reference design"
            )
            self._notes.refuse(FaultCode.MISSING_FIELD, ("hosts",), detail)
        return self._groups

    def _add(self, hosts: list[str], inside: Inside | None, design: str | None = None) -> None:
        self._groups.append(HostGroup(hosts, inside, design))
        for host in hosts:
            self._titles.pop(host, None)

    def _inside(self, told: Sequence[_Told]) -> Inside:
        inside = merge_insides(told, self._notes)
        self._sources.compare_products(inside.devices.values())
        return with_nvswitch(inside, self._sources, self._notes)

    # What files say.

    def _told(
        self,
    ) -> tuple[dict[str, list[_Told]], dict[tuple[str, ...], list[_Told]], list[_Told]]:
        """What is told of each host by its name, of each list of hosts, and of hosts without."""
        named: dict[str, list[_Told]] = {}
        of_lists: dict[tuple[str, ...], list[_Told]] = {}
        nameless: list[_Told] = []
        for file, reading in enumerate(self._readings):
            hosts = self._stated.hosts_of_file.get(file)
            without_name = [host for host in reading.hosts if host.name is None]
            if hosts is not None and not without_name:
                self._refuse_list(
                    f"file {file + 1} ({reading.format}) describes no host without naming it: leave"
                    " its place empty"
                )
            for host in reading.hosts:
                if host.name is not None:
                    told = named.setdefault(host.name, [])
                elif hosts is not None:
                    told = of_lists.setdefault(hosts, [])
                else:
                    told = nameless
                told.append((file, reading.format, host))
        self._compare_lists(named, of_lists)
        return named, of_lists, nameless

    def _compare_lists(
        self, named: Mapping[str, list[_Told]], of_lists: Mapping[tuple[str, ...], list[_Told]]
    ) -> None:
        """A host is in one list, and in none when a file names it itself."""
        holder: dict[str, list[_Told]] = dict(named)
        for hosts, told in of_lists.items():
            twice = [host for host in hosts if host in holder]
            if twice:
                files = sorted({file + 1 for file, _, _ in (*told, *holder[twice[0]])})
                words = " and ".join(map(str, files))
                self._refuse_list(
                    f"{listed(twice)} hosts are those of files {words}: files of the same hosts"
                    " have the same list, and other lists share no host"
                )
            holder |= dict.fromkeys(hosts, told)

    def _refuse_list(self, detail: str) -> None:
        self._notes.refuse(FaultCode.INCONSISTENT, ("hosts_by_file",), detail)

    def _require_one_each(self, told: Sequence[_Told], which: str) -> bool:
        """Whether no two files of one format are of the same hosts, which are refused."""
        files: dict[str, list[str]] = {}
        for file, format_, _ in told:
            files.setdefault(format_, []).append(str(file + 1))
        twice = {format_: places for format_, places in files.items() if len(places) > 1}
        for format_, places in twice.items():
            detail = (
                f"files {' and '.join(places)} ({format_}) each describe a host {which}: give one"
                " of them, or say in hosts_by_file which hosts each is of"
            )
            self._notes.refuse(FaultCode.INCONSISTENT, ("files",), detail)
        return not twice

    # Insides that are taken for hosts.

    def _take_for_all(self, nameless: Sequence[_Told], stated: list[str]) -> None:
        """The inside without a name is that of the hosts that are stated, else of all that fit."""
        inside = self._inside(nameless)
        ports = {nic.name: nic.port_rate for nic in inside.of_kind(VertexKind.NIC)}
        hosts = stated or self._fitting(ports, "the host in the files has") or [DEFAULT_HOST]
        if not self._stated.hosts and len(hosts) > 1:
            self._notes.assume(f"all {listed(hosts)} hosts are inside as the one in the files")
        self._add(hosts, inside)

    def _take_design(self, design: str, stated: list[str]) -> None:
        ports = HostGroup([], design=design).ports
        hosts = stated or self._fitting(ports, f"{design} has")
        if hosts:
            self._add(hosts, None, design)

    def _fitting(self, ports: Mapping[str, Rate | None], whose: str) -> list[str]:
        """The hosts without an inside that can have one with these ports; the others are told.

        Cables may be missing, so a host fits with more than half of the ports, or with more than
        half of what hosts usually have in the fabric where that is fewer. A cable with less than
        half the rate of a port is at none of them.
        """
        fastest = max((rate.bytes_per_second for rate in ports.values() if rate), default=0.0)
        counts = {
            host: sum(
                rate is None or 2 * rate.bytes_per_second >= fastest
                for rate in self._ends[host].values()
            )
            for host in self._titles
            if host in self._ends
        }
        usual, _ = max(
            Counter(counts.values()).items(), key=lambda each: each[::-1], default=(0, 0)
        )
        least = min(len(ports), usual)
        others = [host for host, count in counts.items() if usual and 2 * count <= least]
        if others:
            self._notes.warn(
                f"{listed(others)} hosts are taken for no compute hosts, and nothing inside is made"
                f" up for them: the fabric has at most {max(counts[host] for host in others)}"
                f" adapters of each that fit, and {whose} {len(ports)} NICs, of which most hosts"
                f" have {usual} in the fabric"
            )
        left_out = set(others)
        return [host for host in self._titles if host not in left_out]

    def _add_hosts_of_adapters(self) -> None:
        """Hosts of which only adapters are known, and a fault for those without even these."""
        titles, stated = self._titles, set(self._stated.every_host)
        bare = [title for title in titles if title not in self._ends]
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
            for end, rate in self._ends.get(title, {}).items():
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

    def _match_adapters(self) -> None:
        """Find adapters in all groups, and tell what is alike in several once."""
        how: Counter[str] = Counter()
        found: list[str] = []
        in_order: dict[str, list[str]] = {}
        too_many: dict[str, list[str]] = {}
        for group in self._groups:
            matched = group.match_adapters(self._ends)
            how += matched.how
            found += group.hosts if matched.how else ()
            for pairs in matched.in_order:
                in_order.setdefault(pairs, []).extend(group.hosts)
            for rest in matched.too_many:
                too_many.setdefault(rest, []).extend(group.hosts)
        if found:
            told = " and ".join(f"{count} by {word}" for word, count in how.items())
            self._notes.join(f"adapters of {listed(found)} hosts are found in their inside: {told}")
        for pairs, hosts in in_order.items():
            self._notes.assume(
                f"adapters of {listed(hosts)} hosts that the inside does not name are its NICs in"
                f" order: {pairs}"
            )
        for rest, hosts in too_many.items():
            self._notes.warn(
                f"{listed(hosts)} hosts have more adapters than their inside has NICs; left out are"
                f" {rest}"
            )

    def _require_few(self) -> None:
        count = sum(len(group.hosts) for group in self._groups)
        if count > MAX_HOSTS:
            detail = (
                f"a topology has at most {MAX_HOSTS} hosts, and the files name {count}: state those"
                " that are meant"
            )
            self._notes.refuse(FaultCode.OUT_OF_RANGE, ("hosts",), detail)


def _ends_by_host(readings: Iterator[Reading]) -> dict[str, dict[CableEnd, Rate | None]]:
    """The ends of cables by the host they are in, with the rate of the cable."""
    ends: dict[str, dict[CableEnd, Rate | None]] = {}
    for reading in readings:
        for cable in reading.cables:
            for end in (cable.source, cable.target):
                if end.host is not None:
                    ends.setdefault(end.host, {})[end] = cable.rate
    return ends
