"""What a layer of a transformer keeps of one microbatch for its backward, by its dimensions.

Component by component, as Korthikanti et al. (2022) count them for a block with a GELU, dropout and
heads of full size: with n tokens, hidden size h, a heads and sequences of s tokens attention keeps
11 n h + 5 a s n bytes, the MLP 19 n h, the two norms 4 n h: together n h (34 + 5 a s / h). Newer
parts are counted alike: a gate, key-value heads that are shared, attention that never writes its
scores down (FlashAttention keeps a softmax statistic of four bytes a head and token instead),
experts by the rows that a rank receives.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from service.core.amounts import Amount
from service.core.models.dimensions import Attention, Dimensions, Experts, LatentAttention, Mlp

__all__ = [
    "KeptShape",
    "LayerActivations",
    "LogitBytes",
    "ReceivedRows",
    "StageLogits",
    "layer_activations",
    "logit_bytes",
]

# Of what is kept in full precision whatever the weights are: softmax statistics, router, logits.
_FULL = 4
_TOKEN_ID = 8


@dataclass(frozen=True, slots=True)
class ReceivedRows:
    """What comes to a rank for its experts, of one microbatch in one layer.

    So many `rows`, each kept as `row_bytes` before the first product: those of its payload where
    that is narrower than activations are. `keeps_outputs` says whether the last product's are kept
    too, as they are where routing weights multiply what experts give and not what they are inside.
    """

    rows: int
    row_bytes: int
    keeps_outputs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptShape:
    """One microbatch as one rank meets it, and how its layers are computed.

    `samples` sequences of which the rank has `tokens_per_sample`, out of `sequence_length`. The
    `tensor` ranks share heads and widths, and with `sequence_parallel` the tokens of everything
    between. `expert_tensor` ranks share each expert. Activations have `element_bytes`. Where nobody
    says what the rank `received` for its experts, as much comes as it sends.
    """

    samples: int
    tokens_per_sample: int
    sequence_length: int
    tensor: int = 1
    sequence_parallel: bool = False
    expert_tensor: int = 1
    element_bytes: int = 2
    flash_attention: bool = True
    dropout: bool = False
    received: ReceivedRows | None = None

    @property
    def tokens(self) -> int:
        """Of the microbatch, on one context rank."""
        return self.samples * self.tokens_per_sample

    @property
    def own_tokens(self) -> int:
        """Those that lie between the layers of one tensor-parallel rank."""
        return self.shared(self.tokens) if self.sequence_parallel else self.tokens

    def shared(self, size: int) -> int:
        """The part of one tensor-parallel rank, rounded up."""
        return -(-size // self.tensor)


@dataclass(frozen=True, slots=True)
class LayerActivations:
    """Bytes that one rank keeps of a microbatch on a layer.

    `whole` without recomputation; of these `scores` are what attention makes of the product of
    queries and keys, and `checkpoint` is the input that a full recomputation starts from.
    """

    whole: int
    scores: int
    checkpoint: int
    recomputes: bool  # whether recomputation is of such layers: blocks, and no embedding or head

    @property
    def selective(self) -> int:
        """Kept where attention computes its scores again."""
        return self.whole - self.scores

    @property
    def full(self) -> int:
        """Kept where all of the layer is computed again."""
        return self.checkpoint if self.recomputes else self.whole


def layer_activations(dimensions: Dimensions, shape: KeptShape) -> LayerActivations:
    """What one layer keeps; logits are counted apart (`logit_bytes`).

    A layer without any part is a norm: it keeps its input.
    """
    of_layer = shape.own_tokens * dimensions.hidden * shape.element_bytes
    scores = 0
    whole = 0
    if dimensions.attention is not None:
        whole += of_layer + sum(_attention(dimensions.attention, dimensions.hidden, shape))
        if not shape.flash_attention:
            scores = _scores(dimensions.attention, shape)
    if dimensions.feed_forward is not None:
        whole += of_layer + sum(_feed_forward(dimensions.feed_forward, dimensions.hidden, shape))
    if dimensions.embedding_vocabulary is not None:
        whole += _TOKEN_ID * shape.tokens + _mask(dimensions.hidden, shape)
    recomputes = dimensions.attention is not None or dimensions.feed_forward is not None
    if not recomputes and dimensions.embedding_vocabulary is None:
        whole += of_layer  # the input of a norm, or of the product that makes logits
    return LayerActivations(whole + scores, scores, of_layer, recomputes)


def _attention(
    attention: Attention | LatentAttention, hidden: int, shape: KeptShape
) -> Iterator[int]:
    """Beside scores: inputs of each product, and what FlashAttention remembers of the softmax."""
    size, tokens = shape.element_bytes, shape.tokens
    heads = shape.shared(attention.heads)
    yield shape.own_tokens * hidden * size  # input of the first product
    if isinstance(attention, Attention):
        # A rank has at least one key-value head, so where there are fewer than ranks some repeat.
        keys = shape.shared(attention.key_value_heads)
        yield tokens * heads * attention.head_size * size  # queries
        yield 2 * tokens * keys * attention.head_size * size  # keys and values
        values = attention.head_size
    else:
        ways_in = attention.query_rank + attention.key_value_rank
        # Before and behind the norm of the smaller space; rotary keys go round it.
        yield shape.own_tokens * (2 * ways_in + attention.rotary_size) * size
        keys = attention.plain_size + attention.rotary_size
        yield 2 * tokens * heads * keys * size  # queries and keys
        yield tokens * heads * attention.value_size * size
        values = attention.value_size
    yield tokens * heads * values * size  # input of the output product
    if shape.flash_attention:
        yield _FULL * tokens * heads
    yield _mask(hidden, shape)


def _scores(attention: Attention | LatentAttention, shape: KeptShape) -> int:
    """The softmax; with dropout its mask and what that leaves of it."""
    pairs = shape.shared(attention.heads) * shape.tokens * shape.sequence_length
    each = shape.element_bytes + (1 + shape.element_bytes if shape.dropout else 0)
    return pairs * each


def _feed_forward(part: Mlp | Experts, hidden: int, shape: KeptShape) -> Iterator[int]:
    size = shape.element_bytes
    yield shape.own_tokens * hidden * size  # input of the first product, and of a router
    yield _mask(hidden, shape)
    if isinstance(part, Mlp):
        yield _inside(part, shape.tokens, shape.tensor) * size
        return
    # Logits and probabilities of the router in full precision, and a byte for who goes where.
    yield shape.own_tokens * part.count * (2 * _FULL + 1)
    # Each rank's tokens go to `active` experts, and as many rows come in where they spread evenly.
    evenly = part.active * shape.own_tokens * shape.expert_tensor
    received = shape.received or ReceivedRows(evenly, hidden * size)
    yield received.rows * received.row_bytes
    yield _inside(part.each, received.rows, shape.expert_tensor) * size
    if received.keeps_outputs:
        yield received.rows * hidden * size
    if part.shared is not None:
        yield _inside(part.shared, shape.tokens, shape.tensor) * size


def _inside(part: Mlp, rows: int, ranks: int) -> int:
    """Elements between the two products: before and behind the activation function."""
    return rows * (3 if part.gated else 2) * -(-part.width // ranks)


def _mask(hidden: int, shape: KeptShape) -> int:
    return shape.own_tokens * hidden if shape.dropout else 0


@dataclass(frozen=True, slots=True)
class LogitBytes:
    """What the logits of a microbatch take: kept until the backward, and for its length more."""

    kept: int
    in_forward: int
    in_backward: int


@dataclass(frozen=True, slots=True)
class StageLogits:
    """The same of a stage, for microbatches of each size class."""

    kept: Amount
    in_forward: Amount
    in_backward: Amount


def logit_bytes(vocabulary: int, shape: KeptShape, *, chunk_tokens: int | None) -> LogitBytes:
    """The logits of one microbatch on one tensor-parallel rank.

    They are kept in their own precision and in full, and the backward adds a gradient in full. With
    `chunk_tokens` a fused cross entropy makes so many at a time, in full, and keeps none.
    """
    words = shape.shared(vocabulary)
    if chunk_tokens is not None:
        return LogitBytes(0, min(chunk_tokens, shape.tokens) * words * _FULL, 0)
    in_full = _FULL if shape.element_bytes < _FULL else 0
    each = shape.tokens * words
    return LogitBytes(each * (shape.element_bytes + in_full), 0, each * _FULL)
