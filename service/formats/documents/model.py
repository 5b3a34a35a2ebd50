"""The model document: layers in execution order and the tensors between them."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from service.core.errors import Fault, FaultCode, InvalidInput, Path
from service.core.models.dimensions import Split
from service.core.models.dtypes import DType
from service.core.models.graph import (
    Buffer,
    Layer,
    Model,
    Parameter,
    build_model,
)
from service.core.models.repeats import Repeat, write_out
from service.formats.documents.fields import (
    MAX_ELEMENT_NAME,
    MAX_LAYERS,
    ElementName,
    PositiveCount,
    Text,
    or_none,
)
from service.formats.documents.model_dimensions import DimensionsDocument, dimensions_to_core
from service.formats.documents.model_tensors import MAX_TENSORS, TensorDocument, tensor_to_core

__all__ = [
    "MAX_TENSORS",
    "BlockLayerDocument",
    "BufferDocument",
    "LayerDocument",
    "ModelDocument",
    "ParameterDocument",
    "TensorDocument",
    "to_core",
]


class ParameterDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A trained weight. Two layers that name the same parameter use one weight."""

    name: Annotated[
        ElementName,
        Meta(description="Unique within its layer", examples=["embedding.weight"]),
    ]
    count: Annotated[PositiveCount, Meta(description="Elements", examples=[67108864])]
    dtype: Annotated[DType, Meta(description="Type of an element", examples=["bf16"])]
    tied_group: (
        Annotated[
            ElementName,
            Meta(
                description="Parameters of one group are one weight and stay on one stage",
                examples=["embedding"],
            ),
        ]
        | UnsetType
    ) = UNSET
    split: (
        Annotated[
            Split,
            Meta(
                description="Over which ranks its elements are spread: the tensor-parallel ones "
                "(assumed when absent), those that share the experts, or none",
                examples=["tensor"],
            ),
        ]
        | UnsetType
    ) = UNSET


class BufferDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """State of a layer that is not trained and moves with it; a module used twice says it once."""

    name: Annotated[
        ElementName, Meta(description="Unique within its layer", examples=["running_mean"])
    ]
    count: Annotated[PositiveCount, Meta(description="Elements", examples=[64])]
    dtype: Annotated[DType, Meta(description="Type of an element", examples=["fp32"])]


class BlockLayerDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """The smallest thing a partition can move."""

    name: Annotated[
        ElementName, Meta(description="Unique in the model", examples=["block.3.attention"])
    ]
    kind: Annotated[
        ElementName,
        Meta(
            description="What it is, in the field's words. A layer of kind `input` hands out what "
            "the loader read and costs no layer time",
            examples=["attention"],
        ),
    ]
    description: Annotated[Text, Meta(examples=["Conv2d(3, 64, 11x11)"])] | UnsetType = UNSET
    dimensions: (
        Annotated[DimensionsDocument, Meta(description="Of a part of a transformer")] | UnsetType
    ) = UNSET
    parameters: (
        Annotated[list[ParameterDocument], Meta(max_length=1024, description="Trained weights")]
        | UnsetType
    ) = UNSET
    buffers: (
        Annotated[list[BufferDocument], Meta(max_length=1024, description="Untrained state")]
        | UnsetType
    ) = UNSET


class LayerDocument(BlockLayerDocument, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A layer, or with `repeat` a block that is written once and stands there that many times.

    Repetition i of `block` is the layer `block.i`; its weights are called `block.i.<name>`, and a
    tied group is one weight in all of them. A tensor that names `block` without a number means it
    in each repetition: inside the block it goes on to the next layer of that name, from outside to
    the first repetition, and to outside from the last.
    """

    repeat: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=MAX_LAYERS,
                description="How often it stands there, one after the other",
                examples=[32],
            ),
        ]
        | UnsetType
    ) = UNSET
    layers: (
        Annotated[
            list[BlockLayerDocument],
            Meta(
                min_length=1,
                max_length=1024,
                description="The layers of one repetition, in order, where it is more than one: "
                "`attention` of `block` is `block.attention`, and `block.3.attention` in "
                "repetition 3. They hold the parameters then",
            ),
        ]
        | UnsetType
    ) = UNSET


class ModelDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A model as a graph of layers."""

    description: Text | UnsetType = UNSET
    layers: Annotated[
        list[LayerDocument],
        Meta(
            min_length=1,
            max_length=MAX_LAYERS,
            description="In execution order: each layer stands after all it takes tensors from. "
            f"At most {MAX_LAYERS} when repeats are written out",
        ),
    ]
    tensors: Annotated[
        list[TensorDocument],
        Meta(max_length=MAX_TENSORS, description="Everything that passes between layers"),
    ]


def to_core(document: ModelDocument) -> Model:
    """The checked graph. Raises `InvalidInput` with every fault, paths into the document."""
    faults: list[Fault] = []
    tensors = [
        tensor_to_core(tensor, faults, ("tensors", index))
        for index, tensor in enumerate(document.tensors)
    ]
    entries = [_entry(layer, faults, index) for index, layer in enumerate(document.layers)]
    try:
        written = write_out(
            entries,
            tensors,
            max_layers=MAX_LAYERS,
            max_tensors=MAX_TENSORS,
            max_name=MAX_ELEMENT_NAME,
        )
    except InvalidInput as invalid:
        raise InvalidInput([*faults, *invalid.faults]) from None
    try:
        model = build_model(written.layers, written.tensors)
    except InvalidInput as invalid:
        # What is written once is told once, by its first repetition.
        told: dict[tuple[object, ...], Fault] = {}
        for fault in map(written.in_document, invalid.faults):
            told.setdefault((fault.code, fault.path), fault)
        raise InvalidInput([*faults, *told.values()]) from None
    if faults:
        raise InvalidInput(faults)
    return model


def _entry(document: LayerDocument, faults: list[Fault], index: int) -> Layer | Repeat:
    layers, times = or_none(document.layers), or_none(document.repeat)
    if layers is not None:
        for field in ("parameters", "buffers", "dimensions"):
            if getattr(document, field) is not UNSET:
                detail = "belongs to one of the `layers` of the block"
                faults.append(Fault(FaultCode.EXCLUSIVE_FIELDS, ("layers", index, field), detail))
        if times is None:
            detail = "a block of several `layers` says how often it stands there; 1 is allowed"
            faults.append(Fault(FaultCode.MISSING_FIELD, ("layers", index, "repeat"), detail))
        inside = tuple(
            (layer.name, _layer(layer, faults, ("layers", index, "layers", member)))
            for member, layer in enumerate(layers)
        )
        return Repeat(document.name, times or 1, inside)
    layer = _layer(document, faults, ("layers", index))
    return layer if times is None else Repeat(document.name, times, ((None, layer),))


def _layer(document: BlockLayerDocument, faults: list[Fault], path: Path) -> Layer:
    dimensions = or_none(document.dimensions)
    return Layer(
        name=document.name,
        kind=document.kind,
        parameters=tuple(
            Parameter(p.name, p.count, p.dtype, or_none(p.tied_group), or_none(p.split))
            for p in or_none(document.parameters) or ()
        ),
        buffers=tuple(Buffer(b.name, b.count, b.dtype) for b in or_none(document.buffers) or ()),
        dimensions=None
        if dimensions is None
        else dimensions_to_core(dimensions, (*path, "dimensions"), faults),
    )
