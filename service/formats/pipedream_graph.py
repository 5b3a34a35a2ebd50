"""The lines of PipeDream's `graph.txt`, checked and joined into nodes in execution order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from heapq import heapify, heappop, heappush
from re import compile as compile_expression

from service.core.errors import FaultCode, LeftOut
from service.core.models.graph import INPUT_KIND
from service.formats.documents.fields import MAX_LAYERS
from service.formats.pasted_text import Findings, lines_of, shown

__all__ = ["MARK", "MAX_LINKS", "Node", "PipeDreamGraph", "read_graph"]

# (tensor, consumer) pairs of one file: a list of many sizes taken whole by many nodes. The model
# spells out each consumer's name, so a small file of long names could make a huge one.
MAX_LINKS = 1_000_000
MAX_LINK_CHARACTERS = 16 * 2**20
# Outputs of all nodes together; only a few give a list of them.
MAX_SIZES = 4 * MAX_LAYERS
# A line is a node or an edge, and each edge is a use of a tensor at least.
MAX_LINES = MAX_LAYERS + MAX_LINKS
MARK = " -- forward_compute_time="
_KEYS = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")
_NAME = compile_expression(r"[A-Za-z0-9_][A-Za-z0-9_./:-]{0,110}")
_NUMBER = compile_expression(r"[0-9]{1,15}(\.[0-9]{1,9})?")
_IDENTIFIER = compile_expression(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_LOADER = compile_expression(r"Input[0-9]*")
_ELEMENT_OF = compile_expression(r"__getitem__\(([0-9]{1,6})\)")
_STAGE = compile_expression(r"stage_id=[0-9]+")


@dataclass(slots=True)
class Node:
    """One node line (counted from 1). `sizes` are bytes, one for each entry of a list.

    `element` is the entry that a `__getitem__` takes of a list. `has_gradient` says whether a
    gradient of the outputs goes back.
    """

    line: int
    name: str
    text: str
    kind: str
    forward_seconds: Decimal
    backward_seconds: Decimal
    sizes: list[int]
    is_list: bool
    parameter_bytes: int
    element: int | None = None
    parents: list[str] = field(default_factory=list)
    children: list[str] = field(default_factory=list)
    has_gradient: bool = False

    @property
    def is_input(self) -> bool:
        """Whether it stands for the loader."""
        return self.kind == INPUT_KIND

    def element_of(self, parent: "Node") -> int | None:
        """Which entry of the parent's list of outputs it takes; None: all of them."""
        return self.element if parent.is_list else None


@dataclass(frozen=True, slots=True)
class PipeDreamGraph:
    """Nodes in execution order by name, how many edges join them, and what was not taken over."""

    nodes: Mapping[str, Node]
    edges: int
    left_out: tuple[LeftOut, ...]


def read_graph(content: bytes) -> PipeDreamGraph:
    """Read the lines and join them.

    The order is the topological one that keeps to the order of node lines where it can. Raises
    `InvalidInput` with every fault, each with path `("line", n)`.
    """
    reader = _Reader()
    reader.read(content)
    reader.link()
    order = reader.finish()
    return PipeDreamGraph(
        {name: reader.nodes[name] for name in order}, reader.edges, reader.findings.left_out()
    )


class _Reader:
    """Takes lines one by one, collecting nodes, edges and faults."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.edges = 0
        self.findings = Findings()
        self._sizes = 0
        self._stopped = False
        self._pending: list[tuple[int, str, str]] = []

    def read(self, content: bytes) -> None:
        for line, raw in lines_of(content, self.findings, MAX_LINES):
            text = raw.strip()
            if not text:
                continue
            parts = text.split(" -- ")
            if len(parts) == 2 and MARK not in text:
                self._pending.append((line, parts[0], parts[1]))
            else:
                self._node(line, parts)
            if len(self.nodes) > MAX_LAYERS:
                self.findings.refuse(
                    line, f"is a node beyond the {MAX_LAYERS} that a model may have"
                )
                self._stopped = True
            self._stopped |= self._sizes > MAX_SIZES
            if self._stopped:
                break
        # Edges may join nodes of lines that were not read.
        if self._stopped or self.findings.enough:
            self._pending.clear()

    def link(self) -> None:
        """Join the nodes by the edges read, and check that element nodes find their element."""
        nodes = self.nodes
        seen: set[tuple[str, str]] = set()
        for line, source, target in self._pending:
            if self.findings.enough:
                return
            parent, child = nodes.get(source), nodes.get(target)
            if parent is None or child is None:
                unknown = [name for name in (source, target) if name not in nodes]
                names = " and ".join(map(shown, unknown))
                self.findings.refuse(line, f"joins {names}, which no node line describes")
            elif (source, target) in seen:
                self.findings.leave_out(line, f"edge {source} -- {target} stands there twice")
            else:
                seen.add((source, target))
                parent.children.append(target)
                child.parents.append(source)
                element = child.element_of(parent)
                if element is not None and element >= len(parent.sizes):
                    detail = f"takes element {element} of {source}, which has {len(parent.sizes)}"
                    self.findings.refuse(child.line, detail)
        self.edges = len(seen)
        links = sum(len(node.sizes) * len(node.children) for node in self.nodes.values())
        characters = sum(
            len(node.sizes) * sum(map(len, node.children)) for node in self.nodes.values()
        )
        if links > MAX_LINKS:
            self._refuse_all(f"{links} uses of tensors; at most {MAX_LINKS}")
        elif characters > MAX_LINK_CHARACTERS:
            self._refuse_all(
                f"the uses of {self._sizes} tensors name {characters} characters of nodes; at most "
                f"{MAX_LINK_CHARACTERS}"
            )

    def finish(self) -> list[str]:
        """The execution order; raises what was found."""
        if not self.nodes and not self.findings.faulty:
            self.findings.refuse(None, "the file has no node line")
        order, stuck = _execution_order(self.nodes)
        if stuck and not self.findings.faulty:
            names = ", ".join(stuck[:5]) + (", ..." if len(stuck) > 5 else "")
            self.findings.refuse(
                self.nodes[stuck[0]].line, f"is part of or behind a cycle of edges: {names}"
            )
        self.findings.raise_faults()
        for name in order:
            node = self.nodes[name]
            learns = node.parameter_bytes > 0 or any(
                self.nodes[parent].has_gradient for parent in node.parents
            )
            node.has_gradient = learns and not node.is_input and node.kind != "Size"
        return order

    def _refuse_all(self, detail: str) -> None:
        self.findings.refuse(None, detail, FaultCode.WORK_BUDGET)

    def _node(self, line: int, parts: Sequence[str]) -> None:
        if len(parts) > 3 and _STAGE.fullmatch(parts[-1]):
            self.findings.leave_out(line, f"the stage it was put on: {parts[-1]}")
            parts = parts[:-1]
        if len(parts) < 3:
            self.findings.refuse(line, "is neither `id -- text -- costs` nor `source -- target`")
            return
        name, text = parts[0], " -- ".join(parts[1:-1])
        values = dict(item.partition("=")[::2] for item in parts[-1].split(", "))
        missing = [key for key in _KEYS if key not in values]
        if missing or len(values) > len(_KEYS):
            here = shown(", ".join(values))[1:-1]
            self.findings.refuse(line, f"gives exactly {', '.join(_KEYS)}; here {here}")
            return
        self._sizes += values["activation_size"].count(";") + 1
        if self._sizes > MAX_SIZES:
            self._refuse_all(f"more than {MAX_SIZES} tensors, of which line {line} is one too many")
            return
        if not _NAME.fullmatch(name):
            self.findings.refuse(
                line, f"names its node {shown(name)}: letters, digits and _ . / : - only"
            )
            return
        if name in self.nodes:
            self.findings.refuse(
                line, f"describes {name} again (first on line {self.nodes[name].line})"
            )
            return
        try:
            element = _ELEMENT_OF.fullmatch(text)
            node = Node(
                line=line,
                name=name,
                text=text,
                kind=_kind(text),
                forward_seconds=_number(values, "forward_compute_time") / 1000,
                backward_seconds=_number(values, "backward_compute_time") / 1000,
                sizes=_sizes(values["activation_size"]),
                is_list=values["activation_size"].startswith("["),
                parameter_bytes=_whole(values["parameter_size"], "parameter_size"),
                element=int(element[1]) if element else None,
            )
        except ValueError as error:
            self.findings.refuse(line, str(error))
            return
        if max(node.forward_seconds, node.backward_seconds) > 100_000:
            self.findings.refuse(line, "gives a time above 100000 s")
        if node.parameter_bytes % 4:
            self.findings.refuse(
                line, "gives a parameter_size that is no whole number of fp32 elements"
            )
        if node.is_input and node.parameter_bytes:
            self.findings.refuse(line, "gives parameters to an Input node, which holds none")
        self.nodes[name] = node
        if node.is_input and (node.forward_seconds or node.backward_seconds):
            seconds = node.forward_seconds + node.backward_seconds
            detail = f"{seconds.normalize():f} s of the loader at {text} are no layer cost"
            self.findings.leave_out(line, detail)


def _number(values: Mapping[str, str], key: str) -> Decimal:
    if not _NUMBER.fullmatch(values[key]):
        raise ValueError(f"gives {key}={shown(values[key])}, which is no number of at least 0")
    return Decimal(values[key])


def _whole(text: str, key: str) -> int:
    number = _number({key: text}, key)
    if number != int(number):
        raise ValueError(f"gives {key}={shown(text)}, which is no whole number of bytes")
    return int(number)


def _sizes(text: str) -> list[int]:
    if not text.startswith("["):
        return [_whole(text, "activation_size")]
    if not text.endswith("]"):
        raise ValueError("opens a list of activation sizes and does not close it")
    return [_whole(item.strip(), "activation_size") for item in text[1:-1].split(";")]


def _kind(text: str) -> str:
    if _LOADER.fullmatch(text):
        return INPUT_KIND
    match = _IDENTIFIER.match(text)
    kind = match[0] if match else "layer"
    return "layer" if kind == INPUT_KIND else kind


def _execution_order(nodes: Mapping[str, Node]) -> tuple[list[str], list[str]]:
    """Topological order, earliest node line first among those free; and what is left in cycles."""
    open_parents = {name: len(node.parents) for name, node in nodes.items()}
    free = [(nodes[name].line, name) for name, parents in open_parents.items() if not parents]
    heapify(free)
    order = []
    while free:
        name = heappop(free)[1]
        order.append(name)
        for child in nodes[name].children:
            open_parents[child] -= 1
            if not open_parents[child]:
                heappush(free, (nodes[child].line, child))
    return order, [name for name, parents in open_parents.items() if parents]
