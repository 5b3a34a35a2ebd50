"""Every refusal is a problem document; the table of errors decides which one."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from litestar import get, post
from litestar.exceptions import HTTPException
from litestar.params import FromPath, JSONBody
from litestar.testing import AsyncTestClient
from msgspec import Struct
from structlog.contextvars import get_contextvars

from service.app.errors import NotFound, PreconditionFailed, Superseded, Unavailable
from service.core.errors import Fault, FaultCode, InvalidInput, WorkBudgetExceeded
from service.web.application import Application
from service.web.problem_types import PROBLEM_TYPES, problem_page
from service.web.problems import EXCEPTION_HANDLERS, json_pointer
from service.web.strict_json import StrictRequest

BUDGET = Fault(FaultCode.WORK_BUDGET, ("workload", "microbatches"), "at most 10")
FAULTS = [Fault(FaultCode.OUT_OF_RANGE, ("a/b", 0, "~"), "below 1"), BUDGET]

ERRORS: dict[str, Callable[[], Exception]] = {
    "invalid": lambda: InvalidInput(FAULTS),
    "budget": lambda: WorkBudgetExceeded([BUDGET]),
    "missing": lambda: NotFound("no plan 'x' is stored"),
    "stale": lambda: PreconditionFailed("plan 'x' is stored as revision 2", "2-abc"),
    "absent": lambda: PreconditionFailed("plan 'x' is not stored", None),
    "old": lambda: Superseded("made by 1"),
    "down": lambda: Unavailable("the database does not answer"),
    "bug": lambda: KeyError("secret of the inside"),
    "teapot": lambda: HTTPException(status_code=418, detail="secret of the inside"),
}


class Thing(Struct, forbid_unknown_fields=True):
    size: int


@get("/errors/{name:str}", sync_to_thread=False)
def fail(name: FromPath[str]) -> None:
    make_error = ERRORS[name]
    raise make_error()


@post("/things", sync_to_thread=False)
def make(data: JSONBody[Thing]) -> dict[str, int]:
    return {"size": data.size}


@get("/things", sync_to_thread=False)
def things() -> list[int]:
    return [1, 2]


def client() -> AsyncTestClient[Application]:
    app = Application(
        [fail, make, things],
        exception_handlers=EXCEPTION_HANDLERS,
        request_class=StrictRequest,
        request_max_body_size=100,
        openapi_config=None,
        logging_config=None,
    )
    return AsyncTestClient(app, raise_server_exceptions=False)


@pytest.mark.parametrize(
    ("name", "status", "slug"),
    [
        ("invalid", 422, "invalid-input"),
        ("budget", 422, "work-budget-exceeded"),
        ("missing", 404, "not-found"),
        ("stale", 412, "precondition-failed"),
        ("absent", 412, "precondition-failed"),
        ("old", 409, "superseded"),
        ("down", 503, "unavailable"),
        ("bug", 500, "internal-error"),
        ("teapot", 500, "internal-error"),
    ],
)
async def test_errors_are_answered_by_the_table(name: str, status: int, slug: str) -> None:
    async with client() as http:
        response = await http.get(f"/errors/{name}")
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["type"] == f"/problems/{slug}"
    assert problem["status"] == status
    assert problem["instance"] == f"/errors/{name}"
    assert problem["request_id"] == response.headers["x-request-id"]
    assert problem["title"] == next(t.title for t in PROBLEM_TYPES if t.slug == slug)
    assert "secret" not in response.text


async def test_all_faults_are_listed_with_pointers() -> None:
    async with client() as http:
        problem = (await http.get("/errors/invalid")).json()
        single = (await http.get("/errors/budget")).json()
    assert problem["errors"] == [
        {"pointer": "/a~1b/0/~0", "code": "out_of_range", "detail": "below 1"},
        {"pointer": "/workload/microbatches", "code": "work_budget", "detail": "at most 10"},
    ]
    assert problem["detail"] == "2 faults, all of them listed"
    assert single["detail"] == "at most 10"


async def test_a_failed_precondition_tells_the_current_version() -> None:
    async with client() as http:
        assert (await http.get("/errors/stale")).headers["etag"] == '"2-abc"'
        assert "etag" not in (await http.get("/errors/absent")).headers
        assert (await http.get("/errors/down")).headers["retry-after"] == "1"


async def test_the_unforeseen_is_logged_under_the_id_of_the_request(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def note(record: logging.LogRecord) -> bool:
        seen.append(get_contextvars()["request_id"])
        return True

    with caplog.at_level(logging.ERROR, "stagefare.web"):
        monkeypatch.setattr(logging.getLogger("stagefare.web"), "filters", [note])
        async with client() as http:
            await http.get("/errors/bug", headers={"X-Request-ID": "abc-1"})
    (record,) = (record for record in caplog.records if record.name == "stagefare.web")
    assert record.getMessage() == "request failed"
    assert record.exc_info is not None
    assert seen == ["abc-1"]


@pytest.mark.parametrize(
    ("method", "path", "status", "slug", "allow"),
    [
        ("GET", "/nothing", 404, "no-such-route", None),
        ("POST", "/nothing/at/all", 404, "no-such-route", None),
        ("DELETE", "/things", 405, "method-not-allowed", "GET, HEAD, OPTIONS, POST"),
        ("PUT", "/things/", 405, "method-not-allowed", "GET, HEAD, OPTIONS, POST"),
        ("POST", "/errors/x", 405, "method-not-allowed", "GET, HEAD, OPTIONS"),
        ("BREW", "/things", 405, "method-not-allowed", "GET, HEAD, OPTIONS, POST"),
    ],
)
async def test_unknown_routes_and_methods_are_problems(
    method: str, path: str, status: int, slug: str, allow: str | None
) -> None:
    async with client() as http:
        response = await http.request(method, path)
    assert (response.status_code, response.json()["type"]) == (status, f"/problems/{slug}")
    assert response.headers.get("allow") == allow


async def test_head_is_get_without_a_body() -> None:
    async with client() as http:
        got, head = await http.get("/things"), await http.head("/things")
        refused = await http.head("/nothing")
    assert head.status_code == 200
    assert head.content == b""
    assert head.headers["content-length"] == got.headers["content-length"] == "5"
    assert (refused.status_code, refused.content) == (404, b"")


@pytest.mark.parametrize(
    ("given", "is_kept"),
    [
        ("a-Z_0.9", True),
        ("x" * 128, True),
        ("x" * 129, False),
        ("", False),
        ("a b", False),
        ('a"b', False),
    ],
)
async def test_a_request_id_is_kept_when_it_is_one(given: str, is_kept: bool) -> None:
    async with client() as http:
        response = await http.get("/things", headers={"X-Request-ID": given})
    (request_id,) = response.headers.get_list("x-request-id")
    assert (request_id == given) is is_kept
    assert request_id


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 201),
        ("application/json; charset=utf-8", 201),
        ("Application/JSON", 201),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/msgpack", 415),
        ("application/problem+json", 415),
        (None, 415),
    ],
)
async def test_only_json_is_read(content_type: str | None, status: int) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    async with client() as http:
        response = await http.post("/things", content=b'{"size": 1}', headers=headers)
    assert response.status_code == status
    if status == 415:
        assert response.json()["type"] == "/problems/unsupported-media-type"
        assert response.headers["accept-post"] == "application/json"


async def test_a_body_over_the_limit_is_refused() -> None:
    async with client() as http:
        response = await http.post(
            "/things", content=b" " * 101, headers={"Content-Type": "application/json"}
        )
    assert (response.status_code, response.json()["type"]) == (413, "/problems/payload-too-large")


async def test_an_empty_body_is_malformed() -> None:
    async with client() as http:
        response = await http.post("/things", headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()["type"]) == (400, "/problems/malformed-body")


async def test_a_bad_host_is_a_malformed_request() -> None:
    async with client() as http:
        response = await http.get("/things", headers={"Host": "a b"})
    assert (response.status_code, response.json()["type"]) == (400, "/problems/malformed-request")


def test_long_keys_are_cut_in_pointers() -> None:
    assert json_pointer(("a", "k" * 1000, 1)) == f"/a/{'k' * 200}.../1"


def test_problem_types_are_distinct_and_explained() -> None:
    assert len({problem_type.slug for problem_type in PROBLEM_TYPES}) == len(PROBLEM_TYPES)
    assert len({problem_type.title for problem_type in PROBLEM_TYPES}) == len(PROBLEM_TYPES)
    for problem_type in PROBLEM_TYPES:
        page = problem_page(problem_type)
        assert page.startswith(f"# {problem_type.title}\n")
        assert problem_type.remedy in page


@pytest.mark.parametrize(
    ("path", "allow"),
    [("/things", "GET, HEAD, OPTIONS, POST"), ("/errors/x", "GET, HEAD, OPTIONS")],
)
async def test_options_tell_all_methods_of_a_path(path: str, allow: str) -> None:
    async with client() as http:
        response = await http.options(path)
        missing = await http.options("/nothing")
    assert (response.status_code, response.headers["allow"]) == (204, allow)
    assert missing.status_code == 404


async def test_a_caller_that_leaves_is_no_failure_of_the_service(
    caplog: pytest.LogCaptureFixture,
) -> None:
    parts = iter(
        [
            {"type": "http.request", "body": b'{"size"', "more_body": True},
            {"type": "http.disconnect"},
        ]
    )

    async def receive() -> Any:
        return next(parts)

    async def send(_: Any) -> None: ...

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/things",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
    }
    async with client() as http:
        with caplog.at_level(logging.ERROR, "stagefare.web"):
            await http.app(scope, receive, send)
    assert not caplog.records
