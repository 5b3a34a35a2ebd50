"""Picoseconds as people read them: a unit that fits, and exact decimal seconds."""

from dataclasses import dataclass
from fractions import Fraction

from service.core.units import PICOSECONDS_PER_SECOND

__all__ = ["TimeUnit", "exact_seconds", "fitting_unit", "readable_time"]


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """A unit of time and its length in picoseconds."""

    symbol: str
    picoseconds: int


_UNITS = (
    TimeUnit("s", PICOSECONDS_PER_SECOND),
    TimeUnit("ms", 10**9),
    TimeUnit("µs", 10**6),
    TimeUnit("ns", 10**3),
    TimeUnit("ps", 1),
)


def fitting_unit(picoseconds: int | Fraction) -> TimeUnit:
    """The largest unit in which the time is at least 1; seconds for no time at all."""
    if picoseconds == 0:
        return _UNITS[0]
    length = abs(Fraction(picoseconds))
    return next((unit for unit in _UNITS if length >= unit.picoseconds), _UNITS[-1])


def readable_time(picoseconds: int | Fraction, unit: TimeUnit | None = None) -> str:
    """Four significant digits in a unit that fits (`447 ms`), or in the given unit."""
    unit = fitting_unit(picoseconds) if unit is None else unit
    amount = float(picoseconds / Fraction(unit.picoseconds))
    digits = f"{amount:.4g}" if abs(amount) < 10_000 else f"{amount:.0f}"
    return f"{digits} {unit.symbol}"


def exact_seconds(picoseconds: int) -> str:
    """Seconds as a decimal number without rounding and without an exponent."""
    whole, rest = divmod(picoseconds, PICOSECONDS_PER_SECOND)
    return f"{whole}.{rest:012d}".rstrip("0").rstrip(".")
