"""Lists of links of ns-3: hosts and switches by number."""

from collections import Counter
from re import compile as compile_expression

from service.core.topology.oversubscription import leaf_notes
from service.core.topology.reading_tiers import TIERS_ASSUMED, tiers
from service.core.topology.readings import AttachedHost, Cable, CableEnd, FoundSwitch, Reading
from service.formats.link_list import first_lines, read_link_list
from service.formats.pasted_text import Findings

__all__ = ["looks_like_ns3_links", "read_ns3_links"]

FORMAT = "ns3_links"
_RATE = compile_expression(r"[0-9.]{1,20}[kKMGT]?(bps|b/s|Bps|B/s)")


def looks_like_ns3_links(content: bytes) -> bool:
    """Whether three counts, a line of numbers and a link stand at the beginning."""
    lines = first_lines(content)
    if len(lines) < 3 or len(lines[0]) != 3 or len(lines[2]) != 5:
        return False
    numbers = [*lines[0], *lines[1], *lines[2][:2]]
    return all(each.isdigit() for each in numbers) and bool(_RATE.fullmatch(lines[2][2]))


def read_ns3_links(content: bytes) -> Reading:
    """Hosts with an adapter for each of their links, switches and cables.

    Raises `InvalidInput` with every fault, each with path `("line", n)`.
    """
    findings = Findings()
    found = read_link_list(content, 3, findings, word=False)
    if len(found.switches) != found.header[1]:
        line = next(iter(found.switches.values()), 1)
        findings.refuse(
            line, f"names {len(found.switches)} switches; {found.header[1]} are counted"
        )
    findings.raise_faults()
    adapters: Counter[int] = Counter()

    def end(node: int) -> CableEnd:
        if node in found.switches:
            return CableEnd(switch=f"switch{node}")
        adapters[node] += 1
        return CableEnd(host=f"host{node}", adapter=f"nic{adapters[node] - 1}")

    cables = tuple(
        Cable(
            source=end(link.source),
            target=end(link.target),
            line=link.line,
            rate=link.rate,
            latency_seconds=link.latency_seconds,
        )
        for link in found.links
    )
    levels = tiers(cables)
    switches = tuple(
        FoundSwitch(name=f"switch{node}", line=line, level=levels.get(f"switch{node}"))
        for node, line in found.switches.items()
    )
    alone = [n for n in range(found.nodes) if n not in found.switches and not adapters[n]]
    return Reading(
        format=FORMAT,
        facts={
            "switches": len(switches),
            "hosts": found.nodes - len(switches),
            "cables": len(cables),
            "switch_cables": sum(
                c.source.switch is not None and c.target.switch is not None for c in cables
            ),
        },
        switches=switches,
        cables=cables,
        attached=tuple(AttachedHost(host=f"host{n}", switch=None, line=1) for n in alone),
        assumptions=(TIERS_ASSUMED, "each link of a host has an adapter of its own"),
        notes=(*findings.notes(), *leaf_notes(switches, cables)),
        left_out=findings.left_out(),
    )
