"""Capacity and placement against a counter that follows tokens one at a time."""

from collections import Counter
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from service.core.moe.capacity import admit, reroute_bounds
from service.core.moe.placement import stands_near
from service.core.moe.serving import serve
from tests.core.moe.random_routings import (
    assignments_of,
    capacity_of,
    kept_choices_of,
    placement_of,
    random_cases,
    splitting_of,
)
from tests.core.moe.token_counter import count_tokens

CASES = list(random_cases(seed=7, number=30))


def counter_of(rows: npt.NDArray[np.int64]) -> Counter[tuple[int, ...]]:
    """What is not 0, by place."""
    return Counter({tuple(map(int, place)): int(rows[place]) for place in np.ndindex(rows.shape)})


@pytest.mark.parametrize("part", range(5))
def test_every_policy_admits_what_a_count_of_tokens_does(part: int) -> None:
    for case in CASES[part::5]:
        assignments, expected = assignments_of(case), count_tokens(case)
        admitted = admit(assignments, capacity_of(case))
        assert counter_of(admitted.kept) == expected.kept, case
        assert counter_of(admitted.wire) == expected.wire, case
        assert counter_of(admitted.dropped) == _by_source(expected.dropped), case
        assert counter_of(admitted.fallback) == _by_source(expected.fallback), case
        assert counter_of(admitted.rerouted) == _by_source(expected.rerouted), case
        if admitted.kept_choices is not None:
            assert kept_choices_of(admitted, assignments) == expected.kept_choices, case


def _by_source(counted: Counter[int]) -> Counter[tuple[int, ...]]:
    return Counter({(source,): number for source, number in counted.items()})


def test_rerouting_to_the_own_host_first_is_what_a_count_of_tokens_says() -> None:
    moved = 0
    for case in CASES:
        if case.overflow != "reroute":
            continue
        near = stands_near(placement_of(case), np.array(case.node_of_source), case.expert_tensor)
        _, admitted = reroute_bounds(assignments_of(case), capacity_of(case), near)
        expected = count_tokens(replace(case, near_first=True))
        assert counter_of(admitted.kept) == expected.kept, case
        assert counter_of(admitted.dropped) == _by_source(expected.dropped), case
        moved += int(admitted.rerouted.sum())
    assert moved > 50


@pytest.mark.parametrize("counts_only", [False, True])
def test_slots_serve_what_a_count_of_tokens_says(counts_only: bool) -> None:
    followed = 0
    for case in CASES:
        assignments, expected = assignments_of(case, counts_only=counts_only), count_tokens(case)
        served = serve(
            admit(assignments, capacity_of(case)),
            assignments,
            placement_of(case),
            splitting_of(case),
            expert_tensor=case.expert_tensor,
            node_of_source=np.array(case.node_of_source),
        )
        assert counter_of(served.rows) == expected.slot_rows, case
        assert counter_of(served.kept) == expected.slot_kept, case
        if served.choices is not None:
            listed = served.choices[served.choices >= 0]
            assert listed.tolist() == [one.slot for one in expected.followed], case
            followed += len(listed)
    assert (followed > 1000) is not counts_only
