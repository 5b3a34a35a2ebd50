"""Capacities by number, and for how long bytes occupy them."""

from collections.abc import Iterable
from fractions import Fraction

from service.core.errors import Fault, FaultCode, WorkBudgetExceeded
from service.core.topology.cluster import Link
from service.core.units import PICOSECONDS_PER_SECOND

__all__ = [
    "MAX_LINK_ENTRIES",
    "LinkNumbers",
    "check_entries",
    "link_picoseconds",
    "occupied_picoseconds",
    "predicted_rate",
]

# Links of a bundle, over all kinds of bundles.
MAX_LINK_ENTRIES = 200_000


class LinkNumbers:
    """Capacities numbered in the order of first use; `links` has the first link used of each."""

    def __init__(self) -> None:
        self.links: list[Link] = []
        self._numbers: dict[str, int] = {}

    def __call__(self, link: Link) -> int:
        """The number of the capacity that a link takes up."""
        if link.resource not in self._numbers:
            self._numbers[link.resource] = len(self.links)
            self.links.append(link)
        return self._numbers[link.resource]


def check_entries(entries: int) -> None:
    """Raise `WorkBudgetExceeded` for more than `MAX_LINK_ENTRIES`."""
    if entries > MAX_LINK_ENTRIES:
        detail = (
            f"what the plan hands on and exchanges occupies {entries} links or more, each "
            f"boundary, way, stage and size by itself; at most {MAX_LINK_ENTRIES} are simulated: "
            "use latency mode, fewer ranks, or a routing of fewer steps"
        )
        raise WorkBudgetExceeded(
            [Fault(FaultCode.WORK_BUDGET, ("schedule", "transfer_mode"), detail)]
        )


def predicted_rate(link: Link) -> float:
    """Bytes per second that predictions use: effective ones, the nominal ones where unknown."""
    return link.effective_bytes_per_second or link.bandwidth_bytes_per_second


def link_picoseconds(message_bytes: int, bytes_per_second: float) -> Fraction:
    """How long a link is occupied, exactly."""
    return Fraction(message_bytes * PICOSECONDS_PER_SECOND) / Fraction(bytes_per_second)


def occupied_picoseconds(parts: Iterable[tuple[int, float]], share: Fraction = Fraction(1)) -> int:
    """How long a capacity is occupied by bytes, each at its rate (bytes per second).

    Links that take up one capacity may differ in their rates, of which `share` is used. What goes
    at one rate is rounded up to picoseconds, so that no sum is less than the bytes take.
    """
    by_rate: dict[float, int] = {}
    for size, rate in parts:
        by_rate[rate] = by_rate.get(rate, 0) + size
    occupied = 0
    for rate, size in by_rate.items():
        above, below = (Fraction(rate) * share).as_integer_ratio()
        occupied += -(-size * PICOSECONDS_PER_SECOND * below // above)
    return occupied
