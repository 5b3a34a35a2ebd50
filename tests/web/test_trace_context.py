"""The traceparent header is read as the standard says, and never trusted further."""

import pytest

from service.web.trace_context import TraceParent, trace_parent

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GOOD = f"00-{TRACE}-{SPAN}-01"


def read(*values: str) -> TraceParent | None:
    return trace_parent([(b"host", b"x"), *((b"traceparent", v.encode()) for v in values)])


@pytest.mark.parametrize(
    ("value", "is_sampled"),
    [
        (GOOD, True),
        (f"  {GOOD}\t", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-fe", False),  # other flags say nothing yet
        (f"00-{TRACE}-{SPAN}-03", True),
        (f"cc-{TRACE}-{SPAN}-01", True),  # a later version
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-brings", True),
        (f"cc-{TRACE}-{SPAN}-01-", True),
    ],
)
def test_what_is_well_formed_is_read(value: str, is_sampled: bool) -> None:
    assert read(value) == TraceParent(TRACE, SPAN, is_sampled)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "00",
        GOOD.upper(),
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01-more",
        f"cc-{TRACE}-{SPAN}-01.more",
        f"cc-{TRACE}-{SPAN}-01-a b",
        f"cc-{TRACE}-{SPAN}-01-{'x' * 600}",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}g-01",
        f"0-{TRACE}-{SPAN}-01",
        f"00_{TRACE}_{SPAN}_01",
        f"{GOOD}\n",
        f"00-{'٠' * 32}-{SPAN}-01",
    ],
)
def test_anything_else_is_as_if_it_were_not_there(value: str) -> None:
    assert read(value) is None


def test_two_headers_contradict_each_other() -> None:
    assert read(GOOD, GOOD) is None
    assert read() is None
