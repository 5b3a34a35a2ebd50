"""Where a number came from, and what a sum of numbers from several places rests on."""

from collections.abc import Iterable
from enum import StrEnum

__all__ = ["Provenance", "weakest"]


class Provenance(StrEnum):
    """Where a number came from, the surest first."""

    GIVEN = "given"  # the plan says so itself
    MEASURED = "measured"  # at exactly this shape
    INTERPOLATED = "interpolated"  # between measured shapes
    EXTRAPOLATED = "extrapolated"  # beyond them, where the plan asks for it
    ASSUMED = "assumed"  # from peaks and stated efficiencies


_ORDER = {provenance: place for place, provenance in enumerate(Provenance)}


def weakest(of: Iterable[Provenance]) -> Provenance:
    """What a sum of such numbers is at best; `GIVEN` of none."""
    return max(of, key=_ORDER.__getitem__, default=Provenance.GIVEN)
