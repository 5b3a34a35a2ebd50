"""Placements for a measured load, and what they gain."""

import json
from pathlib import Path
from random import Random

import numpy as np
import pytest

from service.core.errors import FaultCode
from service.core.moe.balance import (
    BalanceMethod,
    ExpertGroup,
    advise,
    even_loads,
    least_busiest_load,
)
from service.core.moe.imbalance import imbalance, rows_by_node
from service.core.moe.placement import by_rank, contiguous, given, shared_ranks
from tests.core.refusals import refusals

STEPS = 20_000
EPLB = (
    Path(__file__).resolve().parents[4]
    / "shared"
    / "data"
    / "expert_loads"
    / "eplb_readme_example.json"
)


def test_without_replicas_the_largest_are_spread() -> None:
    loads = np.array([8, 7, 6, 5, 4, 3, 2, 1])
    advice = advise(loads, ExpertGroup(4, 8), steps=STEPS)
    assert even_loads(loads, contiguous(8, 4)).tolist() == [15, 11, 7, 3]
    best = advice.proposals[0]
    assert (best.ranks.most_rows, best.is_optimal, advice.bound_rows) == (9, True, 9)
    assert best.nodes is None


def test_a_hot_expert_is_replicated_until_its_share_is_small() -> None:
    loads = np.array([12, 2, 2, 2, 2, 4])
    group = ExpertGroup(4, 8)
    # 24 in all: 6 a rank is the mean, and one with two more replicas has shares of 4.
    assert least_busiest_load(loads, group) == 6
    best = advise(loads, group, steps=STEPS).proposals[0]
    assert best.ranks.most_rows == 6
    assert best.is_optimal
    assert shared_ranks(best.placement) == ()


def test_what_no_placement_can_better_is_said_of_a_single_hot_expert() -> None:
    advice = advise(np.array([30, 1, 1, 1]), ExpertGroup(2, 4), steps=STEPS)
    assert advice.bound_rows == 30
    assert advice.proposals[0].ranks.most_rows == 31
    assert advice.proposals[0].is_optimal


def test_hosts_are_evened_without_making_a_rank_busier() -> None:
    loads = np.array([9, 8, 1, 1])
    flat = advise(loads, ExpertGroup(4, 4, 2), steps=STEPS).proposals
    assert {one.method for one in flat} == {BalanceMethod.GREEDY, BalanceMethod.BY_NODE}
    for one in flat:
        assert one.ranks.most_rows == 9
        assert one.nodes is not None
        assert one.nodes.most_rows == 10


def test_by_host_the_experts_of_a_group_and_their_replicas_stay_together() -> None:
    random = Random(9)
    for _ in range(20):
        loads = np.array([random.randint(0, 50) for _ in range(16)])
        group = ExpertGroup(8, random.choice((16, 19, 24)), 2, 8)
        advice = advise(loads, group, steps=500)
        (found,) = [one for one in advice.proposals if one.method is BalanceMethod.BY_NODE]
        assert found.placement.slots == group.slots
        node = group.node_of_rank[found.placement.slot_rank]
        for first in range(0, 16, 2):
            of_group = np.isin(found.placement.slot_expert, (first, first + 1))
            assert len(set(node[of_group])) == 1


def test_advice_keeps_to_the_slots_and_is_never_below_the_bound() -> None:
    random = Random(6)
    for _ in range(40):
        ranks, experts = random.randint(1, 9), random.randint(1, 20)
        loads = np.array([int(random.paretovariate(1) * 10) for _ in range(experts)])
        slots = random.randint(experts, min(experts + 9, experts * ranks))
        group = ExpertGroup(ranks, slots, random.choice((None, random.randint(1, ranks))))
        advice = advise(loads, group, steps=500)
        for one in advice.proposals:
            listed = by_rank(one.placement)
            assert set().union(*listed) == set(range(experts))
            assert max(map(len, listed)) <= group.slots_per_rank
            assert sum(map(len, listed)) <= slots
            assert shared_ranks(one.placement) == ()
            assert one.ranks.most_rows >= advice.bound_rows * (1 - 1e-9)
            assert even_loads(loads, one.placement).sum() == pytest.approx(loads.sum())
        worst = [one.ranks.most_rows for one in advice.proposals]
        assert worst == sorted(worst)


def test_nothing_asked_for_is_balanced_as_it_is() -> None:
    advice = advise(np.zeros(4, dtype=np.int64), ExpertGroup(2, 5, 1), steps=STEPS)
    assert advice.bound_rows == 0
    assert all(one.is_optimal for one in advice.proposals)
    assert all(one.ranks.max_over_mean is None for one in advice.proposals)


def test_groups_that_can_not_be_are_refused_with_every_fault() -> None:
    loads = np.ones(6, dtype=np.int64)
    assert refusals(lambda: advise(loads, ExpertGroup(2, 5, 3, 4), steps=1)) == [
        (FaultCode.OUT_OF_RANGE, ("slots",)),
        (FaultCode.OUT_OF_RANGE, ("ranks_per_node",)),
        (FaultCode.INDIVISIBLE, ("expert_groups",)),
        (FaultCode.INDIVISIBLE, ("expert_groups",)),
    ]
    assert refusals(lambda: advise(loads, ExpertGroup(2, 13, None, 3), steps=1)) == [
        (FaultCode.OUT_OF_RANGE, ("slots",)),
        (FaultCode.MISSING_FIELD, ("ranks_per_node",)),
    ]


@pytest.mark.skipif(not EPLB.exists(), reason="the published example is not here")
def test_the_published_placement_has_its_loads_and_the_advice_is_no_worse() -> None:
    example = json.loads(EPLB.read_text())
    published = (
        [121.5, 86.5, 125, 113, 147.5, 131.5, 156, 152],
        [173, 179.5, 120.5, 172, 123, 152, 118.5, 117.5],
    )
    ratios = (2.0833, 1.2081), (2.3806, 1.2422)
    for layer, expected, (before, after) in zip(example["layers"], published, ratios, strict=True):
        loads = np.array(layer["counts"])
        slots = example["published_physical_to_logical"][layer["layer"]]
        placement = given(12, 8, [slots[two : two + 2] for two in range(0, 16, 2)])
        rows = even_loads(loads, placement)
        assert rows.tolist() == expected
        assert imbalance(rows).max_over_mean == pytest.approx(after, abs=5e-5)
        plain = imbalance(even_loads(loads, contiguous(12, 8)))
        assert plain.max_over_mean == pytest.approx(before, abs=5e-5)

        group = ExpertGroup(8, 16, ranks_per_node=4, expert_groups=4)
        advice = advise(loads, group, steps=STEPS)
        (by_node,) = [one for one in advice.proposals if one.method is BalanceMethod.BY_NODE]
        assert by_node.ranks.most_rows <= max(expected)
        nodes = imbalance(rows_by_node(rows, group.node_of_rank))
        assert by_node.nodes is not None
        assert by_node.nodes.most_rows <= nodes.most_rows
        # Experts that need not stay with their group leave the busiest rank with less still.
        assert advice.proposals[0].ranks.most_rows < max(expected)
        assert advice.proposals[0].is_optimal
