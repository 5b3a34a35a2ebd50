"""Topologies of SimAI: a list of links between GPUs, NVSwitches and switches.

A GPU is its own adapter: the list has neither PCIe nor NICs, and the NVSwitches of a host are one.
"""

from collections import Counter, defaultdict
from re import compile as compile_expression

from service.core.topology.cluster import LinkKind, VertexKind
from service.core.topology.oversubscription import leaf_notes
from service.core.topology.reading_tiers import TIERS_ASSUMED, tiers
from service.core.topology.readings import (
    Cable,
    CableEnd,
    FoundDevice,
    FoundHost,
    FoundLink,
    FoundSwitch,
    Reading,
)
from service.formats.link_list import LinkLine, LinkList, first_lines, read_link_list
from service.formats.pasted_text import Findings

__all__ = ["looks_like_simai", "read_simai"]

FORMAT = "simai"
_PRODUCT = compile_expression(r"[A-Za-z][A-Za-z0-9_-]{0,31}")


def looks_like_simai(content: bytes) -> bool:
    """Whether five counts and the kind of GPU stand in the first line, then numbers."""
    lines = first_lines(content)
    if len(lines) < 3 or len(lines[0]) != 6 or len(lines[2]) != 5:
        return False
    numbers = [*lines[0][:5], *lines[1], *lines[2][:2]]
    return all(each.isdigit() for each in numbers) and bool(_PRODUCT.fullmatch(lines[0][5]))


def read_simai(content: bytes) -> Reading:
    """Hosts with GPUs and NVSwitches, switches and cables.

    Raises `InvalidInput` with every fault, each with path `("line", n)`.
    """
    findings = Findings()
    found = read_link_list(content, 5, findings, word=True)
    reader = _Servers(found, findings)
    reader.check()
    findings.raise_faults()
    for link in found.links:
        reader.add(link)
    findings.raise_faults()
    return reader.reading()


class _Servers:
    """Puts nodes by number into hosts: GPUs first, then NVSwitches, then switches."""

    def __init__(self, found: LinkList, findings: Findings) -> None:
        self._found = found
        self._findings = findings
        nodes, self._per_server, nvswitches, switches, _links = found.header
        self._gpus = nodes - nvswitches - switches
        self._first_switch = nodes - switches
        self._host_of_nvswitch: dict[int, tuple[int, int]] = {}
        self._nvswitches: Counter[int] = Counter()
        self._links: defaultdict[int, list[FoundLink]] = defaultdict(list)
        self._cables: list[Cable] = []

    def check(self) -> None:
        """Counts fit each other, and the switches named are those behind the GPUs."""
        _nodes, per_server, _nvswitches, _switches, _links = self._found.header
        if self._gpus < 1 or per_server < 1 or self._gpus % per_server:
            detail = f"counts {self._gpus} GPUs, which are no whole servers of {per_server}"
            self._findings.refuse(1, detail)
        wanted = set(range(max(self._gpus, 0), self._found.nodes))
        if wanted != self._found.switches.keys():
            line = next(iter(self._found.switches.values()), 1)
            detail = f"names other switches than nodes {self._gpus} to {self._found.nodes - 1}"
            self._findings.refuse(line, detail)

    def add(self, link: LinkLine) -> None:
        ends = sorted((link.source, link.target))
        if ends[1] >= self._first_switch:
            self._add_cable(link)
        elif ends[1] < self._gpus:
            self._add_inside(link, ends[0], ends[1], f"gpu{ends[1] % self._per_server}")
        elif ends[0] < self._gpus:
            host = ends[0] // self._per_server
            if ends[1] not in self._host_of_nvswitch:
                self._host_of_nvswitch[ends[1]] = (host, self._nvswitches[host])
                self._nvswitches[host] += 1
            known, number = self._host_of_nvswitch[ends[1]]
            if known != host:
                detail = f"joins NVSwitch {ends[1]} of host{known} to a GPU of host{host}"
                self._findings.refuse(link.line, f"{detail}: an NVSwitch is in one host")
                return
            self._add_inside(link, ends[0], ends[0], f"nvswitch{number}")
        else:
            detail = f"joins NVSwitches {ends[0]} and {ends[1]}, which have links to GPUs only"
            self._findings.refuse(link.line, detail)

    def _add_inside(self, link: LinkLine, gpu: int, other: int, target: str) -> None:
        host = gpu // self._per_server
        if other // self._per_server != host:
            detail = f"joins GPUs of host{host} and host{other // self._per_server} straight"
            self._findings.refuse(link.line, f"{detail}: hosts are joined by switches")
            return
        self._links[host].append(
            FoundLink(
                source=f"gpu{gpu % self._per_server}",
                target=target,
                kind=LinkKind.NVLINK,
                line=link.line,
                rate=link.rate,
                latency_seconds=link.latency_seconds,
            )
        )

    def _add_cable(self, link: LinkLine) -> None:
        ends = []
        for node in (link.source, link.target):
            if node >= self._first_switch:
                ends.append(CableEnd(switch=f"switch{node}"))
            elif node < self._gpus:
                host, gpu = divmod(node, self._per_server)
                ends.append(CableEnd(host=f"host{host}", adapter=f"gpu{gpu}"))
            else:
                detail = f"joins NVSwitch {node} to a switch; it has links to GPUs only"
                self._findings.refuse(link.line, detail)
                return
        self._cables.append(
            Cable(
                source=ends[0],
                target=ends[1],
                line=link.line,
                rate=link.rate,
                latency_seconds=link.latency_seconds,
            )
        )

    def reading(self) -> Reading:
        levels = tiers(self._cables)
        switches = tuple(
            FoundSwitch(name=f"switch{node}", line=line, level=levels.get(f"switch{node}"))
            for node, line in sorted(self._found.switches.items())
            if node >= self._first_switch
        )
        hosts = tuple(self._host(number) for number in range(self._gpus // self._per_server))
        return Reading(
            format=FORMAT,
            facts={
                "gpus": self._gpus,
                "hosts": len(hosts),
                "nvswitches": self._found.header[2],
                "switches": len(switches),
                "cables": len(self._cables),
                "switch_cables": sum(
                    c.source.switch is not None and c.target.switch is not None
                    for c in self._cables
                ),
                "links": len(self._found.links),
            },
            hosts=hosts,
            switches=switches,
            cables=tuple(self._cables),
            assumptions=(
                TIERS_ASSUMED,
                "a GPU is its own adapter: PCIe and NICs, and what they share, are not in the list",
            ),
            notes=(*self._findings.notes(), *leaf_notes(switches, self._cables)),
            left_out=self._findings.left_out(),
        )

    def _host(self, number: int) -> FoundHost:
        gpus = [
            FoundDevice(name=f"gpu{gpu}", kind=VertexKind.GPU, line=1, product=self._found.extra)
            for gpu in range(self._per_server)
        ]
        nvswitches = [
            FoundDevice(name=f"nvswitch{n}", kind=VertexKind.NVSWITCH, line=1)
            for n in range(self._nvswitches[number])
        ]
        return FoundHost(
            name=f"host{number}",
            line=1,
            devices=(*gpus, *nvswitches),
            links=tuple(self._links[number]),
        )
