"""Decoder-only transformers by their dimensions: every weight with its count, and the model.

The layers are `embedding`, `block.0` and on, `final_norm` and `head`; a loss comes after the head.
Counts of weights: attention h q + 2 h k + q h with q = heads x head size and k of the key-value
heads, an MLP 2 h f or, gated, 3 h f, each expert as a gated MLP, the router h E; biases where the
model has them. Hidden size h, MLP width f, E experts.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec import UNSET

from service.core.models.dtypes import DType
from service.core.models.graph import Symbol
from service.formats.documents.fields import MAX_INTEGER
from service.formats.documents.model import (
    LayerDocument,
    ModelDocument,
    ParameterDocument,
    TensorDocument,
)

__all__ = [
    "Attention",
    "Experts",
    "LatentAttention",
    "Mlp",
    "Transformer",
    "active_parameter_count",
    "model_document",
    "parameter_count",
    "too_large",
]

_TIED = "embedding"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Attention whose key-value heads may be shared by several query heads.

    `query_norm` and `key_norm` are the elements of norms on queries and keys; 0 is none.
    """

    heads: int
    key_value_heads: int
    head_size: int
    input_bias: bool = False
    output_bias: bool = False
    query_norm: int = 0
    key_norm: int = 0

    def weights(self, hidden: int) -> Iterator[tuple[str, int]]:
        """Names and counts, in the order of the computation."""
        queries, keys = self.heads * self.head_size, self.key_value_heads * self.head_size
        for name, size in (("query", queries), ("key", keys), ("value", keys)):
            yield f"attention.{name}.weight", hidden * size
            if self.input_bias:
                yield f"attention.{name}.bias", size
        yield "attention.query_norm.weight", self.query_norm
        yield "attention.key_norm.weight", self.key_norm
        yield "attention.output.weight", queries * hidden
        yield "attention.output.bias", hidden if self.output_bias else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention: queries (where `query_rank` is not 0), keys and values go
    through a smaller space that is normed.
    """

    heads: int
    query_rank: int
    key_value_rank: int
    plain_size: int
    rotary_size: int
    value_size: int

    def weights(self, hidden: int) -> Iterator[tuple[str, int]]:
        """Names and counts, in the order of the computation."""
        queries = self.heads * (self.plain_size + self.rotary_size)
        yield "attention.query_down.weight", hidden * self.query_rank
        yield "attention.query_norm.weight", self.query_rank
        yield "attention.query.weight", (self.query_rank or hidden) * queries
        yield "attention.key_value_down.weight", hidden * (self.key_value_rank + self.rotary_size)
        yield "attention.key_value_norm.weight", self.key_value_rank
        heads = self.heads * (self.plain_size + self.value_size)
        yield "attention.key_value.weight", self.key_value_rank * heads
        yield "attention.output.weight", self.heads * self.value_size * hidden


@dataclass(frozen=True, slots=True, kw_only=True)
class Mlp:
    """A feed-forward part of one width, with a gate or without."""

    width: int
    gated: bool
    bias: bool = False

    def weights(self, hidden: int, name: str = "mlp") -> Iterator[tuple[str, int]]:
        """Names and counts, in the order of the computation."""
        for part in ("gate", "up") if self.gated else ("up",):
            yield f"{name}.{part}.weight", hidden * self.width
            yield f"{name}.{part}.bias", self.width if self.bias else 0
        yield f"{name}.down.weight", self.width * hidden
        yield f"{name}.down.bias", hidden if self.bias else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A router and `count` feed-forward parts of which each token takes `active`.

    `router_bias` is trained with the router; `shared` is taken by every token, and through a gate
    of its own where `shared_gate` says so.
    """

    count: int
    active: int
    each: Mlp
    router_bias: bool = False
    shared: Mlp | None = None
    shared_gate: bool = False

    def weights(self, hidden: int) -> Iterator[tuple[str, int]]:
        """Names and counts, in the order of the computation; those of all experts together."""
        yield "router.weight", hidden * self.count
        yield "router.bias", self.count if self.router_bias else 0
        for name, size in self.each.weights(hidden, "experts"):
            yield name, self.count * size
        if self.shared is not None:
            yield "shared_expert_gate.weight", hidden if self.shared_gate else 0
            yield from self.shared.weights(hidden, "shared_expert")


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
    blocks = sum(count for part in model.blocks for _, count in _block(model, part))
    ends = sum(count for _, count in _embedding(model)) + sum(count for _, count in _norm(model))
    return blocks + ends + (0 if model.tied else model.hidden * model.vocabulary)


def active_parameter_count(model: Transformer) -> int:
    """Weights that one token meets: of the experts only those it goes to."""
    idle = sum(
        (part.count - part.active) * sum(size for _, size in part.each.weights(model.hidden))
        for part in model.blocks
        if isinstance(part, Experts)
    )
    return parameter_count(model) - idle


def too_large(model: Transformer) -> str | None:
    """The name of a weight of more elements than a document holds; None when there is none."""
    parts = (weights for part in set(model.blocks) for weights in _block(model, part))
    weights = (*parts, *_embedding(model))
    return next((name for name, count in weights if count > MAX_INTEGER), None)


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
                parameters=_parameters(
                    model, ((f"{name}.{weight}", count) for weight, count in _block(model, part))
                ),
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
                parameters=_parameters(model, _embedding(model), tied="embedding.weight"),
            ),
            *blocks,
            LayerDocument(
                name="final_norm",
                kind="norm",
                parameters=_parameters(model, _norm(model)),
            ),
            LayerDocument(
                name="head",
                kind="head",
                parameters=_parameters(
                    model,
                    [("head.weight", model.hidden * model.vocabulary)],
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


def _embedding(model: Transformer) -> Iterator[tuple[str, int]]:
    yield "embedding.weight", model.hidden * model.vocabulary
    yield "embedding.positions.weight", model.hidden * model.positions


def _norm(model: Transformer, name: str = "final_norm") -> Iterator[tuple[str, int]]:
    yield f"{name}.weight", model.hidden
    yield f"{name}.bias", model.hidden if model.norm_bias else 0


def _block(model: Transformer, part: Mlp | Experts) -> Iterator[tuple[str, int]]:
    yield from _norm(model, "attention_norm")
    yield from model.attention.weights(model.hidden)
    yield from _norm(model, "mlp_norm")
    yield from part.weights(model.hidden)


def _parameters(
    model: Transformer, weights: Iterator[tuple[str, int]] | list[tuple[str, int]], tied: str = ""
) -> list[ParameterDocument]:
    """A weight of no elements is none; the one called `tied` is shared where the model ties it."""
    return [
        ParameterDocument(
            name=name,
            count=count,
            dtype=model.dtype,
            tied_group=_TIED if model.tied and name == tied else UNSET,
        )
        for name, count in weights
        if count
    ]
