"""Cursors stand for a position, and nothing else is taken for one."""

from base64 import urlsafe_b64encode
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from litestar.testing import RequestFactory

from service.web.cursors import page_of, read_cursor
from service.web.problems import Problem


def cursor_of(following: str | None) -> str:
    assert following is not None
    return following.rpartition("cursor=")[2]


def test_the_last_page_has_no_next() -> None:
    request = RequestFactory().get("/v1/plans", query_params={"limit": "2"})
    assert page_of(request, ["a", "b"], 2, str) == (["a", "b"], None)


def test_next_keeps_the_filters_and_drops_the_old_cursor() -> None:
    query: dict[str, str | list[str]] = {"limit": "1", "layer": "block.* &", "cursor": "old"}
    request = RequestFactory().get("/v1/measurements", query_params=query)
    items, following = page_of(request, ["a", "b"], 1, str)
    assert items == ["a"]
    assert following == "/v1/measurements?limit=1&layer=block.%2A+%26&cursor=ImEi"
    assert read_cursor("ImEi", str) == "a"


@settings(max_examples=30)
@given(st.tuples(st.text(), st.integers(-(2**63), 2**63 - 1), st.integers(0, 9)))
def test_a_position_survives_the_way_out_and_back(position: tuple[str, int, int]) -> None:
    request = RequestFactory().get("/x")
    _, following = page_of(request, [0, 1], 1, lambda _: position)
    assert read_cursor(cursor_of(following), tuple[str, int, int]) == position


@pytest.mark.parametrize(
    "cursor",
    [
        "abc",
        "",
        "!",
        "ä",
        "a" * 1000,
        *(urlsafe_b64encode(text).decode() for text in (b"1", b"[]")),
    ],
)
def test_anything_else_is_refused(cursor: str) -> None:
    with pytest.raises(Problem) as caught:
        read_cursor(cursor, str)
    (error,) = caught.value.errors
    assert (error.where, error.pointer, error.code) == ("query", "/cursor", "invalid_cursor")


@given(st.text(max_size=50))
def test_any_text_is_a_cursor_or_refused(cursor: str) -> None:
    with suppress(Problem):
        name, number = read_cursor(cursor, tuple[str, int]) or ("", 0)
        assert isinstance(name, str)
        assert isinstance(number, int)
