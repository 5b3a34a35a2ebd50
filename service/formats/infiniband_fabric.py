"""From the nodes of an InfiniBand fabric to a reading: cables, tiers, hosts, oversubscription."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from re import compile as compile_expression

from service.core.errors import FaultCode
from service.core.topology.expand import MAX_VERTICES
from service.core.topology.infiniband_rates import infiniband_rate
from service.core.topology.oversubscription import leaf_notes
from service.core.topology.reading_tiers import TIERS_ASSUMED, tiers
from service.core.topology.readings import (
    AttachedHost,
    Cable,
    CableEnd,
    FoundSwitch,
    Rate,
    Reading,
)
from service.formats.infiniband_nodes import FabricNode, FabricNodes, NodeKind, PortLine
from service.formats.pasted_text import Findings, shown

__all__ = ["fabric_reading"]

# The endpoint of a switch's own reduction engine (SHARP): an adapter in the file, no host.
_AGGREGATION = compile_expression(r".*\bAggregation Node\b.*")
# `host mlx5_5`, `host HCA-6`, or the host alone; makers' names of chips are no hosts.
_HOST_AND_ADAPTER = compile_expression(
    r"(?P<host>[A-Za-z0-9][A-Za-z0-9._-]*)(?:\s+(?P<adapter>HCA-[0-9]+|[a-z][a-z0-9_]*[0-9]))?"
)
_NO_HOST = compile_expression(
    r"(?i)(MT[0-9]+.*|(ConnectX|InfiniHost|BlueField|Mellanox|NVIDIA|QLE|OmniPath).*"
    r"|localhost(\..*)?|none|ubuntu|linux)"
)
# Management software writes `MF0;<host>:<model>/<chip>` into the description of a switch.
_MANAGED = compile_expression(r"MF[0-9]+;(?P<name>[^:;]+):(?P<model>[^/]*)/?(?P<chip>.*)")
_PLAIN_NAME = compile_expression(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def fabric_reading(found: FabricNodes, findings: Findings) -> Reading:
    """Join the ports of all nodes to cables, and say what else the nodes tell.

    Each cable is taken once, however many of its ends list it; ends that disagree on width or speed
    run at the lower rate, which is noted. Ends that disagree on what they are joined to are
    refused. Raises `InvalidInput` with all faults, those of before included.
    """
    joiner = _Joiner(found, findings)
    joiner.join()
    findings.raise_faults()
    return joiner.reading()


@dataclass(frozen=True, slots=True)
class _Adapter:
    host: str | None
    name: str | None


@dataclass(slots=True)
class _Joiner:
    found: FabricNodes
    findings: Findings
    cables: list[Cable] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    names: dict[str, str] = field(default_factory=dict)
    adapters: dict[str, _Adapter] = field(default_factory=dict)
    without_rate: list[int] = field(default_factory=list)

    def join(self) -> None:
        self._add_peers()
        if len(self.found.nodes) > MAX_VERTICES:
            detail = f"a fabric has at most {MAX_VERTICES} nodes; this is {len(self.found.nodes)}"
            self.findings.refuse(None, detail, FaultCode.OUT_OF_RANGE)
            return
        self._check_ends()
        self._name_switches()
        self._name_adapters()
        for node, port in self._each_cable():
            self._add_cable(node, port)
        if self.without_rate:
            numbers = self.without_rate
            lines = ", ".join(map(str, numbers[:20])) + (", ..." if len(numbers) > 20 else "")
            detail = (
                f"{len(self.without_rate)} of {len(self.cables)} cables have no rate (lines {lines}"
            )
            more = ", ..." if len(self.without_rate) > 20 else ""
            self.findings.leave_out(self.without_rate[0], f"{detail}{more})")

    def _add_peers(self) -> None:
        """Nodes that are named as peers only have no record; they are nodes all the same."""
        for node in tuple(self.found.nodes.values()):
            for port in node.ports.values():
                if port.peer is not None and port.peer not in self.found.nodes:
                    self.found.nodes[port.peer] = FabricNode(
                        key=port.peer,
                        kind=port.peer_kind or NodeKind.SWITCH,
                        line=port.line,
                        has_record=False,
                        title=port.peer_title,
                        guid=port.peer,
                    )

    def _check_ends(self) -> None:
        for node in self.found.nodes.values():
            for port in node.ports.values():
                if port.peer is None:
                    continue
                peer = self.found.nodes[port.peer]
                if port.peer_kind is not None and port.peer_kind is not peer.kind:
                    self.findings.refuse(
                        port.line,
                        f"calls {peer.key} {port.peer_kind}, which is {peer.kind} elsewhere",
                    )
                if peer.has_record:
                    self._check_back(node, port, peer)

    def _check_back(self, node: FabricNode, port: PortLine, peer: FabricNode) -> None:
        here = (
            f"joins port {port.port} of {_label(node)} to port {port.peer_port} of {_label(peer)}"
        )
        back = peer.ports.get(port.peer_port or 0)
        if back is None or back.peer is None:
            if self.found.symmetric:
                detail = f"{here}, whose record on line {peer.line} lacks that port"
                self.findings.refuse(port.line, f"{detail}: lines are missing")
        elif (back.peer, back.peer_port) != (node.key, port.port):
            self.findings.refuse(port.line, f"{here}, but line {back.line} joins that elsewhere")
        else:
            for here_guid, there_guid in (
                (port.peer_port_guid, back.port_guid),
                (port.port_guid, back.peer_port_guid),
            ):
                if here_guid and there_guid and here_guid != there_guid:
                    detail = f"gives port GUID {here_guid}, line {back.line} gives {there_guid}"
                    self.findings.refuse(port.line, detail)

    def _each_cable(self) -> Iterator[tuple[FabricNode, PortLine]]:
        """Every cable at the end that is listed first."""
        seen: set[tuple[str, int]] = set()
        for node in self.found.nodes.values():
            for port in node.ports.values():
                if port.peer is None or port.peer_port is None:
                    self.counts["unconnected_ports"] += 1
                elif (node.key, port.port) not in seen:
                    seen.add((port.peer, port.peer_port))
                    yield node, port

    def _name_switches(self) -> None:
        """Switches have the name people gave them where it tells them apart, else their GUID."""
        switches = [n for n in self.found.nodes.values() if n.kind is not NodeKind.ADAPTER]
        wanted = [_switch_names(node) for node in switches]
        taken = [Counter(names[choice] for names in wanted) for choice in range(2)]
        used: set[str] = set()
        for node, names in zip(switches, wanted, strict=True):
            own = node.key if node.guid is None else f"S-{node.guid}"
            choices = [name for name, counts in zip(names, taken, strict=True) if counts[name] == 1]
            name = next((n for n in choices if n is not None and n not in used), own)
            used.add(name)
            self.names[node.key] = name

    def _name_adapters(self) -> None:
        claims: defaultdict[tuple[str, str, int], list[FabricNode]] = defaultdict(list)
        for node in self._nodes(NodeKind.ADAPTER):
            adapter = _adapter(node)
            self.adapters[node.key] = adapter
            if adapter.host is not None and adapter.name is not None:
                for number in node.ports or (0,):
                    claims[adapter.host, adapter.name, number].append(node)
        for (host, name, _number), nodes in claims.items():
            if len(nodes) > 1:
                lines = ", ".join(str(node.line) for node in nodes[:5])
                detail = (
                    f"{len(nodes)} adapters call themselves {host} {name} (lines {lines}): their"
                    " hosts are unknown, and only their GUIDs tell them apart"
                )
                self.findings.leave_out(nodes[0].line, detail)
                for node in nodes:
                    self.adapters[node.key] = _Adapter(None, None)

    def _add_cable(self, node: FabricNode, port: PortLine) -> None:
        if port.peer is None:
            return
        peer = self.found.nodes[port.peer]
        back = peer.ports.get(port.peer_port or 0)
        self.counts["cables"] += 1
        if node is peer:
            self.counts["loopback_cables"] += 1
            detail = f"joins {_label(node)} to itself: such a cable carries nothing between devices"
            self.findings.leave_out(port.line, detail)
            return
        sharp = [n for n in (node, peer) if _is_aggregation(n)]
        if sharp:
            self.counts["aggregation_node_cables"] += 1
            detail = "leads to an aggregation node (SHARP): part of the switch, no host"
            self.findings.leave_out(port.line, detail)
            return
        if back is None:
            self.counts["cables_seen_from_one_end"] += 1
        if NodeKind.ADAPTER not in (node.kind, peer.kind):
            self.counts["switch_cables"] += 1
        self.cables.append(
            Cable(
                source=self._end(node, port.port, port.port_guid),
                target=self._end(peer, port.peer_port, port.peer_port_guid),
                line=port.line,
                rate=self._rate(port, back),
            )
        )

    def _end(self, node: FabricNode, number: int | None, port_guid: str | None) -> CableEnd:
        if node.kind is not NodeKind.ADAPTER:
            return CableEnd(switch=self.names[node.key], port_number=number)
        adapter = self.adapters[node.key]
        return CableEnd(
            host=adapter.host,
            adapter=adapter.name,
            port_guid=port_guid,
            port_number=number,
            system_guid=node.system_guid,
        )

    def _rate(self, port: PortLine, back: PortLine | None) -> Rate | None:
        ends = [end for end in (port, back) if end is not None]
        rates = [_rate_of(end) for end in ends]
        known = [rate for rate in rates if rate is not None]
        if not known:
            self.without_rate.append(port.line)
            return None
        lowest = min(known, key=lambda rate: rate.bytes_per_second)
        if len({(end.width, end.speed) for end in ends}) > 1:
            both = " and ".join(f"{end.width}x {end.speed} (line {end.line})" for end in ends)
            self.findings.note(
                f"the ends of one cable disagree, {both}: it is taken to run at"
                f" {lowest.bytes_per_second:.6g} bytes/s"
            )
        return lowest

    def _nodes(self, kind: NodeKind) -> list[FabricNode]:
        return [node for node in self.found.nodes.values() if node.kind is kind]

    def reading(self) -> Reading:
        levels = tiers(self.cables)
        switches = tuple(
            FoundSwitch(
                name=self.names[node.key],
                line=node.line,
                title=node.title,
                guid=node.guid,
                system_guid=node.system_guid,
                level=levels.get(self.names[node.key]),
            )
            for node in self.found.nodes.values()
            if node.kind is not NodeKind.ADAPTER
        )
        attached = tuple(self._without_cable())
        assumptions, notes = self._words(switches)
        return Reading(
            format="ibnetdiscover",
            facts=self._facts(switches),
            switches=switches,
            cables=tuple(self.cables),
            attached=attached,
            assumptions=assumptions,
            notes=notes,
            left_out=self.findings.left_out(),
        )

    def _without_cable(self) -> Iterator[AttachedHost]:
        """Hosts that have adapters in the file and no cable."""
        cabled = {end.host for cable in self.cables for end in (cable.source, cable.target)}
        for node in self._nodes(NodeKind.ADAPTER):
            host = self.adapters[node.key].host
            if host is not None and host not in cabled:
                cabled.add(host)
                yield AttachedHost(host=host, switch=None, line=node.line)

    def _facts(self, switches: tuple[FoundSwitch, ...]) -> dict[str, int]:
        adapters = self._nodes(NodeKind.ADAPTER)
        hosts = {self.adapters[node.key].host for node in adapters} - {None}
        sharp = sum(_is_aggregation(node) for node in adapters)
        optional = {
            "chassis": self.found.chassis,
            "systems": len({node.system_guid for node in self.found.nodes.values()} - {None}),
            "routers": len(self._nodes(NodeKind.ROUTER)),
            "aggregation_nodes": sharp,
            "adapters_without_host": sum(
                self.adapters[node.key].host is None and not _is_aggregation(node)
                for node in adapters
            ),
            "nodes_without_record": sum(not node.has_record for node in self.found.nodes.values()),
            **{
                name: self.counts[name]
                for name in (
                    "aggregation_node_cables",
                    "cables_seen_from_one_end",
                    "loopback_cables",
                    "unconnected_ports",
                )
            },
        }
        return {
            "switches": len(switches),
            "leaf_switches": sum(switch.level == 0 for switch in switches),
            "adapters": len(adapters),
            "hosts": len(hosts),
            "cables": self.counts["cables"],
            "switch_cables": self.counts["switch_cables"],
            **{name: count for name, count in optional.items() if count},
        }

    def _words(self, switches: tuple[FoundSwitch, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        assumptions = list(self.findings.assumptions)
        notes = list(self.findings.notes())
        if any(switch.level is not None for switch in switches):
            assumptions.append(TIERS_ASSUMED)
        if self._nodes(NodeKind.ROUTER):
            assumptions.append("InfiniBand routers forward like switches")
        if any(map(_is_aggregation, self._nodes(NodeKind.ADAPTER))):
            notes.append("the fabric has SHARP aggregation nodes: it can reduce in the network")
        if self.counts["cables_seen_from_one_end"]:
            notes.append(
                f"{self.counts['cables_seen_from_one_end']} cables are listed at one of their ends"
                " only"
            )
        if not switches:
            notes.append("the file names no switch: nothing in it joins the adapters")
        return tuple(assumptions), (*notes, *leaf_notes(switches, self.cables))


def _label(node: FabricNode) -> str:
    return node.key if node.title is None else f"{node.key} ({shown(node.title)[1:-1]})"


def _is_aggregation(node: FabricNode) -> bool:
    return node.kind is NodeKind.ADAPTER and bool(_AGGREGATION.fullmatch(node.title or ""))


def _switch_names(node: FabricNode) -> tuple[str | None, str | None]:
    """The name people gave, and the same with the chip of its chassis."""
    title = (node.title or "").strip()
    if managed := _MANAGED.fullmatch(title):
        name, chip = managed["name"], managed["chip"].replace("/", "-")
        return name, f"{name}-{chip}" if chip else None
    return (title, None) if _PLAIN_NAME.fullmatch(title) else (None, None)


def _adapter(node: FabricNode) -> _Adapter:
    title = (node.title or "").strip()
    match = _HOST_AND_ADAPTER.fullmatch(title)
    if match is None or _NO_HOST.fullmatch(match["host"]):
        return _Adapter(None, None)
    # A simulator's adapters have neither names nor GUIDs, and each is a host of its own.
    return _Adapter(match["host"], match["adapter"] or ("hca" if node.guid is None else None))


def _rate_of(port: PortLine) -> Rate | None:
    if port.width is None or port.speed is None:
        return None
    return infiniband_rate(port.width, port.speed)
