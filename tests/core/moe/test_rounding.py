"""Whole assignments: both margins, and no expert above a source's tokens."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.moe.rounding import apportion, largest_remainder


def test_largest_remainder_rounds_up_those_with_most_left() -> None:
    # Worked by hand: floors 1, 2, 0 leave one for .6; equal remainders go to the first.
    assert largest_remainder(np.array([1.6, 2.2, 0.2]), 4).tolist() == [2, 2, 0]
    assert largest_remainder(np.array([0.5, 0.5, 1.0]), 2).tolist() == [1, 0, 1]


def test_a_column_that_lacks_a_whole_number_by_rounding_alone_is_whole() -> None:
    assert largest_remainder(np.array([2.9999999999, 1.0000000001]), 4).tolist() == [3, 1]


def test_rows_take_turns_in_being_rounded_up() -> None:
    # Three sources with one token of two choices among three experts: 2/3 each, columns of 2.
    counts = apportion(np.full(3, 2 / 3), np.array([1, 1, 1]), 2)
    assert counts.sum(axis=1).tolist() == [2, 2, 2]
    assert counts.sum(axis=0).tolist() == [2, 2, 2]
    assert counts.max() == 1


@st.composite
def shares_and_tokens(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int]:
    """Counts of random tokens as shares of each source, and other numbers of tokens."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    experts, sources = draw(st.integers(1, 12)), draw(st.integers(1, 9))
    top_k = draw(st.integers(1, experts))
    weights = rng.random(experts) ** draw(st.sampled_from([0, 1, 8])) + 1e-9
    had = rng.integers(1, 30, sources)
    counts = np.zeros((sources, experts))
    for source, tokens in enumerate(had):
        for _ in range(tokens):
            chosen = rng.choice(experts, top_k, replace=False, p=weights / weights.sum())
            counts[source, chosen] += 1
    return counts / had[:, np.newaxis], rng.integers(0, 40, sources), top_k


@settings(max_examples=60)
@given(shares_and_tokens())
def test_rows_are_exact_entries_possible_and_columns_near(
    drawn: tuple[np.ndarray, np.ndarray, int],
) -> None:
    shares, tokens, top_k = drawn
    counts = apportion(shares, tokens, top_k)
    exact = shares * tokens[:, np.newaxis]
    assert counts.sum(axis=1).tolist() == (top_k * tokens).tolist()
    assert (counts >= 0).all()
    assert (counts <= tokens[:, np.newaxis]).all()
    assert np.abs(counts - exact).max() < 2
    assert np.abs(counts.sum(axis=0) - exact.sum(axis=0)).max() < 1 + 1e-6


@settings(max_examples=40)
@given(shares_and_tokens())
def test_what_is_whole_stays_as_it_is(drawn: tuple[np.ndarray, np.ndarray, int]) -> None:
    shares, tokens, top_k = drawn
    counts = apportion(shares, tokens, top_k)
    held = tokens > 0
    again = apportion(counts[held] / tokens[held, np.newaxis], tokens[held], top_k)
    assert again.tolist() == counts[held].tolist()


def test_a_mix_of_all_sources_gives_columns_of_the_whole_exactly() -> None:
    # 4,096 ranks share 256 counts of their own total: each expert gets its count to the unit.
    rng = np.random.default_rng(5)
    tokens = np.full(4096, 512)
    counts = largest_remainder(rng.dirichlet(np.full(256, 0.7)) * 4096 * 512 * 8, 4096 * 512 * 8)
    assert counts.max() <= tokens.sum()
    spread = apportion(counts / tokens.sum(), tokens, 8)
    assert spread.sum(axis=0).tolist() == counts.tolist()
    assert (spread.sum(axis=1) == 8 * 512).all()
