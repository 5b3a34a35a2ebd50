"""Net files of ibsim, the InfiniBand simulator: nodes by name, without GUIDs and speeds.

`Switch 8 "S1"`, `Hca 2 "H1"`, then `[1] "H1"[1] w=12` for each port with a cable. A cable may be
given at one of its ends or at both.
"""

from re import compile as compile_expression

from service.formats.infiniband_nodes import FabricNode, FabricNodes, NodeKind, PortLine
from service.formats.pasted_text import Findings, lines_of, shown

__all__ = ["looks_like_ibsim", "read_ibsim"]

_NODE = compile_expression(
    r"(?P<type>Switch|Hca|Router)\s+(?P<ports>[0-9]{1,3})\s+\"(?P<name>[^\"]{1,64})\"\s*(#.*)?"
)
_PORT = compile_expression(
    r"\[(?P<port>[0-9]{1,3})\]\s+\"(?P<peer>[^\"]{1,64})\"\s*\[(?P<peer_port>[0-9]{1,3})\]"
    r"(?:\s+w=(?P<width>[0-9]{1,2}))?\s*(#.*)?"
)
_KINDS = {"Switch": NodeKind.SWITCH, "Hca": NodeKind.ADAPTER, "Router": NodeKind.ROUTER}
_MAX_LINE = 1000
_WIDTHS = ("1", "4", "12")


def looks_like_ibsim(content: bytes) -> bool:
    """Whether the first line that says something is a node of a net file."""
    for line in content[:65_536].decode(errors="replace").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            return _NODE.fullmatch(line.strip()) is not None
    return False


def read_ibsim(content: bytes, findings: Findings) -> FabricNodes:
    """The nodes of all records; what is broken or names nobody is refused."""
    found = FabricNodes(symmetric=False)
    node: FabricNode | None = None
    for line, raw in lines_of(content, findings):
        text = raw.strip()
        if not text or text.startswith("#"):
            continue
        if len(text) > _MAX_LINE:
            findings.refuse(line, f"has {len(text)} characters; no line of a net file has")
        elif match := _NODE.fullmatch(text):
            name = match["name"]
            node = FabricNode(
                key=name,
                kind=_KINDS[match["type"]],
                line=line,
                title=name,
                port_count=int(match["ports"]),
            )
            if name in found.nodes:
                first = found.nodes[name].line
                findings.refuse(line, f"describes {shown(name)} again (first on line {first})")
            else:
                found.nodes[name] = node
        elif match := _PORT.fullmatch(text):
            if node is None:
                findings.refuse(line, "lists a port, but no node line stands above it")
                continue
            number = int(match["port"])
            if number in node.ports:
                first = node.ports[number].line
                findings.refuse(line, f"lists port {number} again (first on line {first})")
            elif not 1 <= number <= (node.port_count or 0):
                detail = f"lists port {number} of a node of {node.port_count} ports"
                findings.refuse(line, detail)
            elif match["width"] not in (None, *_WIDTHS):
                findings.refuse(line, f"gives w={match['width']}; a width is 1, 4 or 12")
            else:
                node.ports[number] = PortLine(
                    line=line,
                    port=number,
                    peer=match["peer"],
                    peer_port=int(match["peer_port"]),
                    width=int(match["width"]) if match["width"] else None,
                )
        else:
            findings.refuse(line, f"is neither a node nor a port of a net file: {shown(text)}")
    _name_peers(found, findings)
    if not found.nodes:
        findings.refuse(None, "the file holds no node")
    return found


def _name_peers(found: FabricNodes, findings: Findings) -> None:
    """In a net file every peer has a record of its own."""
    for node in found.nodes.values():
        for port in node.ports.values():
            if port.peer not in found.nodes:
                detail = f"joins {shown(str(port.peer))}, which no node line describes"
                findings.refuse(port.line, detail)
