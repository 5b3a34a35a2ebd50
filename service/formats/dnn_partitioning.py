"""Inputs of the device placement planners of dnn-partitioning: a graph of nodes with times.

Times are milliseconds. Nodes of one `colorClass` must share a device: they are one layer here, and
so are a forward node and its backward. Bytes of what passes are the `size` of edges; their `cost`,
a time that the planner charges at both ends, is left out, and so is all that a CPU would take.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from msgspec import UNSET

from service.formats.documents.fields import MAX_INTEGER
from service.formats.documents.model import LayerDocument, ModelDocument, TensorDocument
from service.formats.documents.profile import MeasurementDocument, ProfileDocument
from service.formats.json_graph import GraphEdge, GraphNode, read_edges, read_nodes
from service.formats.node_graph import layers_in_order
from service.formats.pasted_json import JsonFile, read_json
from service.formats.profile_reading import ProfileReading, Stated

__all__ = ["looks_like_dnn_partitioning", "read_dnn_partitioning"]

_MAX_MILLISECONDS = 1e8
_LIMITS = ("maxFPGAs", "maxCPUs", "maxSizePerFPGA")
_NODE_KEYS = ("supportedOnFpga", "cpuLatency", "fpgaLatency", "isBackwardNode", "size")


def looks_like_dnn_partitioning(content: bytes) -> bool:
    """Whether it is a JSON object of nodes with times on accelerators and CPUs."""
    is_object = content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{"
    return is_object and b'"fpgaLatency"' in content and b'"nodes"' in content


@dataclass(slots=True)
class _Node:
    """A node with what is read of it; times in milliseconds, `memory` in bytes."""

    at: GraphNode
    milliseconds: float
    memory: float
    is_backward: bool
    color: int | None


@dataclass(slots=True)
class _Layer:
    """Forward nodes that stay together, and the backward nodes that belong to them."""

    forward: list[_Node]
    backward: list[_Node] = field(default_factory=list)

    @property
    def name(self) -> str:
        """That of its first node."""
        return self.forward[0].at.name


def read_dnn_partitioning(content: bytes, stated: Stated) -> ProfileReading:
    """Read a planner's input.

    `stated.microbatch_size` is the batch size (samples) the times were taken at, which the file
    does not say. A layer is called `node` with the id of its first forward node and stands in
    execution order.

    Raises `InvalidInput` with every fault, each with its line (counted from 1) as path
    `("line", n)`.
    """
    file = read_json(content)
    values = file.mapping((), file.root)
    if values is None:
        raise file.refusal()
    for key in _LIMITS:
        if key not in values:
            file.refuse((), f"has no {key!r}")
        elif file.number((key,), values[key], most=1e18) is not None:
            file.leave_out((key,), "devices belong to a topology")
    nodes = [
        read
        for read in (_node(file, node) for node in read_nodes(file, values))
        if read is not None
    ]
    edges = read_edges(file, values, [node.at for node in nodes]) if file.sound else []
    sizes = _sizes(file, edges, nodes)
    layers = _layers(file, nodes, edges) if file.sound else []
    if not file.sound:
        raise file.refusal()
    microbatch_size = stated.microbatch_size or 1
    trains = any(node.is_backward for node in nodes)
    model = ModelDocument(
        layers=[_layer_document(layer) for layer in layers],
        tensors=_tensors(layers, nodes, edges, sizes, microbatch_size, trains=trains),
    )
    return ProfileReading(
        model=model,
        profile=ProfileDocument(
            device=UNSET if stated.device is None else stated.device,
            precision=UNSET if stated.precision is None else stated.precision,
            measurements=[_measurement(layer, microbatch_size, trains=trains) for layer in layers],
        ),
        facts=_facts(nodes, edges, layers, len(model.tensors)),
        assumptions=_assumptions(nodes, microbatch_size, trains=trains),
        left_out=file.left_out(),
    )


def _facts(
    nodes: Sequence[_Node], edges: Sequence[GraphEdge], layers: Sequence[_Layer], tensors: int
) -> dict[str, Any]:
    backward = sum(node.is_backward for node in nodes)
    return {
        "layers": len(layers),
        "nodes": len(nodes),
        "backward_nodes": backward,
        "edges": len(edges),
        "tensors": tensors,
        "forward_seconds": sum(n.milliseconds for n in nodes if not n.is_backward) / 1000,
        "backward_seconds": sum(n.milliseconds for n in nodes if n.is_backward) / 1000,
        "memory_bytes": sum(node.memory for node in nodes),
    }


def _assumptions(nodes: Sequence[_Node], microbatch_size: int, *, trains: bool) -> tuple[str, ...]:
    assumed = [
        "times of nodes are milliseconds on one accelerator",
        f"costs and sizes hold at microbatch_size {microbatch_size} only, as the import stated it",
        (
            "the size of an edge is what passes, in bytes, a part of one as a whole; its cost, a "
            "time that the planner charges at both ends, is left out"
        ),
        (
            "the memory of nodes (size) is not told apart into weights and activations: both stay "
            "unknown, and so do times on a CPU"
        ),
    ]
    if trains:
        assumed.append(
            "a backward node belongs to the forward nodes of its colorClass; a gradient has the "
            "bytes of its output, whatever edges between backward nodes say"
        )
    else:
        assumed.append("the file has no backward nodes: backward times stay unknown")
    if len({node.color for node in nodes if not node.is_backward}) < sum(
        not node.is_backward for node in nodes
    ):
        assumed.append("forward nodes of one colorClass, and what lies between them, are one layer")
    return tuple(assumed)


def _node(file: JsonFile, node: GraphNode) -> _Node | None:
    path = ("nodes", node.place)
    missing = [key for key in _NODE_KEYS if key not in node.fields]
    if missing:
        file.refuse(path, f"has no {', '.join(map(repr, missing))}")
        return None
    values = node.fields
    flags = [_flag(file, node, key) for key in ("supportedOnFpga", "isBackwardNode")]
    time = file.number((*path, "fpgaLatency"), values["fpgaLatency"], most=_MAX_MILLISECONDS)
    on_cpu = file.number((*path, "cpuLatency"), values["cpuLatency"], most=1e18)
    memory = file.number((*path, "size"), values["size"], most=MAX_INTEGER)
    color = None
    if "colorClass" in values:
        color = file.whole((*path, "colorClass"), values["colorClass"], most=10**9)
        if color is None:
            return None
    if None in flags or time is None or on_cpu is None or memory is None:
        return None
    if not flags[0]:
        detail = "runs on no accelerator, and stages here are accelerators: leave the node out"
        file.refuse((*path, "supportedOnFpga"), detail)
        return None
    return _Node(node, time, memory, bool(flags[1]), color)


def _flag(file: JsonFile, node: GraphNode, key: str) -> bool | None:
    """True or false, which some files write as 1 or 0."""
    value = node.fields[key]
    if value in (0, 1) and isinstance(value, int):
        return bool(value)
    file.refuse(("nodes", node.place, key), "is true or false, or 1 or 0")
    return None


def _sizes(file: JsonFile, edges: Sequence[GraphEdge], nodes: Sequence[_Node]) -> dict[int, int]:
    """Bytes of what each forward node hands out: all its edges say the same."""
    sizes: dict[int, float] = {}
    for edge in edges:
        path = ("edges", edge.place)
        if "cost" not in edge.fields:
            file.refuse(path, "has no 'cost'")
        else:
            file.number((*path, "cost"), edge.fields["cost"], most=_MAX_MILLISECONDS)
        if nodes[edge.source].is_backward or nodes[edge.target].is_backward:
            if nodes[edge.source].is_backward and not nodes[edge.target].is_backward:
                file.refuse(path, "goes from a backward node to a forward one")
            continue
        if "size" not in edge.fields:
            detail = "has no 'size': how many bytes pass is unknown, and a cost is a time"
            file.refuse(path, detail)
            continue
        size = file.number((*path, "size"), edge.fields["size"], most=MAX_INTEGER)
        if size is not None and sizes.setdefault(edge.source, size) != size:
            detail = f"differs from the {sizes[edge.source]:g} bytes of other edges of its source"
            file.refuse((*path, "size"), detail)
    return {source: ceil(size) for source, size in sizes.items()}


def _layers(file: JsonFile, nodes: Sequence[_Node], edges: Sequence[GraphEdge]) -> list[_Layer]:
    forward = [place for place, node in enumerate(nodes) if not node.is_backward]
    position = {place: index for index, place in enumerate(forward)}
    colors: dict[int, list[int]] = {}
    for place in forward:
        color = nodes[place].color
        if color is not None:
            colors.setdefault(color, []).append(position[place])
    order = layers_in_order(
        len(forward),
        [
            (position[edge.source], position[edge.target])
            for edge in edges
            if edge.source in position and edge.target in position
        ],
        list(colors.values()),
    )
    layers = [_Layer([nodes[forward[index]] for index in group]) for group in order]
    of_color = {
        node.color: layer for layer in layers for node in layer.forward if node.color is not None
    }
    for node in nodes:
        if node.is_backward and node.color in of_color:
            of_color[node.color].backward.append(node)
        elif node.is_backward:
            detail = "is a backward node without a forward node of its colorClass: which layer it "
            file.refuse(("nodes", node.at.place), f"{detail}belongs to is not said")
    if not layers:
        file.refuse(("nodes",), "holds backward nodes alone")
    return layers


def _layer_document(layer: _Layer) -> LayerDocument:
    titles = [node.at.title or node.at.name for node in (*layer.forward, *layer.backward)]
    return LayerDocument(
        name=layer.name,
        kind="operation" if len(layer.forward) == 1 else "operations",
        description=", ".join(titles)[:2000],
    )


def _tensors(
    layers: Sequence[_Layer],
    nodes: Sequence[_Node],
    edges: Sequence[GraphEdge],
    sizes: Mapping[int, int],
    microbatch_size: int,
    *,
    trains: bool,
) -> list[TensorDocument]:
    """What a forward node hands to nodes of other layers, once for each layer."""
    layer_of = {node.at.place: layer.name for layer in layers for node in layer.forward}
    consumers: dict[int, dict[str, None]] = {}
    for edge in edges:
        source, target = layer_of.get(edge.source), layer_of.get(edge.target)
        if source is not None and target is not None and source != target:
            consumers.setdefault(edge.source, {})[target] = None
    return [
        TensorDocument(
            name=f"{nodes[place].at.name}.output",
            producer=layer_of[place],
            consumers=list(taken),
            bytes=sizes[place],
            microbatch_size=microbatch_size,
            requires_gradient=trains,
        )
        for place, taken in sorted(consumers.items())
    ]


def _measurement(layer: _Layer, microbatch_size: int, *, trains: bool) -> MeasurementDocument:
    backward = sum(node.milliseconds for node in layer.backward) / 1000
    return MeasurementDocument(
        layer=layer.name,
        microbatch_size=microbatch_size,
        forward_seconds=sum(node.milliseconds for node in layer.forward) / 1000,
        backward_seconds=backward if trains else UNSET,
    )
