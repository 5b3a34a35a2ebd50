"""Field types the documents share: every number, string and list is bounded here or where used.

A `$` in a pattern is followed by `(?!\\n)`, because Python's `$` also fits before a last newline.
Optional fields are `UNSET` when absent; null is refused.
"""

from collections.abc import Sequence
from typing import Annotated, TypeVar

from msgspec import UNSET, Meta, UnsetType

__all__ = [
    "MAX_ELEMENT_NAME",
    "MAX_INTEGER",
    "MAX_LAYERS",
    "MAX_LISTED_MICROBATCHES",
    "MAX_MICROBATCHES",
    "MAX_ORDER_LENGTH",
    "MAX_STAGES",
    "ByteCount",
    "Count",
    "DeviceText",
    "ElementName",
    "LayerPattern",
    "PositiveCount",
    "Ratio",
    "Reference",
    "Seconds",
    "Text",
    "each_or_none",
    "one_or_each",
    "or_none",
    "or_unset",
    "tuple_or_none",
]

# The largest integer that every JSON reader keeps exactly.
MAX_INTEGER = 2**53 - 1
MAX_STAGES = 4096
MAX_LAYERS = 20_000
MAX_MICROBATCHES = 2**31
# Of lists with a number for each microbatch; a plan of more is priced with equal ones.
MAX_LISTED_MICROBATCHES = 65_536
# Of the order of one rank, written out; the body of a request holds about a megabyte of them.
MAX_ORDER_LENGTH = 1_000_000

MAX_ELEMENT_NAME = 127
_ELEMENT = r"[A-Za-z0-9_][A-Za-z0-9_./:-]{0,126}"

Reference = Annotated[
    str,
    Meta(
        pattern=r"^[a-z][a-z0-9-]{0,62}(@[1-9][0-9]{0,8})?$(?!\n)",
        max_length=73,
        description="A stored document: its name for the newest revision, or name@revision",
        examples=["gpt-48", "gpt-48@3"],
    ),
]
ElementName = Annotated[
    str,
    Meta(
        pattern=rf"^{_ELEMENT}$(?!\n)",
        max_length=MAX_ELEMENT_NAME,
        description="A name within one document",
        examples=["block.3.attention"],
    ),
]
LayerPattern = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9_*?][A-Za-z0-9_./:*?-]{0,126}$(?!\n)",
        max_length=127,
        description="A layer's name; * stands for any run of characters and ? for any one",
        examples=["block.3.attention", "block.*.attention"],
    ),
]
Text = Annotated[
    str,
    Meta(pattern=r"^[^\u0000]*$(?!\n)", max_length=2000, description="Free text for people"),
]
DeviceText = Annotated[
    str,
    Meta(
        pattern=r"^[^\u0000]+$(?!\n)",
        min_length=1,
        max_length=127,
        description="A kind of device, in the words of its maker",
        examples=["H100-SXM5-80GB"],
    ),
]
Seconds = Annotated[float, Meta(ge=0, le=1e5, extra_json_schema={"x-unit": "seconds"})]
ByteCount = Annotated[int, Meta(ge=0, le=MAX_INTEGER, extra_json_schema={"x-unit": "bytes"})]
Count = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
PositiveCount = Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
Ratio = Annotated[float, Meta(ge=0, le=1e6)]

Value = TypeVar("Value")
Number = TypeVar("Number", int, float)


def or_none(value: Value | UnsetType) -> Value | None:
    """What stands there, or None when the field is absent."""
    return None if value is UNSET or isinstance(value, UnsetType) else value


def or_unset(value: Value | None) -> Value | UnsetType:
    """The value, or what leaves its field out."""
    return UNSET if value is None else value


def tuple_or_none(values: Sequence[Value] | UnsetType) -> tuple[Value, ...] | None:
    """What is listed, or None when the field is absent."""
    return None if isinstance(values, UnsetType) else tuple(values)


def one_or_each(given: Number | list[Number]) -> Number | tuple[Number, ...]:
    """One number for all, or one for each."""
    return tuple(given) if isinstance(given, list) else given


def each_or_none(given: Number | list[Number] | UnsetType) -> Number | tuple[Number, ...] | None:
    """The same of a field that may be absent."""
    return None if isinstance(given, UnsetType) else one_or_each(given)
