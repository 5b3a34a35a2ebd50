"""Values that arrive as text, in a query or a form, checked against msgspec types."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from service.web.problems import ProblemError
from service.web.schema_faults import schema_faults

__all__ = ["read_text"]

# As JSON writes them, so without leading zeros.
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,3})?")


def read_text(text: str, type_: Any) -> tuple[Any, list[ProblemError]]:
    """The value of the type that a text stands for, or what keeps it from standing for one.

    Pointers of the faults are relative to the value.
    """
    reading: Any = text
    for reading in _readings(text):
        try:
            return msgspec.convert(reading, type_), []
        except msgspec.ValidationError:
            continue
    # Said of the last reading, the most particular one: of 0 that it is too small, not a string.
    # A schema takes 5.0 for an integer; as text an integer is digits, so then the text is at fault.
    return None, schema_faults(reading, type_) or schema_faults(text, type_)


def _readings(text: str) -> Iterator[Any]:
    """The JSON values a text can stand for: itself first."""
    yield text
    if text in {"true", "false"}:
        yield text == "true"
    elif _INTEGER.fullmatch(text):
        yield int(text)
    elif _NUMBER.fullmatch(text):
        yield float(text)
