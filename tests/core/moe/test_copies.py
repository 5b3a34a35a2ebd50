"""Copies that travel: by hand, against a count token by token, and what always holds of them."""

from itertools import product

import numpy as np
import pytest

from service.core.moe.copies import relays
from service.core.moe.served import ExpertPlacement, Served
from service.core.moe.settings import Deduplication, Dispatcher
from tests.core.moe.copy_counter import count
from tests.core.moe.groups import Group, evenly_asked, random_group

NONE, RANK, NODE = Deduplication.NONE, Deduplication.RANK, Deduplication.NODE
POLICIES = (NONE, RANK, NODE)


def two_hosts() -> Group:
    """Hosts {0, 1} and {2, 3}, two experts a rank; one token of rank 0, one of rank 3.

    Rank 0's token has experts 1 (rank 0), 4 and 5 (rank 2) and 6 (rank 3); rank 3's has 2 and 3
    (rank 1), 0 (rank 0) and 7 (rank 3).
    """
    slots = np.arange(8, dtype=np.int32)
    return Group(
        ExpertPlacement(8, 4, slots, slots // 2),
        np.array([[1, 4, 5, 6], [2, 3, 0, 7]], dtype=np.int32),
        np.array([1, 0, 0, 1]),
        np.array([0, 0, 1, 1]),
        np.array([0, 1, 0, 1]),
    )


def test_without_sparing_each_expert_gets_its_copy() -> None:
    (only,) = two_hosts().sent(NONE).stages
    assert only.between.tolist() == [[1, 0, 2, 1], [0, 0, 0, 0], [0, 0, 0, 0], [1, 2, 0, 1]]
    assert only.sent.tolist() == [3, 0, 0, 3]
    assert only.received.tolist() == [1, 2, 2, 1]


def test_by_rank_two_experts_of_a_rank_share_a_copy() -> None:
    (only,) = two_hosts().sent(RANK).stages
    assert only.between.tolist() == [[1, 0, 1, 1], [0, 0, 0, 0], [0, 0, 0, 0], [1, 1, 0, 1]]


def test_by_node_one_copy_goes_to_the_rank_of_like_place_which_passes_it_on() -> None:
    """0 -> 2 serves both ranks there; 3 -> 1 likewise. 2 and 1 keep theirs: on the diagonal."""
    between, inside = two_hosts().sent(NODE).stages
    assert between.between.tolist() == [[0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]]
    assert inside.between.tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 1]]


def test_the_combine_goes_the_same_way_back() -> None:
    traffic = two_hosts().sent(NODE)
    inside, between = traffic.combine
    assert inside.between.tolist() == traffic.stages[1].between.T.tolist()
    assert between.between.tolist() == traffic.stages[0].between.T.tolist()
    assert traffic.sent.tolist() == [1, 1, 1, 1]
    assert traffic.received.tolist() == [1, 1, 1, 1]


def test_logical_copies_are_one_for_each_expert_wherever_it_is() -> None:
    for policy in POLICIES:
        assert two_hosts().sent(policy).logical.tolist() == [4, 0, 0, 4]


def test_an_all_gather_brings_all_tokens_to_all_ranks() -> None:
    """(R - 1) x T copies come to each rank, whatever the experts."""
    group = evenly_asked(8, 4, 16, 2, 5, random=np.random.default_rng(1))
    traffic = group.sent(NONE, dispatcher=Dispatcher.ALL_GATHER)
    assert traffic.received.tolist() == [7 * 5] * 8
    assert traffic.sent.tolist() == [7 * 5] * 8
    assert traffic.is_counted


@pytest.mark.parametrize(("top_k", "less"), [(3, False), (8, True)])
def test_an_all_gather_is_less_than_unspared_copies_where_a_token_has_more_experts_than_ranks(
    top_k: int, less: bool
) -> None:
    group = evenly_asked(4, 4, 32, top_k, 50, random=np.random.default_rng(2))
    gathered = group.sent(NONE, dispatcher=Dispatcher.ALL_GATHER).received.sum()
    assert bool(gathered < group.sent(NONE).received.sum()) is less


def test_ranks_that_share_experts_gather_what_each_of_them_received() -> None:
    """Two expert coordinates of two ranks each: 0, 1 share experts 0 and 1; 2, 3 the others.

    Rank 0 sends its token to ranks 0 and 2, rank 3 its token to ranks 1 and 3.
    """
    slots = np.arange(4, dtype=np.int32)
    group = Group(
        ExpertPlacement(4, 2, slots, slots // 2),
        np.array([[0, 2], [1, 3]], dtype=np.int32),
        np.array([1, 0, 0, 1]),
        np.zeros(4, dtype=np.int64),
        np.arange(4),
        width=2,
    )
    sent, gathered = group.sent(NONE).stages
    assert sent.between.tolist() == [[1, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 1]]
    assert gathered.between.tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]
    rows = group.served().rank_rows
    assert gathered.between.sum(axis=0).tolist() == np.repeat(rows, 2).tolist()


def test_relays_take_turns_where_a_host_has_no_rank_in_the_like_place() -> None:
    """Hosts of places {0, 1, 2}, {2}, {0, 5}: rank 1, the second of its host, has 5 in the last."""
    found = relays(np.array([0, 0, 0, 1, 2, 2]), np.array([0, 1, 2, 2, 0, 5]))
    assert found.tolist() == [[0, 3, 4], [1, 3, 5], [2, 3, 4], [2, 3, 4], [0, 3, 4], [1, 3, 5]]


@pytest.mark.parametrize(("width", "drop"), list(product((1, 2), (False, True))))
def test_it_agrees_with_a_count_token_by_token(seed: int, width: int, drop: bool) -> None:
    random = np.random.default_rng([seed, width, drop])
    for _ in range(40):
        group = random_group(random, width=width, drop=drop)
        tokens = [
            (int(owner), [int(slot) for slot in slots if slot >= 0])
            for owner, slots in zip(group.owners, group.chosen, strict=True)
        ]
        for policy in POLICIES:
            reference = count(
                tokens,
                group.placement.slot_rank.tolist(),
                group.nodes.tolist(),
                group.places.tolist(),
                width=width,
                spared=policy.value,
            )
            stages = group.sent(policy).stages
            assert len(stages) == len(reference)
            for stage, pairs in zip(stages, reference, strict=True):
                found = {
                    (int(tail), int(head)): int(stage.between[tail, head])
                    for tail, head in np.argwhere(stage.between)
                }
                assert found == dict(pairs)


def between_hosts(group: Group, policy: Deduplication, counts_only: bool) -> np.ndarray:
    """(N, N) copies from host to host, over all stages."""
    count_of_hosts = int(group.nodes.max()) + 1
    whole = np.zeros((count_of_hosts, count_of_hosts), dtype=np.int64)
    for stage in group.sent(policy, counts_only=counts_only).stages:
        np.add.at(whole, (group.nodes[:, np.newaxis], group.nodes), stage.between)
    np.fill_diagonal(whole, 0)
    return whole


@pytest.mark.parametrize("counts_only", [False, True])
def test_what_always_holds_of_random_groups(seed: int, counts_only: bool) -> None:
    random = np.random.default_rng([seed, 7, counts_only])
    for _ in range(60):
        group = random_group(random, drop=bool(random.integers(2)))
        kept = int(group.rows.sum())
        unspared, ranks, nodes = (
            group.sent(policy, counts_only=counts_only) for policy in POLICIES
        )
        assert unspared.stages[0].between.sum() == kept
        # All that a rank needs comes to it, or is with it, by either way.
        assert np.array_equal(
            nodes.stages[1].between.sum(axis=0), ranks.stages[0].between.sum(axis=0)
        )
        assert (ranks.stages[0].between <= unspared.stages[0].between).all()
        spared = [between_hosts(group, policy, counts_only) for policy in POLICIES]
        assert (spared[2] <= spared[1]).all()
        assert (spared[1] <= spared[0]).all()
        between, inside = nodes.stages
        apart = group.nodes[:, np.newaxis] != group.nodes
        assert not between.between[~apart].any()
        assert not inside.between[apart].any()
        if len(group.tokens) == 1:
            assert not any(one.sent.any() for one in (unspared, ranks, nodes))
        for traffic in (ranks, nodes):
            if traffic.fewest is not None and traffic.most is not None:
                for stage, low, high in zip(
                    traffic.stages, traffic.fewest, traffic.most, strict=True
                ):
                    assert (low.between <= stage.between).all()
                    assert (stage.between <= high.between).all()


def test_ranks_may_change_places_in_their_hosts_without_changing_what_hosts_send(seed: int) -> None:
    random = np.random.default_rng([seed, 8])
    for _ in range(20):
        group = random_group(random)
        places = group.places.copy()
        for node in set(group.nodes.tolist()):
            inside = np.flatnonzero(group.nodes == node)
            places[inside] = random.permutation(places[inside])
        moved = group.moved(group.nodes, places)
        for policy in POLICIES:
            assert np.array_equal(
                between_hosts(group, policy, False), between_hosts(moved, policy, False)
            )


@pytest.mark.parametrize("policy", POLICIES)
def test_blocks_of_fixed_size_travel_whole_whatever_is_in_them(policy: Deduplication) -> None:
    """Each source sends 3 rows to each of 8 experts: copies do not depend on what tokens chose."""
    seen = set()
    for number in range(4):
        group = evenly_asked(4, 2, 8, 2, 9, random=np.random.default_rng(number))
        rows = np.full((4, 8), 3)
        served = Served(group.placement, rows, np.minimum(rows, group.rows), None)
        traffic = group.sent(policy, served=served, padded=True)
        assert traffic.is_counted
        assert traffic.stages[-1].between.sum(axis=0).tolist() == [4 * 2 * 3] * 4
        seen.add(tuple(stage.between.tobytes() for stage in traffic.stages))
    assert len(seen) == 1


def test_ranks_without_tokens_and_without_experts_have_no_traffic() -> None:
    slots = np.zeros(2, dtype=np.int32)
    placement = ExpertPlacement(2, 3, np.arange(2, dtype=np.int32), slots)
    none = np.empty((0, 2), dtype=np.int32)
    zeros = np.zeros(3, dtype=np.int64)
    group = Group(placement, none, zeros, zeros, np.arange(3))
    for policy, counts_only in product(POLICIES, (False, True)):
        traffic = group.sent(policy, counts_only=counts_only)
        assert not any(stage.between.any() for stage in traffic.stages)
