"""Models and graphs of topograph: trees of switches with hosts, and accelerator domains.

Models are YAML of three generations: switches and capacity blocks as lists; the same as mappings
beside a mapping of nodes; switches as a mapping and blocks of host lists. The graph engine writes
JSON instead: instances, each with the switches above it from the nearest. None of them knows rates,
ports or how many cables join two switches.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from service.core.topology.readings import AttachedHost, NvlinkDomain, Reading
from service.formats.accelerator_labels import domain_label
from service.formats.marked_yaml import Marked, first_document, read_documents
from service.formats.pasted_text import Findings, shown
from service.formats.switch_tree import NameBudget, NamedSwitch, names_in, tree_reading

__all__ = ["looks_like_topograph", "read_topograph"]

FORMAT = "topograph"
_GENERATIONS = ("blocks", "capacity_blocks", "nodes")


def looks_like_topograph(content: bytes) -> bool:
    """Whether the file is a model, or instances with their network layers."""
    first = first_document(content)
    if first is None:
        return False
    if "instances" in first.fields:
        instances = first.fields["instances"].items
        return bool(instances) and "id" in instances[0].fields
    keys = first.fields.keys()
    return "switches" in keys and not keys.isdisjoint(_GENERATIONS)


def read_topograph(content: bytes) -> Reading:
    """The switches, the hosts below them and the domains, of a model or of a graph.

    Raises `InvalidInput` with every fault, each with path `("line", n)`.
    """
    findings = Findings()
    documents = read_documents(content, findings)
    findings.raise_faults()
    if len(documents) != 1 or not documents[0].fields:
        line = documents[1].line if len(documents) > 1 else None
        findings.refuse(line, "the file holds one model of topograph")
        findings.raise_faults()
    reader = _Reader(findings)
    if "instances" in documents[0].fields:
        reader.read_instances(documents[0])
    else:
        reader.read_model(documents[0])
    return reader.reading()


@dataclass(slots=True)
class _Host:
    line: int
    switch: str | None = None
    domain: str | None = None


@dataclass(slots=True)
class _Reader:
    findings: Findings
    budget: NameBudget = field(default_factory=NameBudget)
    switches: dict[str, NamedSwitch] = field(default_factory=dict)
    hosts: dict[str, _Host] = field(default_factory=dict)
    domain_lines: dict[str, int] = field(default_factory=dict)
    in_block: dict[str, set[str]] = field(default_factory=dict)

    def read_model(self, model: Marked) -> None:
        model.require_known(self.findings, "topology", "switches", *_GENERATIONS)
        self._unread(model, "topology")
        blocks = dict(self._named(model, "capacity_blocks"))
        for name, entry in self._named(model, "switches"):
            self._switch(name, entry, blocks)
        for name, entry in blocks.items():
            self.in_block[name] = self._capacity_block(entry, None)
        for entry in self._list(model, "blocks"):
            entry.require_known(self.findings, "switch", "nodes", "labels", "annotations")
            switch = self._text(entry, "switch")
            if switch is not None:
                self.switches.setdefault(switch, NamedSwitch(name=switch, line=entry.line))
            domain = self._domain(entry)
            for host in self._host_names(entry, "nodes"):
                if host in self.hosts:
                    first = self.hosts[host].line
                    self._refuse(entry, f"has host {shown(host)}, which line {first} has already")
                self._place(host, entry.line, switch, domain)
        self._add_named_children()
        for name, entry in self._named(model, "nodes"):
            keys = ("capacity_block", "capacity_block_id", "type", "attributes", "metadata")
            entry.require_known(self.findings, "name", *keys)
            self._place(name, entry.line, None, self._text(entry, "attributes", "nvlink"))
            block = self._text(entry, "capacity_block") or self._text(entry, "capacity_block_id")
            if block is not None and name not in self.in_block.get(block, ()):
                detail = f"says that {shown(name)} is in capacity block {shown(block)}, which does"
                self._refuse(entry, f"{detail} not list it: lines are missing")
            self._unread(entry, "type", "metadata")

    def _switch(self, name: str, entry: Marked, blocks: Mapping[str, Marked]) -> None:
        told = ("metadata", "labels", "annotations")
        entry.require_known(self.findings, "name", "switches", "nodes", "capacity_blocks", *told)
        if name in self.switches:
            first = self.switches[name].line
            self._refuse(entry, f"describes switch {shown(name)} again (first on line {first})")
        children = self._host_names(entry, "switches")
        self.switches[name] = NamedSwitch(name=name, line=entry.line, children=children)
        for host in self._host_names(entry, "nodes"):
            self._place(host, entry.line, name, None)
        for block in self._list(entry, "capacity_blocks"):
            found = blocks.get(block.text or "")
            if found is None:
                what = shown(block.text or "")
                self._refuse(block, f"has capacity block {what} below it, which is not described")
            else:
                self._capacity_block(found, name)
        self._unread(entry, *told)

    def _add_named_children(self) -> None:
        """A switch without switches below it need not be described: models name it and no more."""
        for switch in tuple(self.switches.values()):
            for child in switch.children:
                self.switches.setdefault(child, NamedSwitch(name=child, line=switch.line))

    def _capacity_block(self, entry: Marked, switch: str | None) -> set[str]:
        """Place the hosts of a block, and name them."""
        entry.require_known(self.findings, "name", "type", "nvlink", "nodes")
        domain = self._text(entry, "nvlink")
        hosts = self._host_names(entry, "nodes")
        for host in hosts:
            self._place(host, entry.line, switch, domain)
        if switch is None:
            self._unread(entry, "type")
        return set(hosts)

    def read_instances(self, graph: Marked) -> None:
        graph.require_known(self.findings, "instances")
        parents: dict[str, str | None] = {}
        lines: dict[str, int] = {}
        for entry in self._list(graph, "instances"):
            name = self._text(entry, "id")
            layers = [layer.text or "" for layer in self._list(entry, "network_layers")]
            if name is None or not all(layers):
                self._refuse(entry, "has an id, and names of network_layers from the nearest")
                continue
            if name in self.hosts:
                first = self.hosts[name].line
                self._refuse(entry, f"gives {shown(name)} again (first on line {first})")
            for layer, parent in zip(layers, [*layers[1:], None], strict=False):
                if parents.setdefault(layer, parent) != parent:
                    detail = f"has {shown(layer)} below {shown(parent or 'nothing')}, line"
                    other = f"{lines[layer]} below {shown(parents[layer] or 'nothing')}"
                    self._refuse(entry, f"{detail} {other}")
                lines.setdefault(layer, entry.line)
            self._place(name, entry.line, layers[0] if layers else None, self._domain(entry))
            self._unread(entry, "type", "attributes", "region")
        children: dict[str, list[str]] = {layer: [] for layer in parents}
        for layer, parent in parents.items():
            if parent is not None:
                children[parent].append(layer)
        self.switches = {
            layer: NamedSwitch(name=layer, line=lines[layer], children=tuple(below))
            for layer, below in children.items()
        }

    def reading(self) -> Reading:
        if not self.hosts and not self.findings.faulty:
            self.findings.refuse(None, "the file names no host")
        below: dict[str, list[str]] = {}
        domains: dict[str, list[str]] = {}
        for name, host in self.hosts.items():
            if host.switch is not None:
                below.setdefault(host.switch, []).append(name)
            if host.domain is not None:
                domains.setdefault(host.domain, []).append(name)
        switches = [
            NamedSwitch(
                name=switch.name,
                line=switch.line,
                children=switch.children,
                hosts=tuple(below.get(switch.name, ())),
            )
            for switch in self.switches.values()
        ]
        return tree_reading(
            FORMAT,
            switches,
            self.findings,
            facts={"domains": len(domains)},
            domains=tuple(
                NvlinkDomain(name=name, hosts=tuple(hosts), line=self.domain_lines[name])
                for name, hosts in domains.items()
            ),
            alone=(
                AttachedHost(host=name, switch=None, line=host.line)
                for name, host in self.hosts.items()
                if host.switch is None
            ),
        )

    def _place(self, name: str, line: int, switch: str | None, domain: str | None) -> None:
        """Say of a host what one line says; older models say it piece by piece."""
        host = self.hosts.setdefault(name, _Host(line))
        for what, known, said in (
            ("below", host.switch, switch),
            ("in domain", host.domain, domain),
        ):
            if known is not None and said is not None and known != said:
                detail = f"has host {shown(name)} {what} {shown(said)}, but line {host.line}"
                self.findings.refuse(line, f"{detail} has it {what} {shown(known)}")
        host.switch = host.switch or switch
        host.domain = host.domain or domain
        if domain is not None:
            self.domain_lines.setdefault(domain, line)

    def _domain(self, entry: Marked) -> str | None:
        """The accelerator domain among labels and annotations; the others are left out."""
        domain = None
        for kind in ("labels", "annotations"):
            given = entry.get(kind)
            if given is None:
                continue
            found = domain_label(given.fields)
            if found is not None and domain is None:
                domain = found[1].text
            others = [key for key in given.fields if found is None or key != found[0]]
            if others:
                detail = f"{kind} ({', '.join(map(shown, others))}): nothing that joins hosts"
                self.findings.leave_out(given.line, detail)
        return domain

    def _named(self, model: Marked, key: str) -> Iterator[tuple[str, Marked]]:
        """Entries by name: of a mapping by key, of a list by their `name`."""
        found = model.get(key)
        if found is None:
            return
        if found.fields:
            yield from found.fields.items()
            return
        for entry in self._list(model, key):
            name = self._text(entry, "name")
            if name is None:
                self._refuse(entry, f"is an entry of {key} without a name")
            else:
                yield name, entry

    def _list(self, entry: Marked, key: str) -> list[Marked]:
        found = entry.get(key)
        if found is not None and not isinstance(found.value, list):
            self._refuse(found, f"has a list of {key}")
        return found.items if found is not None else []

    def _host_names(self, entry: Marked, key: str) -> tuple[str, ...]:
        """Names of a list of host lists."""
        names: list[str] = []
        for item in self._list(entry, key):
            if item.text is None:
                self._refuse(item, f"gives {key} that are no host list")
            else:
                names += names_in(item.text, item.line, self.budget, self.findings)
        return tuple(names)

    def _text(self, entry: Marked, *keys: str) -> str | None:
        found = entry.get(*keys)
        if found is not None and found.text is None:
            self._refuse(found, f"gives {keys[-1]}, which is a text")
        return found.text if found is not None else None

    def _unread(self, entry: Marked, *keys: str) -> None:
        for key in keys:
            found = entry.get(key)
            if found is not None:
                what = f" ({', '.join(map(shown, found.fields))})" if found.fields else ""
                detail = f"{key}{what}: nothing that joins hosts"
                self.findings.leave_out(found.line, detail)

    def _refuse(self, where: Marked, detail: str) -> None:
        self.findings.refuse(where.line, detail)
