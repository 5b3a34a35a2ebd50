"""The switches and cables of a cluster, from what one or several files say of them."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from service.core.errors import FaultCode
from service.core.topology.cluster import LinkKind, RateOrigin, VertexKind
from service.core.topology.join_cables import Bundle, CablesTold
from service.core.topology.join_names import Names
from service.core.topology.join_notes import Notes, listed
from service.core.topology.join_rates import RateSources
from service.core.topology.readings import Cable, CableEnd, FoundSwitch, Rate, Reading
from service.core.topology.spec import LinkSpec, SwitchSpec
from service.core.topology.tiers import fabric_tiers

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
        self._bundles: dict[tuple[str, str], Bundle] = {}
        self._told = CablesTold()
        # Links of a tree of names, lower end first, whose rates follow from what is below.
        self._uplinks: dict[tuple[str, str], float | None] = {}
        self._rails: dict[str, set[int]] = {}
        self._lost: dict[str, None] = {}
        self._doubled = 0
        self._attached = 0
        self._stated_uplinks = 0

    def take_switches(self, readings: Sequence[tuple[int, Reading]]) -> None:
        """Give every switch a name. One GUID in two files is one switch, and so is one name where
        a file has no GUID beside it.
        """
        by_guid: dict[str, tuple[int, str]] = {}
        by_name: dict[str, list[tuple[int, str]]] = {}
        first: dict[tuple[int, str], tuple[int, str]] = {}
        titles: dict[tuple[int, str], str] = {}
        same_name: dict[str, None] = {}
        for file, reading in readings:
            for switch in reading.switches:
                key = file, switch.name
                known = None if switch.guid is None else by_guid.get(switch.guid)
                if known is None:
                    known = self._named_alike(switch, by_name.get(switch.name, ()))
                    same_name |= {} if known is None else {switch.name: None}
                first[key] = known or key
                if switch.guid is not None:
                    by_guid.setdefault(switch.guid, first[key])
                if known is None:
                    by_name.setdefault(switch.name, []).append(key)
                    titles[key] = switch.name
                    self._found[_unique(file, switch.name)] = switch
        merged = sum(key != known for key, known in first.items()) - len(same_name)
        if merged:
            self._notes.join(f"{merged} switches are told by several files, by their GUID")
        if same_name:
            self._notes.assume(
                f"{listed(same_name)} switches have the same name in several files, not all of"
                " which give GUIDs: each is one switch, and as many cables join two ends as the"
                " file says that has most of them"
            )
        given = self._distinct(titles)
        named = self._names.all_of(given.values())
        self._found = {named[given[key]]: self._found[_unique(*key)] for key in titles}
        self._name_of = {key: named[given[known]] for key, known in first.items()}

    def _named_alike(
        self, switch: FoundSwitch, others: Sequence[tuple[int, str]]
    ) -> tuple[int, str] | None:
        """A switch of an earlier file with this name; GUIDs on both sides would tell them apart."""
        for file, name in others:
            if switch.guid is None or self._found[_unique(file, name)].guid is None:
                return file, name
        return None

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
        elif self._told.before(file, (_name(one), cable.source), (_name(other), cable.target)):
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
        self._bundles.setdefault(key, Bundle(kind)).add(rate, latency)

    def finish(self) -> JoinedFabric:
        """The fabric, when every file has been added."""
        self._widen_uplinks()
        self._tell_what_trees_leave_open()
        if self._lost:
            self._notes.warn(
                f"cables of {listed(self._lost)} adapters are left out: no host is known for them"
            )
        if self._told.clashes:
            detail = (
                f"several files have different cables at {listed(self._told.clashes)}: they are of"
                " different times, or of different switches with the same names; give one of them,"
                " or files that name switches apart"
            )
            self._notes.refuse(FaultCode.INCONSISTENT, ("files",), detail)
        if self._doubled:
            self._notes.join(f"{self._doubled} cables are told by several files and count once")
        levels = self._levels()
        levels |= {name: each.level for name, each in self._found.items() if each.level is not None}
        rails = self._one_rail_each(levels)
        switches = tuple(
            SwitchSpec(name, _kind(levels.get(name)), rails.get(name)) for name in self._found
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
        """Tiers from the hosts up: 0 for leaves, and so on."""
        neighbours: dict[str, list[str]] = {}
        hosts: Counter[str] = Counter()
        for (one, other), bundle in self._bundles.items():
            if bundle.kind is LinkKind.NETWORK:
                hosts.update(name for name in (one, other) if name in self._found)
            else:
                neighbours.setdefault(one, []).append(other)
                neighbours.setdefault(other, []).append(one)
        return fabric_tiers(hosts, neighbours)

    def _one_rail_each(self, levels: Mapping[str, int]) -> dict[str, int]:
        """The rail of each leaf, when every one serves a single rail and there are several."""
        served = {name: found for name, found in self._rails.items() if levels.get(name) == 0}
        rails = {name: next(iter(found)) for name, found in served.items() if len(found) == 1}
        if len(rails) < len(served) or len(set(rails.values())) < 2:
            if served:
                self._notes.join("leaves serve several rails each: no leaf is of one rail")
            return {}
        self._notes.join(
            f"{len(rails)} leaves serve one rail each, {len(set(rails.values()))} rails in all"
        )
        return rails


def _kind(level: int | None) -> VertexKind:
    return VertexKind.SWITCH if level is None else _KINDS.get(level, VertexKind.SWITCH)


def _name(end: str | HostEnd) -> str:
    return end if isinstance(end, str) else end.device


def _unique(file: int, name: str) -> str:
    return f"{file}/{name}"


def _title(end: CableEnd) -> str:
    if end.switch is not None:
        return end.switch
    return " ".join(part for part in (end.host, end.adapter or end.port_guid) if part) or "nameless"
