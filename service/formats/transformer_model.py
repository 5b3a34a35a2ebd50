"""Decoder-only transformers by their dimensions: every weight with its count, and the model.

The layers are `embedding`, `block.0` and on, `final_norm` and `head`; a loss comes after the head.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from msgspec import UNSET

from service.core.models.dimensions import (
    Attention,
    Dimensions,
    Experts,
    LatentAttention,
    Mlp,
    Split,
    Weight,
)
from service.core.models.dtypes import DType
from service.core.models.graph import Symbol
from service.formats.documents.fields import MAX_INTEGER
from service.formats.documents.model import (
    LayerDocument,
    ModelDocument,
    ParameterDocument,
    TensorDocument,
)
from service.formats.documents.model_dimensions import DimensionsDocument, dimensions_document

__all__ = [
    "Transformer",
    "active_parameter_count",
    "model_document",
    "parameter_count",
    "too_large",
]

_TIED = "embedding"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """What a decoder is made of. `blocks` has the feed-forward part of each block in order.

    `positions` are learned position embeddings (0: none). The output layer is the embedding again
    where it is `tied`. All weights and what passes between layers are of one `dtype`.
    """

    hidden: int
    vocabulary: int
    positions: int
    attention: Attention | LatentAttention
    blocks: tuple[Mlp | Experts, ...]
    norm_bias: bool
    tied: bool
    dtype: DType


def parameter_count(model: Transformer) -> int:
    """Weights of all layers, a tied embedding once."""
    blocks = sum(each.count for part in model.blocks for each in _block(model, part))
    ends = sum(each.count for each in (*_embedding(model), *_norm(model)))
    return blocks + ends + (0 if model.tied else model.hidden * model.vocabulary)


def active_parameter_count(model: Transformer) -> int:
    """Weights that one token meets: of the experts only those it goes to."""
    idle = sum(
        (part.count - part.active) * sum(each.count for each in part.each.weights(model.hidden))
        for part in model.blocks
        if isinstance(part, Experts)
    )
    return parameter_count(model) - idle


def too_large(model: Transformer) -> str | None:
    """The name of a weight of more elements than a document holds; None when there is none."""
    parts = (weights for part in set(model.blocks) for weights in _block(model, part))
    weights = (*parts, *_embedding(model))
    return next((each.name for each in weights if each.count > MAX_INTEGER), None)


def model_document(model: Transformer) -> ModelDocument:
    """The model, its block written once where all are alike."""
    hidden: list[int | Symbol] = [Symbol.SEQUENCE, Symbol.MICROBATCH, model.hidden]
    alike = len(set(model.blocks)) == 1

    def passes(name: str, producer: str, *consumers: str) -> TensorDocument:
        return TensorDocument(
            name=name,
            producer=producer,
            consumers=list(consumers),
            shape=list(hidden),
            dtype=model.dtype,
        )

    if alike:
        first = "block"
        blocks = [
            LayerDocument(
                name="block",
                kind="transformer_block",
                dimensions=_dimensions(model, model.blocks[0]),
                parameters=_parameters(model, _block(model, model.blocks[0])),
                repeat=len(model.blocks),
            )
        ]
        between = [passes("block.output", "block", "block", "final_norm")]
    else:
        names = [f"block.{index}" for index in range(len(model.blocks))]
        first = names[0]
        blocks = [
            LayerDocument(
                name=name,
                kind="moe_block" if isinstance(part, Experts) else "transformer_block",
                dimensions=_dimensions(model, part),
                parameters=_parameters(model, _block(model, part), prefix=f"{name}."),
            )
            for name, part in zip(names, model.blocks, strict=True)
        ]
        between = [
            passes(f"{name}.output", name, following)
            for name, following in zip(names, [*names[1:], "final_norm"], strict=True)
        ]
    tokens: list[int | Symbol] = [Symbol.MICROBATCH, Symbol.SEQUENCE]
    return ModelDocument(
        layers=[
            LayerDocument(
                name="embedding",
                kind="embedding",
                dimensions=dimensions_document(
                    Dimensions(hidden=model.hidden, embedding_vocabulary=model.vocabulary)
                ),
                parameters=_parameters(model, _embedding(model), tied="embedding.weight"),
            ),
            *blocks,
            LayerDocument(
                name="final_norm",
                kind="norm",
                dimensions=dimensions_document(Dimensions(hidden=model.hidden)),
                parameters=_parameters(model, _norm(model)),
            ),
            LayerDocument(
                name="head",
                kind="head",
                dimensions=dimensions_document(
                    Dimensions(hidden=model.hidden, head_vocabulary=model.vocabulary)
                ),
                parameters=_parameters(
                    model,
                    [Weight("head.weight", model.hidden * model.vocabulary)],
                    tied="head.weight",
                ),
            ),
        ],
        tensors=[
            TensorDocument(
                name="tokens", consumers=["embedding"], shape=list(tokens), dtype=DType.INT64
            ),
            TensorDocument(
                name="labels", consumers=["head"], shape=list(tokens), dtype=DType.INT64
            ),
            passes("embedding.output", "embedding", first),
            *between,
            passes("final_norm.output", "final_norm", "head"),
            TensorDocument(name="loss", producer="head", consumers=[], shape=[1], dtype=DType.FP32),
        ],
    )


def _dimensions(model: Transformer, part: Mlp | Experts) -> DimensionsDocument:
    return dimensions_document(
        Dimensions(hidden=model.hidden, attention=model.attention, feed_forward=part)
    )


def _embedding(model: Transformer) -> Iterator[Weight]:
    yield Weight("embedding.weight", model.hidden * model.vocabulary)
    yield Weight("embedding.positions.weight", model.hidden * model.positions, Split.NONE)


def _norm(model: Transformer, name: str = "final_norm") -> Iterator[Weight]:
    yield Weight(f"{name}.weight", model.hidden, Split.NONE)
    yield Weight(f"{name}.bias", model.hidden if model.norm_bias else 0, Split.NONE)


def _block(model: Transformer, part: Mlp | Experts) -> Iterator[Weight]:
    yield from _norm(model, "attention_norm")
    yield from model.attention.weights(model.hidden)
    yield from _norm(model, "mlp_norm")
    yield from part.weights(model.hidden)


def _parameters(
    model: Transformer, weights: Iterable[Weight], *, tied: str = "", prefix: str = ""
) -> list[ParameterDocument]:
    """A weight of no elements is none; the one called `tied` is shared where the model ties it."""
    return [
        ParameterDocument(
            name=f"{prefix}{weight.name}",
            count=weight.count,
            dtype=model.dtype,
            tied_group=_TIED if model.tied and weight.name == tied else UNSET,
            split=weight.split,
        )
        for weight in weights
        if weight.count
    ]
