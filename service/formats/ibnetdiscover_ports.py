"""The list of ports that `ibnetdiscover -p` prints: one line for each port and end.

`CA 134 1 0x<port guid> 4x EDR - SW 1719 10 0x<port guid> ( 'host HCA-1' - 'switch' )`; a port
without a cable has neither a peer nor brackets. Adapters are known by the GUIDs of their ports
alone, so that the two ports of one adapter are two entries here.
"""

from re import compile as compile_expression

from service.formats.infiniband_nodes import FabricNode, FabricNodes, NodeKind, PortLine
from service.formats.pasted_text import Findings, lines_of, shown

__all__ = ["looks_like_ports", "read_ports"]

_END = (
    r"(?P<{0}kind>SW|CA|RT) +[0-9]{{1,5}} +(?P<{0}port>[0-9]{{1,3}}) 0x(?P<{0}guid>[0-9a-f]{{16}})"
)
_RATE = r" (?P<width>[0-9]{1,2}x|\?\?) (?P<speed>[A-Z]{3}[0-9]{0,2}|\?\?\?)"
_LINE = compile_expression(
    _END.format("")
    + _RATE
    + r"(?: +- +"
    + _END.format("peer_")
    + r" \( '(?P<title>.*)' - '(?P<peer_title>.*)' \)| +'(?P<alone>.*)')"
)
_BEGINNING = compile_expression(rb"(SW|CA|RT) +[0-9]{1,5} +[0-9]{1,3} 0x[0-9a-f]{1,16} ")
_MAX_LINE = 1000
_KINDS = {"SW": NodeKind.SWITCH, "CA": NodeKind.ADAPTER, "RT": NodeKind.ROUTER}


def looks_like_ports(content: bytes) -> bool:
    """Whether a line near the beginning is one of this list."""
    return any(_BEGINNING.match(line.strip()) for line in content[:65_536].splitlines()[:200])


def read_ports(content: bytes, findings: Findings) -> FabricNodes:
    """The nodes of all lines, in the order they are met; broken lines are refused."""
    found = FabricNodes(symmetric=True)
    for line, raw in lines_of(content, findings):
        text = raw.strip()
        if not text or text.startswith("#"):
            continue
        match = _LINE.fullmatch(text) if len(text) <= _MAX_LINE else None
        if match is None:
            detail = f"is no port of `ibnetdiscover -p`: {shown(text)}"
            findings.refuse(line, detail)
            continue
        kind, guid, number = _KINDS[match["kind"]], match["guid"], int(match["port"])
        title = match["title"] if match["alone"] is None else match["alone"]
        node = found.nodes.setdefault(
            guid, FabricNode(key=guid, kind=kind, line=line, title=title, guid=guid)
        )
        if (node.kind, node.title) != (kind, title):
            findings.refuse(line, f"describes {guid} differently than line {node.line}")
        elif number in node.ports:
            first = node.ports[number].line
            findings.refuse(line, f"lists port {number} of {guid} again (first on line {first})")
        else:
            adapter = kind is not NodeKind.SWITCH
            has_peer = match["alone"] is None
            peer_adapter = has_peer and match["peer_kind"] != "SW"
            node.ports[number] = PortLine(
                line=line,
                port=number,
                peer=match["peer_guid"],
                peer_kind=_KINDS[match["peer_kind"]] if has_peer else None,
                peer_port=int(match["peer_port"]) if has_peer else None,
                peer_title=match["peer_title"],
                port_guid=guid if adapter else None,
                peer_port_guid=match["peer_guid"] if peer_adapter else None,
                width=None if match["width"] == "??" else int(match["width"][:-1]),
                speed=None if match["speed"] == "???" else match["speed"],
            )
    if not found.nodes:
        findings.refuse(None, "the file lists no port")
    return found
