"""Activations that layers keep, against published formulas and counts by hand."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.models.activations import KeptShape, layer_activations, logit_bytes
from service.core.models.dimensions import Attention, Dimensions, Experts, LatentAttention, Mlp

MIB = 2**20


def gpt(hidden: int, heads: int) -> Dimensions:
    """A block with a GELU of four times the hidden size."""
    return Dimensions(
        hidden=hidden,
        attention=Attention(heads=heads, key_value_heads=heads, head_size=hidden // heads),
        feed_forward=Mlp(width=4 * hidden, gated=False),
    )


def korthikanti(sequence: int, tensor: int = 1, *, parallel: bool = False) -> KeptShape:
    """One sequence, dropout, scores written down."""
    return KeptShape(
        samples=1,
        tokens_per_sample=sequence,
        sequence_length=sequence,
        tensor=tensor,
        sequence_parallel=parallel,
        flash_attention=False,
        dropout=True,
    )


def test_a_block_with_dropout_keeps_34_and_5_as_over_h() -> None:
    found = layer_activations(gpt(12288, 96), korthikanti(2048))
    assert found.whole == 2048 * (34 * 12288 + 5 * 96 * 2048)
    assert found.scores == 5 * 96 * 2048 * 2048
    assert found.selective == 34 * 2048 * 12288
    assert found.full == 2 * 2048 * 12288


@pytest.mark.parametrize(
    ("hidden", "heads", "ratio", "saved"),
    [(12288, 96, 80, 0.70), (20480, 128, 64, 0.65)],
    ids=["GPT-3 175B", "MT-NLG 530B"],
)
def test_what_selective_recomputation_saves(
    hidden: int, heads: int, ratio: int, saved: float
) -> None:
    """Korthikanti et al. (2022), section 5: 5as/h = 80 and 64, 70 % and 65 % less."""
    found = layer_activations(gpt(hidden, heads), korthikanti(2048))
    assert Fraction(found.scores, 2048 * hidden) == ratio
    assert found.scores / found.whole == pytest.approx(saved, abs=0.005)


@pytest.mark.parametrize(
    ("hidden", "heads", "expected"),
    [
        (12288, 96, (342, 102, 552, 48)),
        (20480, 128, (490, 170, 840, 80)),
        (6144, 64, (211, 51, 316, 24)),
        (25600, 160, (612.5, 212.5, 1050, 100)),
    ],
    ids=["175B", "530B", "22B", "1T"],
)
def test_published_layers_on_eight_tensor_ranks(
    hidden: int, heads: int, expected: tuple[float, ...]
) -> None:
    """MiB a layer: sequence parallel whole and selective, tensor parallel alone, full."""
    parallel = layer_activations(gpt(hidden, heads), korthikanti(2048, 8, parallel=True))
    alone = layer_activations(gpt(hidden, heads), korthikanti(2048, 8))
    found = (parallel.whole, parallel.selective, alone.whole, alone.full)
    assert [bytes_ / MIB for bytes_ in found] == list(expected)


def test_flash_attention_keeps_statistics_and_selective_saves_nothing_more() -> None:
    written = layer_activations(gpt(12288, 96), korthikanti(2048))
    flash = layer_activations(gpt(12288, 96), replace(korthikanti(2048), flash_attention=True))
    assert flash.whole == written.selective + 4 * 96 * 2048
    assert flash.selective == flash.whole


def test_a_gated_block_with_shared_key_value_heads() -> None:
    # The shape of Llama-70B: f = 3.5 h, an eighth of the key-value heads: 33.5 n h of two bytes.
    dimensions = Dimensions(
        hidden=8192,
        attention=Attention(heads=64, key_value_heads=8, head_size=128),
        feed_forward=Mlp(width=28672, gated=True),
    )
    shape = KeptShape(
        samples=2, tokens_per_sample=4096, sequence_length=4096, tensor=8, sequence_parallel=True
    )
    tokens = 2 * 4096
    statistics = 4 * 8 * tokens
    assert layer_activations(dimensions, shape).whole == (
        Fraction(67, 2) * tokens * 8192 / 8 + statistics
    )


def test_fewer_key_value_heads_than_ranks_repeat() -> None:
    dimensions = Dimensions(hidden=64, attention=Attention(heads=8, key_value_heads=2, head_size=8))
    shape = KeptShape(samples=1, tokens_per_sample=10, sequence_length=10, tensor=8)
    # Norm input, product input; one head each of queries, keys, values and output; statistics.
    assert layer_activations(dimensions, shape).whole == 10 * (2 * 64 * 2 + 4 * 8 * 2 + 4)


def test_latent_attention_by_hand() -> None:
    attention = LatentAttention(
        heads=4, query_rank=24, key_value_rank=16, plain_size=8, rotary_size=4, value_size=8
    )
    shape = KeptShape(samples=1, tokens_per_sample=10, sequence_length=10, tensor=2)
    found = layer_activations(Dimensions(hidden=64, attention=attention), shape)
    # In elements a token: both inputs; spaces of 24 and 16 twice and rotary keys; queries and keys
    # of 12 and values and output of 8 for two heads.
    elements = 2 * 64 + 2 * (24 + 16) + 4 + 2 * (12 + 12 + 8 + 8)
    assert found.whole == 10 * (2 * elements + 4 * 2)


def test_experts_are_counted_by_the_rows_that_a_rank_receives() -> None:
    part = Experts(
        count=8,
        active=2,
        each=Mlp(width=32, gated=True),
        shared=Mlp(width=48, gated=True),
    )
    dimensions = Dimensions(hidden=64, feed_forward=part)
    shape = KeptShape(
        samples=1, tokens_per_sample=16, sequence_length=16, tensor=2, sequence_parallel=True
    )
    # 8 tokens of its own, so 16 rows; the router's bytes are no elements.
    by_hand = 2 * 8 * 64 * 2 + 8 * 8 * 9 + 16 * (64 + 3 * 32) * 2 + 16 * 3 * 24 * 2
    assert layer_activations(dimensions, shape).whole == by_hand
    # Two ranks of an expert gather twice the rows and share its width.
    both = layer_activations(dimensions, replace(shape, expert_tensor=2)).whole
    assert both == by_hand + 16 * 64 * 2


def test_embedding_norm_and_head() -> None:
    shape = KeptShape(samples=2, tokens_per_sample=8, sequence_length=8, dropout=True)
    embedding = layer_activations(Dimensions(hidden=64, embedding_vocabulary=100), shape)
    assert (embedding.whole, embedding.full) == (16 * (8 + 64),) * 2
    for norm_or_head in (Dimensions(hidden=64), Dimensions(hidden=64, head_vocabulary=100)):
        found = layer_activations(norm_or_head, shape)
        assert (found.whole, found.selective, found.full) == (16 * 64 * 2,) * 3


def test_logits_of_a_large_vocabulary() -> None:
    # 8192 tokens x 151,936 words: 4.637 GiB in full precision, 0.580 GiB a chunk of 1024.
    shape = KeptShape(samples=1, tokens_per_sample=8192, sequence_length=8192)
    found = logit_bytes(151936, shape, chunk_tokens=None)
    assert found.in_backward / 2**30 == pytest.approx(4.638, abs=2e-3)
    assert found.kept == Fraction(3, 2) * found.in_backward
    chunk = logit_bytes(151936, shape, chunk_tokens=1024)
    assert chunk.in_forward / 2**30 == pytest.approx(0.580, abs=5e-4)
    assert (chunk.kept, chunk.in_backward) == (0, 0)
    # Logits that are in full precision already are not copied.
    full = logit_bytes(151936, replace(shape, element_bytes=4), chunk_tokens=None)
    assert full.kept == found.in_backward


@given(
    samples=st.integers(1, 4),
    sequence=st.integers(1, 64),
    tensor=st.sampled_from([1, 2, 3, 4]),
    parallel=st.booleans(),
    flash=st.booleans(),
    dropout=st.booleans(),
    experts=st.booleans(),
)
def test_more_tokens_keep_more_and_more_ranks_no_more(
    *,
    samples: int,
    sequence: int,
    tensor: int,
    parallel: bool,
    flash: bool,
    dropout: bool,
    experts: bool,
) -> None:
    each = Mlp(width=96, gated=True)
    dimensions = Dimensions(
        hidden=48,
        attention=Attention(heads=12, key_value_heads=4, head_size=4),
        feed_forward=Experts(count=4, active=2, each=each) if experts else each,
    )
    shape = KeptShape(
        samples=samples,
        tokens_per_sample=sequence,
        sequence_length=sequence,
        tensor=tensor,
        sequence_parallel=parallel,
        flash_attention=flash,
        dropout=dropout,
    )
    found = layer_activations(dimensions, shape)
    assert 0 < found.full < found.selective <= found.whole
    longer = replace(shape, tokens_per_sample=sequence + 1, sequence_length=sequence + 1)
    for more in (replace(shape, samples=samples + 1), longer):
        assert layer_activations(dimensions, more).whole > found.whole
    doubled = layer_activations(dimensions, replace(shape, tensor=2 * tensor))
    assert doubled.whole <= found.whole
