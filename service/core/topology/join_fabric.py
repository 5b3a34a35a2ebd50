"""The switches and cables of a cluster, from what one or several files say of them."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from service.core.topology.cluster import LinkKind, RateOrigin, VertexKind
from service.core.topology.join_names import Names
from service.core.topology.join_notes import Notes, listed
from service.core.topology.join_rates import RateSources
from service.core.topology.readings import Cable, CableEnd, FoundSwitch, Rate, Reading
from service.core.topology.spec import LinkSpec, SwitchSpec

__all__ = ["HostEnd", "HostFinder", "JoinedFabric", "fabric_readings", "join_fabric"]

_KINDS = {0: VertexKind.LEAF, 1: VertexKind.SPINE, 2: VertexKind.CORE}
_STATED_OF_TREE = "stated for all cables between two switches of the tree"


@dataclass(frozen=True, slots=True)
class HostEnd:
    """Where a cable ends in a host: the device (`host/nic0`), its port's rate, and its rail."""

    device: str
    port_rate: Rate | None
    rail: int | None


@dataclass(frozen=True, slots=True)
class HostFinder:
    """What is known of hosts: the device at an end of a cable, and all NICs of a host by its name
    in the files.
    """

    at: Callable[[CableEnd], HostEnd | None]
    nics_of: Callable[[str], Sequence[HostEnd]]


@dataclass(frozen=True, slots=True)
class JoinedFabric:
    """Switches and links as a document says them."""

    switches: tuple[SwitchSpec, ...]
    links: tuple[LinkSpec, ...]


@dataclass(slots=True)
class _Bundle:
    """Parallel cables between the same two ends."""

    kind: LinkKind
    bytes_per_second: float = 0.0
    cables: int = 0
    latency_seconds: float | None = None
    origins: dict[RateOrigin, str] = field(default_factory=dict)

    def add(self, rate: Rate, latency_seconds: float | None) -> None:
        self.bytes_per_second += rate.bytes_per_second
        self.cables += 1
        self.origins.setdefault(rate.origin, rate.source)
        if latency_seconds is not None:
            self.latency_seconds = max(latency_seconds, self.latency_seconds or 0.0)

    def link(self, source: str, target: str) -> LinkSpec:
        # One assumed cable makes the sum an assumption; so on in this order.
        order = (RateOrigin.ASSUMED, RateOrigin.STATED, RateOrigin.PRODUCT, RateOrigin.READ)
        origin = next(origin for origin in order if origin in self.origins)
        return LinkSpec(
            source=source,
            target=target,
            kind=self.kind,
            bandwidth_bytes_per_second=self.bytes_per_second,
            latency_seconds=self.latency_seconds,
            lanes=self.cables,
            bandwidth_origin=origin,
            bandwidth_source=self.origins[origin][:200],
        )


def fabric_readings(readings: Sequence[Reading], notes: Notes) -> list[tuple[int, Reading]]:
    """The files whose switches are taken, by place.

    A tree of names says less than cables do of the same fabric, and would double it; so would a
    second tree over the same hosts.
    """
    given = [(file, reading) for file, reading in enumerate(readings) if _has_fabric(reading)]
    taken = [each for each in given if not each[1].tree_only]
    under: dict[str, int] = {}
    for file, reading in given:
        if not reading.tree_only:
            continue
        hosts = [each.host for each in reading.attached if each.switch is not None]
        other = taken[0][0] if taken and not taken[0][1].tree_only else None
        other = next((under[host] for host in hosts if host in under), other)
        if other is None or not reading.switches:
            taken.append((file, reading))
            under |= dict.fromkeys(hosts, file)
            continue
        notes.leave_out(
            file,
            min(switch.line for switch in reading.switches),
            f"the tree of {reading.format} is not joined: file {other + 1}"
            f" ({readings[other].format}) says what its hosts are joined to",
        )
    return sorted(taken, key=lambda each: each[0])


def _has_fabric(reading: Reading) -> bool:
    return bool(reading.switches or reading.cables or reading.attached)


def join_fabric(
    readings: Sequence[tuple[int, Reading]],
    hosts: HostFinder,
    names: Names,
    sources: RateSources,
    notes: Notes,
) -> JoinedFabric:
    """Switches of the same GUID are one; cables seen from both ends in two files count once."""
    fabric = _Fabric(hosts, names, sources, notes)
    fabric.take_switches(readings)
    for file, reading in readings:
        for cable in reading.cables:
            fabric.add_cable(file, reading, cable)
        for attached in reading.attached:
            if attached.switch is not None:
                fabric.attach(file, attached.host, attached.switch)
    return fabric.finish()


class _Fabric:
    """A fabric in the making."""

    def __init__(self, hosts: HostFinder, names: Names, sources: RateSources, notes: Notes) -> None:
        self._hosts = hosts
        self._names = names
        self._sources = sources
        self._notes = notes
        self._found: dict[str, FoundSwitch] = {}
        self._name_of: dict[tuple[int, str], str] = {}
        self._bundles: dict[tuple[str, str], _Bundle] = {}
        self._seen: dict[frozenset[tuple[str, int]], int] = {}
        # Links of a tree of names, lower end first, whose rates follow from what is below.
        self._uplinks: dict[tuple[str, str], float | None] = {}
        self._rails: dict[str, set[int]] = {}
        self._lost: dict[str, None] = {}
        self._doubled = 0
        self._attached = 0
        self._stated_uplinks = 0

    def take_switches(self, readings: Sequence[tuple[int, Reading]]) -> None:
        """Give every switch a name; one GUID in two files is one switch."""
        by_guid: dict[str, tuple[int, str]] = {}
        first: dict[tuple[int, str], tuple[int, str]] = {}
        titles: dict[tuple[int, str], str] = {}
        for file, reading in readings:
            for switch in reading.switches:
                key = file, switch.name
                known = None if switch.guid is None else by_guid.setdefault(switch.guid, key)
                first[key] = known or key
                if first[key] == key:
                    titles[key] = switch.name
                    self._found[_unique(file, switch.name)] = switch
        merged = sum(key != known for key, known in first.items())
        if merged:
            self._notes.join(f"{merged} switches are told by several files, by their GUID")
        given = self._distinct(titles)
        named = self._names.all_of(given.values())
        self._found = {named[given[key]]: self._found[_unique(*key)] for key in titles}
        self._name_of = {key: named[given[known]] for key, known in first.items()}

    @staticmethod
    def _distinct(titles: Mapping[tuple[int, str], str]) -> dict[tuple[int, str], str]:
        """Names, with the number of the file beside those that several files have."""
        count = Counter(titles.values())
        return {
            key: name if count[name] == 1 else f"{name} of file {key[0] + 1}"
            for key, name in titles.items()
        }

    def add_cable(self, file: int, reading: Reading, cable: Cable) -> None:
        """Add a cable, or say why it is left out."""
        ends = [self._end(file, end) for end in (cable.source, cable.target)]
        if ends[0] is None or ends[1] is None:
            for end, found in zip((cable.source, cable.target), ends, strict=True):
                if found is None:
                    self._lost[_title(end)] = None
            return
        one, other = ends[0], ends[1]
        if _name(one) == _name(other):
            self._notes.leave_out(file, cable.line, f"a cable from {_name(one)} back to itself")
        elif self._is_known(file, cable):
            self._doubled += 1
        elif isinstance(one, HostEnd):
            self._from_host(cable, one, other)
        elif isinstance(other, HostEnd):
            self._from_host(cable, other, one)
        else:
            self._between_switches(reading, cable, one, other)

    def _from_host(self, cable: Cable, host: HostEnd, far: "str | HostEnd") -> None:
        """A cable from a host to a switch, or straight to another host."""
        if isinstance(far, str) and host.rail is not None:
            self._rails.setdefault(far, set()).add(host.rail)
        what = f"{host.device} to {_name(far)}"
        rate = self._sources.of_cable(LinkKind.NETWORK, cable.rate, host.port_rate, what)
        self._add(host.device, _name(far), LinkKind.NETWORK, rate, cable.latency_seconds)

    def _end(self, file: int, end: CableEnd) -> str | HostEnd | None:
        return self._hosts.at(end) if end.switch is None else self._name_of.get((file, end.switch))

    def _is_known(self, file: int, cable: Cable) -> bool:
        """Whether another file told of the cable between these two ports."""
        ports = []
        for end in (cable.source, cable.target):
            guid = end.port_guid
            if end.switch is not None:
                name = self._name_of.get((file, end.switch), "")
                guid = self._found[name].guid if name in self._found else None
            if guid is None or end.port_number is None:
                return False
            ports.append((guid, end.port_number))
        return self._seen.setdefault(frozenset(ports), file) != file

    def _between_switches(self, reading: Reading, cable: Cable, one: str, other: str) -> None:
        is_bare = reading.tree_only and cable.rate is None
        if is_bare and not self._sources.has_stated(LinkKind.FABRIC):
            self._uplinks[one, other] = cable.latency_seconds
            return
        rate = self._sources.of_cable(LinkKind.FABRIC, cable.rate, None, f"{one} to {other}")
        if is_bare and rate is not None:
            # The tree counts no cables, so what is stated can only be of all of them.
            rate = replace(rate, source=_STATED_OF_TREE)
            self._stated_uplinks += 1
        self._add(one, other, LinkKind.FABRIC, rate, cable.latency_seconds)

    def attach(self, file: int, host: str, switch: str) -> None:
        """Join every NIC of a host to the switch that a tree of names puts it below."""
        name = self._name_of.get((file, switch))
        if name is None:
            self._lost[switch] = None
            return
        for nic in self._hosts.nics_of(host):
            what = f"{nic.device} to {name}"
            rate = self._sources.of_cable(LinkKind.NETWORK, None, nic.port_rate, what)
            self._add(nic.device, name, LinkKind.NETWORK, rate, None)
            self._attached += 1

    def _add(
        self, one: str, other: str, kind: LinkKind, rate: Rate | None, latency: float | None
    ) -> None:
        if rate is None:
            return
        key = (other, one) if (other, one) in self._bundles else (one, other)
        self._bundles.setdefault(key, _Bundle(kind)).add(rate, latency)

    def finish(self) -> JoinedFabric:
        """The fabric, when every file has been added."""
        self._widen_uplinks()
        self._tell_what_trees_leave_open()
        if self._lost:
            self._notes.warn(
                f"cables of {listed(self._lost)} adapters are left out: no host is known for them"
            )
        if self._doubled:
            self._notes.join(f"{self._doubled} cables are told by several files and count once")
        levels = self._levels()
        rails = self._one_rail_each()
        switches = tuple(
            SwitchSpec(name, _kind(found, levels.get(name)), rails.get(name))
            for name, found in self._found.items()
        )
        links = tuple(bundle.link(*key) for key, bundle in self._bundles.items())
        return JoinedFabric(switches, links)

    def _tell_what_trees_leave_open(self) -> None:
        if self._attached:
            self._notes.assume(
                "all NICs of a host are joined to the one switch that a tree of names has it below,"
                " by one cable each: it names neither adapters nor rails"
            )
        if self._stated_uplinks:
            self._notes.assume(
                "the rate that is stated for fabric links is that of all cables together between"
                " two switches of a tree of names, which counts none; without it they are as wide"
                " as all NICs below them"
            )

    def _widen_uplinks(self) -> None:
        """Give the links of a tree what its switches have below them: nothing in it is narrower.

        Lower bounds stay bounds, since a real tree is rarely wider.
        """
        if not self._uplinks:
            return
        below: dict[str, float] = {}
        for (_, switch), bundle in self._bundles.items():
            below[switch] = below.get(switch, 0.0) + bundle.bytes_per_second
        parents: dict[str, list[str]] = {}
        for lower, upper in self._uplinks:
            parents.setdefault(lower, []).append(upper)
        source = "no narrower than all NICs below it: the tree names no rates"
        for lower in self._upwards(parents):
            width = below.get(lower, 0.0) / len(parents[lower])
            for upper in parents[lower]:
                if width <= 0:
                    self._sources.missing(LinkKind.FABRIC, f"{lower} to {upper}")
                    continue
                below[upper] = below.get(upper, 0.0) + width
                rate = Rate(width, RateOrigin.ASSUMED, source)
                self._add(lower, upper, LinkKind.FABRIC, rate, self._uplinks[lower, upper])
        self._notes.assume(
            "links between the switches of a tree of names are as wide as all NICs below them: it"
            " names neither cables nor rates"
        )

    def _upwards(self, parents: Mapping[str, Sequence[str]]) -> Iterator[str]:
        """Switches with something above, each after all that are below it; those of a ring last."""
        waiting: dict[str, int] = {}
        for uppers in parents.values():
            for upper in uppers:
                waiting[upper] = waiting.get(upper, 0) + 1
        ready = [name for name in parents if name not in waiting]
        told: set[str] = set()
        while ready:
            lower = ready.pop()
            told.add(lower)
            yield lower
            for upper in parents[lower]:
                waiting[upper] -= 1
                if waiting[upper] == 0 and upper in parents:
                    ready.append(upper)
        yield from (name for name in parents if name not in told)

    def _levels(self) -> dict[str, int]:
        """Tiers from the hosts up: 0 for a switch that a host is joined to, and so on."""
        neighbours: dict[str, list[str]] = {}
        level: dict[str, int] = {}
        for (one, other), bundle in self._bundles.items():
            if bundle.kind is LinkKind.NETWORK:
                level |= dict.fromkeys((name for name in (one, other) if name in self._found), 0)
            else:
                neighbours.setdefault(one, []).append(other)
                neighbours.setdefault(other, []).append(one)
        reached = list(level)
        for name in reached:  # grows while it is gone through
            for neighbour in neighbours.get(name, ()):
                if neighbour not in level:
                    level[neighbour] = level[name] + 1
                    reached.append(neighbour)
        return level

    def _one_rail_each(self) -> dict[str, int]:
        """The rail of each leaf, when every one serves a single rail and there are several."""
        rails = {name: next(iter(found)) for name, found in self._rails.items() if len(found) == 1}
        if len(rails) < len(self._rails) or len(set(rails.values())) < 2:
            if self._rails:
                self._notes.join("leaves serve several rails each: no leaf is of one rail")
            return {}
        self._notes.join(
            f"{len(rails)} leaves serve one rail each, {len(set(rails.values()))} rails in all"
        )
        return rails


def _kind(found: FoundSwitch, computed: int | None) -> VertexKind:
    level = found.level if found.level is not None else computed
    return VertexKind.SWITCH if level is None else _KINDS.get(level, VertexKind.SWITCH)


def _name(end: str | HostEnd) -> str:
    return end if isinstance(end, str) else end.device


def _unique(file: int, name: str) -> str:
    return f"{file}/{name}"


def _title(end: CableEnd) -> str:
    if end.switch is not None:
        return end.switch
    return " ".join(part for part in (end.host, end.adapter or end.port_guid) if part) or "nameless"
