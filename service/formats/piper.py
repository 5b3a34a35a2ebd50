"""Piper's planner inputs: a graph of layers with times and memory by tensor-parallel degree.

Each node has, for each degree, a plain run and one with recompute: `timePerSample` (seconds of a
forward and a backward together), bytes of parameters, and memory a x microbatches in flight + b.
A sample there is a microbatch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET

from service.core.models.dtypes import DType
from service.core.models.graph import INPUT_KIND
from service.core.profiles.profile import Recompute
from service.formats.documents.fields import MAX_INTEGER, MAX_LAYERS
from service.formats.documents.model import (
    LayerDocument,
    ModelDocument,
    ParameterDocument,
    TensorDocument,
)
from service.formats.documents.profile import MeasurementDocument, ProfileDocument
from service.formats.json_graph import GraphEdge, GraphNode, read_edges, read_nodes
from service.formats.node_graph import layers_in_order
from service.formats.pasted_json import JsonFile, read_json
from service.formats.profile_reading import ProfileReading, Stated

__all__ = ["looks_like_piper", "read_piper"]

_MAX_SECONDS = 1e5
_MAX_DEGREE = 4096
_LIMITS = ("maxDevices", "maxMemoryPerDevice", "bandwidth")
# The number of microbatches has had two names.
_BATCHES = ("mbsInBatch", "maxBatchSize")
_VARIANTS = {"vanilla": Recompute.NONE, "activation recomp": Recompute.FULL}
_RUN_KEYS = (
    "timePerSample",
    "parameterSize",
    "memoryUsageA",
    "memoryUsageB",
    "syncTimeFw",
    "syncTimeBw",
)


def looks_like_piper(content: bytes) -> bool:
    """Whether it is a JSON object of nodes with `TMPCs`."""
    is_object = content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{"
    return is_object and b'"TMPCs"' in content and b'"nodes"' in content


@dataclass(frozen=True, slots=True)
class _Run:
    """One way to run a node: seconds of a microbatch, and bytes on one rank."""

    seconds: float
    parameter_bytes: int
    activation_bytes: int


_Runs = dict[tuple[int, Recompute], _Run]


def read_piper(content: bytes, stated: Stated) -> ProfileReading:
    """Read a planner's input.

    `stated.microbatch_size` is how many samples one of the file's holds, and
    `stated.backward_ratio` how long a backward takes for its forward: the file has both together.
    A layer is called `node` with its id and stands in execution order. A node that costs nothing
    and has no predecessor hands out an input.

    Raises `InvalidInput` with every fault, each with its line (counted from 1) as path
    `("line", n)`.
    """
    file = read_json(content)
    values = file.mapping((), file.root)
    if values is None:
        raise file.refusal()
    _limits(file, values)
    nodes = read_nodes(file, values)
    runs = [_runs(file, node) for node in nodes]
    if sum(map(len, runs)) > MAX_LAYERS:
        file.refuse(("nodes",), f"holds more than {MAX_LAYERS} runs, each a measurement")
    edges = read_edges(file, values, nodes) if file.sound else []
    sizes = _sizes(file, edges)
    order = layers_in_order(len(nodes), [(e.source, e.target) for e in edges], ())
    for group in order:
        if len(group) > 1:
            names = ", ".join(nodes[place].name for place in group[:5])
            file.refuse(("nodes", group[0]), f"is part of a cycle of edges: {names}")
    if not file.sound:
        raise file.refusal()
    has_parents = {edge.target for edge in edges}
    inputs = {
        place
        for place in range(len(nodes))
        if place not in has_parents
        and not any(run.seconds or run.parameter_bytes for run in runs[place].values())
    }
    microbatch_size, ratio = stated.microbatch_size or 1, stated.backward_ratio or 0.0
    places = [group[0] for group in order]
    if len(inputs) == len(nodes):
        file.refuse(("nodes",), "holds inputs only: no layer has a cost")
        raise file.refusal()
    tensors = _tensors(nodes, edges, sizes, inputs, microbatch_size)
    return ProfileReading(
        model=ModelDocument(
            layers=[_layer(nodes[place], runs[place], place in inputs) for place in places],
            tensors=tensors,
        ),
        profile=ProfileDocument(
            device=UNSET if stated.device is None else stated.device,
            precision=UNSET if stated.precision is None else stated.precision,
            measurements=[
                each
                for place in places
                if place not in inputs
                for each in _measurements(nodes[place].name, runs[place], microbatch_size, ratio)
            ],
        ),
        facts={
            "layers": len(nodes),
            "input_layers": len(inputs),
            "edges": len(edges),
            "tensors": len(tensors),
            "tensor_parallel": sorted({degree for each in runs for degree, _ in each}),
            "measurements": sum(len(runs[place]) for place in places if place not in inputs),
            "seconds": sum(each[1, Recompute.NONE].seconds for each in runs),
            "parameter_bytes": sum(each[1, Recompute.NONE].parameter_bytes for each in runs),
        },
        assumptions=_assumptions(len(inputs), microbatch_size, ratio),
        left_out=file.left_out(),
    )


def _assumptions(inputs: int, microbatch_size: int, ratio: float) -> tuple[str, ...]:
    assumed = [
        (
            f"a sample of the file is a microbatch of {microbatch_size}, as the import stated it; "
            "costs and sizes hold at it only"
        ),
        (
            f"a backward takes {ratio:g} times its forward, as the import stated; the file has "
            "both together"
        ),
        "with recompute, what a run takes longer than the plain one is the recompute",
        (
            "times at tensor_parallel above 1 contain the collectives of the run; how much they "
            "take stays unknown"
        ),
        "parameters are fp32: their count is parameterSize / 4",
        (
            "memoryUsageA is what a microbatch keeps; memoryUsageB and the bytes of syncTimeFw and "
            "syncTimeBw are left out"
        ),
        (
            "edges of equal bytes out of one node are one tensor; a gradient has the bytes of its "
            "output"
        ),
    ]
    if inputs:
        assumed.append(
            f"{inputs} nodes without cost and predecessors are layers of kind input; their outputs "
            "have no gradient"
        )
    return tuple(assumed)


def _limits(file: JsonFile, values: Mapping[str, Any]) -> None:
    for key in _LIMITS:
        if key not in values:
            file.refuse((), f"has no {key!r}")
        elif file.number((key,), values[key], most=1e18) is not None:
            file.leave_out((key,), "devices and links belong to a topology")
    named = [key for key in _BATCHES if key in values]
    if not named:
        file.refuse((), f"has no {_BATCHES[0]!r}")
    for key in named:
        if file.whole((key,), values[key], least=1, most=MAX_INTEGER) is not None:
            file.leave_out((key,), "the number of microbatches belongs to a plan")


def _runs(file: JsonFile, node: GraphNode) -> _Runs:
    path = ("nodes", node.place, "TMPCs")
    by_degree = node.fields.get("TMPCs")
    if not isinstance(by_degree, dict) or not by_degree:
        file.refuse(("nodes", node.place), "has no 'TMPCs', an object by tensor-parallel degree")
        return {}
    runs: _Runs = {}
    for key, variants in by_degree.items():
        if file.enough:
            break
        if not (key.isascii() and key.isdigit() and 1 <= int(key[:6]) <= _MAX_DEGREE):
            file.refuse((*path, key), f"is a degree from 1 to {_MAX_DEGREE}")
        elif not isinstance(variants, list) or len(variants) > len(_VARIANTS):
            file.refuse((*path, key), f"is a list of {' and '.join(_VARIANTS)}")
        else:
            for place, variant in enumerate(variants):
                _run(file, (*path, key, place), int(key), variant, runs)
    if file.sound and (1, Recompute.NONE) not in runs:
        file.refuse(path, "has no plain run at degree 1, whose parameters are the layer's")
    for degree, policy in list(runs):
        if policy is not Recompute.NONE and file.sound:
            plain = runs.get((degree, Recompute.NONE))
            if plain is None or plain.seconds > runs[degree, policy].seconds:
                detail = "has a run with recompute that takes less time than the plain one"
                file.refuse((*path, str(degree)), detail)
    return runs


def _run(
    file: JsonFile, path: tuple[str | int, ...], degree: int, variant: object, runs: _Runs
) -> None:
    fields = file.mapping(path, variant)
    if fields is None:
        return
    policy = _VARIANTS.get(fields["id"]) if isinstance(fields.get("id"), str) else None
    missing = [key for key in _RUN_KEYS if key not in fields]
    if policy is None:
        file.refuse((*path, "id"), f"is {' or '.join(map(repr, _VARIANTS))}")
    elif (degree, policy) in runs:
        file.refuse((*path, "id"), "stands twice at this degree")
    elif missing:
        file.refuse(path, f"has no {', '.join(map(repr, missing))}")
    else:
        seconds = file.number((*path, "timePerSample"), fields["timePerSample"], most=_MAX_SECONDS)
        weights = file.whole((*path, "parameterSize"), fields["parameterSize"], most=MAX_INTEGER)
        kept = file.whole((*path, "memoryUsageA"), fields["memoryUsageA"], most=MAX_INTEGER)
        file.number((*path, "memoryUsageB"), fields["memoryUsageB"], most=MAX_INTEGER)
        for key in ("syncTimeFw", "syncTimeBw"):
            file.mapping((*path, key), fields[key])
        if weights is not None and weights % 4:
            file.refuse((*path, "parameterSize"), "is no whole number of fp32 elements")
        if seconds is not None and weights is not None and kept is not None:
            runs[degree, policy] = _Run(seconds, weights, kept)


def _sizes(file: JsonFile, edges: Sequence[GraphEdge]) -> list[int]:
    sizes = []
    for edge in edges:
        path = ("edges", edge.place)
        if "communicationCost" not in edge.fields:
            file.refuse(path, "has no 'communicationCost', the bytes that pass")
            continue
        value = edge.fields["communicationCost"]
        size = file.whole((*path, "communicationCost"), value, most=MAX_INTEGER)
        sizes.append(size or 0)
    return sizes


def _layer(node: GraphNode, runs: _Runs, is_input: bool) -> LayerDocument:
    weights = runs[1, Recompute.NONE].parameter_bytes // 4
    parameter = ParameterDocument(name=f"{node.name}.weights", count=weights or 1, dtype=DType.FP32)
    return LayerDocument(
        name=node.name,
        kind=INPUT_KIND if is_input else "layer",
        description=UNSET if node.title is None else node.title[:2000],
        parameters=[parameter] if weights else UNSET,
    )


def _tensors(
    nodes: Sequence[GraphNode],
    edges: Sequence[GraphEdge],
    sizes: Sequence[int],
    inputs: set[int],
    microbatch_size: int,
) -> list[TensorDocument]:
    outputs: dict[int, dict[int, list[str]]] = {}
    for edge, size in zip(edges, sizes, strict=True):
        by_size = outputs.setdefault(edge.source, {})
        by_size.setdefault(size, []).append(nodes[edge.target].name)
    return [
        TensorDocument(
            name=f"{nodes[source].name}.output.{index}",
            producer=nodes[source].name,
            consumers=consumers,
            bytes=size,
            microbatch_size=microbatch_size,
            requires_gradient=source not in inputs,
        )
        for source, by_size in sorted(outputs.items())
        for index, (size, consumers) in enumerate(by_size.items())
    ]


def _measurements(
    layer: str, runs: _Runs, microbatch_size: int, ratio: float
) -> list[MeasurementDocument]:
    rows = []
    for (degree, policy), run in sorted(runs.items()):
        plain = runs[degree, Recompute.NONE].seconds
        recomputes = policy is not Recompute.NONE
        rows.append(
            MeasurementDocument(
                layer=layer,
                microbatch_size=microbatch_size,
                tensor_parallel=UNSET if degree == 1 else degree,
                recompute=policy if recomputes else UNSET,
                forward_seconds=plain / (1 + ratio),
                backward_seconds=plain * ratio / (1 + ratio),
                recompute_seconds=run.seconds - plain if recomputes else UNSET,
                saved_activation_bytes=run.activation_bytes,
            )
        )
    return rows
