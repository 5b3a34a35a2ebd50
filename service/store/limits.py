"""What both databases can hold.

A value outside these limits is in no table, so a query for it finds nothing instead of failing.
SQLite would accept a NUL that PostgreSQL refuses; neither takes a lone surrogate or an integer
beyond 64 bits.
"""

__all__ = ["is_storable_integer", "is_storable_text", "nearest_storable_integer"]

_INTEGER_LIMIT = 2**63


def is_storable_text(value: str) -> bool:
    """Whether the text has neither NUL nor lone surrogates."""
    try:
        return b"\x00" not in value.encode()
    except UnicodeEncodeError:
        return False


def is_storable_integer(value: int) -> bool:
    """Whether the integer fits 64 bits with a sign."""
    return -_INTEGER_LIMIT <= value < _INTEGER_LIMIT


def nearest_storable_integer(value: int) -> int:
    """The integer itself, or the end of the 64-bit range that it lies beyond."""
    return max(-_INTEGER_LIMIT, min(value, _INTEGER_LIMIT - 1))
