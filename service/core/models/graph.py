"""The layer graph: layers in execution order, the tensors between them, what they share."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from service.core.errors import Fault, FaultCode, InvalidInput, Path
from service.core.models.dimensions import Dimensions, Experts, Split
from service.core.models.dtypes import DType

__all__ = [
    "INPUT_KIND",
    "Buffer",
    "Expectation",
    "Layer",
    "Model",
    "ModelWeight",
    "Parameter",
    "RecordedSize",
    "Symbol",
    "Tensor",
    "build_model",
]

INPUT_KIND = "input"  # a layer of this kind hands out what the loader read; it costs no layer time


class Symbol(StrEnum):
    """A dimension of a tensor that a plan decides."""

    MICROBATCH = "microbatch"
    SEQUENCE = "sequence"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A weight of a layer. Equal names in two layers are one weight, so are equal tied groups.

    `split` is None where nobody says over which ranks its elements are spread.
    """

    name: str
    count: int
    dtype: DType
    tied_group: str | None = None
    split: Split | None = None


@dataclass(frozen=True, slots=True)
class Buffer:
    """State of a layer that is not trained, such as running statistics."""

    name: str
    count: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class Layer:
    """The smallest thing a partition can move; `dimensions` where it is part of a transformer."""

    name: str
    kind: str
    parameters: tuple[Parameter, ...] = ()
    buffers: tuple[Buffer, ...] = ()
    dimensions: Dimensions | None = None

    @property
    def is_input(self) -> bool:
        """Whether the layer only hands out what the loader read."""
        return self.kind == INPUT_KIND

    @property
    def has_experts(self) -> bool:
        """Whether tokens choose among parts of it."""
        return self.dimensions is not None and isinstance(self.dimensions.feed_forward, Experts)


@dataclass(frozen=True, slots=True)
class RecordedSize:
    """Bytes seen in a run, true at the shape of that run only."""

    bytes: int
    microbatch_size: int
    sequence_length: int | None = None


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a consumer says it takes; None where it does not say."""

    shape: tuple[int | Symbol, ...] | None = None
    dtype: DType | None = None
    layout: str | None = None


@dataclass(frozen=True, slots=True)
class Tensor:
    """What one layer hands to later ones; `producer` is None for an input from outside.

    The size is either `shape` (elements per dimension, with symbols) with `dtype`, or `recorded`.
    `requires_gradient` None means: when a layer produces it and its elements are no integers.
    `layout` says how its elements lie in memory, in the field's words. `expected` is empty, or has
    for each consumer what it says it takes.
    """

    name: str
    producer: str | None
    consumers: tuple[str, ...]
    shape: tuple[int | Symbol, ...] | None = None
    recorded: RecordedSize | None = None
    dtype: DType | None = None
    requires_gradient: bool | None = None
    gradient_dtype: DType | None = None
    layout: str | None = None
    expected: tuple[Expectation | None, ...] = ()

    @property
    def has_gradient(self) -> bool:
        """Whether a gradient of it goes back."""
        if self.requires_gradient is not None:
            return self.requires_gradient
        return self.producer is not None and (self.dtype is None or self.dtype.is_floating)


@dataclass(frozen=True, slots=True)
class ModelWeight:
    """One trained weight, and the layers (by position, ascending) that hold it.

    `name` is that of its tied group where it has one, else of the parameter.
    """

    name: str
    is_group: bool
    count: int
    dtype: DType
    split: Split | None
    layers: tuple[int, ...]

    @property
    def label(self) -> str:
        """What to call it in a sentence."""
        return f"{'tied group' if self.is_group else 'parameter'} {self.name!r}"

    def stages(self, stage_of_layer: Sequence[int]) -> tuple[int, ...]:
        """The stages that hold it, ascending."""
        return tuple(sorted({stage_of_layer[layer] for layer in self.layers}))


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A checked graph. Positions count layers in execution order from 0.

    `producers[t]` is the position of the producer of tensor t (None: from outside) and
    `consumers[t]` the positions of its consumers. `weights` stand in the order of first use.
    """

    layers: tuple[Layer, ...]
    tensors: tuple[Tensor, ...]
    positions: Mapping[str, int]
    producers: tuple[int | None, ...]
    consumers: tuple[tuple[int, ...], ...]
    weights: tuple[ModelWeight, ...]

    @property
    def parameter_count(self) -> int:
        """Trained elements, shared ones once."""
        return sum(weight.count for weight in self.weights)


def build_model(layers: Sequence[Layer], tensors: Sequence[Tensor]) -> Model:
    """Check a graph and index it.

    Raises `InvalidInput` with every fault; paths point into a document with `layers` and
    `tensors` in the order given here.
    """
    faults: list[Fault] = []
    if not layers:
        detail = "a model has at least one layer"
        faults.append(Fault(FaultCode.TOO_FEW_LAYERS, ("layers",), detail))
    faults += _repeated("layers", [layer.name for layer in layers])
    faults += _repeated("tensors", [tensor.name for tensor in tensors])
    positions = {layer.name: position for position, layer in enumerate(layers)}
    for position, layer in enumerate(layers):
        faults += _check_layer(layer, position)
    for index, tensor in enumerate(tensors):
        path = ("tensors", index)
        faults += _check_links(tensor, positions, path)
        faults += _check_size(tensor, path)
        faults += _check_gradient(tensor, path)
    faults += _check_shared(layers)
    if faults:
        raise InvalidInput(faults)
    return Model(
        layers=tuple(layers),
        tensors=tuple(tensors),
        positions=positions,
        producers=tuple(None if t.producer is None else positions[t.producer] for t in tensors),
        consumers=tuple(tuple(positions[name] for name in t.consumers) for t in tensors),
        weights=_find_weights(layers),
    )


def _repeated(field: str, names: Sequence[str]) -> list[Fault]:
    counts = Counter(names)
    seen: set[str] = set()
    faults = []
    for index, name in enumerate(names):
        if counts[name] > 1 and name in seen:
            detail = f"the name {name!r} is taken by an earlier entry; names are unique"
            faults.append(Fault(FaultCode.DUPLICATE_NAME, (field, index, "name"), detail))
        seen.add(name)
    return faults


def _check_layer(layer: Layer, position: int) -> list[Fault]:
    faults = []
    for field, names in (
        ("parameters", [parameter.name for parameter in layer.parameters]),
        ("buffers", [buffer.name for buffer in layer.buffers]),
    ):
        faults += [fault.under("layers", position) for fault in _repeated(field, names)]
    if layer.is_input and layer.parameters:
        detail = f"layer {layer.name!r} of kind 'input' costs nothing and so holds no parameters"
        path = ("layers", position, "parameters")
        faults.append(Fault(FaultCode.INCONSISTENT, path, detail))
    return faults


def _check_links(tensor: Tensor, positions: Mapping[str, int], path: Path) -> list[Fault]:
    faults = []
    producer = None
    if tensor.producer is not None:
        producer = positions.get(tensor.producer)
        if producer is None:
            detail = f"no layer is called {tensor.producer!r}"
            faults.append(Fault(FaultCode.UNKNOWN_NAME, (*path, "producer"), detail))
    seen: set[str] = set()
    for index, name in enumerate(tensor.consumers):
        here = (*path, "consumers", index)
        consumer = positions.get(name)
        if consumer is None:
            faults.append(Fault(FaultCode.UNKNOWN_NAME, here, f"no layer is called {name!r}"))
        elif producer is not None and consumer <= producer:
            detail = (
                f"layer {name!r} consumes {tensor.name!r} and must stand after its producer "
                f"{tensor.producer!r} in `layers`, which is in execution order"
            )
            faults.append(Fault(FaultCode.INCONSISTENT, here, detail))
        if name in seen:
            detail = f"consumer {name!r} is listed twice; once is enough"
            faults.append(Fault(FaultCode.DUPLICATE_NAME, here, detail))
        seen.add(name)
    return faults


def _check_size(tensor: Tensor, path: Path) -> list[Fault]:
    if tensor.shape is None and tensor.recorded is None:
        detail = "give `shape` with `dtype`, or `bytes` with the `microbatch_size` of the recording"
        return [Fault(FaultCode.MISSING_FIELD, path, detail)]
    if tensor.shape is not None and tensor.recorded is not None:
        detail = "give either `shape` or `bytes`, not both"
        return [Fault(FaultCode.EXCLUSIVE_FIELDS, path, detail)]
    if tensor.shape is not None and tensor.dtype is None:
        detail = "`shape` counts elements: give `dtype` too"
        return [Fault(FaultCode.MISSING_FIELD, (*path, "dtype"), detail)]
    return []


def _check_gradient(tensor: Tensor, path: Path) -> list[Fault]:
    faults = []
    if tensor.requires_gradient:
        if tensor.producer is None:
            detail = "an input from outside has no layer to take a gradient: say false"
            path_here = (*path, "requires_gradient")
            faults.append(Fault(FaultCode.INCONSISTENT, path_here, detail))
        elif tensor.dtype is not None and not tensor.dtype.is_floating:
            detail = f"elements of type {tensor.dtype.value} have no gradient: say false"
            path_here = (*path, "requires_gradient")
            faults.append(Fault(FaultCode.INCONSISTENT, path_here, detail))
    if tensor.gradient_dtype is not None:
        here = (*path, "gradient_dtype")
        if not tensor.gradient_dtype.is_floating:
            detail = f"a gradient has a floating type, not {tensor.gradient_dtype.value}"
            faults.append(Fault(FaultCode.INCONSISTENT, here, detail))
        if not tensor.has_gradient:
            detail = "the tensor has no gradient: leave `gradient_dtype` out"
            faults.append(Fault(FaultCode.INCONSISTENT, here, detail))
        if tensor.dtype is None:
            detail = "give `dtype` too: the gradient's bytes follow from both"
            faults.append(Fault(FaultCode.MISSING_FIELD, (*path, "dtype"), detail))
    return faults


def _check_shared(layers: Sequence[Layer]) -> list[Fault]:
    """A weight is the same wherever it is named: by its own name, or by its tied group."""
    groups: dict[str, list[tuple[int, int, Parameter]]] = {}
    for position, layer in enumerate(layers):
        for index, parameter in enumerate(layer.parameters):
            entry = (position, index, parameter)
            groups.setdefault(f"parameter {parameter.name!r}", []).append(entry)
            if parameter.tied_group is not None:
                groups.setdefault(f"tied group {parameter.tied_group!r}", []).append(entry)
    faults = []
    for name, entries in groups.items():
        first = entries[0][2]
        for position, index, parameter in entries[1:]:
            same = (parameter.count, parameter.dtype, parameter.split) == (
                first.count,
                first.dtype,
                first.split,
            )
            if not same or (parameter.name == first.name and parameter != first):
                group = f" in tied group {first.tied_group!r}" if first.tied_group else ""
                split = "" if first.split is None else f", split {first.split.value}"
                detail = (
                    f"{name} is one weight of {first.count} {first.dtype.value} elements{split}"
                    f"{group} in layer {layers[entries[0][0]].name!r}; say the same here"
                )
                path = ("layers", position, "parameters", index)
                faults.append(Fault(FaultCode.INCONSISTENT, path, detail))
    return faults


def _find_weights(layers: Sequence[Layer]) -> tuple[ModelWeight, ...]:
    """Each weight once; of one tied group there is one, whatever the names of its parameters."""
    first: dict[tuple[bool, str], Parameter] = {}
    held_by: dict[tuple[bool, str], dict[int, None]] = {}
    for position, layer in enumerate(layers):
        for parameter in layer.parameters:
            is_group = parameter.tied_group is not None
            key = is_group, parameter.tied_group or parameter.name
            first.setdefault(key, parameter)
            held_by.setdefault(key, {})[position] = None
    return tuple(
        ModelWeight(
            name=key[1],
            is_group=key[0],
            count=parameter.count,
            dtype=parameter.dtype,
            split=parameter.split,
            layers=tuple(held_by[key]),
        )
        for key, parameter in first.items()
    )
