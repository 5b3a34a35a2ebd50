"""Tokens followed from capacity to copies, against the compiled way from end to end."""

from collections import defaultdict
from itertools import product

import numpy as np
import pytest

from service.core.moe.capacity import admit
from service.core.moe.copies import dispatch
from service.core.moe.serving import serve
from service.core.moe.settings import Deduplication, Dispatcher
from service.core.moe.traffic import Traffic
from tests.core.moe.copy_counter import Pairs, count
from tests.core.moe.random_routings import (
    assignments_of,
    capacity_of,
    placement_of,
    random_cases,
    splitting_of,
)
from tests.core.moe.token_counter import TokenCase, count_tokens


def compiled(case: TokenCase, deduplication: Deduplication, *, counts_only: bool) -> Traffic:
    asked = assignments_of(case, counts_only=counts_only)
    nodes = np.array(case.node_of_source)
    served = serve(
        admit(asked, capacity_of(case)),
        asked,
        placement_of(case),
        splitting_of(case),
        expert_tensor=case.expert_tensor,
        node_of_source=nodes,
    )
    return dispatch(
        served,
        dispatcher=Dispatcher.ALL_TO_ALL,
        deduplication=deduplication,
        node_of_source=nodes,
        place_in_node=places_of(case),
        expert_tensor=case.expert_tensor,
        top_k=asked.top_k,
        tokens=asked.tokens,
        padded=case.overflow in ("pad", "dropless_padded"),
    )


def places_of(case: TokenCase) -> np.ndarray:
    nodes = list(case.node_of_source)
    return np.array([source - nodes.index(node) for source, node in enumerate(nodes)])


def followed(case: TokenCase, spared: str) -> list[Pairs] | None:
    """Copies of tokens followed one by one; None where nobody knows which tokens were moved.

    Padding, which nobody asked for, is one copy a row.
    """
    counted = count_tokens(case)
    ranks = [rank for rank, experts in enumerate(case.by_rank) for _ in experts]
    tokens: list[tuple[int, list[int]]] = []
    if case.overflow in ("pad", "dropless_padded") or spared == "none":
        for (source, slot), rows in counted.slot_rows.items():
            tokens += [(source, [slot])] * rows
    elif counted.rerouted.total():
        return None
    else:
        slots: dict[tuple[int, int], list[int]] = defaultdict(list)
        for choice in counted.followed:
            slots[choice.source, choice.token].append(choice.slot)
        tokens = [(source, chosen) for (source, _), chosen in slots.items()]
    return count(
        tokens,
        ranks,
        case.node_of_source,
        places_of(case).tolist(),
        width=case.expert_tensor,
        spared=spared,
    )


@pytest.mark.parametrize("deduplication", list(Deduplication))
def test_all_policies_send_the_copies_of_tokens_that_are_followed(
    seed: int, deduplication: Deduplication
) -> None:
    seen = set()
    for case in random_cases(seed, 25):
        reference = followed(case, deduplication.value)
        if reference is None:
            continue
        traffic = compiled(case, deduplication, counts_only=False)
        if case.overflow == "reroute" and not traffic.is_counted:
            continue  # nothing was rerouted, but it could have been
        seen.add((case.overflow, case.scope))
        assert traffic.is_counted
        assert len(traffic.stages) == len(reference)
        for stage, pairs in zip(traffic.stages, reference, strict=True):
            assert pairs_of(stage.between) == dict(pairs)
    assert len(seen) >= 8


def test_bounds_from_counts_hold_what_is_counted_of_all_policies(seed: int) -> None:
    for case, deduplication in product(
        random_cases(seed + 1, 12), (Deduplication.RANK, Deduplication.NODE)
    ):
        reference = followed(case, deduplication.value)
        bounded = compiled(case, deduplication, counts_only=True)
        if reference is None or bounded.fewest is None or bounded.most is None:
            continue
        for low, high, pairs in zip(bounded.fewest, bounded.most, reference, strict=True):
            counted = np.zeros(low.between.shape, dtype=np.int64)
            for (tail, head), copies in pairs.items():
                counted[tail, head] = copies
            assert (low.between <= counted).all()
            assert (counted <= high.between).all()


def pairs_of(matrix: np.ndarray) -> dict[tuple[int, int], int]:
    return {(int(a), int(b)): int(matrix[a, b]) for a, b in np.argwhere(matrix)}
