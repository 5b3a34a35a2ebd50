"""Whether terms fit, and which of them is to blame where they do not."""

import pytest

from service.core.memory.communicators import communicator_bytes, communicator_sizes
from service.core.memory.terms import (
    Blame,
    Relief,
    Term,
    TermBytes,
    TermOrigin,
    Verdict,
    judge,
)
from service.core.plans.plan import Degrees

MIB = 2**20


def terms(**sizes: int) -> list[TermBytes]:
    return [
        TermBytes(Term(name), size, size, TermOrigin.COMPUTED, "") for name, size in sizes.items()
    ]


def judged(
    found: list[TermBytes], capacity: int | None = 100, *, unknown: bool = False, reserve: float = 0
) -> Verdict:
    return judge(
        found,
        capacity=capacity,
        usable_fraction=0.9,
        reserve_fraction=reserve,
        has_unknown=unknown,
    )


def test_what_fits() -> None:
    assert judged(terms(weights=60, activations=30)) == Verdict(90, 90, 0, True, None)


def test_what_is_unknown_leaves_the_verdict_open_only_where_the_known_fits() -> None:
    assert judged(terms(weights=60), unknown=True) == Verdict(60, 90, 30, None, None)
    assert judged(terms(weights=91), unknown=True).feasible is False
    assert judged(terms(weights=91), None) == Verdict(91, None, None, None, None)


@pytest.mark.parametrize(
    ("sizes", "blamed"),
    [
        # 10 too many: half of the 60 is enough.
        ({"weights": 40, "activations": 60}, Blame(Term.ACTIVATIONS, Relief.HALVED)),
        # 40 too many: no half is enough, and weights are the largest.
        ({"weights": 70, "activations": 60}, Blame(Term.WEIGHTS, Relief.REMOVED)),
        # 75 too many: the larger alone is.
        ({"weights": 75, "context": 90}, Blame(Term.CONTEXT, Relief.REMOVED)),
        # 110 too many: neither is.
        ({"weights": 95, "activations": 105}, Blame(Term.ACTIVATIONS, Relief.NOT_ALONE)),
        # The reserve is never to blame.
        ({"weights": 15, "reserve": 120}, Blame(Term.WEIGHTS, Relief.NOT_ALONE)),
    ],
)
def test_the_first_term_to_blame(sizes: dict[str, int], blamed: Blame) -> None:
    found = judged(terms(**sizes))
    assert found.feasible is False
    assert found.blame == blamed


def test_what_is_allocated_takes_its_share_of_the_reserve_with_it() -> None:
    # 16 too many; half of 30 is 15, with a tenth of it 16.5.
    found = judged(terms(activations=30, context=20, reserve=56), reserve=0.1)
    assert found.blame == Blame(Term.ACTIVATIONS, Relief.HALVED)
    assert judged(terms(activations=30, context=20, reserve=56)).blame == Blame(
        Term.ACTIVATIONS, Relief.REMOVED
    )


@pytest.mark.parametrize(
    ("degrees", "copies", "sizes"),
    [
        (Degrees(1), 1, ()),
        (Degrees(4, tensor=2, data=2), 1, (2, 2, 4)),
        (Degrees(4, data=2, context=2), 2, (2, 2, 4, 2, 4)),
        # Experts on 8 of 16 ranks: a group that shares them, one with the same ones.
        (Degrees(4, data=16, expert=8), 1, (16, 4, 8, 2)),
        # Each expert on the tensor ranks, which have a group already, as those of data do.
        (Degrees(1, tensor=2, data=4, expert=4, expert_tensor=2), 1, (2, 4, 4)),
    ],
)
def test_groups_of_ranks_that_a_rank_is_in(
    degrees: Degrees, copies: int, sizes: tuple[int, ...]
) -> None:
    assert communicator_sizes(degrees, copies) == sizes


def test_buffers_of_pairs_and_of_larger_groups() -> None:
    assert communicator_bytes((2, 4, 2)) == (2 * 544 + 688) * MIB
