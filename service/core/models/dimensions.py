"""What a layer of a transformer is made of: the dimensions that its arithmetic follows from.

Every part says its weights too: names in the order of the computation, counts of elements, and over
which ranks each is split. Attention has h q + 2 h k + q h with q = heads x head size and k that of
the key-value heads, an MLP 2 h f or, gated, 3 h f, each expert as an MLP, the router h E; biases
where the layer has them. Hidden size h, MLP width f, E experts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

__all__ = [
    "Attention",
    "Dimensions",
    "Experts",
    "LatentAttention",
    "Mlp",
    "Split",
    "Weight",
]


class Split(StrEnum):
    """Over which ranks the elements of a weight are spread."""

    TENSOR = "tensor"  # the tensor-parallel ranks
    EXPERT = "expert"  # the ranks that share the experts, each of them the expert-tensor ranks
    NONE = "none"  # each rank that has the layer holds the whole of it


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight of a part: how it is called in its layer, its elements, and who shares them."""

    name: str
    count: int
    split: Split = Split.TENSOR


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

    @property
    def query_size(self) -> int:
        """Elements of the queries of a token, and of what attention hands to its output layer."""
        return self.heads * self.head_size

    def weights(self, hidden: int) -> Iterator[Weight]:
        """Those of no elements included."""
        keys = self.key_value_heads * self.head_size
        for name, size in (("query", self.query_size), ("key", keys), ("value", keys)):
            yield Weight(f"attention.{name}.weight", hidden * size)
            if self.input_bias:
                yield Weight(f"attention.{name}.bias", size)
        yield Weight("attention.query_norm.weight", self.query_norm, Split.NONE)
        yield Weight("attention.key_norm.weight", self.key_norm, Split.NONE)
        yield Weight("attention.output.weight", self.query_size * hidden)
        yield Weight("attention.output.bias", hidden if self.output_bias else 0, Split.NONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention: queries (where `query_rank` is not 0), keys and values go
    through a smaller space that is normed. Each rank has the ways into it whole.
    """

    heads: int
    query_rank: int
    key_value_rank: int
    plain_size: int
    rotary_size: int
    value_size: int

    def weights(self, hidden: int) -> Iterator[Weight]:
        """Those of no elements included."""
        queries = self.heads * (self.plain_size + self.rotary_size)
        down = hidden * (self.key_value_rank + self.rotary_size)
        yield Weight("attention.query_down.weight", hidden * self.query_rank, Split.NONE)
        yield Weight("attention.query_norm.weight", self.query_rank, Split.NONE)
        yield Weight("attention.query.weight", (self.query_rank or hidden) * queries)
        yield Weight("attention.key_value_down.weight", down, Split.NONE)
        yield Weight("attention.key_value_norm.weight", self.key_value_rank, Split.NONE)
        heads = self.heads * (self.plain_size + self.value_size)
        yield Weight("attention.key_value.weight", self.key_value_rank * heads)
        yield Weight("attention.output.weight", self.heads * self.value_size * hidden)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mlp:
    """A feed-forward part of one width, with a gate or without."""

    width: int
    gated: bool
    bias: bool = False

    def weights(self, hidden: int, name: str = "mlp") -> Iterator[Weight]:
        """Those of no elements included."""
        for part in ("gate", "up") if self.gated else ("up",):
            yield Weight(f"{name}.{part}.weight", hidden * self.width)
            yield Weight(f"{name}.{part}.bias", self.width if self.bias else 0)
        yield Weight(f"{name}.down.weight", self.width * hidden)
        yield Weight(f"{name}.down.bias", hidden if self.bias else 0, Split.NONE)


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

    def weights(self, hidden: int) -> Iterator[Weight]:
        """Those of all experts together, those of no elements included."""
        yield Weight("router.weight", hidden * self.count, Split.NONE)
        yield Weight("router.bias", self.count if self.router_bias else 0, Split.NONE)
        for weight in self.each.weights(hidden, "experts"):
            yield Weight(weight.name, self.count * weight.count, Split.EXPERT)
        if self.shared is not None:
            gate = hidden if self.shared_gate else 0
            yield Weight("shared_expert_gate.weight", gate, Split.NONE)
            yield from self.shared.weights(hidden, "shared_expert")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """The parts of one layer; what is None it does not have.

    `hidden` elements of each token come in and go out. Attention and the feed-forward part are each
    behind a norm of their own. `embedding_vocabulary` is of a layer that looks tokens up,
    `head_vocabulary` of one that makes logits, in tokens.
    """

    hidden: int
    attention: Attention | LatentAttention | None = None
    feed_forward: Mlp | Experts | None = None
    embedding_vocabulary: int | None = None
    head_vocabulary: int | None = None
