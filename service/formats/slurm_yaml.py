"""Slurm's topology.yaml: several named topologies, each a tree, blocks, flat, rings or 3D tori.

topology.yaml(5). One topology becomes the reading: the first that is the cluster's default, or the
only one; the others are left out. A flat one says nothing of who is near whom.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from re import compile as compile_expression

from service.core.topology.readings import Cable, CableEnd, Reading
from service.formats.marked_yaml import Marked, first_document, read_documents
from service.formats.pasted_text import Findings, shown
from service.formats.slurm_blocks import (
    HostGroup,
    block_reading,
    check_block_sizes,
    joined_hosts_reading,
    ring_cables,
)
from service.formats.switch_tree import NameBudget, NamedSwitch, names_in, tree_reading

__all__ = ["looks_like_slurm_yaml", "read_slurm_yaml"]

FORMAT = "slurm_yaml"
_KINDS = ("tree", "block", "flat", "ring", "torus3d")
_COUNT = compile_expression(r"[0-9]{1,7}")

# x, y and z.
_Place = tuple[int, int, int]


def looks_like_slurm_yaml(content: bytes) -> bool:
    """Whether the file is a list whose first entry names a topology."""
    first = first_document(content)
    return bool(first and first.items and "topology" in first.items[0].fields)


def read_slurm_yaml(content: bytes) -> Reading:
    """The default topology of the file. Raises `InvalidInput` with every fault and its line."""
    findings = Findings()
    documents = read_documents(content, findings)
    findings.raise_faults()
    if len(documents) != 1 or not documents[0].items:
        line = documents[1].line if len(documents) > 1 else None
        findings.refuse(line, "the file holds one list of topologies")
        findings.raise_faults()
    reader = _Topologies(findings)
    return reader.read(documents[0].items)


@dataclass(slots=True)
class _Topologies:
    findings: Findings
    budget: NameBudget = field(default_factory=NameBudget)

    def read(self, entries: Sequence[Marked]) -> Reading:
        defaults = [entry for entry in entries if self._is_default(entry)]
        if not defaults and len(entries) > 1:
            self._refuse(entries[0], "is one of several and none has `cluster_default: true`")
        kinds = [self._kind(entry) for entry in entries]
        self.findings.raise_faults()
        chosen = defaults[0] if defaults else entries[0]
        for entry, (kind, _body) in zip(entries, kinds, strict=True):
            if entry is not chosen:
                name = shown(self._name(entry))
                detail = f"topology {name} ({kind}): {shown(self._name(chosen))} is the default"
                self.findings.leave_out(entry.line, detail)
        kind, body = kinds[entries.index(chosen)]
        if kind == "flat":
            self._refuse(chosen, "is flat: it says nothing of who is near whom")
        reading = self._reading(kind, body)
        self.findings.raise_faults()
        return reading

    def _is_default(self, entry: Marked) -> bool:
        given = entry.get("cluster_default")
        if given is None or given.text in ("false", "False", "no", "off"):
            return False
        if given.text not in ("true", "True", "yes", "on"):
            self._refuse(given, "gives a cluster_default that is neither true nor false")
        return True

    def _name(self, entry: Marked) -> str:
        name = entry.get("topology")
        return name.text or "" if name is not None else ""

    def _kind(self, entry: Marked) -> tuple[str, Marked]:
        given = [kind for kind in _KINDS if entry.get(kind) is not None]
        if not self._name(entry):
            self._refuse(entry, "is a topology without a name (`topology: ...`)")
        entry.require_known(self.findings, "topology", "cluster_default", *_KINDS)
        body = entry.get(given[0]) if len(given) == 1 else None
        if body is None:
            self._refuse(entry, f"has exactly one of {', '.join(_KINDS)}; here {len(given)}")
            return "", entry
        return given[0], body

    def _reading(self, kind: str, body: Marked) -> Reading:
        readers: dict[str, Callable[[Marked], Reading]] = {
            "tree": self._tree,
            "block": self._block,
            "ring": self._ring,
            "torus3d": self._torus,
        }
        if kind not in readers:
            self.findings.raise_faults()
        return readers[kind](body)

    def _tree(self, body: Marked) -> Reading:
        body.require_known(self.findings, "switches")
        switches = []
        for entry in self._list(body, "switches"):
            entry.require_known(self.findings, "switch", "children", "nodes")
            if entry.get("children") and entry.get("nodes"):
                self._refuse(entry, "gives a switch both children and nodes; Slurm takes one")
            switches.append(
                NamedSwitch(
                    name=self._text(entry, "switch"),
                    line=entry.line,
                    children=self._names(entry, "children"),
                    hosts=self._names(entry, "nodes"),
                )
            )
        return tree_reading(FORMAT, switches, self.findings)

    def _block(self, body: Marked) -> Reading:
        body.require_known(self.findings, "block_sizes", "blocks")
        given = body.get("block_sizes")
        sizes = [self._count(size) for size in self._list(body, "block_sizes")] if given else []
        if given is not None:
            check_block_sizes(sizes, given.line, self.findings)
        blocks = self._groups(body, "blocks", "block")
        return block_reading(FORMAT, blocks, sizes, self.findings)

    def _ring(self, body: Marked) -> Reading:
        body.require_known(self.findings, "rings")
        rings = self._groups(body, "rings", "ring")
        cables = [cable for ring in rings for cable in ring_cables(ring.hosts, ring.line)]
        return joined_hosts_reading(FORMAT, rings, cables, ("ring", "rings"), self.findings)

    def _torus(self, body: Marked) -> Reading:
        body.require_known(self.findings, "toruses")
        tori: list[HostGroup] = []
        cables: list[Cable] = []
        for entry in self._list(body, "toruses"):
            entry.require_known(self.findings, "name", "dims", "nodes", "regions", "placements")
            if entry.get("placements") is not None:
                self.findings.leave_out(entry.line, "placements are shapes of jobs, no links")
            dims = self._triple(entry, "dims")
            places = self._places(entry, dims)
            group = HostGroup(self._text(entry, "name"), entry.line, tuple(places.values()))
            cables += _torus_cables(places, dims, entry.line)
            tori.append(group)
        self.findings.assumptions.append(
            "each node of a torus is joined to its neighbours in x, y and z, all round"
        )
        return joined_hosts_reading(FORMAT, tori, cables, ("torus", "tori"), self.findings)

    def _places(self, torus: Marked, dims: _Place) -> dict[_Place, str]:
        """Hosts by where they stand: x runs first, then y, then z, in the torus or in a region."""
        if torus.get("regions") is None:
            return self._block_of_hosts(torus, dims)
        if torus.get("nodes") is not None:
            self._refuse(torus, "gives both nodes and regions; Slurm takes one of them")
        places: dict[_Place, str] = {}
        for region in self._list(torus, "regions"):
            region.require_known(self.findings, "anchor", "dims", "nodes")
            size = self._triple(region, "dims")
            anchor = self._triple(region, "anchor", least=0)
            inside = self._block_of_hosts(region, size)
            for (x, y, z), host in inside.items():
                place = (x + anchor[0], y + anchor[1], z + anchor[2])
                if any(at >= most for at, most in zip(place, dims, strict=True)):
                    self._refuse(region, f"reaches out of the torus at {place}")
                    break
                if place in places:
                    self._refuse(region, f"has a node at {place}, where {places[place]} is")
                    break
                places[place] = host
        return places

    def _block_of_hosts(self, entry: Marked, dims: _Place) -> dict[_Place, str]:
        hosts = self._names(entry, "nodes")
        if len(hosts) != dims[0] * dims[1] * dims[2]:
            shape = " x ".join(map(str, dims))
            self._refuse(entry, f"gives {len(hosts)} nodes to a shape of {shape}")
            return {}
        x, y, _z = dims
        return {
            (place % x, place // x % y, place // (x * y)): host for place, host in enumerate(hosts)
        }

    def _triple(self, entry: Marked, key: str, *, least: int = 1) -> _Place:
        found = [entry.get(key, axis) for axis in "xyz"]
        counts = [self._count(value or entry, least=least) for value in found]
        return counts[0], counts[1], counts[2]

    def _groups(self, body: Marked, key: str, name: str) -> list[HostGroup]:
        groups = []
        for entry in self._list(body, key):
            entry.require_known(self.findings, name, "nodes")
            hosts = self._names(entry, "nodes")
            groups.append(HostGroup(self._text(entry, name), entry.line, hosts))
        return groups

    def _list(self, body: Marked, key: str) -> list[Marked]:
        found = body.get(key)
        if found is None or not found.items:
            self._refuse(found or body, f"has a list of {key} with something in it")
            return []
        return found.items

    def _names(self, entry: Marked, key: str) -> tuple[str, ...]:
        """The names of a host list, given as one text or as a list of texts."""
        found = entry.get(key)
        if found is None:
            return ()
        texts = [item.text for item in found.items] if found.items else [found.text]
        if not all(texts):
            self._refuse(found, f"gives {key} that are no host list")
            return ()
        text = ",".join(text for text in texts if text)
        return names_in(text, found.line, self.budget, self.findings)

    def _text(self, entry: Marked, key: str) -> str:
        found = entry.get(key)
        if found is None or not found.text:
            self._refuse(found or entry, f"has a name (`{key}: ...`)")
            return ""
        return found.text

    def _count(self, value: Marked, *, least: int = 1) -> int:
        number = int(value.text or "") if _COUNT.fullmatch(value.text or "") else -1
        if number < least:
            self._refuse(value, f"gives a size that is no whole number from {least}")
            return least
        return number

    def _refuse(self, where: Marked, detail: str) -> None:
        self.findings.refuse(where.line, detail)


def _torus_cables(places: Mapping[_Place, str], dims: _Place, line: int) -> Iterator[Cable]:
    """A cable from each node to the next in every direction; a direction of two has one a pair."""
    for (x, y, z), host in places.items():
        for axis, size in enumerate(dims):
            at = (x, y, z)[axis]
            if size == 1 or (size == 2 and at == 1):
                continue
            step = [x, y, z]
            step[axis] = (at + 1) % size
            following = places.get((step[0], step[1], step[2]))
            if following is not None:
                yield Cable(source=CableEnd(host=host), target=CableEnd(host=following), line=line)
