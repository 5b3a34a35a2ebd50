"""What operations exchange themselves on links, and wait for it, in every form of a timeline."""

import csv
import io
import json
import random

import numpy as np
import pytest

from service.core.schedules.link_use import intervals_of
from service.core.schedules.program_links import carried
from service.core.schedules.selection import EVERYTHING, Selection
from service.core.schedules.timeline import Timeline
from service.core.schedules.waits import operation_waits
from service.core.units import to_seconds
from service.formats.chrome_trace import chrome_trace
from service.formats.timeline_csv import timeline_csv
from service.formats.timeline_shapes import CONTENTION, Line, rank_waits, row_shapes
from tests.core.schedules.own_bundle_cases import own_cases
from tests.core.schedules.test_own_bundles import timeline_of

NANOSECOND = 1000


def late_timelines(seed: int, count: int) -> list[Timeline]:
    """Timelines in which some operation waited for its own exchange, in whole nanoseconds."""
    cases = own_cases(random.Random(seed), 12 * count, unit=NANOSECOND)
    found = [line for line in map(timeline_of, cases) if line.exchange_waits.any()]
    assert len(found) >= count
    return found[:count]


def test_a_row_of_the_csv_says_how_long_it_waited(seed: int) -> None:
    for line in late_timelines(seed, 4):
        rows = list(csv.DictReader(io.StringIO(timeline_csv(line))))
        waits = [float(row["exchange_wait_seconds"]) for row in rows]
        assert waits == [to_seconds(wait) for wait in line.exchange_waits.tolist()]


def test_a_trace_has_the_wait_at_the_end_of_its_operation(seed: int) -> None:
    for line in late_timelines(seed, 4):
        expected = [
            (line.label(i), int(line.run.end[i] - wait) // NANOSECOND, wait // NANOSECOND)
            for i, wait in enumerate(line.exchange_waits.tolist())
            if wait
        ]
        found = [
            (event["args"]["within"], round(event["ts"] * 1000), round(event["dur"] * 1000))
            for event in json.loads(chrome_trace(line))["traceEvents"]
            if event["name"] == "exchange wait"
        ]
        assert sorted(found) == sorted(expected)


def test_a_trace_has_on_each_link_what_operations_exchange(seed: int) -> None:
    for line in late_timelines(seed, 4):
        assert line.links is not None
        found = intervals_of(line, np.ones(len(line.links.kinds), dtype=np.bool_))
        expected = []
        for bundle, start, end in zip(
            found.bundle.tolist(), found.start.tolist(), found.end.tolist(), strict=True
        ):
            what = carried(line.program, bundle)
            if what.edge is None and end > start:
                label = line.label(what.operation)
                expected.append((label, what.microbatch, start // NANOSECOND, end // NANOSECOND))
        slices = [
            (
                event["name"],
                event["args"]["microbatch"],
                round(event["ts"] * 1000),
                round((event["ts"] + event["dur"]) * 1000),
            )
            for event in json.loads(chrome_trace(line))["traceEvents"]
            if event.get("cat") == "exchange"
        ]
        assert sorted(slices) == sorted(expected)


def test_a_picture_has_the_wait_beside_the_work(seed: int) -> None:
    """Fill, work, waits and drain of a rank leave nothing out and nothing twice."""
    for line in late_timelines(seed, 4):
        waits = operation_waits(line)
        page = Line(0, line.makespan, 0.0, float(line.makespan), 0.0)
        every = np.ones(line.program.operations, dtype=np.bool_)
        for rank in range(line.program.ranks):
            between = rank_waits(line, waits, rank)
            of_rank = line.rank_operations(rank)
            parts = int((between.end - between.start).sum()) + int(line.durations[of_rank].sum())
            fill, drain = line.first_start[rank], line.makespan - line.last_end[rank]
            assert parts + fill + drain == line.makespan
            waited = int(waits.contention[of_rank].sum() + line.exchange_waits[of_rank].sum())
            numbers = np.arange(of_rank.start, of_rank.stop)
            boxes = row_shapes(line, numbers, every, page, between).boxes
            lengths = [(box.kind, box.right - box.left) for box in boxes]
            waiting = sum(length for kind, length in lengths if kind == CONTENTION)
            assert waiting == pytest.approx(waited)
            whole = sum(length for _, length in lengths)
            assert whole == pytest.approx(line.makespan - fill - drain)


def test_exchanges_are_selected_with_their_operations(seed: int) -> None:
    for line in late_timelines(seed, 4):
        assert line.links is not None
        messages = len(line.program.inputs)
        for selection in (EVERYTHING, Selection(ranks=frozenset({0}), last_microbatch=1)):
            wanted = selection.messages(line)
            chosen = set(selection.operations(line).tolist())
            assert np.flatnonzero(wanted[messages:]).tolist() == [
                i
                for i, kind in enumerate(line.links.own_kinds.tolist())
                if kind >= 0 and i in chosen
            ]
