"""Timelines as pictures: well formed, true to the run, bounded."""

import random
import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import numpy as np
import pytest

from service.core.errors import InvalidInput
from service.core.memory.live import live_activations
from service.core.schedules.bubble import measure_bubble
from service.core.schedules.build import build_program
from service.core.schedules.cadence import measure_cadence
from service.core.schedules.effects import effects_of_microbatches
from service.core.schedules.program import OpKind, PairMode, RecomputeMode
from service.core.schedules.selection import EVERYTHING, Selection
from service.core.schedules.stage_times import StageTimes
from service.core.schedules.timeline import Timeline
from service.core.schedules.waits import operation_waits
from service.formats.timeline_looks import LOOKS, ink_on, shade
from service.formats.timeline_shapes import (
    CONTENTION,
    DEPENDENCY,
    OTHER,
    SENDING,
    TRANSFER,
    Intervals,
    Line,
    chunk_numbers,
    rank_waits,
    row_shapes,
)
from service.formats.timeline_svg import timeline_svg
from tests.core.schedules.plans import (
    MILLISECOND,
    simulate_timeline,
    thirds,
    timeline,
)
from tests.core.schedules.random_cases import random_cases

SVG = "{http://www.w3.org/2000/svg}"


def whole(line: Timeline, selection: Selection = EVERYTHING) -> str:
    """With everything that can stand beside and below."""
    return timeline_svg(
        line,
        selection,
        bubble=measure_bubble(line),
        live=live_activations(line.program),
        cadence=measure_cadence(line),
        effects=effects_of_microbatches(line),
    )


def texts(svg: str) -> list[str]:
    root = ET.fromstring(svg)
    return [text for e in root.iter(f"{SVG}text") if (text := "".join(e.itertext()).strip())]


def rectangles(svg: str, fill: str) -> int:
    """How many boxes are drawn in a colour."""
    root = ET.fromstring(svg)
    return sum(e.attrib["d"].count("z") for e in root.iter(f"{SVG}path") if e.get("fill") == fill)


FORWARD, BACKWARD, RECOMPUTE, OTHERS = "#1f5f9e", "#f3b23c", "#2e9e83", "#c5ccd6"


def test_one_box_for_each_operation_and_all_that_is_said_beside_it() -> None:
    svg = whole(timeline("1f1b", 16, *thirds([18, 18, 25, 18], 3 * 10**9)))
    assert (rectangles(svg, FORWARD), rectangles(svg, BACKWARD)) == (64, 64)
    found = texts(svg)
    for expected in (
        "1f1b · 4 ranks · 16 microbatches",
        "makespan 1.341 s · idle 29.3%",
        "rank 3",
        "forward",
        "backward",
        "fill",
        "drain",
        "utilised",
        "89.5%",
        "peak stages",
        "fill, drain",
        "steady",
        "waits for another rank",
        "Slowest cadence",
        "stage 2: 75 ms of work a microbatch; the steady state takes 75 ms a microbatch",
        "Microbatches",
        "32",
        "25.4%",
    ):
        assert expected in found


def test_is_accessible() -> None:
    root = ET.fromstring(whole(timeline("gpipe", 2, [1, 1], [2, 2])))
    assert root.attrib["role"] == "img"
    named = {e.attrib["id"]: e.text for e in root if "id" in e.attrib}
    assert root.attrib["aria-labelledby"].split() == list(named)
    assert named["timeline-title"] == "gpipe · 2 ranks · 2 microbatches"
    assert "2 ranks" in str(named["timeline-desc"])
    assert "coloured by what the rank waits for" in str(named["timeline-desc"])


def test_title_is_escaped() -> None:
    svg = timeline_svg(timeline("gpipe", 1, [1], [1]), title="a <b> & c")
    assert "a <b> & c" in texts(svg)


def test_only_what_is_given_is_said() -> None:
    found = texts(timeline_svg(timeline("forward_only", 2, [1, 1])))
    assert "Slowest cadence" not in found
    assert "utilised" not in found
    assert "backward" not in found
    assert "waits for a busy link" not in found


def test_filters() -> None:
    line = timeline(
        "gpipe",
        8,
        [6 * MILLISECOND] * 4,
        [12 * MILLISECOND] * 4,
        recompute=[6 * MILLISECOND] * 4,
        mode=RecomputeMode.AFTER_GRADIENT,
    )
    svg = timeline_svg(
        line, Selection(ranks=frozenset({1, 2}), first_microbatch=2, last_microbatch=3)
    )
    assert rectangles(svg, FORWARD) == rectangles(svg, RECOMPUTE) == 4
    assert rectangles(svg, OTHERS) == 2 * 3 * 6
    found = texts(svg)
    assert "rank 1" in found
    assert "rank 0" not in found
    assert "other microbatches" in found
    part = timeline_svg(line, Selection(start=12 * MILLISECOND, end=24 * MILLISECOND))
    assert rectangles(part, FORWARD) == 2 + 2 + 2 + 1
    assert rectangles(part, BACKWARD) == 0
    assert {"12", "14", "24"} <= set(texts(part))


def test_an_empty_window_is_drawn_empty() -> None:
    svg = timeline_svg(timeline("gpipe", 2, [1, 1], [1, 1]), Selection(start=99))
    assert rectangles(svg, FORWARD) == 0


@pytest.mark.parametrize(("ranks", "microbatches"), [(64, 512), (512, 64), (1, 20_000)])
def test_size_is_bounded(ranks: int, microbatches: int) -> None:
    program = build_program("1f1b", ranks, microbatches, recompute=RecomputeMode.AFTER_GRADIENT)
    line = simulate_timeline(
        program, StageTimes.of(*([time * MILLISECOND] * ranks for time in (6, 12, 6)))
    )
    svg = timeline_svg(line, bubble=measure_bubble(line), live=live_activations(program))
    assert len(svg) < 1_000_000
    assert any("share of time by kind" in text for text in texts(svg))
    ET.fromstring(svg)


def paths(svg: str, fill: str) -> list[tuple[float, float]]:
    """Left and width of each box in a colour."""
    root = ET.fromstring(svg)
    found = []
    for element in root.iter(f"{SVG}path"):
        if element.get("fill") == fill:
            for box in element.attrib["d"].split("z")[:-1]:
                left, width = re.match(r"M([\d.]+) [\d.]+h([\d.]+)", box).groups()  # type: ignore[union-attr]
                found.append((float(left), float(width)))
    return sorted(found)


def test_waits_are_coloured_by_cause_where_they_are() -> None:
    """The first backward of rank 0 waits from 4 to 11 for a value and to 12 for its transfer."""
    line = timeline("1f1b", 2, [2, 3], [4, 5], 1)
    axis = Line(start=0, end=24, left=0.0, width=240.0, narrowest=2.0)
    wanted = np.ones(line.program.operations, dtype=np.bool_)
    waits = rank_waits(line, operation_waits(line), 0)
    shapes = row_shapes(line, np.arange(4), wanted, axis, waits)
    assert [(b.kind, b.left, b.right) for b in shapes.boxes[4:]] == [
        (DEPENDENCY, 40, 110),
        (TRANSFER, 110, 120),
        (DEPENDENCY, 160, 190),
        (TRANSFER, 190, 200),
    ]
    svg = timeline_svg(line)
    scale = (1200 - 28 - 86) / 24
    expected = [(86 + 11 * scale, scale), (86 + 19 * scale, scale)]
    found = paths(svg, LOOKS[TRANSFER].fill)
    assert [left for left, _ in found] == pytest.approx([left for left, _ in expected], abs=0.1)
    assert {"waits for a transfer", "waits for another rank", "fill, drain"} <= set(texts(svg))


def test_queues_and_sending_have_looks_of_their_own() -> None:
    intervals = Intervals(np.array([SENDING, CONTENTION]), np.array([0, 10]), np.array([10, 20]))
    line = timeline("gpipe", 1, [10], [10])
    axis = Line(start=0, end=20, left=0.0, width=200.0, narrowest=2.0)
    shapes = row_shapes(line, np.arange(0), np.zeros(2, dtype=np.bool_), axis, intervals)
    assert [(b.kind, b.left, b.right) for b in shapes.boxes] == [
        (SENDING, 0, 100),
        (CONTENTION, 100, 200),
    ]
    assert len({LOOKS[kind].fill for kind in (SENDING, CONTENTION, DEPENDENCY, TRANSFER)}) == 4


def test_rows_sum_to_the_makespan(seed: int) -> None:
    """Fill, operations, waits and drain of a rank leave nothing out and nothing twice."""
    for _, line in random_cases(random.Random(seed), 30):
        waits = operation_waits(line)
        for rank in range(line.program.ranks):
            between = rank_waits(line, waits, rank)
            operations = line.rank_operations(rank)
            parts = int((between.end - between.start).sum()) + int(line.durations[operations].sum())
            fill, drain = line.first_start[rank], line.makespan - line.last_end[rank]
            assert parts + fill + drain == line.makespan


@pytest.mark.parametrize(
    ("kind", "chunks"), [("zb_v", 2), ("interleaved_1f1b", 3), ("dualpipe", 1)]
)
def test_chunks_and_directions_of_a_rank_are_told_apart(kind: str, chunks: int) -> None:
    stages = [6] * (4 * chunks)
    halves = None if kind == "interleaved_1f1b" else (stages, stages)
    line = timeline(kind, 8, stages, None if halves else stages, chunks=chunks, halves=halves)
    parts = 2 if kind == "dualpipe" else chunks
    svg = timeline_svg(line, live=live_activations(line.program))
    drawn = [rectangles(svg, shade(OpKind.FORWARD, part, parts)) for part in range(parts)]
    assert drawn == [4 * 8 // line.program.directions] * parts
    assert ("peak chunks" if chunks > 1 else "peak stages") in texts(svg)
    numbers = chunk_numbers(line)
    assert numbers.max() == parts - 1
    if kind == "zb_v":
        assert numbers.tolist() == [[0, 0, 0, 0, 1, 1, 1, 1]]
    if kind == "dualpipe":
        assert numbers.tolist() == [[0] * 4, [1] * 4]


def test_fill_steady_part_and_drain_are_marked() -> None:
    line = timeline("gpipe", 4, [1] * 4, [1] * 4)
    assert {"fill", "steady", "drain"} <= set(texts(timeline_svg(line)))
    # One microbatch on two stages without backwards: the first is done as the second begins.
    alone = texts(timeline_svg(timeline("forward_only", 1, [1, 1])))
    assert "steady" not in alone
    assert {"fill", "drain"} <= set(alone)


def test_ink_stands_out_and_shades_differ() -> None:
    for kind in LOOKS:
        for part in range(4):
            assert ink_on(shade(kind, part, 4)) != shade(kind, part, 4)
        if kind >= 0:
            assert len({shade(kind, part, 4) for part in range(4)}) == 4
    assert (ink_on("#1f5f9e"), ink_on("#f3b23c")) == ("#ffffff", "#1c1a16")


def test_too_many_ranks_are_refused() -> None:
    with pytest.raises(InvalidInput, match="at most 512 ranks; got 513"):
        timeline_svg(timeline("forward_only", 1, [1] * 513))


def test_ticks_are_round_and_neither_few_nor_many() -> None:
    for makespan in (7, 447, 999, 1_000, 12_345, 5 * 10**9, 86_399 * 10**12):
        svg = timeline_svg(timeline("forward_only", 1, [makespan]))
        grid = re.search(r'<path d="(M[^"]*)" stroke="#d3d9e1"', svg)
        assert grid is not None
        assert 5 <= grid[1].count("M") <= 13


def test_bins_show_the_share_of_each_kind_exactly() -> None:
    line = timeline("1f1b", 400, [3, 5, 2], [4, 9, 7], 1)
    everyone = np.arange(line.program.operations)
    wanted = line.program.microbatch < 300
    for rank in range(3):
        operations = everyone[line.rank_operations(rank)]
        axis = Line(start=100, end=line.makespan, left=50.0, width=300.0, narrowest=4.0)
        shapes = row_shapes(line, operations, wanted, axis)
        assert shapes.binned
        assert len({(box.left, box.right) for box in shapes.boxes}) <= 75
        starts = np.maximum(line.run.start[operations], 100)
        lengths = np.maximum(line.run.end[operations] - starts, 0)
        kinds = np.where(wanted[operations], line.program.kind[operations], OTHER)
        for kind in (OpKind.FORWARD, OpKind.BACKWARD, OTHER):
            area = sum(
                (box.right - box.left) * (box.top - box.bottom)
                for box in shapes.boxes
                if box.kind == kind
            )
            expected = lengths[kinds == kind].sum() / (line.makespan - 100) * 300
            assert area == pytest.approx(float(expected), abs=0.3)


def test_boxes_stand_where_operations_run() -> None:
    line = timeline("1f1b", 2, [2, 3], [4, 5], 1)
    axis = Line(start=0, end=24, left=10.0, width=240.0, narrowest=2.0)
    wanted = np.ones(line.program.operations, dtype=np.bool_)
    shapes = row_shapes(line, np.arange(4), wanted, axis)
    assert not shapes.binned
    assert [(b.kind, b.left, b.right, b.microbatch) for b in shapes.boxes] == [
        (OpKind.FORWARD, 10, 30, 0),
        (OpKind.FORWARD, 30, 50, 1),
        (OpKind.BACKWARD, 130, 170, 0),
        (OpKind.BACKWARD, 210, 250, 1),
    ]
    assert all(a.right <= b.left for a, b in pairwise(shapes.boxes))


def test_every_kind_has_its_own_look_and_is_in_the_legend() -> None:
    line = timeline(
        "dualpipe_v",
        4,
        [6] * 4,
        halves=([6] * 4, [6] * 4),
        chunks=2,
        pair_mode=PairMode.FUSED,
        recompute=[2] * 4,
        mode=RecomputeMode.AFTER_GRADIENT,
    )
    found = texts(timeline_svg(line))
    names = ("forward", "backward", "backward (inputs)", "backward (weights)", "recompute")
    assert set(names) | {"forward and backward"} <= set(found)


def test_a_pair_is_shown_with_either_of_its_microbatches() -> None:
    halves = ([6] * 4, [6] * 4)
    line = timeline("dualpipe_v", 4, [6] * 4, halves=halves, chunks=2, pair_mode=PairMode.FUSED)
    program = line.program
    for chosen in range(4):
        wanted = Selection(first_microbatch=chosen, last_microbatch=chosen).operations(line)
        expected = [
            i
            for i in range(program.operations)
            if chosen in (program.microbatch[i], program.backward_microbatch[i])
        ]
        assert wanted.tolist() == expected
