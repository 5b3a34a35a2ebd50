"""What a matrix of relations between devices says of the inside of a host.

The tokens order pairs by nearness; they name no switch and no rate. So switches are made of what is
near each other: devices that are `PIX` share one, and groups that are `PXB` meet in one above.
Above that stand CPUs, told apart by NUMA node, by CPU affinity, or at last by `SYS`, with a host
bridge for each set of devices that are `PHB` where a CPU has several (`NODE`).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product

from service.core.topology.cluster import LinkKind, VertexKind
from service.core.topology.readings import FoundDevice, FoundHost, FoundLink
from service.formats.pasted_text import Findings

__all__ = ["MOST_NVLINKS", "Matrix", "MatrixDevice", "host_of_matrix", "matrix_facts"]

# Of any accelerator whose matrix can be read here; who has more than that has a switch.
MOST_NVLINKS = 18
_NEAREST_FIRST = ("PIX", "PXB", "PHB", "NODE", "SYS")


@dataclass(frozen=True, slots=True)
class MatrixDevice:
    """A row: its name in the matrix, what the system calls it, its affinities where known."""

    name: str
    line: int
    is_gpu: bool
    title: str | None
    cpus: str
    numa: int | None


@dataclass(frozen=True, slots=True)
class Matrix:
    """All devices in the order of the header, and the relation of each ordered pair."""

    devices: tuple[MatrixDevice, ...]
    relations: Mapping[tuple[str, str], str]
    line: int


def matrix_facts(host: FoundHost) -> dict[str, int]:
    """What the host has, in a few counts."""
    kinds = [device.kind for device in host.devices]
    nvlinks = sum(link.lanes for link in host.links if link.kind is LinkKind.NVLINK)
    return {
        "hosts": 1,
        "cpus": kinds.count(VertexKind.CPU),
        "gpus": kinds.count(VertexKind.GPU),
        "nics": kinds.count(VertexKind.NIC),
        "nvswitches": kinds.count(VertexKind.NVSWITCH),
        "nvlinks": nvlinks,
    }


def host_of_matrix(matrix: Matrix, findings: Findings) -> FoundHost:
    """The host; what the matrix leaves open is told as assumptions and notes."""
    return _Builder(matrix, findings).build()


@dataclass(slots=True)
class _Group:
    """Devices that reach each other without a CPU, and their place: names as in the matrix."""

    members: list[str]
    vertex: str  # what stands for them towards the CPU


@dataclass(slots=True)
class _Builder:
    matrix: Matrix
    findings: Findings
    _name_of: dict[str, str] = field(default_factory=dict)
    _switches: list[FoundDevice] = field(default_factory=list)
    _bridges: list[FoundDevice] = field(default_factory=list)
    _links: list[FoundLink] = field(default_factory=list)
    _by_name: dict[str, MatrixDevice] = field(default_factory=dict)

    def build(self) -> FoundHost:
        self._by_name = {device.name: device for device in self.matrix.devices}
        self._name_of = dict(self._names())
        nvlinks, switch = self._nvlinks()
        groups = list(self._groups())
        cpus = self._cpus(groups)
        self._tell_ties()
        devices = sorted(self._devices(), key=lambda device: _number(device.name))
        gpus = [device for device in devices if device.kind is VertexKind.GPU]
        nics = [device for device in devices if device.kind is VertexKind.NIC]
        return FoundHost(
            name=None,
            line=self.matrix.line,
            devices=(*gpus, *nics, *switch, *self._switches, *self._bridges, *cpus),
            links=(*nvlinks, *self._links),
        )

    def _names(self) -> Iterator[tuple[str, str]]:
        """GPUs and numbered NICs keep their numbers; others are numbered by name."""
        nics = [device.name for device in self.matrix.devices if not device.is_gpu]
        numbered = all(re.fullmatch(r"NIC[0-9]+", name) for name in nics)
        in_order = sorted(nics, key=_natural)
        for device in self.matrix.devices:
            if device.is_gpu:
                yield device.name, f"gpu{int(device.name[3:])}"
            elif numbered:
                yield device.name, f"nic{int(device.name[3:])}"
            else:
                yield device.name, f"nic{in_order.index(device.name)}"

    def _devices(self) -> Iterator[FoundDevice]:
        for device in self.matrix.devices:
            yield FoundDevice(
                name=self._name_of[device.name],
                kind=VertexKind.GPU if device.is_gpu else VertexKind.NIC,
                line=device.line,
                logical_names=() if device.title is None or device.is_gpu else (device.title,),
                numa=device.numa,
            )

    def _nvlinks(self) -> tuple[list[FoundLink], list[FoundDevice]]:
        """Private links, or one port on a switch where a GPU would have too many links."""
        gpus = [device.name for device in self.matrix.devices if device.is_gpu]
        counts = {
            pair: int(token[2:])
            for pair, token in self.matrix.relations.items()
            if token.startswith("NV") and set(pair) <= set(gpus)
        }
        ports = {gpu: [n for (one, _), n in counts.items() if one == gpu] for gpu in gpus}
        if not any(sum(port) > MOST_NVLINKS for port in ports.values()):
            private = [
                self._link(one, self._name_of[other], LinkKind.NVLINK, lanes=n)
                for (one, other), n in counts.items()
                if gpus.index(one) < gpus.index(other)
            ]
            return private, []
        self.findings.assume(
            "a GPU has more NVLinks to the others together than any product: all NVSwitch chips of"
            " the host are one non-blocking vertex, and each GPU has one port to it"
        )
        switch = FoundDevice(name="nvswitch0", kind=VertexKind.NVSWITCH, line=self.matrix.line)
        return [
            self._link(gpu, "nvswitch0", LinkKind.NVLINK, lanes=max(port))
            for gpu, port in ports.items()
            if port
        ], [switch]

    def _link(self, source: str, target: str, kind: LinkKind, lanes: int = 1) -> FoundLink:
        return FoundLink(
            source=self._name_of[source],
            target=target,
            kind=kind,
            line=self._by_name[source].line,
            lanes=lanes,
        )

    def _groups(self) -> Iterator[_Group]:
        """Devices by what they share below the CPUs, with switches for what is near."""
        names = [device.name for device in self.matrix.devices]
        nearest = _unions(names, self._pairs("PIX"))
        wider = _unions(names, [*self._pairs("PIX"), *self._pairs("PXB")])
        if any(len(group) > 1 for group in wider):
            self.findings.assume(
                "devices that are PIX share one PCIe switch, and groups that are PXB meet in one"
                " above: the matrix says how near devices are, not through which switch"
            )
        for members in wider:
            inner = [group for group in nearest if set(group) <= set(members)]
            if len(members) == 1:
                yield _Group(members, self._name_of[members[0]])
            elif len(inner) == 1:
                yield _Group(members, self._switch(members))
            else:
                # Each part has a bridge of its own, so that a path between two passes several.
                parts = [self._switch(part) for part in inner]
                top = self._add_switch(members)
                for part, vertex in zip(inner, parts, strict=True):
                    line = self._by_name[part[0]].line
                    self._links.append(
                        FoundLink(source=vertex, target=top, kind=LinkKind.PCIE, line=line)
                    )
                yield _Group(members, top)

    def _pairs(self, token: str) -> list[tuple[str, str]]:
        return [pair for pair, found in self.matrix.relations.items() if found == token]

    def _switch(self, members: Sequence[str]) -> str:
        """A switch above these devices, with their links."""
        vertex = self._add_switch(members)
        self._links += [self._link(member, vertex, LinkKind.PCIE) for member in members]
        return vertex

    def _add_switch(self, members: Sequence[str]) -> str:
        name = f"pcie{len(self._switches)}"
        line = self._by_name[members[0]].line
        self._switches.append(FoundDevice(name=name, kind=VertexKind.PCIE_SWITCH, line=line))
        return name

    def _cpus(self, groups: Sequence[_Group]) -> list[FoundDevice]:
        """CPUs with their links to what hangs below them, and to each other."""
        places = {id(group): self._place(group) for group in groups}
        self._tell_contradictions([group for group in groups if places[id(group)]], places)
        for group in groups:
            if places[id(group)] is None:
                places[id(group)] = self._place_by_others(group, groups, places)
        known = sorted({place for place in places.values() if place is not None})
        lonely = {group.members[0]: group for group in groups if places[id(group)] is None}
        for number, names in enumerate(self._without_sys(lonely)):
            places |= {id(lonely[name]): (1, number, "") for name in names}
            known.append((1, number, ""))
        cpus = []
        for number, place in enumerate(known):
            below = [group for group in groups if places[id(group)] == place]
            numa = place[1] if place[0] == 0 and place[1] >= 0 else None
            line = self._by_name[below[0].members[0]].line
            cpus.append(FoundDevice(name=f"cpu{number}", kind=VertexKind.CPU, line=line, numa=numa))
            self._bridge(cpus[-1].name, below)
        for number, one in enumerate(cpus):
            for other in cpus[number + 1 :]:
                self._links.append(
                    FoundLink(
                        source=one.name, target=other.name, kind=LinkKind.SOCKET, line=other.line
                    )
                )
        return cpus

    def _without_sys(self, groups: Mapping[str, _Group]) -> list[list[str]]:
        """Groups by their first members in sets that are `PHB` or `NODE` to each other."""
        return _unions(list(groups), self._joined(groups.values(), ("PHB", "NODE")))

    def _joined(self, groups: Iterable[_Group], words: Sequence[str]) -> list[tuple[str, str]]:
        """Pairs of first members of groups between which the matrix has one of the words."""
        first = {member: group.members[0] for group in groups for member in group.members}
        return [
            (first[one], first[other])
            for word in words
            for one, other in self._pairs(word)
            if one in first and other in first
        ]

    def _tell_contradictions(
        self, groups: Sequence[_Group], places: Mapping[int, tuple[int, int, str] | None]
    ) -> None:
        """Pairs whose relation and whose affinities say different things of where they meet."""
        apart: dict[str, None] = {}
        together: dict[str, None] = {}
        for one, other in combinations(groups, 2):
            same = places[id(one)] == places[id(other)]
            for pair in product(one.members, other.members):
                word = self.matrix.relations[pair]
                if same and word == "SYS":
                    apart[" and ".join(pair)] = None
                elif not same and word in ("PHB", "NODE"):
                    together[" and ".join(pair)] = None
        for pairs, said, why in (
            (apart, "SYS", "the same CPU: they are on host bridges of their own"),
            (together, "PHB or NODE", "different CPUs: they meet between the two"),
        ):
            if pairs:
                self.findings.note(
                    f"the matrix has {said} for {len(pairs)} pairs ({next(iter(pairs))}, ...) whose"
                    f" affinities are those of {why}"
                )

    def _bridge(self, cpu: str, below: Sequence[_Group]) -> None:
        """Join what is below a CPU to it, over host bridges where it has several: what is `PHB`
        shares one.
        """
        names = [group.members[0] for group in below]
        bridges = _unions(names, self._joined(below, ("PHB",)))
        vertex = {group.members[0]: group.vertex for group in below}
        if len(bridges) > 1:
            self.findings.assume(
                "devices of one CPU that are PHB or nearer share one of its host bridges, and those"
                " that are not have others"
            )
        for members in bridges:
            line = self._by_name[members[0]].line
            above = cpu
            if len(bridges) > 1:
                above = f"bridge{len(self._bridges)}"
                kind = VertexKind.HOST_BRIDGE
                self._bridges.append(FoundDevice(name=above, kind=kind, line=line))
                self._links.append(
                    FoundLink(source=above, target=cpu, kind=LinkKind.ON_CHIP, line=line)
                )
            self._links += [
                FoundLink(
                    source=vertex[name],
                    target=above,
                    kind=LinkKind.HOST_BRIDGE,
                    line=self._by_name[name].line,
                )
                for name in members
            ]

    def _place(self, group: _Group) -> tuple[int, int, str] | None:
        """Where the rows say that a group is: its NUMA node, else the CPUs near it."""
        devices = [self._by_name[member] for member in group.members]
        numas = [device.numa for device in devices if device.numa is not None]
        if numas:
            return 0, numas[0], ""
        cpus = [device.cpus for device in devices if device.cpus not in {"", "N/A"}]
        return (0, -1, cpus[0]) if cpus else None

    def _place_by_others(
        self,
        group: _Group,
        groups: Sequence[_Group],
        places: Mapping[int, tuple[int, int, str] | None],
    ) -> tuple[int, int, str] | None:
        """Of a group without affinity (NICs): the place of what is nearest, short of `SYS`."""
        near: dict[str, dict[tuple[int, int, str], None]] = {}
        for other in groups:
            place = places[id(other)]
            if place is None or other is group:
                continue
            for one in group.members:
                for far in other.members:
                    near.setdefault(self.matrix.relations[one, far], {})[place] = None
        for token in ("PHB", "NODE"):
            if token in near:
                found = list(near[token])
                if len(found) > 1:
                    names = ", ".join(self._name_of[member] for member in group.members)
                    self.findings.note(
                        f"{names}: {token} to devices of {len(found)} NUMA nodes, so which one it"
                        " is in is not known; the first is taken"
                    )
                return found[0]
        return None

    def _tell_ties(self) -> None:
        """GPUs that are equally near to several NICs."""
        nics = [device.name for device in self.matrix.devices if not device.is_gpu]
        ties = []
        for gpu in (device.name for device in self.matrix.devices if device.is_gpu):
            for token in _NEAREST_FIRST[:3]:
                best = [nic for nic in nics if self.matrix.relations[gpu, nic] == token]
                if best:
                    names = " and ".join(self._name_of[nic] for nic in best)
                    if len(best) > 1:
                        ties.append(f"{self._name_of[gpu]} to {names} ({token})")
                    break
        if ties:
            self.findings.note(f"equally near, so which is used is not known: {'; '.join(ties)}")


def _unions(names: Sequence[str], pairs: Iterable[tuple[str, str]]) -> list[list[str]]:
    """The names in groups that the pairs join, in the order of their first names."""
    group_of = {name: [name] for name in names}
    for one, other in pairs:
        mine, theirs = group_of[one], group_of[other]
        if mine is not theirs:
            mine += theirs
            group_of |= dict.fromkeys(theirs, mine)
    order = {name: place for place, name in enumerate(names)}
    distinct = {id(group): sorted(group, key=order.__getitem__) for group in group_of.values()}
    return sorted(distinct.values(), key=lambda group: order[group[0]])


def _natural(name: str) -> list[tuple[bool, int, str]]:
    parts = re.findall(r"[0-9]+|[^0-9]+", name)
    return [(not p.isdecimal(), int(p) if p.isdecimal() else 0, p) for p in parts]


def _number(name: str) -> int:
    return int(name[3:])
