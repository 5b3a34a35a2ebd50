"""Network configurations of ASTRA-sim's analytical back end: one topology for each dimension.

`topology`, `npus_count`, `bandwidth` (GB/s of each link in one direction) and `latency` (ns of each
link) have an entry for each dimension, the nearest to the NPUs first. What comments say of the
numbers is not read. Where a value is no number yet (`tbd`) the rate or the latency stays unknown.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from re import compile as compile_expression

from service.core.errors import FaultCode
from service.core.topology.cluster import LinkKind, RateOrigin, VertexKind
from service.core.topology.expand import MAX_DEVICES, MAX_LINKS
from service.core.topology.readings import (
    Cable,
    CableEnd,
    FoundDevice,
    FoundHost,
    FoundLink,
    FoundSwitch,
    Rate,
    Reading,
)
from service.formats.marked_yaml import Marked, first_document, read_documents
from service.formats.pasted_text import Findings, shown

__all__ = ["looks_like_astra_sim", "read_astra_sim"]

FORMAT = "astra_sim"
_FIELDS = ("topology", "npus_count", "bandwidth", "latency")
_SHAPES = ("Ring", "FullyConnected", "Switch")
_COUNT = compile_expression(r"[1-9][0-9]{0,5}")
_NO_NUMBER_YET = ("tbd", "x")
_NUMBER = compile_expression(r"[0-9]{1,12}(\.[0-9]{1,12})?")
_SOURCE = "bandwidth of the ASTRA-sim network"

# Where an NPU stands: its place in every dimension.
_Place = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Dimension:
    shape: str
    size: int
    line: int
    rate: Rate | None
    latency_seconds: float | None

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Places of one line of NPUs that are joined straight to each other."""
        if self.shape == "Ring":
            # Two NPUs have one link, as the simulator gives them.
            last = self.size if self.size > 2 else self.size - 1
            yield from ((place, (place + 1) % self.size) for place in range(last))
        elif self.shape == "FullyConnected":
            yield from ((a, b) for a in range(self.size) for b in range(a + 1, self.size))

    def links(self) -> int:
        """Links of one line of NPUs, those to a switch included."""
        if self.shape == "FullyConnected":
            return self.size * (self.size - 1) // 2
        return self.size


def looks_like_astra_sim(content: bytes) -> bool:
    """Whether the file gives shapes and counts of NPUs."""
    first = first_document(content)
    return first is not None and {"topology", "npus_count"} <= first.fields.keys()


def read_astra_sim(content: bytes) -> Reading:
    """The NPUs as GPUs, the first dimension as hosts, switches and links.

    Raises `InvalidInput` with every fault, each with path `("line", n)`.
    """
    findings = Findings()
    documents = read_documents(content, findings)
    findings.raise_faults()
    if len(documents) != 1 or not documents[0].fields:
        findings.refuse(None, "the file holds one configuration of a network")
        findings.raise_faults()
    dimensions = _dimensions(documents[0], findings)
    findings.raise_faults()
    npus = prod(dimension.size for dimension in dimensions)
    links = sum(each.links() * (npus // each.size) for each in dimensions) + npus
    if npus > MAX_DEVICES or links > MAX_LINKS:
        detail = f"the configuration has {npus} NPUs and {links} links; at most {MAX_DEVICES}"
        findings.refuse(None, f"{detail} and {MAX_LINKS} are read", FaultCode.OUT_OF_RANGE)
        findings.raise_faults()
    findings.assumptions += [
        "GB/s is 10^9 bytes/s; earlier versions of the simulator count 2^30",
        "NPUs that differ in the first dimension only are one host",
    ]
    if len(dimensions) == 1 and dimensions[0].shape != "Ring":
        return _one_host(dimensions[0], findings)
    findings.assumptions.append(
        "NPUs pass on what is not for them: each has a router, reached at the rate of all its links"
    )
    return _routed(dimensions, findings)


def _dimensions(document: Marked, findings: Findings) -> list[_Dimension]:
    columns: dict[str, list[Marked]] = {}
    for key, value in document.fields.items():
        if key not in _FIELDS:
            findings.leave_out(value.line, f"{shown(key)} is not read")
    for key in _FIELDS:
        found = document.get(key)
        if found is None or not found.items:
            where = found or document
            findings.refuse(where.line, f"has a list {key} with an entry for each dimension")
        else:
            columns[key] = found.items
    lengths = {key: len(items) for key, items in columns.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{key} {length}" for key, length in lengths.items())
        findings.refuse(document.line, f"has lists of different lengths: {told}")
    if len(columns) < len(_FIELDS) or len(set(lengths.values())) > 1:
        return []
    for what in ("bandwidth", "latency"):
        values = columns[what]
        open_ = [value for value in values if (value.text or "").lower() in _NO_NUMBER_YET]
        if open_:
            count = f"{len(open_)} of {len(values)} dimensions"
            detail = f"{what} of {count} is no number yet ({shown(open_[0].text or '')})"
            findings.leave_out(open_[0].line, f"{detail}: it stays unknown")
    dimensions = []
    for shape, size, bandwidth, latency in zip(*columns.values(), strict=True):
        if shape.text not in _SHAPES:
            known = ", ".join(_SHAPES)
            findings.refuse(shape.line, f"has a topology {shown(shape.text or '')}, not {known}")
        if not _COUNT.fullmatch(size.text or ""):
            findings.refuse(size.line, f"has npus_count {shown(size.text or '')}, no count")
            continue
        gigabytes = _number(bandwidth, "bandwidth", findings)
        nanoseconds = _number(latency, "latency", findings)
        if gigabytes == 0:
            findings.refuse(bandwidth.line, "has a bandwidth of 0; a link carries something")
            continue
        dimensions.append(
            _Dimension(
                shape=shape.text or "",
                size=int(size.text or ""),
                line=size.line,
                rate=_rate(gigabytes),
                latency_seconds=None if nanoseconds is None else nanoseconds / 1e9,
            )
        )
    return dimensions


def _rate(gigabytes: float | None) -> Rate | None:
    return None if gigabytes is None else Rate(gigabytes * 1e9, RateOrigin.READ, _SOURCE)


def _number(value: Marked, what: str, findings: Findings) -> float | None:
    text = value.text or ""
    if _NUMBER.fullmatch(text):
        return float(text)
    if text.lower() not in _NO_NUMBER_YET:
        findings.refuse(value.line, f"has a {what} {shown(text)}, which is no number")
    return None


def _gpu(name: str, line: int) -> FoundDevice:
    return FoundDevice(name=name, kind=VertexKind.GPU, line=line)


def _one_host(dimension: _Dimension, findings: Findings) -> Reading:
    """NPUs that all reach each other straight or through one switch: a host of its own."""
    gpus = [f"gpu{place}" for place in range(dimension.size)]
    devices = [_gpu(name, dimension.line) for name in gpus]
    ends = [(gpus[a], gpus[b]) for a, b in dimension.pairs()]
    if dimension.shape == "Switch":
        devices.append(FoundDevice(name="switch0", kind=VertexKind.SWITCH, line=dimension.line))
        ends = [(name, "switch0") for name in gpus]
    links = tuple(
        FoundLink(
            source=source,
            target=target,
            kind=LinkKind.OTHER,
            line=dimension.line,
            rate=dimension.rate,
            latency_seconds=dimension.latency_seconds,
        )
        for source, target in ends
    )
    host = FoundHost(name="host0", line=dimension.line, devices=tuple(devices), links=links)
    facts = {
        "gpus": dimension.size,
        "dimensions": 1,
        "hosts": 1,
        "switches": len(devices) - dimension.size,
        "links": len(links),
    }
    return _reading(facts, findings, hosts=(host,))


def _routed(dimensions: Sequence[_Dimension], findings: Findings) -> Reading:
    """Hosts of bare GPUs, a router for each, and the dimensions between the routers."""
    sizes = [dimension.size for dimension in dimensions]
    places = [place[::-1] for place in product(*(range(size) for size in reversed(sizes)))]
    number = {place: index for index, place in enumerate(places)}
    routers = [f"router{index}" for index in range(len(places))]
    line = dimensions[0].line
    switches = [FoundSwitch(name=name, line=line) for name in routers]
    cables: list[Cable] = []
    for axis, dimension in enumerate(dimensions):
        for group, first in enumerate(place for place in places if place[axis] == 0):
            members = [
                routers[number[(*first[:axis], step, *first[axis + 1 :])]]
                for step in range(dimension.size)
            ]
            ends = [(members[a], members[b]) for a, b in dimension.pairs()]
            if dimension.shape == "Switch":
                name = f"switch{axis}-{group}"
                switches.append(FoundSwitch(name=name, line=dimension.line))
                ends = [(member, name) for member in members]
            cables += [_cable(dimension, source, target) for source, target in ends]
    width = _port(dimensions)
    at_router = [
        Cable(
            source=CableEnd(host=f"host{index // sizes[0]}", adapter=f"gpu{index % sizes[0]}"),
            target=CableEnd(switch=router),
            line=line,
            rate=width,
            latency_seconds=0.0,
        )
        for index, router in enumerate(routers)
    ]
    gpus = tuple(_gpu(f"gpu{index}", line) for index in range(sizes[0]))
    hosts = tuple(
        FoundHost(name=f"host{index}", line=line, devices=gpus, links=())
        for index in range(len(places) // sizes[0])
    )
    facts = {
        "gpus": len(places),
        "dimensions": len(dimensions),
        "hosts": len(hosts),
        "switches": len(switches) - len(routers),
        "links": len(cables),
    }
    return _reading(
        facts, findings, hosts=hosts, switches=tuple(switches), cables=(*at_router, *cables)
    )


def _cable(dimension: _Dimension, source: str, target: str) -> Cable:
    return Cable(
        source=CableEnd(switch=source),
        target=CableEnd(switch=target),
        line=dimension.line,
        rate=dimension.rate,
        latency_seconds=dimension.latency_seconds,
    )


def _port(dimensions: Sequence[_Dimension]) -> Rate | None:
    """The rate of all links of one NPU together: so that its router never narrows anything."""
    total = 0.0
    for dimension in dimensions:
        if dimension.rate is None:
            return None
        links = dimension.size - 1 if dimension.shape == "FullyConnected" else 1
        if dimension.shape == "Ring" and dimension.size > 2:
            links = 2
        total += links * dimension.rate.bytes_per_second
    return Rate(total, RateOrigin.ASSUMED, "the rate of all links of the NPU together")


def _reading(
    facts: dict[str, int],
    findings: Findings,
    *,
    hosts: tuple[FoundHost, ...],
    switches: tuple[FoundSwitch, ...] = (),
    cables: tuple[Cable, ...] = (),
) -> Reading:
    return Reading(
        format=FORMAT,
        facts=facts,
        hosts=hosts,
        switches=switches,
        cables=cables,
        assumptions=tuple(findings.assumptions),
        notes=findings.notes(),
        left_out=findings.left_out(),
    )
