"""PipeDream's `graph.txt`: a profile of one batch size, read into a model and a profile.

Node lines `id -- text -- forward_compute_time=ms, backward_compute_time=ms, activation_size=bytes,
parameter_size=bytes` (a size may be a list `[a; b; c]`), then edge lines `source -- target`, in
any order. What the file can't say is listed as assumed, what it says and we do not take as left
out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from msgspec import UNSET

from service.core.errors import Fault, FaultCode, InvalidInput, LeftOut
from service.core.models.dtypes import DType
from service.formats.documents.fields import MAX_INTEGER
from service.formats.documents.model import (
    LayerDocument,
    ModelDocument,
    ParameterDocument,
    TensorDocument,
)
from service.formats.documents.profile import MeasurementDocument, ProfileDocument
from service.formats.pipedream_graph import MARK, Node, read_graph

__all__ = ["PipeDreamImport", "ReadFacts", "looks_like_pipedream", "read_pipedream"]

_MAX_DESCRIPTION = 2000


@dataclass(frozen=True, slots=True)
class ReadFacts:
    """What was read. Seconds are of one microbatch through all layers."""

    layers: int
    input_layers: int
    edges: int
    tensors: int
    forward_seconds: float
    backward_seconds: float
    parameter_bytes: int


@dataclass(frozen=True, slots=True)
class PipeDreamImport:
    """The two documents, and what a person should know before using them."""

    model: ModelDocument
    profile: ProfileDocument
    read: ReadFacts
    assumptions: tuple[str, ...]
    left_out: tuple[LeftOut, ...]


def looks_like_pipedream(content: bytes) -> bool:
    """Whether the first line that is not blank is a node line of `graph.txt`."""
    for line in content[:65_536].splitlines():
        if line.strip():
            return MARK.encode() in line
    return False


def read_pipedream(
    content: bytes,
    *,
    microbatch_size: int,
    device: str | None = None,
    precision: str | None = None,
) -> PipeDreamImport:
    """Read a `graph.txt`.

    `microbatch_size` is the batch size (samples) the profile was taken at, which the file does
    not say; all costs and sizes hold at it only. Layers keep the file's node ids as names and are
    in execution order: the topological order that keeps to the order of node lines where it can.
    Nodes `Input...` become layers of kind `input`: their time is the loader's and is left out.

    Raises `InvalidInput` with every fault up to `MAX_FAULTS`, each with its line (counted from 1)
    as path `("line", n)`.
    """
    faults = []
    if not 1 <= microbatch_size <= MAX_INTEGER:
        detail = f"a whole number from 1 to {MAX_INTEGER}"
        faults.append(Fault(FaultCode.OUT_OF_RANGE, ("microbatch_size",), detail))
    try:
        graph = read_graph(content)
    except InvalidInput as invalid:
        raise InvalidInput([*faults, *invalid.faults]) from None
    if faults:
        raise InvalidInput(faults)
    nodes = graph.nodes
    timed = [node for node in nodes.values() if not node.is_input]
    if not timed:
        detail = "the file holds Input nodes only: no layer has a cost"
        raise InvalidInput([Fault(FaultCode.TOO_FEW_LAYERS, (), detail)])
    tensors = [tensor for name in nodes for tensor in _tensors(nodes, name, microbatch_size)]
    return PipeDreamImport(
        model=ModelDocument(layers=[_layer(node) for node in nodes.values()], tensors=tensors),
        profile=ProfileDocument(
            device=UNSET if device is None else device,
            precision=UNSET if precision is None else precision,
            measurements=[_measurement(node, microbatch_size) for node in timed],
        ),
        read=ReadFacts(
            layers=len(nodes),
            input_layers=len(nodes) - len(timed),
            edges=graph.edges,
            tensors=len(tensors),
            forward_seconds=float(sum((node.forward_seconds for node in timed), Decimal())),
            backward_seconds=float(sum((node.backward_seconds for node in timed), Decimal())),
            parameter_bytes=sum(node.parameter_bytes for node in nodes.values()),
        ),
        assumptions=_assumptions(nodes, microbatch_size),
        left_out=graph.left_out,
    )


def _layer(node: Node) -> LayerDocument:
    weight = ParameterDocument(
        name=f"{node.name}.weights", count=max(1, node.parameter_bytes // 4), dtype=DType.FP32
    )
    return LayerDocument(
        name=node.name,
        kind=node.kind,
        description=node.text[:_MAX_DESCRIPTION],
        parameters=[weight] if node.parameter_bytes else UNSET,
    )


def _tensors(nodes: Mapping[str, Node], name: str, microbatch_size: int) -> list[TensorDocument]:
    """One tensor for each output of a node; a list's entry goes to the nodes that take it."""
    node = nodes[name]
    return [
        TensorDocument(
            name=f"{name}.{element}" if node.is_list else name,
            producer=name,
            consumers=[
                child for child in node.children if nodes[child].element_of(node) in (None, element)
            ],
            bytes=size,
            microbatch_size=microbatch_size,
            requires_gradient=node.has_gradient,
        )
        for element, size in enumerate(node.sizes)
    ]


def _measurement(node: Node, microbatch_size: int) -> MeasurementDocument:
    return MeasurementDocument(
        layer=node.name,
        microbatch_size=microbatch_size,
        forward_seconds=float(node.forward_seconds),
        backward_seconds=float(node.backward_seconds),
    )


def _assumptions(nodes: Mapping[str, Node], microbatch_size: int) -> tuple[str, ...]:
    assumed = [
        f"costs and sizes hold at microbatch_size {microbatch_size} only, as the import stated it",
        "a gradient has the bytes of its output; outputs of Input and Size nodes have none",
        "outputs that depend on no parameters have no gradient",
        "sizes are of outputs, not of what the backward keeps: saved activations stay unknown",
    ]
    if any(node.parameter_bytes for node in nodes.values()):
        assumed.append("parameters are fp32: their count is parameter_size / 4")
    inputs = sum(node.is_input for node in nodes.values())
    if inputs:
        assumed.append(f"{inputs} Input nodes are layers of kind input, without cost of their own")
    empty = [node for node in nodes.values() if node.children and not sum(node.sizes)]
    if empty:
        lines = ", ".join(str(node.line) for node in empty[:20])
        more = ", ..." if len(empty) > 20 else ""
        assumed.append(
            f"outputs that the file gives 0 bytes (lines {lines}{more}) count as 0 bytes when they "
            "cross a boundary"
        )
    return tuple(assumed)
