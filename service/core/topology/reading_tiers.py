"""Tiers of the switches of a reading, from its cables."""

from collections import defaultdict, deque
from collections.abc import Iterable

from service.core.topology.readings import Cable

__all__ = ["TIERS_ASSUMED", "tiers"]

TIERS_ASSUMED = (
    "tiers follow from cables: a switch with hosts is a leaf, any other is one tier above the"
    " nearest"
)


def tiers(cables: Iterable[Cable]) -> dict[str, int]:
    """The tier of each switch that a host can reach: 0 at hosts, else one above the nearest."""
    neighbours: defaultdict[str, dict[str, None]] = defaultdict(dict)
    found: dict[str, int] = {}
    for cable in cables:
        ends = (cable.source.switch, cable.target.switch)
        for end, other in (ends, ends[::-1]):
            if end is not None and other is None:
                found[end] = 0
            elif end is not None and other is not None:
                neighbours[end][other] = None
    waiting = deque(found)
    while waiting:
        switch = waiting.popleft()
        for other in neighbours[switch]:
            if other not in found:
                found[other] = found[switch] + 1
                waiting.append(other)
    return found
