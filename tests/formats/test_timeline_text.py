"""Timelines as slot tables."""

import pytest

from service.core.errors import InvalidInput
from service.core.memory.live import live_activations
from service.core.schedules.assemble import assemble_program
from service.core.schedules.bubble import measure_bubble
from service.core.schedules.program import PairMode
from service.core.schedules.selection import Selection
from service.core.schedules.stage_times import StageTimes
from service.formats.timeline_text import timeline_text
from tests.core.schedules.plans import (
    MILLISECOND,
    read_order,
    simulate_timeline,
    timeline,
)


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("rank")]


def test_forward_only() -> None:
    line = timeline("forward_only", 4, [6 * MILLISECOND] * 4)
    assert timeline_text(line) == (
        "forward_only: 4 ranks, 4 microbatches, makespan 42 ms, 1 slot = 6 ms\n"
        "rank 0  F0 F1 F2 F3  .  .  .\n"
        "rank 1   . F0 F1 F2 F3  .  .\n"
        "rank 2   .  . F0 F1 F2 F3  .\n"
        "rank 3   .  .  . F0 F1 F2 F3\n"
    )


def test_1f1b_with_fill_drain_utilisation_and_peak() -> None:
    line = timeline("1f1b", 4, [6 * MILLISECOND] * 4, [12 * MILLISECOND] * 4)
    text = timeline_text(line, bubble=measure_bubble(line), live=live_activations(line.program))
    heading, titles, *ranks = text.splitlines()
    assert heading == "1f1b: 4 ranks, 4 microbatches, makespan 126 ms, 1 slot = 6 ms"
    assert titles.split() == ["fill", "drain", "busy", "peak"]
    assert [rank.split()[-6:] for rank in ranks] == [
        ["0", "s", "0", "s", "57.1%", "4"],
        ["6", "ms", "12", "ms", "57.1%", "3"],
        ["12", "ms", "24", "ms", "57.1%", "2"],
        ["18", "ms", "36", "ms", "57.1%", "1"],
    ]
    assert len({len(rank) for rank in (titles, *ranks)}) == 1
    assert ranks[0].startswith("rank 0  F0 F1 F2 F3  .  .  .  .  .  . B0 B0  . B1 B1  . B2 B2")


def test_slots_are_the_longest_that_fit() -> None:
    line = timeline("gpipe", 2, [4, 6], [6, 8], 2)
    assert "1 slot = 2 ps" in timeline_text(line)


def test_part_of_a_timeline_is_clipped_to_its_window() -> None:
    line = timeline("forward_only", 4, [6] * 4)
    selection = Selection(ranks=frozenset({1, 3}), first_microbatch=1, start=9, end=30)
    text = timeline_text(line, selection)
    assert "1 slot = 3 ps" in text
    assert rows(text) == ["rank 1   . F1 F1 F2 F2 F3 F3", "rank 3   .  .  .  .  . F1 F1"]
    assert rows(timeline_text(line, Selection(start=5, end=5))) == [f"rank {r}" for r in range(4)]


def test_operations_that_take_no_time_have_no_slot() -> None:
    line = timeline("gpipe", 1, [0, 3], [3, 0])
    assert rows(timeline_text(line)) == ["rank 0   . B0", "rank 1  F0  ."]


def test_stages_are_named_where_a_rank_has_several() -> None:
    program = assemble_program(
        "explicit",
        [read_order("0F0 1F0 1B0 0B0")],
        stages=2,
        microbatches=1,
        stage_edges=(),
    )
    line = simulate_timeline(program, StageTimes.of([1, 1], [1, 2]))
    assert rows(timeline_text(line)) == ["rank 0  0F0 1F0 1B0 1B0 0B0"]


def test_times_without_a_common_slot_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"400 slots at the most.*1 ns.*take the SVG"):
        timeline_text(timeline("gpipe", 4, [10**9, 10**9 + 10**3], [10**9, 10**9]))


def test_too_many_ranks_are_refused() -> None:
    with pytest.raises(InvalidInput, match="at most 256 ranks; got 257"):
        timeline_text(timeline("forward_only", 1, [1] * 257))


def test_stages_are_named_where_a_rank_has_two() -> None:
    v_shaped = timeline("zb_v", 3, [6] * 4, halves=([6] * 4, [6] * 4), chunks=2)
    assert "0F0 0F1 0F2 3F0 3I0 3W0" in timeline_text(v_shaped)
    two_way = timeline("chimera", 2, [6] * 2, [6] * 2)
    assert "0F0 1F1" in timeline_text(two_way)


def test_a_fused_pair_has_both_its_halves() -> None:
    line = timeline(
        "dualpipe_v",
        4,
        [6] * 4,
        halves=([6] * 4, [6] * 4),
        chunks=2,
        pair=[12] * 4,
        pair_mode=PairMode.FUSED,
    )
    assert "0F3&3B1" in timeline_text(line)
