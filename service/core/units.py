"""Time inside the kernels is int64 picoseconds; seconds exist only at the edge.

In float seconds equal stages show gaps that are not there, which corrupts waits, ties and the
critical path. Integers make every sum exact and every digest stable.
"""

from fractions import Fraction
from math import isfinite

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode, InvalidInput, Path

__all__ = [
    "MAX_SECONDS",
    "PICOSECONDS_PER_SECOND",
    "all_to_seconds",
    "exact_seconds",
    "to_picoseconds",
    "to_seconds",
]

PICOSECONDS_PER_SECOND = 10**12

# Integers up to here are floats as they are, so that a quotient is rounded once.
_EXACT_INTEGERS = 2**53

# Sums of durations must stay below 2**63 ps (about 106 days); one duration stays far below that.
MAX_SECONDS = 1e5


def to_picoseconds(seconds: float, path: Path = ()) -> int:
    """Seconds to the nearest whole picosecond.

    Raises `InvalidInput` when the value is negative, not finite, above `MAX_SECONDS`, or positive
    and yet rounds to nothing.
    """
    if not isfinite(seconds) or not 0 <= seconds <= MAX_SECONDS:
        detail = f"a time in seconds lies between 0 and {MAX_SECONDS:g}; got {seconds!r}"
        raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, path, detail)])
    numerator, denominator = seconds.as_integer_ratio()
    picoseconds, rest = divmod(numerator * PICOSECONDS_PER_SECOND, denominator)
    # Half to even, as `round` does on a Fraction, which takes several times as long.
    picoseconds += 2 * rest > denominator or (2 * rest == denominator and picoseconds % 2 == 1)
    if picoseconds == 0 and seconds > 0:
        detail = f"{seconds!r} s is less than half a picosecond: give 0 or a longer time"
        raise InvalidInput([Fault(FaultCode.TOO_SMALL_TO_REPRESENT, path, detail)])
    return picoseconds


def to_seconds(picoseconds: int) -> float:
    """Whole picoseconds to the nearest float of seconds."""
    return int(picoseconds) / PICOSECONDS_PER_SECOND


def all_to_seconds(picoseconds: npt.NDArray[np.int64]) -> list[float]:
    """`to_seconds` of each of many (n,), the same floats."""
    if len(picoseconds) and np.abs(picoseconds).max() > _EXACT_INTEGERS:
        return [to_seconds(one) for one in picoseconds.tolist()]
    seconds: list[float] = (picoseconds / PICOSECONDS_PER_SECOND).tolist()
    return seconds


def exact_seconds(picoseconds: Fraction) -> float:
    """A rational number of picoseconds to the nearest float of seconds."""
    return float(picoseconds / PICOSECONDS_PER_SECOND)
