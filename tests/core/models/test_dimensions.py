"""The weights of a transformer's parts, by hand."""

import pytest

from service.core.models.dimensions import Attention, Experts, LatentAttention, Mlp, Split, Weight

GATED = Mlp(width=12, gated=True)


def test_attention_with_shared_heads() -> None:
    """Six query heads and three of keys and values, of four elements; a hidden size of 16."""
    attention = Attention(
        heads=6, key_value_heads=3, head_size=4, input_bias=True, output_bias=True, key_norm=4
    )
    assert list(attention.weights(16)) == [
        Weight("attention.query.weight", 16 * 24),
        Weight("attention.query.bias", 24),
        Weight("attention.key.weight", 16 * 12),
        Weight("attention.key.bias", 12),
        Weight("attention.value.weight", 16 * 12),
        Weight("attention.value.bias", 12),
        Weight("attention.query_norm.weight", 0, Split.NONE),
        Weight("attention.key_norm.weight", 4, Split.NONE),
        Weight("attention.output.weight", 24 * 16),
        # Added once, after the tensor-parallel ranks have summed.
        Weight("attention.output.bias", 16, Split.NONE),
    ]


def test_every_rank_holds_the_ways_into_a_latent_space() -> None:
    latent = LatentAttention(
        heads=4, query_rank=6, key_value_rank=5, plain_size=3, rotary_size=2, value_size=7
    )
    counts = {weight.name: weight.count for weight in latent.weights(16)}
    whole = {weight.name for weight in latent.weights(16) if weight.split is Split.NONE}
    assert counts == {
        "attention.query_down.weight": 16 * 6,
        "attention.query_norm.weight": 6,
        "attention.query.weight": 6 * 4 * 5,
        "attention.key_value_down.weight": 16 * 7,
        "attention.key_value_norm.weight": 5,
        "attention.key_value.weight": 5 * 4 * 10,
        "attention.output.weight": 4 * 7 * 16,
    }
    assert whole == {name for name in counts if "down" in name or "norm" in name}


@pytest.mark.parametrize(("gated", "matrices"), [(False, 2), (True, 3)])
def test_a_gate_is_one_more_matrix(gated: bool, matrices: int) -> None:
    weights = list(Mlp(width=12, gated=gated, bias=True).weights(16))
    assert sum(each.count for each in weights if each.name.endswith("weight")) == matrices * 16 * 12
    biases = {each.name: (each.count, each.split) for each in weights if "bias" in each.name}
    assert biases["mlp.down.bias"] == (16, Split.NONE)
    assert biases["mlp.up.bias"] == (12, Split.TENSOR)


def test_experts_are_spread_and_their_router_is_not() -> None:
    experts = Experts(
        count=5, active=2, each=GATED, router_bias=True, shared=Mlp(width=24, gated=True)
    )
    by_split = dict.fromkeys(Split, 0)
    for weight in experts.weights(16):
        by_split[weight.split] += weight.count
    assert by_split == {
        Split.EXPERT: 5 * 3 * 16 * 12,
        Split.NONE: 16 * 5 + 5,
        Split.TENSOR: 3 * 16 * 24,
    }
