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
    assert following is not None
    assert following.startswith("/v1/measurements?limit=1&layer=block.%2A+%26&cursor=")
    assert read_cursor(request, cursor_of(following), str) == "a"


def test_a_cursor_belongs_to_its_list() -> None:
    plans, models = RequestFactory().get("/v1/plans"), RequestFactory().get("/v1/models")
    _, following = page_of(plans, ["a", "b"], 1, str)
    assert read_cursor(plans, cursor_of(following), str) == "a"
    assert read_cursor(RequestFactory().get("/v1/plans/"), cursor_of(following), str) == "a"
    with pytest.raises(Problem, match="in the list it was given for"):
        read_cursor(models, cursor_of(following), str)


@settings(max_examples=30)
@given(st.tuples(st.text(), st.integers(-(2**63), 2**63 - 1), st.integers(0, 9)))
def test_a_position_survives_the_way_out_and_back(position: tuple[str, int, int]) -> None:
    request = RequestFactory().get("/x")
    _, following = page_of(request, [0, 1], 1, lambda _: position)
    assert read_cursor(request, cursor_of(following), tuple[str, int, int]) == position


@pytest.mark.parametrize(
    "cursor",
    [
        "abc",
        "",
        "!",
        "ä",
        "a" * 1000,
        *(urlsafe_b64encode(text).decode() for text in (b"1", b"[]", b'["/x",1]', b'["/y","a"]')),
    ],
)
def test_anything_else_is_refused(cursor: str) -> None:
    with pytest.raises(Problem) as caught:
        read_cursor(RequestFactory().get("/x"), cursor, str)
    (error,) = caught.value.errors
    assert (error.where, error.pointer, error.code) == ("query", "/cursor", "invalid_cursor")


@given(st.text(max_size=50))
def test_any_text_is_a_cursor_or_refused(cursor: str) -> None:
    request = RequestFactory().get("/x")
    with suppress(Problem):
        name, number = read_cursor(request, cursor, tuple[str, int]) or ("", 0)
        assert isinstance(name, str)
        assert isinstance(number, int)
