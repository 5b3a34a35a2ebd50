"""Floating-point operations of layers: what their arithmetic needs, whatever computes it.

A product of matrices counts a multiplication and an addition for each pair of elements: 2 m n k.
So a forward takes 2 operations for each weight and token, and each of the two gradients as many
again. Attention beyond its weights multiplies queries with keys and scores with values, 2 s^2 q
each for a sample of s tokens: the full square, though a causal kernel may skip half of it, as in
the counts that utilisation is usually given in (Narayanan et al. 2021, eq. 3; Chowdhery et al.
2022, appendix B). Norms, activations, biases and looking tokens up count nothing.
"""

from dataclasses import dataclass
from enum import StrEnum

from service.core.models.dimensions import Attention, Dimensions, Experts, LatentAttention, Mlp
from service.core.models.graph import Layer

__all__ = ["CountedFrom", "LayerFlops", "layer_flops"]


class CountedFrom(StrEnum):
    """What the operations of a layer were counted from."""

    DIMENSIONS = "dimensions"
    PARAMETERS = "parameters"  # each taken for an element of a matrix that every token meets


@dataclass(frozen=True, slots=True)
class LayerFlops:
    """Of one forward: products with weights, and what attention multiplies beyond them."""

    weights: int
    attention: int
    counted_from: CountedFrom

    @property
    def forward(self) -> int:
        """All of a forward."""
        return self.weights + self.attention

    @property
    def backward_input(self) -> int:
        """The gradient of the inputs; both factors of an attention product are inputs."""
        return self.weights + 2 * self.attention

    @property
    def backward_weight(self) -> int:
        """The gradient of the weights."""
        return self.weights

    @property
    def backward(self) -> int:
        """Both gradients: twice a forward."""
        return self.backward_input + self.backward_weight


def layer_flops(layer: Layer, tokens: int | None, token_pairs: int | None) -> LayerFlops | None:
    """Of so many tokens through the layer, on all ranks that share it together.

    `token_pairs` are the pairs of tokens that attend to one another: samples x sequence length^2.
    From the layer's dimensions, else from its parameters. None where it has either and nobody says
    how many tokens there are.
    """
    if layer.is_input or not (layer.dimensions or layer.parameters):
        return LayerFlops(0, 0, CountedFrom.DIMENSIONS)
    if tokens is None or token_pairs is None:
        return None
    if layer.dimensions is None:
        count = sum(parameter.count for parameter in layer.parameters)
        return LayerFlops(2 * count * tokens, 0, CountedFrom.PARAMETERS)
    return LayerFlops(
        2 * _matrix_elements(layer.dimensions) * tokens,
        2 * _attended_elements(layer.dimensions.attention) * token_pairs,
        CountedFrom.DIMENSIONS,
    )


def _matrix_elements(of: Dimensions) -> int:
    """Of the matrices that one token is multiplied with."""
    hidden = of.hidden
    elements = (of.head_vocabulary or 0) * hidden
    if isinstance(of.feed_forward, Mlp):
        elements += _mlp(hidden, of.feed_forward)
    elif isinstance(of.feed_forward, Experts):
        experts = of.feed_forward
        elements += hidden * experts.count + experts.active * _mlp(hidden, experts.each)
        if experts.shared is not None:
            elements += _mlp(hidden, experts.shared) + hidden * experts.shared_gate
    if isinstance(of.attention, Attention):
        keys_and_values = 2 * of.attention.key_value_heads * of.attention.head_size
        elements += hidden * (2 * of.attention.query_size + keys_and_values)
    elif isinstance(of.attention, LatentAttention):
        elements += _latent(hidden, of.attention)
    return elements


def _mlp(hidden: int, mlp: Mlp) -> int:
    return (3 if mlp.gated else 2) * hidden * mlp.width


def _latent(hidden: int, of: LatentAttention) -> int:
    queries = of.heads * (of.plain_size + of.rotary_size)
    down = hidden * (of.query_rank + of.key_value_rank + of.rotary_size)
    up = (of.query_rank or hidden) * queries
    up += of.key_value_rank * of.heads * (of.plain_size + of.value_size)
    return down + up + of.heads * of.value_size * hidden


def _attended_elements(attention: Attention | LatentAttention | None) -> int:
    """Of a token's queries, which meet all keys, and of what it takes of all values."""
    if attention is None:
        return 0
    if isinstance(attention, Attention):
        return 2 * attention.query_size
    return attention.heads * (attention.plain_size + attention.rotary_size + attention.value_size)
