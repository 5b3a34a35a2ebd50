"""Operations of layers against published totals and counts by hand."""

import pytest

from service.core.models.dimensions import (
    Attention,
    Dimensions,
    Experts,
    LatentAttention,
    Mlp,
)
from service.core.models.dtypes import DType
from service.core.models.flops import CountedFrom, LayerFlops, layer_flops
from service.core.models.graph import Layer, Parameter


def layer(**parts: object) -> Layer:
    return Layer("l", "block", dimensions=Dimensions(**parts))  # type: ignore[arg-type]


def flops(samples: int, length: int, **parts: object) -> LayerFlops:
    found = layer_flops(layer(**parts), samples * length, samples * length**2)
    assert found is not None
    return found


def block(hidden: int, heads: int) -> dict[str, object]:
    """A block of GPT: as many key-value heads as heads, an MLP four times as wide."""
    attention = Attention(heads=heads, key_value_heads=heads, head_size=hidden // heads)
    feed_forward = Mlp(width=4 * hidden, gated=False)
    return {"hidden": hidden, "attention": attention, "feed_forward": feed_forward}


@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "vocabulary", "batch"),
    [(24, 2304, 24, 51_200, 512), (96, 12_288, 96, 51_200, 1536), (128, 25_600, 160, 51_200, 3072)],
)
def test_an_iteration_of_gpt_is_that_of_megatron(
    layers: int, hidden: int, heads: int, vocabulary: int, batch: int
) -> None:
    """Narayanan et al. 2021, eq. 3: 96 B s l h^2 (1 + s / 6h + V / 16 l h) where each block's
    forward is computed again; the head's is not, so its share there is that of three passes.
    """
    s = 2048
    of_block = flops(batch, s, **block(hidden, heads))
    head = flops(batch, s, hidden=hidden, head_vocabulary=vocabulary)
    found = layers * (2 * of_block.forward + of_block.backward) + head.forward + head.backward
    published = 96 * batch * s * layers * hidden**2
    published += 16 * batch * s**2 * layers * hidden + 6 * batch * s * hidden * vocabulary
    assert found == published


def test_a_small_block_by_hand() -> None:
    """Hidden 4, 2 heads of 2 with one key-value head, gated MLP of 6: (16 + 16 + 16) + 72 weights,
    3 tokens each in 5 samples; 4 x 4 x 3 x 3 of attention a sample.
    """
    attention = Attention(heads=2, key_value_heads=1, head_size=2, input_bias=True, query_norm=2)
    found = flops(5, 3, hidden=4, attention=attention, feed_forward=Mlp(width=6, gated=True))
    assert found == LayerFlops(2 * 120 * 15, 5 * 4 * 4 * 9, CountedFrom.DIMENSIONS)
    assert found.backward == 2 * found.forward
    assert found.backward_input - found.backward_weight == 2 * found.attention


def test_a_token_meets_the_experts_that_it_takes() -> None:
    """Hidden 4, 8 experts of width 3 without gate, 2 taken, one shared of width 5 behind a gate:
    32 of the router, 2 x 24, 40 and 4.
    """
    each, shared = Mlp(width=3, gated=False), Mlp(width=5, gated=False)
    experts = Experts(count=8, active=2, each=each, shared=shared, shared_gate=True)
    assert flops(1, 1, hidden=4, feed_forward=experts).weights == 2 * (32 + 48 + 40 + 4)


@pytest.mark.parametrize("query_rank", [0, 5])
def test_latent_attention_goes_through_its_smaller_spaces(query_rank: int) -> None:
    of = LatentAttention(
        heads=2, query_rank=query_rank, key_value_rank=3, plain_size=4, rotary_size=1, value_size=6
    )
    queries = 7 * 5 + 5 * 10 if query_rank else 7 * 10
    weights = queries + 7 * (3 + 1) + 3 * 2 * (4 + 6) + 12 * 7
    found = flops(1, 1, hidden=7, attention=of)
    assert (found.weights, found.attention) == (2 * weights, 2 * (10 + 12))
    named = {
        weight.name: weight.count
        for weight in of.weights(7)
        if "norm" not in weight.name and weight.count
    }
    assert sum(named.values()) == weights


def test_looking_tokens_up_multiplies_nothing() -> None:
    assert flops(2, 8, hidden=4, embedding_vocabulary=100).forward == 0


def test_without_dimensions_every_token_meets_every_parameter() -> None:
    plain = Layer("l", "linear", (Parameter("w", 12, DType.BF16), Parameter("b", 3, DType.BF16)))
    assert layer_flops(plain, 10, 50) == LayerFlops(300, 0, CountedFrom.PARAMETERS)


def test_without_a_number_of_tokens_nothing_is_counted() -> None:
    assert layer_flops(Layer("l", "linear", (Parameter("w", 12, DType.BF16),)), None, None) is None
    nothing = layer_flops(Layer("l", "activation"), None, None)
    assert nothing is not None
    assert nothing.forward == 0
