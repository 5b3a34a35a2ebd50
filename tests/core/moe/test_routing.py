"""What a routing says of any number of ranks, with notes of what it took for granted."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.errors import FaultCode, InvalidInput
from service.core.moe.assignments import RoutingLevel
from service.core.moe.routing import Routed, Routing, RoutingRecord, assignments, expert_loads
from service.core.moe.skews import Skew, SkewKind


def of_counts(*rows: list[int], top_k: int | None = 1) -> Routing:
    """One layer, number 7; a matrix where there are several rows."""
    level = RoutingLevel.SOURCES if len(rows) > 1 else RoutingLevel.COUNTS
    record = RoutingRecord(np.array(rows))
    return Routing(len(rows[0]), top_k, level, (7,), (0,), {(7, 0): record})


def of_tokens(*sources: list[list[int]], experts: int = 4) -> Routing:
    """One layer, number 7, of token lists by source."""
    choices = np.array([token for source in sources for token in source], dtype=np.int32)
    counts = np.array(
        [np.bincount(np.ravel(source).astype(int), minlength=experts) for source in sources]
    )
    record = RoutingRecord(counts, choices)
    return Routing(experts, choices.shape[1], RoutingLevel.TOKENS, (7,), (0,), {(7, 0): record})


def routed(routing: Routing, *tokens: int) -> Routed:
    return assignments(routing, 7, 0, np.array(tokens))


def codes(found: Routed) -> list[str]:
    return [note.code for note in found.notes]


def test_sources_that_are_the_ranks_are_taken_as_they_are() -> None:
    found = routed(of_counts([3, 1], [0, 2]), 4, 2)
    assert found.assignments.counts.tolist() == [[3, 1], [0, 2]]
    assert found.assignments.level is RoutingLevel.SOURCES
    assert not found.notes


def test_other_numbers_of_tokens_scale_each_source() -> None:
    found = routed(of_counts([3, 1], [0, 2]), 8, 3)
    assert found.assignments.counts.tolist() == [[6, 2], [0, 3]]
    assert codes(found) == ["routing_counts_scaled"]


def test_twice_as_many_sources_fold_in_order() -> None:
    found = routed(of_counts([3, 0], [1, 0], [0, 2], [0, 2]), 4, 4)
    assert found.assignments.counts.tolist() == [[4, 0], [0, 4]]
    assert codes(found) == ["routing_sources_folded"]
    assert found.assignments.level is RoutingLevel.SOURCES


def test_half_as_many_sources_repeat_in_order() -> None:
    found = routed(of_counts([4, 0], [0, 4]), 2, 2, 2, 2)
    assert found.assignments.counts.tolist() == [[2, 0], [2, 0], [0, 2], [0, 2]]
    assert codes(found) == ["routing_sources_repeated"]


def test_sources_that_do_not_divide_say_no_more_than_counts() -> None:
    found = routed(of_counts([6, 0], [0, 6]), 4, 4, 4)
    assert found.assignments.counts.tolist() == [[2, 2]] * 3
    assert found.assignments.level is RoutingLevel.COUNTS
    assert codes(found) == ["routing_sources_merged"]


def test_a_source_without_tokens_asks_as_all_do() -> None:
    found = routed(of_counts([0, 0], [3, 1]), 4, 4)
    assert found.assignments.counts.tolist() == [[3, 1], [3, 1]]
    assert codes(found) == ["routing_source_empty"]


def test_counts_by_expert_are_shared_out_in_proportion() -> None:
    found = routed(of_counts([6, 3, 3], top_k=2), 2, 2, 2)
    assert found.assignments.counts.tolist() == [[2, 1, 1]] * 3
    assert found.assignments.level is RoutingLevel.COUNTS
    assert codes(found) == ["routing_sources_alike"]


def test_one_rank_has_all_counts_and_nothing_to_take_for_granted() -> None:
    found = routed(of_counts([6, 3, 3], top_k=2), 6)
    assert found.assignments.counts.tolist() == [[6, 3, 3]]
    assert not found.notes


def test_tokens_without_sources_go_to_ranks_in_blocks() -> None:
    routing = of_tokens([[0, 1], [2, 3], [0, 2], [1, 3]])
    found = routed(routing, 1, 3)
    assert found.assignments.choices is not None
    assert found.assignments.choices.tolist() == [[0, 1], [2, 3], [0, 2], [1, 3]]
    assert found.assignments.counts.tolist() == [[1, 1, 0, 0], [1, 1, 2, 2]]
    assert codes(found) == ["routing_tokens_in_blocks"]


def test_a_list_that_is_too_short_begins_again_and_one_too_long_is_cut() -> None:
    routing = of_tokens([[0, 1], [2, 3], [0, 2]])
    longer = routed(routing, 2, 2)
    assert longer.assignments.choices is not None
    assert longer.assignments.choices.tolist() == [[0, 1], [2, 3], [0, 2], [0, 1]]
    assert codes(longer) == ["routing_tokens_in_blocks", "routing_tokens_repeated"]
    shorter = routed(routing, 1, 1)
    assert shorter.assignments.choices is not None
    assert shorter.assignments.choices.tolist() == [[0, 1], [2, 3]]
    assert codes(shorter) == ["routing_tokens_in_blocks", "routing_tokens_cut"]


def test_stated_sources_keep_their_own_tokens() -> None:
    routing = of_tokens([[0, 1]], [[2, 3], [1, 2]])
    found = routed(routing, 2, 1)
    assert found.assignments.choices is not None
    assert found.assignments.choices.tolist() == [[0, 1], [0, 1], [2, 3]]
    assert codes(found) == ["routing_tokens_repeated", "routing_tokens_cut"]
    assert found.assignments.level is RoutingLevel.TOKENS


def test_ranks_that_share_a_source_take_its_tokens_in_turn() -> None:
    routing = of_tokens([[0, 1], [0, 2]], [[2, 3], [1, 3]])
    found = routed(routing, 1, 1, 1, 1)
    assert found.assignments.choices is not None
    assert found.assignments.choices.tolist() == [[0, 1], [0, 2], [2, 3], [1, 3]]
    assert codes(found) == ["routing_sources_repeated"]


def test_tokens_of_sources_that_do_not_divide_are_one_list() -> None:
    routing = of_tokens([[0, 1], [0, 2]], [[2, 3]])
    found = routed(routing, 1, 1, 1)
    assert found.assignments.choices is not None
    assert found.assignments.choices.tolist() == [[0, 1], [0, 2], [2, 3]]
    assert codes(found) == ["routing_sources_merged"]
    assert found.assignments.level is RoutingLevel.TOKENS


def test_a_source_without_tokens_is_given_those_of_all() -> None:
    routing = of_tokens([[0, 1], [0, 2]], [])
    found = routed(routing, 1, 1)
    assert found.assignments.choices is not None
    assert found.assignments.choices.tolist() == [[0, 1], [0, 2]]
    assert codes(found) == ["routing_source_empty"]


@settings(max_examples=60)
@given(st.data())
def test_all_levels_keep_both_limits_and_tokens_their_counts(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    experts = data.draw(st.integers(1, 8))
    top_k = data.draw(st.integers(1, experts))
    lists = [
        [rng.permutation(experts)[:top_k].tolist() for _ in range(rng.integers(1, 9))]
        for _ in range(data.draw(st.integers(1, 6)))
    ]
    exact = of_tokens(*lists, experts=experts)
    matrix = of_counts(*exact.records[7, 0].counts.tolist(), top_k=top_k)
    tokens = np.array(data.draw(st.lists(st.integers(0, 20), min_size=1, max_size=6)))
    for routing in (exact, matrix):
        asked = assignments(routing, 7, 0, tokens).assignments
        assert asked.counts.sum(axis=1).tolist() == (top_k * tokens).tolist()
        assert (asked.counts <= tokens[:, np.newaxis]).all()
        assert (asked.counts >= 0).all()
        if asked.choices is not None:
            for source, (first, last) in enumerate(
                zip(asked.offsets[:-1], asked.offsets[1:], strict=True)
            ):
                own = np.bincount(asked.choices[first:last].ravel(), minlength=experts)
                assert own.tolist() == asked.counts[source].tolist()


def test_steps_begin_again_after_the_last() -> None:
    records = {(7, step): RoutingRecord(np.array([[step, 4 - step]])) for step in range(3)}
    routing = Routing(2, 1, RoutingLevel.COUNTS, (7,), (1, 1001, 2501), records)
    asked = [assignments(routing, 7, step, np.array([4])).assignments for step in range(5)]
    assert [int(one.counts[0, 0]) for one in asked] == [0, 1, 2, 0, 1]
    assert expert_loads(routing, 7, 4).tolist() == [1, 3]


def test_loads_that_are_no_tokens_carry_no_traffic() -> None:
    routing = of_counts([90, 132], top_k=None)
    assert expert_loads(routing, 7, 0).tolist() == [90, 132]
    with pytest.raises(InvalidInput, match="no number of tokens") as refused:
        routed(routing, 4)
    assert [fault.code for fault in refused.value.faults] == [FaultCode.NOT_SUPPORTED]


def test_a_record_without_tokens_says_nothing_of_other_tokens() -> None:
    silent = of_counts([0, 0], [0, 0])
    with pytest.raises(InvalidInput, match="layer 7 of the routing has no tokens"):
        routed(silent, 4, 4)
    assert routed(silent, 0, 0).assignments.counts.tolist() == [[0, 0], [0, 0]]


def test_a_layer_that_the_routing_has_not_is_refused_with_those_it_has() -> None:
    with pytest.raises(InvalidInput, match="no layer 6; its layers are 7"):
        assignments(of_counts([1, 1]), 6, 0, np.array([2]))


def test_the_nearest_layer_is_the_lower_of_two() -> None:
    records = {(layer, 0): RoutingRecord(np.array([[1, 1]])) for layer in (0, 7, 15)}
    routing = Routing(2, 1, RoutingLevel.COUNTS, (0, 7, 15), (0,), records)
    assert [routing.nearest(layer) for layer in (0, 3, 4, 11, 12, 40)] == [0, 0, 7, 7, 15, 15]


def test_a_skew_is_the_same_in_each_layer_and_knows_the_ranks() -> None:
    skew = Skew(SkewKind.EMPTY_RANK, rank=1)
    routing = Routing(4, 1, RoutingLevel.SKEW, skew=skew)
    assert routing.nearest(5) == 5
    found = assignments(routing, 5, 0, np.array([6, 6]), ranks=2)
    assert found.assignments.counts.tolist() == [[3, 3, 0, 0]] * 2
    assert not found.notes
    assert expert_loads(routing, 5, 0, ranks=2).tolist() == [2048, 2048, 0, 0]
