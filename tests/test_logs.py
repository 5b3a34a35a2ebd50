"""A log line is one line, says what it may say, and holds no secret."""

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from structlog.contextvars import bound_contextvars

from service.logs import configure_logging, redacted

TOKEN = f"stagefare_{'0' * 20}_{'a' * 64}"
HOSTILE = 'x\n{"event": "forged"}\r\n2026-01-01 [info] forged \x1b[31m\u2028\x85\ud800'

Configured = Callable[..., io.StringIO]


@pytest.fixture
def configured() -> Iterator[Configured]:
    """Sets logging up on a stream in memory, and what was there before again at the end."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    names = ("stagefare", "uvicorn", "uvicorn.error", "uvicorn.access")
    levels = {name: logging.getLogger(name).level for name in names}
    kept_handlers = {name: logging.getLogger(name).handlers[:] for name in names}

    def configure(level: str = "info", *, as_json: bool = True) -> io.StringIO:
        stream = io.StringIO()
        configure_logging(level, stream, as_json=as_json)
        return stream

    yield configure
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in names:
        logging.getLogger(name).setLevel(levels[name])
        logging.getLogger(name).handlers[:] = kept_handlers[name]


def events(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_an_object_with_the_fields_of_the_record(configured: Configured) -> None:
    stream = configured()
    fields = {"method": "GET", "route": "/v1/plans", "status": 200, "duration_seconds": 0.25}
    logging.getLogger("stagefare.requests").info("request", extra=fields)
    (event,) = events(stream)
    assert event.pop("timestamp").endswith("Z")
    assert event == {"event": "request", "level": "info", "logger": "stagefare.requests", **fields}


def test_a_line_inside_a_request_carries_its_ids(configured: Configured) -> None:
    stream = configured()
    with bound_contextvars(request_id="abc", trace_id="0" * 31 + "1"):
        logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    (event,) = events(stream)
    assert (event["request_id"], event["trace_id"]) == ("abc", "0" * 31 + "1")
    assert event["logger"] == "uvicorn.error"


def test_nothing_else_that_hangs_on_a_record_is_written(configured: Configured) -> None:
    stream = configured()
    logging.getLogger("stagefare").info("x", extra={"body": "secret", "headers": {"a": "secret"}})
    assert "secret" not in stream.getvalue()
    assert events(stream)[0]["event"] == "x"


@pytest.mark.parametrize("as_json", [True, False])
def test_what_a_caller_wrote_makes_no_line_of_its_own(
    configured: Configured, as_json: bool
) -> None:
    stream = configured(as_json=as_json)
    logging.getLogger("stagefare").warning("about %s", HOSTILE, extra={"route": HOSTILE})
    written = stream.getvalue()
    assert written.endswith("\n")
    assert len(written.splitlines()) == 1
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in written[:-1])
    written.encode()
    if as_json:
        assert events(stream)[0]["event"].startswith("about x\n")


@pytest.mark.parametrize("as_json", [True, False])
def test_a_traceback_is_written_and_can_not_pass_for_lines(
    configured: Configured, as_json: bool
) -> None:
    stream = configured(as_json=as_json)
    nothing: dict[str, int] = {}
    try:
        nothing[f"{HOSTILE} {TOKEN}"]
    except KeyError:
        logging.getLogger("stagefare").exception("request failed")
    lines = stream.getvalue().splitlines()
    assert "a" * 64 not in stream.getvalue()
    if as_json:
        (event,) = events(stream)
        assert event["exception"].startswith("Traceback (most recent call last)")
        assert "KeyError" in event["exception"]
    else:
        assert "Traceback" in stream.getvalue()
        assert "\x1b" not in stream.getvalue()
        assert not [line for line in lines[1:] if line and not line.startswith("  ")]


def test_secrets_are_taken_out_of_text() -> None:
    text = f"no {TOKEN} at postgresql://me:p.a:s@db/x and postgresql://db/x, sqlite:////a/b@c"
    assert redacted(text) == (
        f"no stagefare_{'0' * 20}_*** at postgresql://me:***@db/x and postgresql://db/x, "
        "sqlite:////a/b@c"
    )


def test_a_token_sent_as_request_id_is_struck_out(configured: Configured) -> None:
    stream = configured()
    with bound_contextvars(request_id=TOKEN):
        logging.getLogger("stagefare.requests").info("request", extra={"team": TOKEN})
    assert TOKEN not in stream.getvalue()
    assert f"stagefare_{'0' * 20}_***" in stream.getvalue()


def test_debugging_the_service_does_not_debug_its_drivers(configured: Configured) -> None:
    """Drivers log statements with their values, compilers log every step."""
    stream = configured("debug")
    for name in ("aiosqlite", "sqlalchemy.engine", "asyncio", "numba.core", "httpx"):
        logging.getLogger(name).debug("INSERT a secret")
        logging.getLogger(name).info("INSERT a secret")
    logging.getLogger("stagefare.web").debug("seen")
    assert [event["event"] for event in events(stream)] == ["seen"]


def test_the_level_holds(configured: Configured) -> None:
    stream = configured("warning")
    logging.getLogger("stagefare.requests").info("request")
    logging.getLogger("uvicorn.error").info("Started")
    logging.getLogger("stagefare").error("bad")
    assert [event["event"] for event in events(stream)] == ["bad"]


def test_the_servers_own_handlers_say_nothing_twice(configured: Configured) -> None:
    logger = logging.getLogger("uvicorn.error")
    logger.addHandler(logging.StreamHandler())
    stream = configured()
    logger.info("Started server process [%d]", 7, extra={"color_message": "\x1b[36m7"})
    (event,) = events(stream)
    assert event["event"] == "Started server process [7]"
    assert "color_message" not in event
    assert not logger.handlers


def test_warnings_are_lines_too(configured: Configured) -> None:
    stream = configured()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    assert "DeprecationWarning: old" in events(stream)[0]["event"]


def test_an_object_that_is_no_json_is_shown_as_python_shows_it(configured: Configured) -> None:
    stream = configured()
    logging.getLogger("stagefare").info("x", extra={"status": {1}})
    assert events(stream)[0]["status"] == "{1}"
