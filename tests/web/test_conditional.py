"""If-Match and If-None-Match over strong tags."""

from typing import Any

import pytest
from litestar import Request
from litestar.testing import RequestFactory

from service.app.errors import PreconditionFailed
from service.web.conditional import (
    entity_tag,
    is_unmodified,
    precondition,
    required_precondition,
)
from service.web.problem_types import INVALID_PARAMETERS, PRECONDITION_REQUIRED
from service.web.problems import Problem


def request(**headers: str) -> Request[Any, Any, Any]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return RequestFactory().get("/", headers=named)


@pytest.mark.parametrize(
    ("header", "is_same"),
    [
        ('"2-b"', True),
        ('W/"2-b"', True),
        ('"1-a", "2-b"', True),
        ('"1-a" ,W/"2-b"', True),
        ("*", True),
        (',, "1-a",\t,"2-b" ,', True),
        ('"2-b",', True),
        ('"1-a"', False),
        ('""', False),
        ('"2-b,"', False),
    ],
)
def test_a_version_the_caller_has_is_not_sent_again(header: str, is_same: bool) -> None:
    assert is_unmodified(request(If_None_Match=header), "2-b") is is_same


@pytest.mark.parametrize("header", ['"2-b"', "*", '"1-a", "2-b"'])
def test_a_reader_may_ask_for_the_version_that_is_meant(header: str) -> None:
    assert not is_unmodified(request(If_Match=header), "2-b")
    assert is_unmodified(request(If_Match=header, If_None_Match='"2-b"'), "2-b")


@pytest.mark.parametrize("header", ['"1-a"', 'W/"2-b"', '""'])
def test_another_version_is_not_sent_instead(header: str) -> None:
    # If-Match compares strongly, and is looked at before If-None-Match (RFC 9110, 13.2.2).
    for headers in ({"If_Match": header}, {"If_Match": header, "If_None_Match": '"2-b"'}):
        with pytest.raises(PreconditionFailed) as caught:
            is_unmodified(request(**headers), "2-b")
        assert caught.value.current == "2-b"


def test_without_a_header_everything_is_sent() -> None:
    assert not is_unmodified(request(), "2-b")
    assert precondition(request())(None)
    assert precondition(request())("2-b")


@pytest.mark.parametrize(
    ("headers", "current", "permitted"),
    [
        ({"If_None_Match": "*"}, None, True),
        ({"If_None_Match": "*"}, "2-b", False),
        ({"If_None_Match": '"2-b"'}, "2-b", False),
        ({"If_None_Match": '"1-a"'}, "2-b", True),
        ({"If_Match": '"2-b"'}, "2-b", True),
        ({"If_Match": '"1-a", "2-b"'}, "2-b", True),
        ({"If_Match": '"1-a"'}, "2-b", False),
        ({"If_Match": 'W/"2-b"'}, "2-b", False),
        ({"If_Match": '"2-b"'}, None, False),
        ({"If_Match": "*"}, "2-b", True),
        ({"If_Match": "*"}, None, False),
        ({"If_Match": "*", "If_None_Match": "*"}, "2-b", False),
        ({"If_Match": "*", "If_None_Match": "*"}, None, False),
    ],
)
def test_writes_are_guarded(headers: dict[str, str], current: str | None, permitted: bool) -> None:
    assert precondition(request(**headers))(current) is permitted


@pytest.mark.parametrize("header", ["2-b", '"2-b', '"a" "b"', ",", " , ,", "", '*, "a"', '"ä"'])
@pytest.mark.parametrize("name", ["If_Match", "If_None_Match"])
def test_a_header_that_cannot_be_read_is_refused(name: str, header: str) -> None:
    with pytest.raises(Problem) as caught:
        precondition(request(**{name: header.encode("latin-1").decode("latin-1")}))
    assert caught.value.problem_type is INVALID_PARAMETERS
    (error,) = caught.value.errors
    assert (error.where, error.pointer) == ("header", "/" + name.replace("_", "-"))


def test_a_change_may_ask_for_the_version_that_is_meant() -> None:
    for headers in ({}, {"If_None_Match": "*"}):
        with pytest.raises(Problem) as caught:
            required_precondition(request(**headers))
        assert caught.value.problem_type is PRECONDITION_REQUIRED
    assert required_precondition(request(If_Match="*"))("2-b")
    assert required_precondition(request(If_Match='"2-b"'))("2-b")
    assert not required_precondition(request(If_Match='"1-a"'))("2-b")


def test_a_tag_is_quoted() -> None:
    assert entity_tag("2-b") == '"2-b"'
