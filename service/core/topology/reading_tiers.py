"""Tiers of the switches of a reading, from its cables."""

from collections import Counter, defaultdict
from collections.abc import Iterable

from service.core.topology.readings import Cable
from service.core.topology.tiers import fabric_tiers

__all__ = ["TIERS_ASSUMED", "tiers"]

TIERS_ASSUMED = (
    "tiers follow from cables: a switch with hosts is a leaf, unless it has few and is joined to"
    " leaves as a spine is; any other is one tier above the nearest"
)


def tiers(cables: Iterable[Cable]) -> dict[str, int]:
    """The tier of each switch that a host can reach: 0 for leaves, else one above the nearest."""
    neighbours: defaultdict[str, dict[str, None]] = defaultdict(dict)
    hosts: Counter[str] = Counter()
    for cable in cables:
        ends = (cable.source.switch, cable.target.switch)
        for end, other in (ends, ends[::-1]):
            if end is not None and other is None:
                hosts[end] += 1
            elif end is not None and other is not None:
                neighbours[end][other] = None
    return fabric_tiers(hosts, neighbours)
