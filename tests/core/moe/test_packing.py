"""Loads in places of limited number, greedily and at best."""

from itertools import product
from random import Random

import numpy as np
import pytest

from service.core.moe.exact_packing import exact_packing
from service.core.moe.packing import EXCHANGES, most_exchanges, pack


def packed(loads: list[float], kinds: list[int], room: list[int]) -> list[int]:
    return [int(one) for one in pack(np.array(loads, float), np.array(kinds), np.array(room))]


def test_the_largest_goes_first_and_into_the_emptiest() -> None:
    assert packed([5, 4, 3, 3], [0, 1, 2, 3], [2, 2]) == [0, 1, 1, 0]


def test_exchanges_find_what_the_greedy_order_misses() -> None:
    # Largest first gives 3 + 2 + 2 = 7 and 3 + 2 = 5; one exchange makes both 6.
    bins = packed([3, 3, 2, 2, 2], [0, 1, 2, 3, 4], [3, 3])
    assert sorted(np.bincount(bins, weights=[3, 3, 2, 2, 2]).tolist()) == [6, 6]


def test_two_of_a_kind_are_apart_even_where_only_one_bin_has_room_left() -> None:
    # The first two fill the second bin; both of the third kind then find room in the first only.
    bins = packed([9, 5, 5, 1, 1], [0, 1, 2, 3, 3], [3, 2])
    assert bins[3] != bins[4]


def test_without_room_for_all_nothing_is_packed() -> None:
    with pytest.raises(ValueError, match="3 loads have room for 2 only"):
        packed([1, 1, 1], [0, 1, 2], [1, 1])


def test_exchanges_that_are_too_many_to_look_at_are_left_alone() -> None:
    assert most_exchanges(64, 8) == 32 * 8 * 72
    many = 32_768
    assert most_exchanges(many, 2) == EXCHANGES
    bins = packed([float(load) for load in range(many)], list(range(many)), [many // 2] * 2)
    sums = np.bincount(bins, weights=range(many))
    assert max(sums) - min(sums) < many


def test_loads_that_weigh_nothing_are_packed_too() -> None:
    assert sorted(packed([0, 0, 0, 0], [0, 0, 1, 1], [2, 2])) == [0, 0, 1, 1]


def test_random_packings_keep_to_the_room_and_kinds_apart() -> None:
    random = Random(2)
    for _ in range(60):
        bins = random.randint(1, 6)
        replicas = [random.randint(1, bins) for _ in range(random.randint(1, 9))]
        kinds = [kind for kind, number in enumerate(replicas) for _ in range(number)]
        loads = [float((0, 1, 3, 10)[kind * 7 % 4]) for kind in kinds]
        room = -(-len(kinds) // bins)
        found = packed(loads, kinds, [room] * bins)
        assert max(np.bincount(found)) <= room
        assert len(set(zip(found, kinds, strict=True))) == len(kinds)


def best_by_trying_all(loads: list[int], ranks: int, slots: int) -> float:
    """The busiest rank of the best placement, of all sets of ranks for every expert."""
    sets = [[rank for rank in range(ranks) if number >> rank & 1] for number in range(1, 2**ranks)]
    best = float("inf")
    for chosen in product(sets, repeat=len(loads)):
        held, sums = [0] * ranks, [0.0] * ranks
        for load, ranks_of_expert in zip(loads, chosen, strict=True):
            for rank in ranks_of_expert:
                held[rank] += 1
                sums[rank] += load / len(ranks_of_expert)
        if sum(held) <= slots and max(held) <= -(-slots // ranks):
            best = min(best, max(sums))
    return best


def test_the_best_placement_is_that_of_trying_all() -> None:
    random = Random(4)
    for _ in range(40):
        ranks = random.randint(1, 3)
        experts = random.randint(1, 4)
        loads = [random.choice((0, 1, 2, 7, 20)) for _ in range(experts)]
        slots = random.randint(experts, min(experts + 3, experts * ranks))
        expected = best_by_trying_all(loads, ranks, slots)
        found = exact_packing(loads, ranks, slots, beat=expected + 0.01, steps=10_000)
        assert found.proven
        assert found.by_rank is not None
        replicas = [sum(expert in here for here in found.by_rank) for expert in range(experts)]
        sums = [sum(loads[one] / replicas[one] for one in here) for here in found.by_rank]
        assert max(sums) == pytest.approx(expected)
        assert max(map(len, found.by_rank)) <= -(-slots // ranks)
        beaten = exact_packing(loads, ranks, slots, beat=expected, steps=10_000)
        assert beaten.proven
        assert beaten.by_rank is None or expected == pytest.approx(max(sums))


def test_a_search_that_runs_out_of_steps_proves_nothing() -> None:
    loads = [17, 14, 13, 11, 10, 7, 5, 5, 4]
    assert exact_packing(loads, 3, 9, beat=1000, steps=100_000).proven
    short = exact_packing(loads, 3, 9, beat=1000, steps=5)
    assert not short.proven
    assert short.by_rank is None
