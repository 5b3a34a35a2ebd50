"""YAML and JSON with lines, and what no file can make the reader do."""

from functools import partial

import pytest
import yaml

from service.core.errors import FaultCode
from service.formats import marked_yaml
from service.formats.marked_yaml import (
    MAX_DEPTH,
    MAX_VALUES,
    Marked,
    first_document,
    read_documents,
)
from service.formats.pasted_text import Findings
from tests.core.refusals import refusal_text, refusals


@pytest.fixture(params=["libyaml", "python"], autouse=True)
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the C library and without it; both read the same."""
    if request.param == "python":
        monkeypatch.setattr(marked_yaml, "_LOADER", yaml.SafeLoader)


def read(content: str | bytes) -> list[Marked]:
    findings = Findings()
    documents = read_documents(content.encode() if isinstance(content, str) else content, findings)
    findings.raise_faults()
    return documents


def test_values_keep_their_lines() -> None:
    (document,) = read('a: 1\nb:\n  - x\n  - c: "2"\n')
    assert (document.line, list(document.fields)) == (1, ["a", "b"])
    first, second = document.fields["b"].items
    assert (first.line, first.text, first.plain) == (3, "x", True)
    two = second.get("c")
    assert two is not None
    assert (two.line, two.text, two.plain) == (4, "2", False)


def test_json_is_read_as_the_yaml_it_is() -> None:
    (document,) = read('{"a": [1, true, null,\n  {"b": "x\\u00e9\\/\\n"}]}')
    one, true, null, mapping = document.fields["a"].items
    assert (one.text, true.text, null.is_null, null.text) == ("1", "true", True, None)
    assert (mapping.line, mapping.fields["b"].text) == (2, "xé/\n")


def test_nothing_is_nothing_however_it_is_written() -> None:
    (document,) = read('a:\nb: ~\nc: null\nd: ""\ne: "null"\n')
    assert [document.get(key) is None for key in "abcde"] == [True, True, True, False, False]
    assert document.get("a", "b") is None
    assert read("") == read("---\n---\n") == []


def test_documents_come_in_order() -> None:
    assert [document.text for document in read("a\n--- b\n")] == ["a", "b"]


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "gives 'a' again (first on line 1)"),
        ("a: &x 1\n", 1, "an anchor or an alias"),
        ("a: &x [1]\nb: *x\n", 1, "an anchor or an alias"),
        ("a: !!python/object:os.system x\n", 1, "tags are not read"),
        ("b: 1\n<<: {a: 1}\n", 2, "merge key"),
        ("? [a]\n: 1\n", 1, "a key that is no text"),
        ("\n{a: 1\n", 3, "is no YAML"),
        ("a: \x01\n", 1, "is no YAML"),
        (b"\n\xff\n", 2, "not UTF-8"),
        ("- " * (MAX_DEPTH + 1), 1, f"more than {MAX_DEPTH} deep"),
    ],
)
def test_what_is_not_read_is_refused_with_its_line(
    content: str | bytes, line: int, reason: str
) -> None:
    assert refusals(partial(read, content)) == [(FaultCode.UNREADABLE, ("line", line))]
    assert reason in refusal_text(partial(read, content))


def test_a_look_at_the_beginning_needs_no_end() -> None:
    found = first_document(b"a: 1\nb: [x, y")
    assert found is not None
    assert list(found.fields) == ["a", "b"]
    long = first_document(b"a: 1\n" + b"b:\n" + b"- x\n" * 100_000)
    assert long is not None
    assert list(long.fields) == ["a", "b"]
    assert first_document(b"") is None
    assert first_document(b"[\xff") is not None


def test_the_number_of_values_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_VALUES >= 100_000
    monkeypatch.setattr(marked_yaml, "MAX_VALUES", 10)
    assert len(read("[1, 2, 3, 4, 5, 6, 7, 8, 9]")[0].items) == 9
    assert "beyond the 10 values" in refusal_text(partial(read, "[1,2,3,4,5,6,7,8,9,10]"))
