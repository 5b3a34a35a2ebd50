"""Query parameters are checked against their declared types; Accept is honoured."""

from typing import Annotated

import pytest
from litestar import Litestar, get
from litestar.params import FromQuery
from litestar.testing import AsyncTestClient
from msgspec import Meta

from service.web.guards import accepts, refuse_bad_parameters, refuse_unacceptable
from service.web.problems import EXCEPTION_HANDLERS

Limit = FromQuery[Annotated[int, Meta(ge=1, le=200)]]
Share = FromQuery[Annotated[float, Meta(ge=0, le=1)] | None]


@get("/parts", sync_to_thread=False)
def list_parts(
    limit: Limit = 50,
    share: Share = None,
    name: FromQuery[Annotated[str, Meta(max_length=3)] | None] = None,
    deep: FromQuery[bool] = False,
) -> dict[str, object]:
    return {"limit": limit, "share": share, "name": name, "deep": deep}


@get("/drawing.svg", media_type="image/svg+xml", sync_to_thread=False)
def draw() -> bytes:
    return b"<svg/>"


def app() -> Litestar:
    return Litestar(
        [list_parts, draw],
        guards=[refuse_bad_parameters, refuse_unacceptable],
        exception_handlers=EXCEPTION_HANDLERS,
        openapi_config=None,
        logging_config=None,
    )


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("", {"limit": 50, "share": None, "name": None, "deep": False}),
        ("limit=200&share=0.5", {"limit": 200, "share": 0.5, "name": None, "deep": False}),
        ("share=1&name=12&deep=true", {"limit": 50, "share": 1.0, "name": "12", "deep": True}),
    ],
)
async def test_declared_parameters_are_read(query: str, answer: dict[str, object]) -> None:
    async with AsyncTestClient(app()) as client:
        response = await client.get(f"/parts?{query}")
    assert response.json() == answer


@pytest.mark.parametrize(
    ("query", "errors"),
    [
        ("limit=0", {"/limit": "out_of_range"}),
        ("limit=201", {"/limit": "out_of_range"}),
        ("limit=5.0", {"/limit": "wrong_type"}),
        ("limit=1e1", {"/limit": "wrong_type"}),
        ("limit=005", {"/limit": "wrong_type"}),
        ("share=00.5", {"/share": "wrong_type"}),
        ("limit=", {"/limit": "wrong_type"}),
        ("limit=+5", {"/limit": "wrong_type"}),
        ("limit=" + "9" * 5000, {"/limit": "wrong_type"}),
        ("limit=%D9%A5", {"/limit": "wrong_type"}),
        ("limit=null", {"/limit": "wrong_type"}),
        ("share=nan", {"/share": "wrong_type"}),
        ("share=1e999", {"/share": "out_of_range"}),
        ("share=1.5", {"/share": "out_of_range"}),
        ("name=abcd", {"/name": "length_out_of_bounds"}),
        ("deep=1", {"/deep": "wrong_type"}),
        ("limit=1&limit=2", {"/limit": "repeated_parameter"}),
        ("size=1", {"/size": "unknown_parameter"}),
        (
            "size=1&limit=0&deep=x&deep=y",
            {
                "/size": "unknown_parameter",
                "/limit": "out_of_range",
                "/deep": "repeated_parameter",
            },
        ),
        ("Limit=1", {"/Limit": "unknown_parameter"}),
    ],
)
async def test_other_parameters_are_refused_all_at_once(query: str, errors: dict[str, str]) -> None:
    async with AsyncTestClient(app()) as client:
        response = await client.get(f"/parts?{query}")
    assert response.status_code == 400
    problem = response.json()
    assert problem["type"] == "/problems/invalid-parameters"
    assert {error["pointer"]: error["code"] for error in problem["errors"]} == errors
    assert {error["in"] for error in problem["errors"]} == {"query"}


@pytest.mark.parametrize(
    ("header", "is_accepted"),
    [
        ("*/*", True),
        ("application/json", True),
        ("application/*", True),
        ("APPLICATION/JSON; charset=utf-8", True),
        ("text/html, application/json;q=0.1", True),
        ("text/html,application/xhtml+xml,*/*;q=0.8", True),
        ("text/html", False),
        ("application/json;q=0", False),
        ("application/json;q=0, */*", False),
        ("application/xml, */*;q=0", False),
        ("application/json;q=high", False),
        ("application/problem+json", False),
        (",;,", False),
    ],
)
async def test_accept_decides(header: str, is_accepted: bool) -> None:
    assert accepts(header, "application/json") is is_accepted
    async with AsyncTestClient(app()) as client:
        response = await client.get("/parts", headers={"Accept": header})
    assert response.status_code == (200 if is_accepted else 406)


async def test_a_refused_format_is_named() -> None:
    async with AsyncTestClient(app()) as client:
        response = await client.get("/drawing.svg", headers={"Accept": "application/json"})
    assert response.status_code == 406
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["detail"] == "this URL answers in image/svg+xml"
