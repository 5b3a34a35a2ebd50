"""Lists of links as ns-3 models of data centres read them, SimAI's among these.

First line: how many nodes, switches and links (SimAI: `nodes gpus_per_server nvswitches switches
links gpu_type`). Second: the numbers of the nodes that are switches. Then a link a line:
`source target 400Gbps 0.0005ms 0`, the same in both directions, with the share of packets lost.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from re import compile as compile_expression

from service.core.errors import FaultCode
from service.core.topology.cluster import RateOrigin
from service.core.topology.expand import MAX_LINKS, MAX_VERTICES
from service.core.topology.readings import Rate
from service.formats.pasted_text import Findings, lines_of, shown

__all__ = ["LinkLine", "LinkList", "first_lines", "read_link_list"]

_WHOLE = compile_expression(r"[0-9]{1,9}")
_RATE = compile_expression(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)([kKMGT]?)(bps|b/s|Bps|B/s)")
_DELAY = compile_expression(r"([0-9]{1,9}(?:\.[0-9]{1,12})?)(s|ms|us|ns|ps)")
_SHARE = compile_expression(r"[0-9](?:\.[0-9]{1,12})?(?:[eE]-[0-9]{1,3})?")
_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_SECONDS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9, "ps": 1e12}


@dataclass(frozen=True, slots=True)
class LinkLine:
    """One link between two nodes by number."""

    line: int
    source: int
    target: int
    rate: Rate
    latency_seconds: float


@dataclass(slots=True)
class LinkList:
    """A whole file: what its first line counts, its switches by number and its links."""

    header: tuple[int, ...]
    extra: str | None
    switches: dict[int, int] = field(default_factory=dict)
    links: list[LinkLine] = field(default_factory=list)

    @property
    def nodes(self) -> int:
        """All nodes, switches included."""
        return self.header[0]


def first_lines(content: bytes) -> list[list[str]]:
    """The words of the first three lines that have any, for a look at what the file is."""
    head = content[:262_144].decode(errors="replace").split("\n")
    words = [line.split() for line in head if line.strip() and not line.lstrip().startswith("#")]
    return words[:3]


def read_link_list(content: bytes, counts: int, findings: Findings, *, word: bool) -> LinkList:
    """Read a file whose first line has so many counts, and a word behind them where `word` is set.

    The last count is that of links and the one before it that of switches. Raises `InvalidInput`
    with every fault, each with path `("line", n)`.
    """
    lines = _lines(content, findings)
    number, words = next(lines, (0, []))
    expected = counts + word
    if len(words) != expected or not all(_WHOLE.fullmatch(each) for each in words[:counts]):
        if not findings.faulty:
            detail = f"has {expected} entries, {counts} of them counts: {shown(' '.join(words))}"
            findings.refuse(number or None, detail)
        findings.raise_faults()
    found = LinkList(
        header=tuple(int(each) for each in words[:counts]), extra=words[-1] if word else None
    )
    if found.nodes > MAX_VERTICES or found.header[-1] > MAX_LINKS:
        detail = f"counts {found.nodes} nodes and {found.header[-1]} links; at most {MAX_VERTICES}"
        findings.refuse(number, f"{detail} and {MAX_LINKS} are read", FaultCode.OUT_OF_RANGE)
        findings.raise_faults()
    switch_line, switches = next(lines, (number, []))
    for each in switches:
        if not _WHOLE.fullmatch(each) or int(each) >= found.nodes:
            findings.refuse(switch_line, f"names switch {shown(each)}, no node below {found.nodes}")
        elif int(each) in found.switches:
            findings.refuse(switch_line, f"names switch {each} twice")
        else:
            found.switches[int(each)] = switch_line
    lossy = []
    for line, parts in lines:
        if len(found.links) == found.header[-1]:
            findings.refuse(
                line, f"is a link beyond the {found.header[-1]} that line {number} counts"
            )
            break
        link = _link(line, parts, found.nodes, findings)
        if link is not None:
            found.links.append(link)
            if float(parts[4]) > 0:
                lossy.append(line)
    if lossy:
        findings.leave_out(lossy[0], f"losses of {len(lossy)} links: nothing here loses packets")
    findings.raise_faults()
    if len(found.links) != found.header[-1]:
        detail = f"counts {found.header[-1]} links, and {len(found.links)} follow"
        findings.refuse(number, f"{detail}: lines are missing")
    findings.raise_faults()
    return found


def _lines(content: bytes, findings: Findings) -> Iterator[tuple[int, list[str]]]:
    for line, text in lines_of(content, findings):
        words = text.split("#", 1)[0].split()
        if words:
            yield line, words


def _link(line: int, words: list[str], nodes: int, findings: Findings) -> LinkLine | None:
    if len(words) != 5:
        detail = f"is no link `source target rate delay loss`: {shown(' '.join(words[:8]))}"
        findings.refuse(line, detail)
        return None
    ends = [int(each) if _WHOLE.fullmatch(each) else nodes for each in words[:2]]
    rate = _RATE.fullmatch(words[2])
    delay = _DELAY.fullmatch(words[3])
    if max(ends) >= nodes:
        findings.refuse(line, f"joins {words[0][:20]} and {words[1][:20]}, not both below {nodes}")
    elif ends[0] == ends[1]:
        findings.refuse(line, f"joins node {ends[0]} to itself")
    elif rate is None or float(rate[1]) == 0:
        findings.refuse(line, f"gives the rate {shown(words[2])}, which is none like 400Gbps")
    elif delay is None:
        findings.refuse(line, f"gives the delay {shown(words[3])}, which is none like 0.0005ms")
    elif not _SHARE.fullmatch(words[4]) or float(words[4]) > 1:
        findings.refuse(line, f"gives the loss {shown(words[4])}, which is no share")
    else:
        bits = float(rate[1]) * _PREFIXES[rate[2]] * (8 if rate[3].startswith("B") else 1)
        read = Rate(bits / 8, RateOrigin.READ, f"{words[2]} of the link list")
        return LinkLine(line, ends[0], ends[1], read, float(delay[1]) / _SECONDS[delay[2]])
    return None
