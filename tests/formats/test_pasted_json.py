"""JSON files: where things stand in them, and what is refused before anything is read."""

import json
from random import Random

import pytest

from service.core.errors import FaultCode, Path
from service.formats import pasted_json
from service.formats.pasted_json import read_json
from service.formats.pasted_text import MAX_FAULTS, MAX_LEFT_OUT
from tests.core.refusals import refusal_text, refusals

TEXT = b"""{
  "nodes": [
    {"id": 1, "a\\u0041": [1, 2]}, {"id": 2},

    {"id": 3,
     "size": -0.5}
  ],
  "last": "\xc3\xbc"
}
"""


def lines(*paths: Path) -> list[int]:
    file = read_json(TEXT)
    for path in paths:
        file.refuse(path, "is wrong")
    return [int(fault.path[1]) for fault in file.refusal().faults]


def test_a_fault_is_told_with_the_line_of_what_it_is_about() -> None:
    assert lines((), ("nodes",), ("nodes", 0, "id"), ("nodes", 1)) == [1, 2, 3, 3]
    assert lines(("nodes", 2), ("nodes", 2, "size"), ("last",)) == [5, 6, 8]
    assert lines(("nodes", 0, "aA", 1)) == [3]


def test_what_is_not_there_counts_for_what_lacks_it() -> None:
    assert lines(("nodes", 2, "time"), ("nodes", 9), ("none", "at", "all")) == [5, 2, 1]


def test_the_text_of_a_fault_names_its_place() -> None:
    file = read_json(TEXT)
    file.refuse(("nodes", 2, "size"), "is at least 0")
    (fault,) = file.refusal().faults
    assert fault.path == ("line", 6)
    assert fault.detail == "line 6 (nodes/2/size) is at least 0"


def test_lines_are_found_whatever_the_layout() -> None:
    """A slow reference: the value of each number is the line it is written on."""
    random = Random(5)
    for _ in range(50):
        line, text, paths = 1, "[", []
        for place in range(random.randint(1, 20)):
            blank = "\n" * random.randint(0, 3)
            line += len(blank)
            deep = random.random() < 0.5
            text += "," * bool(place) + blank + (f'{{"x": [0, {line}]}}' if deep else str(line))
            paths.append((place, "x", 1) if deep else (place,))
        file = read_json((text + "]").encode())
        for path in paths:
            file.refuse(path, "")
        assert [fault.path[1] for fault in file.refusal().faults] == [
            file.root[path[0]]["x"][1] if len(path) > 1 else file.root[path[0]] for path in paths
        ]


@pytest.mark.parametrize(
    ("content", "path", "words"),
    [
        (b"", ("line", 1), "no JSON"),
        (b"{\n'a': 1}", ("line", 2), "no JSON"),
        (b'{"a": 1}\n}', ("line", 2), "Extra data"),
        (b'{"a":\n"\xff"}', ("line", 2), "UTF-8"),
        (b'{"a": NaN}', (), "NaN"),
        (b'{"a": -Infinity}', (), "Infinity"),
        (b'{"a": ["\\ud800"]}', (), "surrogate"),
        (b'{"\\udc00": 1}', (), "surrogate"),
        (b'{"a": 1, "a": 2}', (), "'a' stands twice"),
        (b'[{"b": [{"a": 1, "a": 1}]}]', (), "'a' stands twice"),
        (b"[" * 100_000, (), "deep"),
        (b"1" * 10_000, (), "no JSON"),
    ],
)
def test_what_is_no_json_is_refused(content: bytes, path: Path, words: str) -> None:
    assert refusals(lambda: read_json(content)) == [(FaultCode.UNREADABLE, path)]
    assert words in refusal_text(lambda: read_json(content))


def test_a_pair_of_escapes_is_one_character() -> None:
    assert read_json(b'["\\ud83d\\ude00"]').root == ["\U0001f600"]


@pytest.mark.parametrize("item", [b"0", b"[]", b"{}"])
def test_only_so_many_values_are_read(monkeypatch: pytest.MonkeyPatch, item: bytes) -> None:
    """They are counted before any is made, since each takes more memory than its text."""
    monkeypatch.setattr(pasted_json, "MAX_VALUES", 10)
    assert len(read_json(b"[%b]" % b",".join([item] * 5)).root) == 5
    text = refusal_text(lambda: read_json(b"[%b]" % b",".join([item] * 12)))
    assert "at most 10 are read" in text


def test_numbers_are_held_to_their_range() -> None:
    file = read_json(b'[1, 2.0, 2.5, -1, true, "3", null, 1e999, {}, []]')
    values = [file.whole((place,), value, most=5) for place, value in enumerate(file.root)]
    assert values == [1, 2, *[None] * 8]
    assert len(file.refusal().faults) == 8
    file = read_json(b"[1, 2.5, -1, false, 1e999, 6]")
    numbers = [file.number((place,), value, most=5) for place, value in enumerate(file.root)]
    assert numbers == [1.0, 2.5, None, None, None, None]
    assert "from 0 to 5; got -1" in str(file.refusal())


def test_only_so_much_is_told() -> None:
    file = read_json(b"[]")
    for _ in range(MAX_FAULTS + 50):
        file.refuse((), "is wrong")
    assert file.enough
    assert len(file.refusal().faults) == MAX_FAULTS + 1
    for _ in range(MAX_LEFT_OUT + 50):
        file.leave_out((), "for a reason")
    told = file.left_out()
    assert (len(told), told[-1].detail) == (MAX_LEFT_OUT + 1, "and 50 more such lines")


def test_many_places_of_a_large_file_are_found() -> None:
    rows = [{"id": number, "values": [number] * 3} for number in range(20_000)]
    file = read_json(json.dumps(rows, indent=1).encode())
    for number in range(0, 20_000, 200):
        file.refuse((number, "id"), "is wrong")
    assert [fault.path[1] for fault in file.refusal().faults] == [
        number * 8 + 3 for number in range(0, 20_000, 200)
    ]
