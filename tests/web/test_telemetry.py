"""What is logged and counted of a request: closed sets, and nothing that a caller wrote."""

import logging
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from litestar import Request, get, post
from litestar.params import FromPath, JSONBody
from litestar.testing import AsyncTestClient
from msgspec import Struct

from service.app.access import Principal
from service.app.errors import Unavailable
from service.app.ports import Scope
from service.web.application import Application
from service.web.metrics import Metrics
from service.web.problems import EXCEPTION_HANDLERS
from service.web.strict_json import StrictRequest
from service.web.telemetry import QUIET, Telemetry

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01"
SECRET = "stagefare_secret"  # noqa: S105

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW", "SECRET_")


class Thing(Struct):
    size: int


@get("/things/{name:str}", sync_to_thread=False)
def thing(name: FromPath[str]) -> str:
    if name == "bug":
        raise KeyError("inside")
    if name == "away":
        raise Unavailable("the database does not answer")
    return "abc"


@post("/things", sync_to_thread=False)
def make(data: JSONBody[Thing]) -> dict[str, int]:
    return {"size": data.size}


@get("/probe", opt=QUIET, sync_to_thread=False)
def probe() -> str:
    return ""


@get("/mine", sync_to_thread=False)
def mine(request: Request[Any, Any, Any]) -> str:
    request.scope["auth"] = Principal("crew", frozenset({Scope.READ}))
    return ""


def application(metrics: Metrics) -> Application:
    app = Application(
        [thing, make, probe, mine],
        exception_handlers=EXCEPTION_HANDLERS,
        request_class=StrictRequest,
        openapi_config=None,
        logging_config=None,
    )
    app.telemetry = Telemetry(metrics)
    return app


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("1.2.3", "7")


@pytest_asyncio.fixture
async def http(metrics: Metrics) -> AsyncIterator[AsyncTestClient[Application]]:
    async with AsyncTestClient(application(metrics), raise_server_exceptions=False) as client:
        yield client


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The request lines, each with its level, message and fields."""
    names = ("method", "route", "status", "team", "request_bytes", "response_bytes")
    return [
        {"level": record.levelname, "event": record.getMessage()}
        | {name: getattr(record, name) for name in names if hasattr(record, name)}
        for record in caplog.records
        if record.name == "stagefare.requests"
    ]


def series(metrics: Metrics) -> set[str]:
    """The names and labels of everything that is exposed, without the numbers."""
    text = metrics.exposition().decode()
    return {line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")}


def value(metrics: Metrics, name: str) -> float:
    (number,) = re.findall(rf"^{re.escape(name)} (\S+)$", metrics.exposition().decode(), re.M)
    return float(number)


async def test_a_request_is_one_line(
    http: AsyncTestClient[Application], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "stagefare.requests"):
        await http.get(f"/things/{SECRET}?key={SECRET}", headers={"Authorization": SECRET})
        await http.post("/things", json={"size": 1})
        await http.request("HEAD", "/things/x")
        await http.get("/mine")
    assert lines(caplog) == [
        {
            "level": "INFO",
            "event": "request",
            "method": method,
            "route": route,
            "status": status,
            "request_bytes": sent,
            "response_bytes": received,
        }
        | ({"team": "crew"} if route == "/mine" else {})
        for method, route, status, sent, received in (
            ("GET", "/things/{name}", 200, 0, 3),
            ("POST", "/things", 201, 10, 10),
            ("HEAD", "/things/{name}", 200, 0, 0),
            ("GET", "/mine", 200, 0, 0),
        )
    ]
    for record in caplog.records:
        if record.name.startswith("stagefare"):
            assert SECRET not in str(record.__dict__)
            assert 0 <= record.__dict__["duration_seconds"] < 60


async def test_what_fits_no_route_is_not_repeated(
    http: AsyncTestClient[Application], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "stagefare.requests"):
        await http.get(f"/{SECRET}")
        await http.request("BREW", f"/{SECRET}")
        await http.request("DELETE", "/things/x")
    assert [(line["method"], line["route"], line["status"]) for line in lines(caplog)] == [
        ("GET", "unmatched", 404),
        ("other", "unmatched", 404),
        ("DELETE", "unmatched", 405),
    ]


async def test_failures_are_warnings_and_probes_are_quiet(
    http: AsyncTestClient[Application], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "stagefare.requests"):
        await http.get("/things/bug")
        await http.get("/things/away")
        await http.get("/probe")
    assert [(line["level"], line["status"]) for line in lines(caplog)] == [
        ("WARNING", 500),
        ("WARNING", 503),
        ("DEBUG", 200),
    ]


async def test_a_caller_that_leaves_has_a_line_too(
    metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    async def receive() -> Any:
        raise ConnectionResetError

    async def send(_: Any) -> None:
        raise ConnectionResetError

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/things", "query_string": b""}
    with caplog.at_level(logging.INFO, "stagefare.requests"), pytest.raises(ConnectionResetError):
        await application(metrics)({**scope, "headers": headers}, receive, send)
    assert len(lines(caplog)) == 1
    assert value(metrics, "stagefare_http_requests_in_flight") == 0


async def test_a_problem_names_the_trace_of_its_caller(http: AsyncTestClient[Application]) -> None:
    traced = await http.get("/nothing", headers={"traceparent": TRACEPARENT})
    assert traced.json()["trace_id"] == TRACE
    for headers in ({}, {"traceparent": "00-x"}):
        assert "trace_id" not in (await http.get("/nothing", headers=headers)).json()


async def test_requests_are_counted_by_method_template_and_status(
    http: AsyncTestClient[Application], metrics: Metrics
) -> None:
    for name in ("a", "b", "bug"):
        await http.get(f"/things/{name}")
    await http.get("/nothing")
    count = "stagefare_http_requests_total{{method={!r},route={!r},status={!r}}}"
    expected = {("/things/{name}", "200"): 2, ("/things/{name}", "500"): 1, ("unmatched", "404"): 1}
    for (route, status), number in expected.items():
        name = count.format("GET", route, status).replace("'", '"')
        assert value(metrics, name) == number
    seconds = 'stagefare_http_request_duration_seconds_count{method="GET",route="/things/{name}"}'
    assert value(metrics, seconds) == 3
    assert value(metrics, "stagefare_http_requests_in_flight") == 0


async def test_no_caller_can_make_a_series(
    http: AsyncTestClient[Application], metrics: Metrics
) -> None:
    """A thousand names, unknown paths, methods, tokens and ids: as many series as before."""

    async def ask(i: int) -> None:
        secret = {"Authorization": f"Bearer {i}", "X-Request-ID": f"id-{i}", "User-Agent": f"u{i}"}
        for method in METHODS:
            name = f"{method}{i}" if method.endswith("_") else method
            await http.request(name, f"/things/name{i}?q={i}", headers=secret)
            await http.request(name, f"/unknown{i}/{i}", headers=secret)

    await ask(0)
    before = series(metrics)
    for i in range(1, 57):  # 56 x 18: a thousand requests
        await ask(i)
    assert series(metrics) == before
    assert not [name for name in before if "name0" in name or "unknown0" in name]


async def test_two_applications_count_apart() -> None:
    one, two = Metrics("1", "1"), Metrics("1", "1")
    async with AsyncTestClient(application(one)) as client:
        await client.get("/probe")
    name = 'stagefare_http_requests_total{method="GET",route="/probe",status="200"}'
    assert value(one, name) == 1
    assert name not in series(two)


def test_what_was_no_request_is_counted_by_its_status_alone(metrics: Metrics) -> None:
    Telemetry(metrics).refused_unread(431)
    Telemetry().refused_unread(431)
    name = 'stagefare_http_requests_total{method="unread",route="unread",status="431"}'
    assert value(metrics, name) == 1
    assert value(metrics, "stagefare_http_requests_in_flight") == 0


def test_the_build_and_both_kinds_of_estimates_are_there_from_the_start(metrics: Metrics) -> None:
    assert value(metrics, 'stagefare_build_info{model_version="7",version="1.2.3"}') == 1
    assert value(metrics, 'stagefare_estimates_total{answer="computed"}') == 0
    assert value(metrics, 'stagefare_estimates_total{answer="stored"}') == 0
