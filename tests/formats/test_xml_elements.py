"""XML read with bounds: what is refused, and where."""

import pytest

from service.core.errors import FaultCode
from service.formats.xml_elements import MAX_DEPTH, MAX_ELEMENTS, read_xml, root_name
from tests.core.refusals import refusal_text, refusals

BOMB = b"""<!DOCTYPE a [
  <!ENTITY x "ha">
  <!ENTITY y "&x;&x;&x;&x;&x;&x;&x;&x;&x;&x;">
  <!ENTITY z "&y;&y;&y;&y;&y;&y;&y;&y;&y;&y;">
]>
<a>&z;</a>"""


def test_elements_know_their_lines_and_texts() -> None:
    root = read_xml(b'<a>\n <b k="v">one</b>\n <!-- no -->\n <c/>two\n <b/>\n</a>')
    assert (root.name, root.line) == ("a", 1)
    assert [(child.name, child.line) for child in root.children] == [("b", 2), ("c", 4), ("b", 5)]
    assert [child.text for child in root.named("b")] == ["one", ""]
    assert root.children[0].attributes == {"k": "v"}


def test_a_document_type_that_declares_nothing_is_read_over() -> None:
    assert read_xml(b'<!DOCTYPE a SYSTEM "a.dtd">\n<a/>').name == "a"
    assert root_name(b'<?xml version="1.0"?><!DOCTYPE a SYSTEM "a.dtd"><a/>') == "a"


@pytest.mark.parametrize(
    ("content", "line", "says"),
    [
        (BOMB, 1, "declarations of its own"),
        (b"<!DOCTYPE a []><a/>", 1, "declarations of its own"),
        (b'<!DOCTYPE a SYSTEM "file:///etc/passwd">\n<a>&x;</a>', 2, "does not explain"),
        (b"<a>&x;</a>", 1, "is no XML"),
        (b"<a>\n<b>\n</a>", 3, "is no XML"),
        (b"<a/><b/>", 1, "is no XML"),
        (b"", 1, "is no XML"),
        (b"<a>\n\xff</a>", 2, "is no XML"),
        (b'<?xml version="1.0" encoding="utf-7"?><a>+ADw-</a\xff>', 1, "is no XML"),
        (b"<a>" * (MAX_DEPTH + 1), 1, f"deeper than the {MAX_DEPTH}"),
        (b"<a>" + b"<b/>\n" * MAX_ELEMENTS + b"</a>", MAX_ELEMENTS, "beyond the"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_is_no_plain_xml_is_refused_with_its_line(
    content: bytes, line: int, says: str
) -> None:
    assert refusals(lambda: read_xml(content)) == [(FaultCode.UNREADABLE, ("line", line))]
    assert says in refusal_text(lambda: read_xml(content))


def test_the_root_is_found_whatever_follows() -> None:
    assert root_name(b"<system version='1'><broken") == "system"
    assert root_name(BOMB) is None
    assert root_name(b"GPU0 GPU1") is None
    assert root_name(b" " * 70_000 + b"<a/>") is None
