"""NVLink, xGMI and C2C in NCCL's XML: private links, or one port on the NVSwitch of the host."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from service.core.topology.cluster import LinkKind, VertexKind
from service.core.topology.gpu_products import (
    LinkGeneration,
    generation_of_gcn,
    generation_of_sm,
)
from service.core.topology.readings import FoundDevice, FoundLink, Rate, RateOrigin
from service.formats.nccl_devices import hexadecimal, whole
from service.formats.pasted_text import Findings, shown
from service.formats.pci_tree import normal_address
from service.formats.xml_elements import Element

__all__ = ["NvlinkFabric", "nvlinks_of"]

_NVSWITCH_CLASS = 0x068000
_CPU_BRIDGE_CLASS = 0x068001  # a POWER CPU
_MAX_LINKS = 64
_MAX_C2C_MEGABYTES = 10_000_000
# What virtual machines say instead of the address of a switch they can't see.
_HIDDEN_SWITCH = re.compile(r"f+:f+:f+")


@dataclass(slots=True)
class NvlinkFabric:
    """The links between accelerators of one host; `switch` stands for all its NVSwitches."""

    switch: FoundDevice | None = None
    links: list[FoundLink] = field(default_factory=list)
    count_of: dict[str, int] = field(default_factory=dict)


def nvlinks_of(
    findings: Findings,
    gpus: Sequence[tuple[FoundDevice, Element]],
    at: Mapping[str, FoundDevice],
    cpu_of: Callable[[str], str],
) -> NvlinkFabric:
    """What the accelerators say of their links.

    `gpus` are the accelerators with their elements, `at` the same by PCI address, `cpu_of` the CPU
    above one of them.
    """
    fabric = NvlinkFabric()
    # (one, other) -> what `one` says of its links to `other`
    private: dict[tuple[str, str], tuple[int, Element]] = {}
    switched: Counter[str] = Counter()
    to_cpu: Counter[str] = Counter()
    for gpu, element in gpus:
        for link in element.named("nvlink", "xgmi"):
            count = _count(findings, link)
            target = link.attributes.get("target", "").strip().lower()
            address = normal_address(target)
            class_ = hexadecimal(link.attributes.get("tclass", ""))
            peer = at.get(address or "")
            if count == 0:
                continue
            if peer is not None and peer.name == gpu.name:
                findings.leave_out(
                    link.line, f"{gpu.name} names itself as the end of {count} links"
                )
            elif peer is not None:
                key = gpu.name, peer.name
                private[key] = (count + private.get(key, (0, link))[0], link)
            elif class_ == _NVSWITCH_CLASS or _HIDDEN_SWITCH.fullmatch(target):
                switched[gpu.name] += count
            elif class_ == _CPU_BRIDGE_CLASS:
                to_cpu[gpu.name] += count
            else:
                findings.leave_out(
                    link.line,
                    f"{count} links of {gpu.name} to {shown(target)}, which is not in the file",
                )
        for link in element.named("c2c"):
            fabric.links += _c2c(findings, gpu.name, cpu_of(gpu.name), link)
        for child in element.children:
            if child.name not in {"nvlink", "xgmi", "c2c"}:
                findings.leave_out(child.line, f"<{child.name[:40]}> is not read")
    rate_of = {gpu.name: _rate(element) for gpu, element in gpus}
    line_of = {gpu.name: gpu.line for gpu, _ in gpus}
    fabric.links += _private_links(findings, fabric, private, rate_of)
    if switched:
        first = next(iter(switched))
        fabric.switch = FoundDevice(name="nvswitch0", kind=VertexKind.NVSWITCH, line=line_of[first])
        findings.assume("all NVSwitch chips of a host are one non-blocking vertex")
    for name, count in switched.items():
        fabric.links.append(_link(name, "nvswitch0", count, line_of[name], rate_of[name]))
        fabric.count_of[name] = fabric.count_of.get(name, 0) + count
    for name, count in to_cpu.items():
        fabric.links.append(_link(name, cpu_of(name), count, line_of[name], rate_of[name]))
    return fabric


def _private_links(
    findings: Findings,
    fabric: NvlinkFabric,
    private: Mapping[tuple[str, str], tuple[int, Element]],
    rate_of: Mapping[str, LinkGeneration | None],
) -> list[FoundLink]:
    """One link for each pair. Ends that count differently are taken at the smaller count."""
    links = []
    for (one, other), (count, element) in private.items():
        back = private.get((other, one))
        if back is not None and (other, one) < (one, other):
            continue  # told from the other end
        if back is None or back[0] != count:
            said = "nothing" if back is None else f"{back[0]}"
            smaller = count if back is None else min(count, back[0])
            findings.leave_out(
                element.line,
                f"{one} says {count} links to {other}, which says {said}: {smaller} are taken",
            )
            count = smaller  # noqa: PLW2901
        links.append(_link(one, other, count, element.line, rate_of[one]))
        for name in (one, other):
            fabric.count_of[name] = fabric.count_of.get(name, 0) + count
    return links


def _link(
    source: str, target: str, lanes: int, line: int, generation: LinkGeneration | None
) -> FoundLink:
    rate = None
    if generation is not None:
        origin = RateOrigin.ASSUMED if generation.assumed else RateOrigin.PRODUCT
        rate = Rate(generation.link_bytes_per_second * lanes, origin, generation.source)
    return FoundLink(
        source=source, target=target, kind=LinkKind.NVLINK, line=line, lanes=lanes, rate=rate
    )


def _rate(element: Element) -> LinkGeneration | None:
    """By compute capability; on AMD `sm` counts compute units, and `gcn` is the architecture."""
    architecture = element.attributes.get("gcn")
    if architecture is not None:
        return generation_of_gcn(architecture)
    return generation_of_sm(whole(element.attributes.get("sm", "")) or 0)


def _count(findings: Findings, link: Element) -> int:
    text = link.attributes.get("count", "")
    count = whole(text)
    if count is None or not 1 <= count <= _MAX_LINKS:
        findings.refuse(
            link.line, f"has count {shown(text)}; it says how many links, 1 to {_MAX_LINKS}"
        )
        return 0
    return count


def _c2c(findings: Findings, gpu: str, cpu: str, link: Element) -> list[FoundLink]:
    """Chip to chip: `bw` is MB/s of one link."""
    count, megabytes = _count(findings, link), whole(link.attributes.get("bw", ""))
    if megabytes is None or not 1 <= megabytes <= _MAX_C2C_MEGABYTES:
        findings.refuse(link.line, f"has no bw in MB/s, 1 to {_MAX_C2C_MEGABYTES}")
        return []
    if count == 0:
        return []
    rate = Rate(megabytes * 1e6 * count, RateOrigin.READ, f"C2C, {count} x {megabytes} MB/s")
    return [
        FoundLink(
            source=gpu, target=cpu, kind=LinkKind.OTHER, line=link.line, lanes=count, rate=rate
        )
    ]
