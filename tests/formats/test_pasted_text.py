"""Lines as people paste them, and how much is told of what is wrong."""

import pytest

from service.core.errors import FaultCode, LeftOut
from service.formats import pasted_text
from service.formats.pasted_text import (
    MAX_FAULTS,
    MAX_LEFT_OUT,
    MAX_LINE_BYTES,
    MAX_NOTES,
    Findings,
    lines_of,
    shown,
)
from tests.core.refusals import refusals


def read(content: bytes) -> list[tuple[int, str]]:
    findings = Findings()
    lines = list(lines_of(content, findings))
    findings.raise_faults()
    return lines


def test_line_ends_and_a_byte_order_mark_are_no_part_of_a_line() -> None:
    assert read(b"\xef\xbb\xbfa\r\n\n b\t\nc") == [(1, "a"), (2, ""), (3, " b\t"), (4, "c")]
    assert read(b"") == []


def test_lines_that_are_no_text_are_refused_where_they_stand() -> None:
    content = b"a\n\xff\n\0\nb\n" + b"x" * (MAX_LINE_BYTES + 1)
    found = [(FaultCode.UNREADABLE, ("line", line)) for line in (2, 3, 5)]
    assert refusals(lambda: read(content)) == found
    assert refusals(lambda: read("a".encode("utf-16"))) == [(FaultCode.UNREADABLE, ("line", 1))]


def test_reading_ends_after_too_many_faults() -> None:
    findings = Findings()
    lines = list(lines_of(b"\xff\n" * 1000 + b"good\n", findings))
    assert lines == []
    assert findings.enough
    assert refusals(findings.raise_faults)[MAX_FAULTS:] == [(FaultCode.UNREADABLE, ())]


def test_lines_beyond_the_limit_are_refused_and_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pasted_text.MAX_LINES >= 500_000
    monkeypatch.setattr(pasted_text, "MAX_LINES", 2)
    assert read(b"a\nb\n") == [(1, "a"), (2, "b")]
    assert refusals(lambda: read(b"a\nb\nc\nd\n")) == [(FaultCode.UNREADABLE, ("line", 3))]


def test_what_is_left_out_is_told_by_line_and_counted_beyond_a_limit() -> None:
    findings = Findings()
    for line in range(MAX_LEFT_OUT + 3, 0, -1):
        findings.leave_out(line, "no")
    told = findings.left_out()
    assert told[0] == LeftOut(4, "no")
    assert told[-1] == LeftOut(MAX_LEFT_OUT + 3, "and 3 more such lines")
    assert len(told) == MAX_LEFT_OUT + 1


def test_notes_are_counted_beyond_a_limit() -> None:
    findings = Findings()
    for number in range(MAX_NOTES + 2):
        findings.note(str(number))
    assert findings.notes()[MAX_NOTES - 1 :] == (str(MAX_NOTES - 1), "and 2 more such notes")


def test_a_fault_of_the_whole_file_has_no_line() -> None:
    findings = Findings()
    findings.raise_faults()
    findings.refuse(None, "nothing in it")
    assert refusals(findings.raise_faults) == [(FaultCode.UNREADABLE, ())]


def test_quoted_text_is_short_and_on_one_line() -> None:
    assert shown("a\nb") == r"'a\nb'"
    assert len(shown("x" * 1000)) == 62
