"""Where a request belongs in a caller's trace (W3C Trace Context, level 1, section 3.2)."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["TRACEPARENT_HEADER", "TraceParent", "trace_parent"]

TRACEPARENT_HEADER = b"traceparent"

# Of versions after 00 only the parts that 00 has are read; what follows them is theirs.
_TRACEPARENT = re.compile(
    rb"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<parent>[0-9a-f]{16})"
    rb"-(?P<flags>[0-9a-f]{2})(?P<more>-[\x21-\x7e]*)?"
)
_MAX_LENGTH = 512


@dataclass(frozen=True, slots=True)
class TraceParent:
    """The caller's span: its ids in lower-case hexadecimal, and whether it is recorded."""

    trace_id: str
    span_id: str
    is_sampled: bool


def trace_parent(headers: Iterable[tuple[bytes, bytes]]) -> TraceParent | None:
    """What the one well-formed `traceparent` among the headers of a request says.

    None for a header that is absent, malformed or given twice: the standard wants such a trace to
    be started anew, never the request to be refused.
    """
    given = [value for name, value in headers if name == TRACEPARENT_HEADER]
    if len(given) != 1 or len(given[0]) > _MAX_LENGTH:
        return None
    parts = _TRACEPARENT.fullmatch(given[0].strip(b" \t"))
    if parts is None or parts["version"] == b"ff":
        return None
    if parts["version"] == b"00" and parts["more"] is not None:
        return None
    trace_id, span_id = parts["trace"].decode(), parts["parent"].decode()
    if not int(trace_id, 16) or not int(span_id, 16):
        return None
    return TraceParent(trace_id, span_id, is_sampled=bool(int(parts["flags"], 16) & 1))
