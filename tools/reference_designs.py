"""docs/reference-designs.md: the reference designs of hosts as tables, from the service's own."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from service.core.topology.cluster import Cluster, LinkKind, RateOrigin, VertexKind
from service.core.topology.designs import DESIGNS, HostDesign
from service.core.topology.spec import DeviceSpec, LinkSpec
from service.formats.reference_designs import ReferenceKind, references

__all__ = ["generated_files"]

PAGE = Path("docs/reference-designs.md")
GB = 1e9


def generated_files() -> dict[Path, bytes]:
    """The page, by its path relative to the root."""
    sections = (_opening(), _counts(), _rates(), _devices(), _assumptions(), _networks())
    return {PAGE: ("\n\n".join(section.strip() for section in sections) + "\n").encode()}


def _opening() -> str:
    return """
# Reference designs

What the `design` of a host in a topology stands for. The page is made by `python tools/generate.py`
from what the service uses, and `GET /v1/designs` answers the same over HTTP.

Rates are GB/s in one direction, nominal: the data rate of the wire after line coding, which lower
bounds use. In parentheses is what like links carry in practice by published measurements, which
predictions use; where there is none they use the nominal rate, and answers say so.
"""


def _counts() -> str:
    rows = [
        (
            f"`{design.name}`",
            design.title,
            *(
                _number(_of_kind(design, kind))
                for kind in (
                    VertexKind.GPU,
                    VertexKind.NIC,
                    VertexKind.NVSWITCH,
                    VertexKind.PCIE_SWITCH,
                )
            ),
        )
        for design in DESIGNS.values()
    ]
    head = ("design", "what it is", "accelerators", "NICs", "NVSwitch planes", "PCIe switches")
    return f"## What is in a host\n\n{_table(head, rows)}"


def _rates() -> str:
    head = (
        *("design", "NVLink or xGMI of one accelerator", "made of"),
        *("accelerator to host", "NIC to host", "port of a NIC", "between sockets (assumed)"),
    )
    rows = []
    for design in DESIGNS.values():
        nvlink = [link for link in design.links if link.kind is LinkKind.NVLINK]
        mine = [link for link in nvlink if "gpu0" in (link.source, link.target)]
        nics = _of_kind(design, VertexKind.NIC)
        sockets = [link for link in design.links if link.bandwidth_origin is RateOrigin.ASSUMED]
        rows.append(
            (
                f"`{design.name}`",
                _sum(mine),
                _made_of(design, nvlink),
                _each(_of_source(design, "gpu")),
                _each(_of_source(design, "nic")),
                _rate(nics[0].port_bytes_per_second, nics[0].port_effective_bytes_per_second),
                _each(sockets),
            )
        )
    return f"## How fast the links are\n\n{_table(head, rows)}"


def _devices() -> str:
    head = ("design", "product", "memory", "memory bandwidth", "dense peak rates")
    rows = []
    for design in DESIGNS.values():
        gpu = _of_kind(design, VertexKind.GPU)[0]
        if gpu.product is None or gpu.memory_bytes is None or gpu.memory_bytes_per_second is None:
            rows.append((f"`{design.name}`", "not given", "", "", ""))
            continue
        peaks = ", ".join(f"{name} {rate / 1e12:g}" for name, rate in gpu.peak_flops.items())
        rows.append(
            (
                f"`{design.name}`",
                gpu.product,
                f"{gpu.memory_bytes / GB:g} GB",
                f"{gpu.memory_bytes_per_second / 1e12:g} TB/s",
                f"{peaks} TFLOPS",
            )
        )
    return f"## The accelerators\n\n{_table(head, rows)}"


def _assumptions() -> str:
    lines = [f"- {text}" for design in DESIGNS.values() for text in design.assumptions]
    return "## What is assumed\n\nThe warnings of a topology name these.\n\n" + "\n".join(lines)


def _networks() -> str:
    """What the networks of a document make of some hosts, as counted in the cluster."""
    head = (
        "network",
        "by example",
        "hosts",
        "accelerators",
        "switches",
        "links of switches and NICs or ports",
    )
    networks = [one for one in references() if one.kind is not ReferenceKind.HOST]
    rows = [(f"`{one.name}`", one.title, *_network_row(one.cluster)) for one in networks]
    text = """
## Networks

`fabric` joins the NICs of all hosts, `device_network` the accelerators without NICs. An example of
each; `GET /v1/designs/{name}` has its document. Rates are nominal GB/s in one direction, counts are
of cables.
"""
    return f"{text.strip()}\n\n{_table(head, rows)}"


def _network_row(cluster: Cluster) -> tuple[str, ...]:
    outside = Counter(v.kind.value for v in cluster.vertices.values() if v.host is None)
    switches = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in outside.items())
    joins: Counter[tuple[str, float]] = Counter()
    for link in cluster.links.values():
        ends = cluster.vertices[link.source], cluster.vertices[link.target]
        if ends[1].host is None and (ends[0].host is not None or link.source < link.target):
            kinds = sorted(end.kind.value for end in ends)
            joins["-".join(kinds), link.bandwidth_bytes_per_second] += 1
    links = "; ".join(
        f"{count} {kinds} of {rate / GB:g}" for (kinds, rate), count in sorted(joins.items())
    )
    return str(len(cluster.hosts)), str(len(cluster.devices)), switches, links


def _of_kind(design: HostDesign, kind: VertexKind) -> list[DeviceSpec]:
    return [device for device in design.devices if device.kind is kind]


def _of_source(design: HostDesign, prefix: str) -> list[LinkSpec]:
    """The links of the GPUs or NICs into the host."""
    return [
        link
        for link in design.links
        if link.source.startswith(prefix) and link.kind is not LinkKind.NVLINK
    ]


def _number(devices: Sequence[DeviceSpec]) -> str:
    return str(len(devices)) if devices else ""


def _sum(links: Sequence[LinkSpec]) -> str:
    if not links:
        return ""
    effective = [link.effective_bytes_per_second for link in links]
    known = None if None in effective else sum(rate or 0.0 for rate in effective)
    return _rate(sum(link.bandwidth_bytes_per_second for link in links), known)


def _made_of(design: HostDesign, links: Sequence[LinkSpec]) -> str:
    """One port on a switch, or links of its own to so many others."""
    gpus = {gpu.name for gpu in _of_kind(design, VertexKind.GPU)}
    ports = [link for link in links if link.source in gpus]
    if not ports:
        return ""
    source = ports[0].bandwidth_source or ""
    if not any(link.target in gpus for link in ports):
        return f"{source}, one port on a switch"
    lanes = sorted({link.lanes for link in ports})
    others = sorted({sum(gpu in (one.source, one.target) for one in ports) for gpu in gpus})
    return f"{source}, {_listed(lanes)} to each of {_listed(others)} others"


def _listed(numbers: Sequence[int]) -> str:
    *first, last = (str(number) for number in numbers)
    return f"{', '.join(first)} or {last}" if first else last


def _each(links: Sequence[LinkSpec]) -> str:
    found = {(link.bandwidth_bytes_per_second, link.effective_bytes_per_second) for link in links}
    return " or ".join(_rate(*rates) for rates in sorted(found, key=lambda rates: rates[0]))


def _rate(nominal: float | None, effective: float | None) -> str:
    if nominal is None:
        return ""
    practice = "" if effective is None else f" ({effective / GB:.4g})"
    return f"{nominal / GB:.4g}{practice}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)
