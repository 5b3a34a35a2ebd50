"""Which weights a microbatch meets where the pipeline is never drained."""

import pytest

from service.core.errors import InvalidInput
from service.core.schedules.build import build_program
from service.core.schedules.program import OpKind, Program
from service.core.schedules.weight_versions import Update, weight_versions


@pytest.mark.parametrize("ranks", [1, 2, 4, 7])
def test_pipedream_keeps_a_copy_for_each_microbatch_in_flight(ranks: int) -> None:
    versions = weight_versions(build_program("pipedream", ranks, 30), Update.EVERY_MICROBATCH)
    assert [rank.copies for rank in versions] == [ranks - r for r in range(ranks)]
    assert [rank.delay for rank in versions] == [ranks - 1 - r for r in range(ranks)]
    for rank in versions:
        behind = ranks - 1 - rank.rank
        assert rank.versions.tolist() == [max(0, m - behind) for m in range(30)]


def test_two_ranks_by_hand() -> None:
    # rank 0 runs F0 F1 B0 F2 B1 F3 B2 B3: F2 comes after one backward, F3 after two
    first, last = weight_versions(build_program("pipedream", 2, 4), Update.EVERY_MICROBATCH)
    assert first.versions.tolist() == [0, 0, 1, 2]
    assert last.versions.tolist() == [0, 1, 2, 3]


def test_equals_a_walk_with_a_dictionary() -> None:
    for ranks, microbatches in ((3, 1), (3, 2), (4, 4), (5, 4), (4, 11)):
        program = build_program("pipedream", ranks, microbatches)
        full = build_program("pipedream", ranks, 4 * ranks)
        for found in weight_versions(program, Update.EVERY_MICROBATCH):
            seen, _ = _walk(program, found.rank)
            assert found.versions.tolist() == [seen[m] for m in range(microbatches)]
            # Other iterations follow at once, so what a long one needs is needed.
            assert found.copies == _walk(full, found.rank)[1]


def _walk(program: Program, rank: int) -> tuple[dict[int, int], int]:
    """The version of each microbatch, and the most that are in flight at once."""
    newest, in_flight, seen, most = 0, {}, {}, 0
    start, stop = program.rank_offsets[rank : rank + 2]
    for i in range(start, stop):
        m = int(program.microbatch[i])
        if program.kind[i] == OpKind.FORWARD:
            in_flight[m] = seen[m] = newest
            most = max(most, len(set(in_flight.values())))
        else:
            del in_flight[m]
            newest += 1
    return seen, most


def test_two_copies_do_when_gradients_are_gathered() -> None:
    program = build_program("pipedream_2bw", 4, 8)
    for rank in weight_versions(program, Update.EVERY_ITERATION):
        assert (rank.copies, rank.delay, set(rank.versions.tolist())) == (2, 1, {0})
    with pytest.raises(InvalidInput, match="at least one microbatch a rank: 4; got 3"):
        build_program("pipedream_2bw", 4, 3)
