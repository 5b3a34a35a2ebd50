"""How much the hosts below a leaf can ask for, over what leads away from it.

Read from cables, leaf by leaf: one number of a whole cluster hides cables that are broken.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from service.core.topology.readings import Cable, FoundSwitch

__all__ = ["LeafUplinks", "leaf_notes", "leaf_uplinks"]


@dataclass(frozen=True, slots=True)
class LeafUplinks:
    """What is below and above one leaf, in bytes per second and direction, and in cables."""

    leaf: str
    host_cables: int
    uplink_cables: int
    host_bytes_per_second: float
    uplink_bytes_per_second: float

    @property
    def oversubscription_ratio(self) -> float | None:
        """Down over up; None without uplinks."""
        if not self.uplink_bytes_per_second:
            return None
        return self.host_bytes_per_second / self.uplink_bytes_per_second


def leaf_uplinks(
    switches: Iterable[FoundSwitch], cables: Iterable[Cable]
) -> tuple[LeafUplinks, ...]:
    """For every switch of level 0, in order. A leaf with a cable of unknown rate is left out."""
    leaves = [switch.name for switch in switches if switch.level == 0]
    known = set(leaves)
    down: defaultdict[str, list[float | None]] = defaultdict(list)
    up: defaultdict[str, list[float | None]] = defaultdict(list)
    for cable in cables:
        ends = (cable.source.switch, cable.target.switch)
        rate = cable.rate.bytes_per_second if cable.rate else None
        for end, other in (ends, ends[::-1]):
            if end in known and end is not None:
                (down if other is None else up)[end].append(rate)
    return tuple(
        LeafUplinks(leaf, len(down[leaf]), len(up[leaf]), _sum(down[leaf]), _sum(up[leaf]))
        for leaf in leaves
        if None not in down[leaf] and None not in up[leaf]
    )


def leaf_notes(switches: Sequence[FoundSwitch], cables: Sequence[Cable]) -> tuple[str, ...]:
    """Oversubscription in words: its range, and the leaf that has most of it."""
    ratios = [
        (leaf.oversubscription_ratio, leaf)
        for leaf in leaf_uplinks(switches, cables)
        if leaf.oversubscription_ratio is not None
    ]
    if not ratios:
        return ()
    lowest = min(ratio for ratio, _leaf in ratios)
    highest, worst = max(ratios, key=lambda item: item[0])
    down = f"{worst.host_bytes_per_second:.6g} bytes/s to hosts over {worst.host_cables} cables"
    up = f"{worst.uplink_bytes_per_second:.6g} bytes/s up over {worst.uplink_cables}"
    found = f"oversubscription by leaf is {lowest:.3f} to {highest:.3f}"
    return (f"{found}; highest at {worst.leaf}: {down}, {up}",)


def _sum(rates: Iterable[float | None]) -> float:
    return sum(rate for rate in rates if rate is not None)
