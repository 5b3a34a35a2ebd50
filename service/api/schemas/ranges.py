"""Wire types of what differs among microbatches: the ends beside a mean, never one number for all.

Where all microbatches are alike none of this appears.
"""

from fractions import Fraction
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from service.core.amounts import Spread
from service.core.units import exact_seconds, to_seconds

__all__ = [
    "BytesRange",
    "BytesRanges",
    "SecondsRange",
    "SecondsRanges",
    "bytes_ranges",
    "known_seconds",
    "mean_seconds",
    "same_bytes",
    "seconds_ranges",
]


class SecondsRange(msgspec.Struct, kw_only=True, frozen=True):
    """The ends of a time over the microbatches."""

    least_seconds: Annotated[float, Meta(ge=0)]
    most_seconds: Annotated[float, Meta(ge=0)]


class BytesRange(msgspec.Struct, kw_only=True, frozen=True):
    """The ends of a size over the microbatches, and all of them together."""

    least_bytes: Annotated[int, Meta(ge=0)]
    most_bytes: Annotated[int, Meta(ge=0)]
    bytes_per_iteration: Annotated[int, Meta(ge=0)]


SecondsRanges = Annotated[
    dict[str, SecondsRange] | UnsetType,
    Meta(
        description="Of the times beside it that differ among microbatches, by name: they are "
        "means. Absent when none does."
    ),
]
BytesRanges = Annotated[
    dict[str, BytesRange] | UnsetType,
    Meta(
        description="Of the sizes that differ among microbatches, by name: none stands for all of "
        "them. Absent when none does."
    ),
]


def known_seconds(picoseconds: Fraction | None) -> float | UnsetType:
    """A time, where it is known."""
    return UNSET if picoseconds is None else exact_seconds(picoseconds)


def mean_seconds(spread: Spread | None) -> float | UnsetType:
    """The mean, which is the time itself where all are alike."""
    return UNSET if spread is None else exact_seconds(spread.mean)


def same_bytes(spread: Spread | None) -> int | UnsetType:
    """The size, where all are alike."""
    return UNSET if spread is None or spread.differs else spread.least


def seconds_ranges(**spreads: Spread | None) -> dict[str, SecondsRange] | UnsetType:
    """By the field's name the range of each time that differs."""
    return {
        name: SecondsRange(
            least_seconds=to_seconds(spread.least), most_seconds=to_seconds(spread.most)
        )
        for name, spread in spreads.items()
        if spread is not None and spread.differs
    } or UNSET


def bytes_ranges(**spreads: Spread | None) -> dict[str, BytesRange] | UnsetType:
    """By the field's name the range of each size that differs."""
    return {
        name: BytesRange(
            least_bytes=spread.least,
            most_bytes=spread.most,
            bytes_per_iteration=spread.total,
        )
        for name, spread in spreads.items()
        if spread is not None and spread.differs
    } or UNSET
