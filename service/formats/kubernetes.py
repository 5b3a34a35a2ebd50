"""Where Kubernetes nodes stand, by their labels.

`kubectl get nodes -o json` or `-o yaml`, single `kind: Node` documents, or the configuration of a
kind cluster. Which labels are levels of the network is told by a Kueue `kind: Topology` in the same
file; without one they are the labels of topograph (all three families), of clouds, or of Kueue's
own examples. `nvidia.com/gpu.clique` and its kin tell which nodes share an NVLink domain.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from service.core.errors import FaultCode
from service.core.topology.expand import MAX_VERTICES
from service.core.topology.readings import AttachedHost, NvlinkDomain, Reading
from service.formats.accelerator_labels import CLIQUE_LABEL, DOMAIN_LABELS, domain_label
from service.formats.marked_yaml import Marked, first_document, read_documents
from service.formats.pasted_text import Findings, shown
from service.formats.switch_tree import NamedSwitch, tree_reading

__all__ = ["LABEL_FAMILIES", "looks_like_kubernetes", "read_kubernetes"]

FORMAT = "kubernetes"
_HOST_LABEL = "kubernetes.io/hostname"
_KIND_API = "kind.x-k8s.io"

# Each from the outermost level to the one nearest to the hosts; `|` parts names that a level had at
# different times. topograph counts tiers from the host outwards, AWS layers the other way.
LABEL_FAMILIES: tuple[tuple[str, ...], ...] = (
    tuple(f"fabric.topograph.run/tier-{tier}" for tier in range(9, -1, -1)),
    (
        "network.topology.nvidia.com/core|network.topology.nvidia.com/datacenter",
        "network.topology.nvidia.com/spine",
        "network.topology.nvidia.com/leaf|network.topology.nvidia.com/block",
    ),
    (
        "network.topology.kubernetes.io/core|network.topology.kubernetes.io/datacenter",
        "network.topology.kubernetes.io/spine",
        "network.topology.kubernetes.io/leaf|network.topology.kubernetes.io/block",
    ),
    tuple(f"topology.kubernetes.io/network-level-{level}" for level in (3, 2, 1)),
    (
        "oci.oraclecloud.com/rdma.hpc_island_id",
        "oci.oraclecloud.com/rdma.network_block_id",
        "oci.oraclecloud.com/rdma.local_block_id",
    ),
    tuple(f"topology.k8s.aws/network-node-layer-{layer}" for layer in (1, 2, 3)),
    (
        "cloud.google.com/gce-topology-block",
        "cloud.google.com/gce-topology-subblock",
        "cloud.google.com/gce-topology-host",
    ),
    ("cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"),
)


def looks_like_kubernetes(content: bytes) -> bool:
    """Whether the file begins with a node, a list of nodes, a Kueue topology or a kind cluster."""
    first = first_document(content)
    if first is None or first.get("apiVersion") is None:
        return False
    kind = _kind(first)
    if kind == "Cluster":
        return _KIND_API in (first.fields["apiVersion"].text or "")
    items = first.fields.get("items")
    if items is not None and items.items:
        return _kind(items.items[0]) == "Node"
    return kind in ("Node", "NodeList", "Topology")


def read_kubernetes(content: bytes) -> Reading:
    """The levels of the network as a tree with the nodes below, and the NVLink domains.

    Raises `InvalidInput` with every fault, each with path `("line", n)`.
    """
    findings = Findings()
    documents = read_documents(content, findings)
    findings.raise_faults()
    reader = _Nodes(findings)
    for document in documents:
        reader.take(document)
    return reader.reading()


@dataclass(frozen=True, slots=True)
class _Node:
    name: str
    line: int
    labels: Mapping[str, Marked]

    def value(self, level: str) -> str | None:
        """The value of a level, under whichever of its names it has."""
        found = (self.labels.get(name) for name in level.split("|"))
        return next((label.text for label in found if label is not None and label.text), None)


@dataclass(frozen=True, slots=True)
class _Levels:
    """What a Kueue Topology tells: labels from the outermost level on, the host itself aside."""

    name: str
    line: int
    labels: tuple[str, ...]
    with_hosts: bool


@dataclass(slots=True)
class _Nodes:
    findings: Findings
    nodes: dict[str, _Node] = field(default_factory=dict)
    topologies: list["_Levels"] = field(default_factory=list)

    def take(self, document: Marked) -> None:
        """Take one object of the API, or the objects of a list."""
        kind = _kind(document)
        if document.get("items") is not None:
            for item in document.fields["items"].items:
                self.take(item)
        elif kind == "Node":
            name = document.get("metadata", "name")
            if name is None or not name.text:
                self._refuse(document, "is a node without metadata.name")
            else:
                self._node(name.text, document, document.get("metadata", "labels"))
        elif kind == "Topology":
            self._topology(document)
        elif kind == "Cluster":
            self._kind_cluster(document)
        else:
            what = shown(kind or "without a kind")
            self.findings.leave_out(document.line, f"is no node and no topology: {what}")

    def _node(self, name: str, entry: Marked, labels: Marked | None) -> None:
        if name in self.nodes:
            first = self.nodes[name].line
            self._refuse(entry, f"gives node {shown(name)} again (first on line {first})")
        self.nodes[name] = _Node(name, entry.line, labels.fields if labels is not None else {})

    def _topology(self, document: Marked) -> None:
        levels = document.get("spec", "levels")
        names = [level.get("nodeLabel") for level in levels.items] if levels is not None else []
        texts = [name.text for name in names if name is not None and name.text]
        if not texts or len(texts) < len(names):
            self._refuse(document, "is a Topology with spec.levels, each with a nodeLabel")
        name = document.get("metadata", "name")
        self.topologies.append(
            _Levels(
                name=(name.text if name is not None else None) or "without a name",
                line=document.line,
                labels=tuple(text for text in texts if text != _HOST_LABEL),
                with_hosts=_HOST_LABEL in texts,
            )
        )

    def _kind_cluster(self, document: Marked) -> None:
        """kind names its nodes `<cluster>-worker`, `<cluster>-worker2`, ..."""
        name = document.get("name")
        cluster = name.text if name is not None and name.text else "kind"
        nodes = document.get("nodes")
        workers = 0
        for entry in nodes.items if nodes is not None else []:
            role = entry.get("role")
            if role is None or role.text != "worker":
                self.findings.leave_out(entry.line, "a control plane, where no job runs")
                continue
            workers += 1
            number = "" if workers == 1 else str(workers)
            self._node(f"{cluster}-worker{number}", entry, entry.get("labels"))
        if workers:
            self.findings.assumptions.append(
                f"nodes are named as kind does: {cluster}-worker, {cluster}-worker2, ..."
            )

    def reading(self) -> Reading:
        self._leave_out_control_planes()
        if not self.nodes and not self.findings.faulty:
            line = self.topologies[0].line if self.topologies else None
            what = "is a Topology: it names labels and no node. Put the nodes into the same file"
            self.findings.refuse(
                line, f"{what}, after a line `---`" if line else "the file holds no node"
            )
        self.findings.raise_faults()
        levels = self._levels()
        domains = self._domains()
        if not levels and not domains:
            known = ", ".join(LABEL_FAMILIES[index][-1] for index in range(len(LABEL_FAMILIES)))
            detail = "no node has a label of a level of the network or of an NVLink domain"
            more = f"known are {known} and their kin, or those that a Kueue Topology names"
            self.findings.refuse(None, f"{detail}; {more}")
        self._tell_gpus()
        switches, below = self._tree(levels)
        alone = [
            AttachedHost(host=node.name, switch=None, line=node.line)
            for node in self.nodes.values()
            if node.name not in below
        ]
        if levels and alone:
            names = ", ".join(each.host for each in alone[:10]) + (", ..." if alone[10:] else "")
            self.findings.note(f"{len(alone)} nodes have none of the labels ({names})")
        gpus = [node.labels.get("nvidia.com/gpu.count") for node in self.nodes.values()]
        counts = [int(gpu.text) for gpu in gpus if gpu and gpu.text and gpu.text.isdigit()]
        return tree_reading(
            FORMAT,
            switches,
            self.findings,
            facts={
                "domains": len(domains),
                **({"gpus": sum(counts)} if counts else {}),
            },
            domains=domains,
            alone=alone,
        )

    def _leave_out_control_planes(self) -> None:
        roles = {"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"}
        for node in tuple(self.nodes.values()):
            if roles & node.labels.keys() and not self._has_level(node):
                del self.nodes[node.name]
                self.findings.leave_out(node.line, f"{node.name} is a control plane: no job runs")

    def _has_level(self, node: _Node) -> bool:
        families = [*(each.labels for each in self.topologies), *LABEL_FAMILIES]
        return any(node.value(level) for levels in families for level in levels)

    def _levels(self) -> tuple[str, ...]:
        """The labels that most nodes have: of the Topologies where there are any, else a family."""
        told = {each.labels: each for each in reversed(self.topologies)}
        best: tuple[str, ...] = ()
        most = 0
        for levels in [each.labels for each in self.topologies] or LABEL_FAMILIES:
            having = sum(any(node.value(level) for level in levels) for node in self.nodes.values())
            if having > most:
                best, most = levels, having
        if told and not best:
            self.findings.refuse(self.topologies[0].line, "names labels that no node has")
            self.findings.raise_faults()
        for topology in self.topologies:
            if topology is not told.get(best):
                detail = f"Topology {topology.name}: another fits as many nodes or more"
                self.findings.leave_out(topology.line, detail)
        if best:
            whose = f"Topology {told[best].name}" if told else "labels that are known"
            used = [level for level in best if any(n.value(level) for n in self.nodes.values())]
            end = " and the hosts themselves" if told and told[best].with_hosts else ""
            self.findings.assumptions.append(
                f"levels of the network are those of {whose}, outermost first:"
                f" {', '.join(used)}{end}"
            )
        return best

    def _tree(self, levels: Sequence[str]) -> tuple[list[NamedSwitch], set[str]]:
        """A switch for each value below each value; which nodes are below one."""
        lines: dict[tuple[str, ...], int] = {}
        hosts: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
        children: defaultdict[tuple[str, ...], dict[tuple[str, ...], None]] = defaultdict(dict)
        placed: set[str] = set()
        for node in self.nodes.values():
            values = [value for level in levels if (value := node.value(level)) is not None]
            path: tuple[str, ...] = ()
            for value in values:
                inner = (*path, value)
                lines.setdefault(inner, node.line)
                if path:
                    children[path][inner] = None
                path = inner
            if path:
                hosts[path].append(node.name)
                placed.add(node.name)
        if len(lines) > MAX_VERTICES:
            detail = f"the labels make {len(lines)} switches; at most {MAX_VERTICES} are read"
            self.findings.refuse(None, detail, FaultCode.OUT_OF_RANGE)
            self.findings.raise_faults()
        names = _path_names(lines)
        switches = [
            NamedSwitch(
                name=names[path],
                line=line,
                children=tuple(names[child] for child in children[path]),
                hosts=tuple(hosts[path]),
                title=path[-1],
            )
            for path, line in lines.items()
        ]
        return switches, placed

    def _domains(self) -> tuple[NvlinkDomain, ...]:
        members: dict[str, list[_Node]] = {}
        keys: Counter[str] = Counter()
        for node in self.nodes.values():
            found = domain_label(node.labels)
            if found is not None:
                keys[found[0]] += 1
                members.setdefault(found[1].text or "", []).append(node)
        if len(keys) > 1:
            told = ", ".join(f"{key} on {count} nodes" for key, count in keys.items())
            self.findings.note(f"NVLink domains are told by several labels: {told}")
        self._compare_cliques()
        if keys:
            self.findings.assumptions.append(
                f"nodes with one value of {' or '.join(keys)} share an NVLink domain"
            )
        return tuple(
            NvlinkDomain(name=name, hosts=tuple(node.name for node in nodes), line=nodes[0].line)
            for name, nodes in members.items()
        )

    def _compare_cliques(self) -> None:
        """Cliques and other labels of domains are often confused; say where they part nodes."""
        for label in DOMAIN_LABELS[1:]:
            other: defaultdict[str, set[str]] = defaultdict(set)
            for node in self.nodes.values():
                clique, value = node.value(CLIQUE_LABEL), node.value(label)
                if clique and value:
                    other[clique].add(value)
            split = [clique for clique, values in other.items() if len(values) > 1]
            if split:
                detail = f"{label} parts nodes of one {CLIQUE_LABEL} ({split[0]})"
                self.findings.note(f"{detail}: the clique counts")

    def _tell_gpus(self) -> None:
        found = Counter(
            label.text
            for node in self.nodes.values()
            if (label := node.labels.get("nvidia.com/gpu.product")) is not None and label.text
        )
        for product, count in found.items():
            self.findings.note(f"{count} nodes say that their GPUs are {product}")

    def _refuse(self, where: Marked, detail: str) -> None:
        self.findings.refuse(where.line, detail)


def _kind(document: Marked) -> str | None:
    found = document.get("kind")
    return found.text if found is not None else None


def _path_names(paths: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """The last value of a path, with those above it where several paths end in it."""
    paths = tuple(paths)
    last = Counter(path[-1] for path in paths)
    return {path: path[-1] if last[path[-1]] == 1 else "-".join(path) for path in paths}
