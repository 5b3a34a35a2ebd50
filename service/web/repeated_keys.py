"""Keys that an object gives more than once, of which JSON decoders take the last one silently.

Two readers of such a body can see two different documents, so it is refused (RFC 7493, 2.3).
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from service.core.errors import Path

__all__ = ["JSON_STRING", "object_of", "repeated_keys", "repeats_a_key"]

# A string, closed or running to the end of the body. Possessive, so that it never backtracks.
JSON_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
# A colon that does not stand in the body as one.
_ESCAPED_COLON = re.compile(rb"\\u003a", re.IGNORECASE)


def repeats_a_key(body: bytes) -> bool:
    """Whether an object in a JSON body gives a key twice; quick, but does not say where.

    Decoding drops the earlier entry, and with it at least one colon, which the value written again
    lacks. Colons inside strings stay, unless one was written as an escape: then the strings are
    left out of both counts. Raises msgspec.DecodeError for what is no JSON.
    """
    written = msgspec.json.encode(msgspec.json.decode(body))
    if _ESCAPED_COLON.search(body) is not None:
        body, written = JSON_STRING.sub(b"", body), JSON_STRING.sub(b"", written)
    return body.count(b":") != written.count(b":")


class _Repeating(dict[str, Any]):
    """An object of which some keys were given more than once."""

    repeated: tuple[str, ...]


def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these entries, for `json.loads`; `repeated_keys` finds what was lost."""
    entries = dict(pairs)
    if len(entries) == len(pairs):
        return entries
    counts = Counter(key for key, _ in pairs)
    repeating = _Repeating(entries)
    repeating.repeated = tuple(key for key, count in counts.items() if count > 1)
    return repeating


def repeated_keys(value: Any) -> Iterator[Path]:
    """Paths of the keys that the objects in a value gave more than once, made by `object_of`."""
    pending: list[tuple[Path, Any]] = [((), value)]
    while pending:
        path, item = pending.pop()
        if isinstance(item, _Repeating):
            for key in item.repeated:
                yield (*path, key)
        entries: Iterable[tuple[str | int, Any]] = ()
        if isinstance(item, dict):
            entries = item.items()
        elif isinstance(item, list):
            entries = enumerate(item)
        # A large body has far more numbers and texts than objects; they are not looked at.
        pending += [((*path, key), each) for key, each in entries if isinstance(each, dict | list)]
