"""NVIDIA NetQ: the topology graph that it draws, and its list of compute nodes.

A graph lists each cable with the interfaces at its ends and no rate; tiers count from the leaves
(1) up, and what was only discovered as a neighbour, the hosts, has none. Compute nodes tell which
hosts share an NVLink domain.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from re import compile as compile_expression

from service.core.topology.readings import (
    AttachedHost,
    Cable,
    CableEnd,
    FoundSwitch,
    NvlinkDomain,
    Reading,
)
from service.formats.marked_yaml import Marked, first_document, read_documents
from service.formats.pasted_text import Findings, shown

__all__ = ["looks_like_netq", "read_netq"]

FORMAT = "netq"
_TIER = compile_expression(r"-?[0-9]{1,3}")


def looks_like_netq(content: bytes) -> bool:
    """Whether the file is a list that begins with a graph or with a compute node."""
    first = first_document(content)
    if first is None or not first.items:
        return False
    entry = first.items[0]
    graph = entry.fields.get("links") or entry.fields.get("nodes")
    if graph is not None:
        keys = graph.items[0].fields.keys() if graph.items else ()
        return "compounded_links" in keys or "compounded_nodes" in keys
    return {"DomainUUID", "GpuIDList"} <= entry.fields.keys()


def read_netq(content: bytes) -> Reading:
    """The switches and cables of a graph, or the domains of compute nodes.

    Raises `InvalidInput` with every fault, each with path `("line", n)`.
    """
    findings = Findings()
    documents = read_documents(content, findings)
    findings.raise_faults()
    entries = documents[0].items if len(documents) == 1 else []
    if not entries:
        findings.refuse(None, "the file holds a list of one graph or of compute nodes")
        findings.raise_faults()
    if "DomainUUID" in entries[0].fields or "GpuIDList" in entries[0].fields:
        return _compute_nodes(entries, findings)
    if len(entries) > 1:
        findings.refuse(entries[1].line, "is another graph; a file has one")
        findings.raise_faults()
    graph = _Graph(findings)
    graph.read(entries[0])
    return graph.reading()


def _compute_nodes(entries: list[Marked], findings: Findings) -> Reading:
    hosts: dict[str, int] = {}
    domains: dict[str, list[str]] = {}
    gpus = 0
    for entry in entries:
        name = _text(entry, "Name", findings)
        domain = _text(entry, "DomainUUID", findings)
        listed = entry.get("GpuIDList")
        gpus += len(listed.items) if listed is not None else 0
        if name is None:
            continue
        if name in hosts:
            findings.refuse(entry.line, f"gives {shown(name)} again (first on line {hosts[name]})")
        hosts[name] = entry.line
        if domain is not None:
            domains.setdefault(domain, []).append(name)
        health = entry.get("Health")
        if health is None or health.text != "HEALTHY":
            told = "of unknown health" if health is None else health.text
            findings.note(f"{name} is {told}")
    findings.raise_faults()
    return Reading(
        format=FORMAT,
        facts={"hosts": len(hosts), "domains": len(domains), "gpus": gpus},
        attached=tuple(
            AttachedHost(host=host, switch=None, line=line) for host, line in hosts.items()
        ),
        domains=tuple(
            NvlinkDomain(name=uuid, hosts=tuple(members), line=hosts[members[0]])
            for uuid, members in domains.items()
        ),
        tree_only=True,
        notes=findings.notes(),
        left_out=findings.left_out(),
    )


@dataclass(frozen=True, slots=True)
class _Device:
    name: str
    line: int
    tier: int

    @property
    def is_switch(self) -> bool:
        return self.tier > 0


@dataclass(slots=True)
class _Graph:
    findings: Findings
    devices: dict[str, _Device] = field(default_factory=dict)
    cables: list[Cable] = field(default_factory=list)

    def read(self, graph: Marked) -> None:
        for key, value in graph.fields.items():
            if key not in ("links", "nodes"):
                self.findings.leave_out(value.line, f"{shown(key)} is not read")
        names: dict[str, int] = {}
        for group in _list(graph, "nodes", self.findings):
            for entry in _list(group, "compounded_nodes", self.findings):
                identity = _text(entry, "id", self.findings)
                name = _text(entry, "name", self.findings)
                tier = entry.get("tier")
                if tier is None or not _TIER.fullmatch(tier.text or ""):
                    self.findings.refuse(entry.line, "has a tier that is a whole number")
                elif identity is not None and name is not None:
                    if identity in self.devices or name in names:
                        self.findings.refuse(entry.line, f"gives {shown(name)} again")
                    names[name] = entry.line
                    self.devices[identity] = _Device(name, entry.line, int(tier.text or ""))
        for link in _list(graph, "links", self.findings):
            self._link(link)

    def _link(self, link: Marked) -> None:
        cables = _list(link, "compounded_links", self.findings)
        size = link.get("size")
        if size is None:
            self.findings.note(f"line {link.line} does not say how many cables it is")
        elif size.text != str(len(cables)):
            detail = f"says it is {shown(size.text or '')} cables and lists {len(cables)}"
            self.findings.refuse(link.line, detail)
        for cable in cables:
            ends = [self._end(end) for end in _list(cable, "interfaces", self.findings)]
            known = [end for end in ends if end is not None]
            if len(ends) != 2:
                self.findings.refuse(cable.line, f"is a cable of two ends; here {len(ends)}")
            elif len(known) == 2:
                self.cables.append(Cable(source=known[0], target=known[1], line=cable.line))

    def _end(self, end: Marked) -> CableEnd | None:
        node = _text(end, "node", self.findings)
        if node is None:
            return None
        device = self.devices.get(node)
        if device is None:
            self.findings.refuse(end.line, f"is at {shown(node)}, which is no node of the graph")
            return None
        if device.is_switch:
            return CableEnd(switch=device.name)
        return CableEnd(host=device.name, adapter=_text(end, "interface", self.findings))

    def reading(self) -> Reading:
        if not self.devices and not self.findings.faulty:
            self.findings.refuse(None, "the graph has no node")
        self.findings.raise_faults()
        switches = [device for device in self.devices.values() if device.is_switch]
        cabled = {end.host for cable in self.cables for end in (cable.source, cable.target)}
        between = sum(
            cable.source.switch is not None and cable.target.switch is not None
            for cable in self.cables
        )
        return Reading(
            format=FORMAT,
            facts={
                "switches": len(switches),
                "hosts": len(self.devices) - len(switches),
                "cables": len(self.cables),
                "switch_cables": between,
            },
            switches=tuple(
                FoundSwitch(name=device.name, line=device.line, level=device.tier - 1)
                for device in switches
            ),
            cables=tuple(self.cables),
            attached=tuple(self._without_cable(cabled)),
            assumptions=("nodes without a tier are hosts",),
            notes=self.findings.notes(),
            left_out=self.findings.left_out(),
        )

    def _without_cable(self, cabled: set[str | None]) -> Iterator[AttachedHost]:
        for device in self.devices.values():
            if not device.is_switch and device.name not in cabled:
                yield AttachedHost(host=device.name, switch=None, line=device.line)


def _list(entry: Marked, key: str, findings: Findings) -> list[Marked]:
    found = entry.get(key)
    if found is None or not isinstance(found.value, list):
        findings.refuse(entry.line, f"has a list of {key}")
        return []
    return found.items


def _text(entry: Marked, key: str, findings: Findings) -> str | None:
    found = entry.get(key)
    if found is None or not found.text:
        findings.refuse(entry.line, f"has a text {key}")
        return None
    return found.text
