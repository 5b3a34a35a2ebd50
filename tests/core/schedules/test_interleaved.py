"""Groups of microbatches: what is legal, and what is named where they are not."""

import pytest

from service.core.errors import InvalidInput
from service.core.schedules.assemble import assemble_program
from service.core.schedules.build import build_program, chain
from service.core.schedules.interleaved import check_groups, group_of, interleaved_orders
from service.core.schedules.shape import Shape


@pytest.mark.parametrize(
    ("ranks", "microbatches", "group"),
    [(4, 8, 4), (4, 6, 6), (4, 10, 5), (8, 4, 4), (4, 3, 3), (8, 12, 12), (1, 5, 1)],
)
def test_the_default_group(ranks: int, microbatches: int, group: int) -> None:
    shape = Shape(ranks, microbatches, 2)
    assert group_of(shape) == group
    assert not check_groups(shape)


@pytest.mark.parametrize(
    ("ranks", "microbatches", "group", "legal"),
    [
        (4, 14, 5, True),  # 5, 5, 4
        (4, 14, 7, True),
        (4, 14, 14, True),
        (4, 14, 4, False),  # 4, 4, 4, 2
        (4, 14, 6, False),  # 6, 6, 2
        (4, 8, 2, False),
        (4, 8, 9, False),
        (8, 4, 4, True),
        (8, 4, 2, False),
    ],
)
def test_a_group_is_at_least_the_ranks_and_so_is_the_last(
    ranks: int, microbatches: int, group: int, *, legal: bool
) -> None:
    faults = check_groups(Shape(ranks, microbatches, 2, group))
    assert (not faults) == legal
    assert all(fault.path == ("schedule", "group_size") for fault in faults)


def test_refusals_name_what_would_do() -> None:
    with pytest.raises(InvalidInput, match=r"\(12 or 16\), or group_size 5 or 7 or 8 or 14"):
        build_program("interleaved_1f1b", 4, 14, chunks_per_rank=2)
    with pytest.raises(InvalidInput, match="5 or 7 or 8 or 14 would do for 14, 6 does not"):
        build_program("interleaved_1f1b", 4, 14, chunks_per_rank=2, group_size=6)


def test_a_short_last_group_would_stall_the_ranks() -> None:
    """Why it is refused: 8 ranks, 12 microbatches in groups of 8 wait for each other for ever."""
    shape = Shape(8, 12, 2, 8)
    with pytest.raises(InvalidInput, match="wait for each other for ever"):
        assemble_program(
            "interleaved_1f1b",
            interleaved_orders(shape),
            stages=16,
            microbatches=12,
            stage_edges=chain(16),
        )


def test_one_chunk_is_not_1f1b() -> None:
    """The warm-up keeps its factor 2."""
    program = build_program("interleaved_1f1b", 4, 8)
    assert program.operations == build_program("1f1b", 4, 8).operations
    assert [program.label(i) for i in range(8)] == [
        "0F0", "0F1", "0F2", "0F3", "0F4", "0F5", "0F6", "0B0",
    ]  # fmt: skip
