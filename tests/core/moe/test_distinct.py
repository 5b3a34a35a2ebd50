"""Spared copies from counts alone: published ratios, all choices written out, tokens counted."""

import json
from fractions import Fraction
from itertools import combinations
from math import prod
from pathlib import Path

import numpy as np
import pytest

from service.core.moe.distinct import choice_odds, distinct_groups, spareable
from service.core.moe.served import ExpertPlacement
from service.core.moe.settings import Deduplication
from tests.core.moe.groups import Group, evenly_asked, random_group

LOADS = Path(__file__).resolve().parents[4] / "shared" / "data" / "expert_loads"
TOKEN_FILES = {
    "deepseek_v2_lite_esft_intent_layer13_tokens.json": 0.08,
    "olmoe_vllm_gsm8k_layer0.json": 0.25,
}


def test_published_ratio_of_copies_by_rank_and_by_node() -> None:
    """Users print 145.16 / 44.37, 133.78 / 40.89, 124.92 / 38.19 and 79.12 / 24.19 GB/s."""
    ranks, nodes = distinct_groups(256, 8, 16), distinct_groups(256, 8, 2)
    assert float(ranks) == pytest.approx(6.5233, abs=5e-5)
    assert float(nodes) == pytest.approx(1.9930, abs=5e-5)
    assert float(ranks / nodes) == pytest.approx(3.2731, abs=5e-5)
    for inside, between in ((145.16, 44.37), (133.78, 40.89), (124.92, 38.19), (79.12, 24.19)):
        assert float(ranks / nodes) == pytest.approx(inside / between, rel=1e-3)


@pytest.mark.parametrize(
    ("experts", "top_k", "groups"), [(6, 2, 3), (8, 3, 2), (8, 1, 4), (6, 6, 2)]
)
def test_distinct_groups_of_all_choices(experts: int, top_k: int, groups: int) -> None:
    size = experts // groups
    seen = [len({one // size for one in chosen}) for chosen in combinations(range(experts), top_k)]
    assert distinct_groups(experts, top_k, groups) == Fraction(sum(seen), len(seen))


def test_distinct_groups_where_a_token_keeps_to_some() -> None:
    """All pairs of groups, and for each all three of its four experts."""
    seen = [
        len({one // 2 for one in chosen})
        for pair in combinations(range(4), 2)
        for chosen in combinations([2 * group + one for group in pair for one in (0, 1)], 3)
    ]
    limited = distinct_groups(8, 3, 4, limit=2)
    assert float(limited) == pytest.approx(sum(seen) / len(seen))
    assert limited <= 2
    assert limited < distinct_groups(8, 3, 4) == distinct_groups(8, 3, 4, limit=9)


@pytest.mark.parametrize(("experts", "top_k", "groups", "limit"), [(7, 2, 3, None), (8, 3, 4, 1)])
def test_groups_that_are_not_equal_or_too_small_are_refused(
    experts: int, top_k: int, groups: int, limit: int | None
) -> None:
    with pytest.raises(ValueError, match=str(experts if limit is None else top_k)):
        distinct_groups(experts, top_k, groups, limit=limit)


@pytest.mark.parametrize(("ranks", "in_host"), [(16, 8), (16, 2), (8, 8)])
def test_even_counts_give_the_closed_form(ranks: int, in_host: int) -> None:
    """2,560 tokens x 8 over 256 experts: 80 of each source for each expert, exactly."""
    group = evenly_asked(ranks, in_host, 256, 8, 0, random=np.random.default_rng(0))
    rows = np.full((ranks, 256), 80)
    tokens = np.full(ranks, 2560)
    odds = choice_odds(rows, tokens, 8)
    slots = np.arange(256)
    of_rank = group.placement.slot_rank
    for place, places in ((of_rank, ranks), (of_rank // in_host, ranks // in_host)):
        found = spareable(rows, tokens, 8, slots, place, places, odds)
        expected = 2560 * float(distinct_groups(256, 8, places))
        assert found.expected.sum(axis=1) == pytest.approx(np.full(ranks, expected), rel=1e-9)
        whole = found.whole()
        assert whole.sum() == pytest.approx(ranks * expected, abs=1)
        assert np.ptp(whole.sum(axis=0)) <= 1  # rounding favours nobody
        assert np.ptp(whole.sum(axis=1)) <= 1


def test_odds_give_each_expert_its_probability() -> None:
    """Of all choices of 3 of 6 experts, each weighs the product of its odds; 2 is always chosen."""
    shares = np.array([[0.9, 0.15, 1.0, 0.5, 0.35, 0.1]])
    rows = np.rint(shares * 1000).astype(np.int64)
    odds = choice_odds(rows, np.array([1000]), 3)[0]
    assert np.isinf(odds[2])
    assert not odds[6:].any()
    free = [0, 1, 3, 4, 5]
    weights = {pair: prod(odds[one] for one in pair) for pair in combinations(free, 2)}
    whole = sum(weights.values())
    for one in free:
        part = sum(weight for pair, weight in weights.items() if one in pair)
        assert part / whole == pytest.approx(shares[0, one], abs=1e-9)


def test_expected_copies_of_all_choices_written_out() -> None:
    """Places {0, 1}, {2}, {3, half of 4} and {half of 4}, with the odds that were found."""
    tokens, top_k = np.array([1000]), 2
    rows = np.array([[700, 100, 400, 500, 150, 150]])
    slot_expert, slot_place = np.array([0, 1, 2, 3, 4, 4]), np.array([0, 0, 1, 2, 2, 3])
    by_expert = np.array([[700, 100, 400, 500, 300]])
    odds = choice_odds(by_expert, tokens, top_k)
    found = spareable(rows, tokens, top_k, slot_expert, slot_place, 4, odds)
    part = {0: {0: 1.0, 1: 1.0}, 1: {2: 1.0}, 2: {3: 1.0, 4: 0.5}, 3: {4: 0.5}}
    weights = {pair: odds[0, pair[0]] * odds[0, pair[1]] for pair in combinations(range(5), 2)}
    for place, parts in part.items():
        missing = sum(
            weight * prod(1 - parts.get(one, 0.0) for one in pair)
            for pair, weight in weights.items()
        )
        expected = 1000 * (1 - missing / sum(weights.values()))
        assert found.expected[0, place] == pytest.approx(expected)
    assert found.fewest.tolist() == [[700, 400, 500, 150]]
    assert found.most.tolist() == [[800, 400, 650, 150]]


def test_what_is_counted_lies_within_the_bounds_from_counts(seed: int) -> None:
    random = np.random.default_rng([seed, 9])
    for _ in range(60):
        group = random_group(
            random, width=int(random.integers(1, 3)), drop=bool(random.integers(2))
        )
        for policy in (Deduplication.RANK, Deduplication.NODE):
            counted = group.sent(policy)
            bounded = group.sent(policy, counts_only=True)
            assert counted.is_counted
            assert not bounded.is_counted
            assert bounded.fewest is not None
            assert bounded.most is not None
            for stage, low, high in zip(counted.stages, bounded.fewest, bounded.most, strict=True):
                assert (low.between <= stage.between).all()
                assert (stage.between <= high.between).all()


@pytest.mark.parametrize("policy", [Deduplication.RANK, Deduplication.NODE])
def test_tokens_that_choose_independently_have_as_many_copies_as_expected(
    policy: Deduplication,
) -> None:
    group = evenly_asked(16, 4, 64, 6, 500, random=np.random.default_rng(3))
    for counted, expected in zip(
        group.sent(policy).stages, group.sent(policy, counts_only=True).stages, strict=True
    ):
        assert expected.between.sum() == pytest.approx(counted.between.sum(), rel=0.01)


@pytest.mark.parametrize("name", TOKEN_FILES)
@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_measured_tokens_against_what_counts_let_expect(name: str, ranks: int) -> None:
    """The tokens of one layer as those of `ranks` sources, in hosts of two.

    Experts that are chosen together are no independent choice: what is expected, of even choice or
    of the measured counts, is off by what is stated, and the bounds hold whatever is chosen.
    """
    if not (LOADS / name).exists():
        pytest.skip("the measured tokens are not here")
    document = json.loads((LOADS / name).read_text())
    chosen = np.array(document["topk_ids"], dtype=np.int32)
    experts, numbers = document["num_experts"], np.arange(ranks)
    slots = np.arange(experts, dtype=np.int32)
    each = len(chosen) // ranks
    group = Group(
        ExpertPlacement(experts, ranks, slots, (slots * ranks // experts).astype(np.int32)),
        chosen[: each * ranks],
        np.full(ranks, each),
        numbers // 2,
        numbers % 2,
    )
    closed = each * ranks * float(distinct_groups(experts, chosen.shape[1], ranks))
    by_rank = group.sent(Deduplication.RANK).stages[0].between.sum()
    assert closed == pytest.approx(by_rank, rel=TOKEN_FILES[name])
    for policy in (Deduplication.RANK, Deduplication.NODE):
        expected = group.sent(policy, counts_only=True)
        assert expected.fewest is not None
        assert expected.most is not None
        for counted, guess, low, high in zip(
            group.sent(policy).stages, expected.stages, expected.fewest, expected.most, strict=True
        ):
            assert guess.sent.sum() == pytest.approx(counted.sent.sum(), rel=TOKEN_FILES[name])
            assert (low.between <= counted.between).all()
            assert (counted.between <= high.between).all()


def test_printed_bandwidth_counts_copies_for_the_own_host() -> None:
    """What leaves by the NIC is (N - 1) / N of it: 43, 58 and 51 GB/s of a 50 GB/s NIC are less."""
    for hosts, printed, on_the_wire in ((2, 43, 21.5), (4, 58, 43.5), (8, 51, 44.625)):
        rows = np.full((hosts * 8, 256), 80)
        tokens = np.full(hosts * 8, 2560)
        slots = np.arange(256)
        host_of_slot = slots * hosts // 256
        odds = choice_odds(rows, tokens, 8)
        copies = spareable(rows, tokens, 8, slots, host_of_slot, hosts, odds).whole()
        own = copies[np.arange(hosts * 8), np.arange(hosts * 8) // 8].sum()
        assert printed * (1 - own / copies.sum()) == pytest.approx(on_the_wire, rel=1e-3)
