"""The records of `ibnetdiscover`, plain and grouped by chassis (`-g`).

Written by infiniband-diags (rdma-core): identifiers, a node line, then a line for each port that
has a cable. Grouped output lists chassis switches by slot and then all of them again.
"""

from re import Match
from re import compile as compile_expression

from service.formats.infiniband_nodes import FabricNode, FabricNodes, NodeKind, PortLine
from service.formats.pasted_text import Findings, lines_of, shown

__all__ = ["looks_like_records", "read_records"]

_IDENTIFIER = compile_expression(
    r"(?P<key>vendid|devid|sysimgguid|switchguid|caguid|rtguid)=0x(?P<value>[0-9a-fA-F]{1,16})"
    r"(?:\((?P<port>[0-9a-fA-F]{1,16})\))?(?P<rest>\s*#.*|\s*)"
)
_NODE = compile_expression(
    r"(?P<type>Switch|Ca|Rt)\s+(?P<ports>[0-9]{1,3})\s+\"(?P<prefix>[SHR])-(?P<guid>[0-9a-f]{16})\""
    r"\s*#\s*\"(?P<title>.*?)\"(?P<rest>[^\"]*)"
)
# Both ends of both forms: only adapters give the GUIDs of their ports.
_PORT = compile_expression(
    r"\[(?P<port>[0-9]{1,3})\](?:\[ext [0-9]{1,3}\])?(?:\((?P<own>[0-9a-f]{1,16})\))?\s+"
    r"\"(?P<prefix>[SHR])-(?P<guid>[0-9a-f]{16})\"\[(?P<peer_port>[0-9]{1,3})\]"
    r"(?:\[ext [0-9]{1,3}\])?(?:\s*\((?P<far>[0-9a-f]{1,16})\))?\s*#(?P<rest>.*)"
)
_AFTER_SWITCH_PORT = compile_expression(
    r"\s*\"(?P<title>.*?)\"(?: lid (?P<lid>[0-9]+)(?: (?P<rate>\S+))?(?P<more>.*))?"
)
_AFTER_ADAPTER_PORT = compile_expression(
    r"\s*(?:lid [0-9]+ lmc [0-9]+ )?\"(?P<title>.*?)\""
    r"(?: lid (?P<lid>[0-9]+)(?: (?P<rate>\S+))?(?P<more>.*))?"
)
# What `-f` and Xsigo gateways add at the end.
_MORE = compile_expression(r"( s=[0-9]+ w=[0-9]+ v=[0-9]+)?( slot [0-9]+| \(scp\))?\s*")
_RATE = compile_expression(r"(?P<width>[0-9]{1,2})x(?P<speed>[A-Z]{3}[0-9]{0,2}|\?\?\?)|\?\?\S*")
_GROUPING = compile_expression(
    r"Chassis [0-9]+( \(guid 0x[0-9a-f]{1,16}\))?|Hostname: .*|Non-Chassis Nodes"
)
# Messages of the tool on stderr; the prompt it was started from ends in its name and options.
_NOISE = compile_expression(
    r"(ib(warn|panic|debug|error): \[[0-9]+\]|[\w./-]{1,120}\.c:[0-9]{1,6}[;:]|"
    r"[\w./-]{0,80}ibnetdiscover: ).*"
)
# Descriptions have 64 characters at most; what is longer by far is no line of this tool.
_MAX_LINE = 1000
_KINDS = {"S": NodeKind.SWITCH, "H": NodeKind.ADAPTER, "R": NodeKind.ROUTER}
_TYPES = {"Switch": "S", "Ca": "H", "Rt": "R"}
_OWN_GUID = {"Switch": "switchguid", "Ca": "caguid", "Rt": "rtguid"}


def looks_like_records(content: bytes) -> bool:
    """Whether there is an identifier of a record near the beginning."""
    head = content[:65_536]
    return any(line.startswith((b"vendid=0x", b"devid=0x")) for line in head.splitlines())


def read_records(content: bytes, findings: Findings) -> FabricNodes:
    """The nodes of all records; what is broken or contradicts itself is refused."""
    reader = _Records(findings)
    for line, text in lines_of(content, findings):
        reader.take(line, text.strip())
    reader.finish()
    return reader.found


class _Records:
    """Takes the lines in their order; a record is open from its first identifier on."""

    def __init__(self, findings: Findings) -> None:
        self.found = FabricNodes(symmetric=True)
        self._findings = findings
        self._identifiers: dict[str, tuple[int, str]] = {}
        self._node: FabricNode | None = None
        # A record that is there already: its lines must say the same again.
        self._again: FabricNode | None = None

    def take(self, line: int, text: str) -> None:
        if not text or text.startswith("#"):
            return
        if len(text) > _MAX_LINE:
            self._findings.refuse(line, f"has {len(text)} characters; no line of the tool has")
        elif found := _IDENTIFIER.fullmatch(text):
            self._identifier(line, found)
        elif found := _NODE.fullmatch(text):
            self._header(line, found)
        elif found := _PORT.fullmatch(text):
            self._port(line, found)
        elif _NOISE.fullmatch(text) or self._is_prompt(text):
            detail = f"a message of the tool or a prompt, no part of the fabric: {shown(text)}"
            self._findings.leave_out(line, detail)
        elif _GROUPING.fullmatch(text):
            self._close()
            self.found.chassis += text.startswith("Chassis")
        else:
            what = "is neither an identifier, a node, a port nor a remark of ibnetdiscover"
            self._findings.refuse(line, f"{what}: {shown(text)}")

    def finish(self) -> None:
        self._close()
        if not self.found.nodes:
            self._findings.refuse(None, "the file holds no record of a switch or an adapter")

    def _is_prompt(self, text: str) -> bool:
        started = any(word.rpartition("/")[2] == "ibnetdiscover" for word in text.split())
        return started and not self.found.nodes

    def _identifier(self, line: int, found: Match[str]) -> None:
        if self._node is not None:
            self._close()
        key = found["key"]
        if key in self._identifiers:
            first = self._identifiers[key][0]
            detail = f"gives {key} again (first on line {first}): the node line between is missing"
            self._findings.refuse(line, detail)
            self._identifiers.clear()
        self._identifiers[key] = (line, found["value"])

    def _header(self, line: int, found: Match[str]) -> None:
        if self._node is not None:
            self._close()
        given, self._identifiers = self._identifiers, {}
        own = _OWN_GUID[found["type"]]
        missing = [key for key in ("vendid", "devid", own) if key not in given]
        if missing:
            detail = f"begins a node without {' and '.join(missing)} above it: lines are missing"
            self._findings.refuse(line, detail)
        elif int(given[own][1], 16) != int(found["guid"], 16):
            detail = f"names node {found['guid']}, but {own} on line {given[own][0]} is another"
            self._findings.refuse(line, detail)
        if _TYPES[found["type"]] != found["prefix"]:
            self._findings.refuse(line, f'calls a {found["type"]} "{found["prefix"]}-..."')
        system = given.get("sysimgguid")
        node = FabricNode(
            key=found["guid"],
            kind=_KINDS[_TYPES[found["type"]]],
            line=line,
            title=found["title"],
            guid=found["guid"],
            system_guid=system[1].lower().zfill(16) if system else None,
            port_count=int(found["ports"]),
        )
        self._again = self.found.nodes.get(node.key)
        if self._again is None:
            self.found.nodes[node.key] = node
        elif (node.kind, node.title, node.system_guid, node.port_count) != (
            self._again.kind,
            self._again.title,
            self._again.system_guid,
            self._again.port_count,
        ):
            detail = f"describes node {node.key} again and differently than line {self._again.line}"
            self._findings.refuse(line, detail)
        self._node = node

    def _port(self, line: int, found: Match[str]) -> None:
        node = self._node
        if node is None:
            self._findings.refuse(line, "lists a port, but no node line stands above it")
            return
        number = int(found["port"])
        if node.port_count is not None and not 1 <= number <= node.port_count:
            self._findings.refuse(line, f"lists port {number} of a node of {node.port_count} ports")
        if number in node.ports:
            first = node.ports[number].line
            self._findings.refuse(line, f"lists port {number} again (first on line {first})")
            return
        adapter = node.kind is not NodeKind.SWITCH
        after = (_AFTER_ADAPTER_PORT if adapter else _AFTER_SWITCH_PORT).fullmatch(found["rest"])
        if after is None or (after["more"] and not _MORE.fullmatch(after["more"])):
            self._findings.refuse(line, f"ends in what no port line has: {shown(found['rest'])}")
            return
        peer_kind = _KINDS[found["prefix"]]
        if adapter and found["own"] is None:
            self._findings.refuse(line, "lists a port of an adapter without its GUID in brackets")
        if not adapter and peer_kind is not NodeKind.SWITCH and found["far"] is None:
            self._findings.refuse(line, "names an adapter without the GUID of its port in brackets")
        rate = _RATE.fullmatch(after["rate"] or "")
        if after["rate"] and rate is None:
            self._findings.refuse(line, f"gives no width and speed: {shown(after['rate'])}")
            return
        known = rate is not None and rate["speed"] not in (None, "???")
        node.ports[number] = PortLine(
            line=line,
            port=number,
            peer=found["guid"],
            peer_kind=peer_kind,
            peer_port=int(found["peer_port"]),
            peer_title=after["title"],
            port_guid=found["own"].zfill(16) if found["own"] else None,
            peer_port_guid=found["far"].zfill(16) if found["far"] else None,
            width=int(rate["width"]) if rate and rate["width"] else None,
            speed=rate["speed"] if rate and known else None,
        )

    def _close(self) -> None:
        """End the record; one that was there already has to list the same ports."""
        if self._identifiers:
            line, key = min((line, key) for key, (line, _value) in self._identifiers.items())
            self._findings.refuse(line, f"gives {key}, but the line of its node does not follow")
            self._identifiers = {}
        again, node = self._again, self._node
        if again is not None and node is not None:
            ports = {number: _without_line(port) for number, port in node.ports.items()}
            if ports != {number: _without_line(port) for number, port in again.ports.items()}:
                detail = f"lists other ports of {node.key} than the record of line {again.line}"
                self._findings.refuse(node.line, detail)
        self._node = self._again = None


def _without_line(port: PortLine) -> tuple[object, ...]:
    return (port.peer, port.peer_port, port.width, port.speed)
