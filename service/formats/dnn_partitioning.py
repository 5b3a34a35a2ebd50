"""Inputs of the device placement planners of dnn-partitioning: a graph of nodes with times.

Times are milliseconds. Nodes of one `colorClass` must share a device: they are one layer here, and
so are a forward node and its backward. Backward nodes that no forward node shares a colour with,
such as a loss and sums of gradients, are layers that cost nothing forward. Bytes of what passes are
the `size` of edges; their `cost`, a time that the planner charges at both ends, is a transfer of
the profile. What a CPU would take is left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from msgspec import UNSET

from service.formats.documents.fields import MAX_INTEGER
from service.formats.documents.model import LayerDocument, ModelDocument, TensorDocument
from service.formats.documents.profile import MeasurementDocument, ProfileDocument
from service.formats.documents.profile_transfers import TransferDocument, TransferPass
from service.formats.json_graph import GraphEdge, GraphNode, read_edges, read_nodes
from service.formats.node_graph import layers_in_order
from service.formats.pasted_json import JsonFile, read_json
from service.formats.profile_reading import ProfileReading, Stated

__all__ = ["looks_like_dnn_partitioning", "read_dnn_partitioning"]

_MAX_MILLISECONDS = 1e8
_NO_SIZE = "has no 'size': how many bytes pass is unknown, and a cost is a time"
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
    """Forward nodes that stay together, and the backward nodes that belong to them.

    It may have nodes of one kind alone.
    """

    forward: list[_Node]
    backward: list[_Node] = field(default_factory=list)

    @property
    def nodes(self) -> list[_Node]:
        """All of them, those of the forward first."""
        return [*self.forward, *self.backward]

    @property
    def name(self) -> str:
        """That of its first node."""
        return self.nodes[0].at.name


def read_dnn_partitioning(content: bytes, stated: Stated) -> ProfileReading:
    """Read a planner's input.

    `stated.microbatch_size` is the batch size (samples) the times were taken at, which the file
    does not say. A layer is called `node` with the id of its first node, a forward one where it has
    any, and stands in execution order.

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
    microbatch_size = stated.microbatch_size or 1
    trains = any(node.is_backward for node in nodes)
    tensors = _tensors(file, layers, nodes, edges, sizes, microbatch_size, trains=trains)
    if not file.sound:
        raise file.refusal()
    model = ModelDocument(layers=[_layer_document(layer) for layer in layers], tensors=tensors)
    return ProfileReading(
        model=model,
        profile=ProfileDocument(
            device=UNSET if stated.device is None else stated.device,
            precision=UNSET if stated.precision is None else stated.precision,
            measurements=[_measurement(layer, microbatch_size, trains=trains) for layer in layers],
            transfers=_transfers(layers, nodes, edges, microbatch_size),
        ),
        facts=_facts(nodes, edges, layers, len(model.tensors)),
        assumptions=_assumptions(nodes, layers, microbatch_size, trains=trains),
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


def _assumptions(
    nodes: Sequence[_Node], layers: Sequence[_Layer], microbatch_size: int, *, trains: bool
) -> tuple[str, ...]:
    assumed = [
        "times of nodes are milliseconds on one accelerator",
        f"costs and sizes hold at microbatch_size {microbatch_size} only, as the import stated it",
        (
            "the size of an edge is what passes, in bytes, a part of one as a whole; its cost, a "
            "time in milliseconds that the planner charges at both ends, is kept as a transfer of "
            "the profile, which load rules charge and nothing else"
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
    alone = sum(not layer.forward for layer in layers)
    if alone:
        assumed.append(
            f"{alone} layers hold backward nodes alone, as no forward node has their colorClass: "
            "they take no time forward, and stand behind what their gradients go to"
        )
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
        if nodes[edge.source].is_backward:
            if not nodes[edge.target].is_backward:
                file.refuse(path, "goes from a backward node to a forward one")
            continue
        if "size" not in edge.fields:
            if not nodes[edge.target].is_backward:
                file.refuse(path, _NO_SIZE)
            continue
        size = file.number((*path, "size"), edge.fields["size"], most=MAX_INTEGER)
        if size is not None and sizes.setdefault(edge.source, size) != size:
            detail = f"differs from the {sizes[edge.source]:g} bytes of other edges of its source"
            file.refuse((*path, "size"), detail)
    return {source: ceil(size) for source, size in sizes.items()}


def _layers(file: JsonFile, nodes: Sequence[_Node], edges: Sequence[GraphEdge]) -> list[_Layer]:
    """In execution order: by edges between forward nodes, and against those of gradients."""
    colored: dict[int, list[int]] = {}
    for place, node in enumerate(nodes):
        if not node.is_backward and node.color is not None:
            colored.setdefault(node.color, []).append(place)
    # Nodes that make a layer, and which of them a backward node follows.
    homes = [
        colored[node.color][0] if node.is_backward and node.color in colored else place
        for place, node in enumerate(nodes)
    ]
    members = [place for place, home in enumerate(homes) if place == home]
    if all(node.is_backward for node in nodes):
        file.refuse(("nodes",), "holds backward nodes alone")
    number = {place: index for index, place in enumerate(members)}
    together: dict[int, list[int]] = {}
    for place in members:
        color = nodes[place].color
        if color is not None:
            together.setdefault(color, []).append(number[place])
    order = layers_in_order(
        len(members),
        [
            (number[homes[before]], number[homes[after]])
            for before, after in _in_execution(nodes, homes, edges)
        ],
        list(together.values()),
    )
    followers: dict[int, list[_Node]] = {}
    for place, home in enumerate(homes):
        if place != home:
            followers.setdefault(home, []).append(nodes[place])
    layers = []
    for group in order:
        places = [members[index] for index in group]
        own = [nodes[place] for place in places]
        backward = [node for place in places for node in followers.get(place, ())]
        layers.append(
            _Layer(
                forward=[node for node in own if not node.is_backward],
                backward=sorted(
                    [*(node for node in own if node.is_backward), *backward],
                    key=lambda node: node.at.place,
                ),
            )
        )
    return layers


def _in_execution(
    nodes: Sequence[_Node], homes: Sequence[int], edges: Sequence[GraphEdge]
) -> Iterator[tuple[int, int]]:
    """Pairs of nodes of which the first stands in an earlier layer, or in the same.

    A gradient goes to an earlier layer. Gradients between layers that have forward nodes go as
    those say, whatever their own edges.
    """
    for edge in edges:
        ends = edge.source, edge.target
        alone = [nodes[end].is_backward and homes[end] == end for end in ends]
        if not nodes[edge.target].is_backward or (alone[1] and not nodes[edge.source].is_backward):
            yield ends
        elif nodes[edge.source].is_backward and any(alone):
            yield edge.target, edge.source


def _layer_document(layer: _Layer) -> LayerDocument:
    titles = [node.at.title or node.at.name for node in layer.nodes]
    return LayerDocument(
        name=layer.name,
        kind="operation" if len(layer.forward or layer.backward) == 1 else "operations",
        description=", ".join(titles)[:2000],
    )


def _tensors(
    file: JsonFile,
    layers: Sequence[_Layer],
    nodes: Sequence[_Node],
    edges: Sequence[GraphEdge],
    sizes: Mapping[int, int],
    microbatch_size: int,
    *,
    trains: bool,
) -> list[TensorDocument]:
    """What a forward node hands to later layers, for either pass of theirs: once for each."""
    layer_of, position = _of_nodes(layers), {layer.name: i for i, layer in enumerate(layers)}
    consumers: dict[int, dict[str, None]] = {}
    for edge in edges if layers else ():
        source, target = layer_of[edge.source], layer_of[edge.target]
        if nodes[edge.source].is_backward or position[source] >= position[target]:
            continue
        if edge.source not in sizes:
            file.refuse(("edges", edge.place), _NO_SIZE)
            continue
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


def _of_nodes(layers: Sequence[_Layer]) -> dict[int, str]:
    """The layer of each node, by its place in the file."""
    return {node.at.place: layer.name for layer in layers for node in layer.nodes}


def _transfers(
    layers: Sequence[_Layer],
    nodes: Sequence[_Node],
    edges: Sequence[GraphEdge],
    microbatch_size: int,
) -> list[TransferDocument]:
    """What each node hands to other layers, once; of edges of unequal cost once for each cost."""
    layer_of = _of_nodes(layers)
    targets: dict[tuple[int, float], dict[str, None]] = {}
    for edge in edges:
        if layer_of[edge.source] != layer_of[edge.target]:
            taken = targets.setdefault((edge.source, float(edge.fields["cost"])), {})
            taken[layer_of[edge.target]] = None
    return [
        TransferDocument(
            name=f"{nodes[place].at.name}.output",
            source=layer_of[place],
            targets=list(taken),
            source_pass=TransferPass.BACKWARD if nodes[place].is_backward else TransferPass.FORWARD,
            microbatch_size=microbatch_size,
            seconds=milliseconds / 1000,
        )
        for (place, milliseconds), taken in sorted(targets.items())
    ]


def _measurement(layer: _Layer, microbatch_size: int, *, trains: bool) -> MeasurementDocument:
    backward = sum(node.milliseconds for node in layer.backward) / 1000
    return MeasurementDocument(
        layer=layer.name,
        microbatch_size=microbatch_size,
        forward_seconds=sum(node.milliseconds for node in layer.forward) / 1000,
        backward_seconds=backward if trains else UNSET,
    )
