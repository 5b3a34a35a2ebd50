"""Filters of a timeline."""

from service.core.schedules.selection import EVERYTHING, Selection
from tests.core.schedules.plans import timeline

LINE = timeline("1f1b", 2, [2, 3], [4, 5], latency=1)
# rank 0: F0 0-2, F1 2-4, B0 12-16, B1 20-24; rank 1: F0 3-6, B0 6-11, F1 11-14, B1 14-19


def labels(selection: Selection) -> str:
    return " ".join(LINE.label(i) for i in selection.operations(LINE).tolist())


def test_everything() -> None:
    assert labels(EVERYTHING) == "0F0 0F1 0B0 0B1 1F0 1B0 1F1 1B1"
    assert EVERYTHING.window(LINE) == (0, 24)
    assert EVERYTHING.shown_ranks(LINE) == (0, 1)


def test_ranks_and_microbatches() -> None:
    assert labels(Selection(ranks=frozenset({1, 7}))) == "1F0 1B0 1F1 1B1"
    assert Selection(ranks=frozenset({1, 7})).shown_ranks(LINE) == (1,)
    assert labels(Selection(first_microbatch=1)) == "0F1 0B1 1F1 1B1"
    assert labels(Selection(last_microbatch=0)) == "0F0 0B0 1F0 1B0"
    assert labels(Selection(first_microbatch=5)) == ""


def test_a_window_holds_what_reaches_into_it() -> None:
    assert labels(Selection(start=11, end=14)) == "0B0 1F1"
    assert labels(Selection(start=13, end=13)) == "0B0 1F1"
    assert labels(Selection(start=16, end=19)) == "1B1"
    assert labels(Selection(end=3)) == "0F0 0F1"
    assert labels(Selection(start=19)) == "0B1"
    assert Selection(start=30).window(LINE) == (24, 24)
    assert Selection(start=-5, end=99).window(LINE) == (0, 24)
    assert Selection(start=9, end=4).window(LINE) == (9, 9)
