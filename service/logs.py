"""How log lines look, and which are written.

Everything logs through the standard library, what is linked in included; structlog renders it: one
JSON object a line, or words for a terminal. A line about a request carries its id, and its trace
where there is one.

What a caller wrote never makes a line of its own: JSON escapes control characters, and so does the
form for terminals. Only the fields named in `FIELDS` are taken from a record, so that a library
that attaches more to its records can't put a body or a header into the log.
"""

import logging
import re
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog

__all__ = ["FIELDS", "configure_logging", "redacted"]

# What a record may carry beside its message, in `extra`.
FIELDS = (
    "method",
    "route",
    "status",
    "duration_seconds",
    "team",
    "request_bytes",
    "response_bytes",
)

# Loggers that follow the level that was asked for. Others speak from warnings upwards whatever it
# is: drivers and compilers log statements with their values, and every step they take.
_FOLLOWING = ("stagefare", "uvicorn")

_TOKEN = re.compile(r"(stagefare_[0-9a-f]{20})_[0-9a-f]{64}")
_URL_PASSWORD = re.compile(r"(://[^\s:/@]*):[^\s/@]+@")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CONTROL_IN_LINES = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")

_EventDict = MutableMapping[str, Any]


def configure_logging(level: str, stream: TextIO, *, as_json: bool) -> None:
    """Send what this process logs from `level` upwards to a stream, in place of what was set up.

    `level` is a name of the standard library, in any case. Meant for the process that serves: it
    changes the root logger.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_formatter(as_json=as_json, colours=stream.isatty()))
    root = logging.getLogger()
    for other in root.handlers[:]:
        root.removeHandler(other)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    for name in _FOLLOWING:
        logging.getLogger(name).setLevel(level.upper())
    # The server brings handlers of its own; one line is enough.
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    logging.captureWarnings(True)


def redacted(text: str) -> str:
    """The text without secrets of tokens and without passwords in URLs."""
    return _URL_PASSWORD.sub(r"\1:***@", _TOKEN.sub(r"\1_***", text))


def _formatter(*, as_json: bool, colours: bool) -> logging.Formatter:
    render: Any
    if as_json:
        render = [structlog.processors.JSONRenderer()]  # in ASCII
    else:
        plain = structlog.dev.plain_traceback
        render = [
            _escape,
            structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=plain),
        ]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.stdlib.ExtraAdder(allow=FIELDS),
            structlog.contextvars.merge_contextvars,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _redact,
        ],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
    )


def _redact(_logger: Any, _method: str, event: _EventDict) -> _EventDict:
    # The event may be an object that is no text. Of the rest, a request id may be the caller's.
    event["event"] = str(event.get("event", ""))
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = redacted(value)
    return event


def _escape(_logger: Any, _method: str, event: _EventDict) -> _EventDict:
    """Keep every value on its line; a traceback keeps its lines, all of them indented."""
    for key, value in event.items():
        if not isinstance(value, str):
            continue
        text = value.encode(errors="backslashreplace").decode()
        if key == "exception":
            lines = _CONTROL_IN_LINES.sub(_escaped, text).split("\n")
            event[key] = "\n".join(f"  {line}" for line in lines)
        else:
            event[key] = _CONTROL.sub(_escaped, text)
    return event


def _escaped(character: re.Match[str]) -> str:
    return character[0].encode("unicode_escape").decode()
