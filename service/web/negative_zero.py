"""-0.0 in JSON bodies: a number with two spellings.

Equal plans would have different digests, and a sign says something that no quantity here can mean.
"""

import re
from collections.abc import Iterator
from math import copysign
from typing import Any

from service.core.errors import Path
from service.web.repeated_keys import JSON_STRING

__all__ = ["has_negative_zero", "is_negative_zero", "negative_zeros"]

# A string, or a negative number that is zero or may be too small for a double.
_CANDIDATE = re.compile(
    JSON_STRING.pattern
    + rb"|(?<![\d.eE+])(?P<number>-(?:0(?:\.0*)?(?:[eE][+-]?\d+)?|\d[\d.]*[eE]-\d+))"
    + rb"(?=[\s,\]}]|\Z)",
    re.DOTALL,
)


def has_negative_zero(body: bytes) -> bool:
    """Whether a JSON body has a number that reads as -0.0; quick, but does not say where."""
    # Most bodies have no minus at all.
    return b"-" in body and any(
        match["number"] is not None and float(match["number"]) == 0
        for match in _CANDIDATE.finditer(body)
    )


def negative_zeros(value: Any) -> Iterator[Path]:
    """Paths of the numbers in a decoded value that are -0.0."""
    pending: list[tuple[Path, Any]] = [((), value)]
    while pending:
        path, item = pending.pop()
        if isinstance(item, dict):
            pending += [((*path, key), each) for key, each in reversed(item.items())]
        elif isinstance(item, list):
            pending += [((*path, index), each) for index, each in reversed(list(enumerate(item)))]
        elif is_negative_zero(item):
            yield path


def is_negative_zero(value: Any) -> bool:
    """Whether `value` is the float -0.0."""
    return isinstance(value, float) and value == 0 and copysign(1, value) < 0
