"""The links that a plan's transfers occupy, and for how long: the bundle of each boundary and way.

All data, tensor and context ranks of a stage send at the same time, and all replicas run the same
times, so the transfer of one microbatch over a boundary is the flows of all its rank pairs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from service.core.amounts import Amount, at_class
from service.core.errors import Fault, FaultCode, WorkBudgetExceeded
from service.core.plans.plan import Boundary, ResolvedPlan, TransferOrigin
from service.core.schedules.bundles import Bundles
from service.core.schedules.transfers import LinkTransfers
from service.core.topology.cluster import Link
from service.core.topology.paths import PhysicalPath
from service.core.units import PICOSECONDS_PER_SECOND

__all__ = ["MAX_LINK_ENTRIES", "PlanLinks", "link_picoseconds", "plan_links"]

# Links of a bundle, over all kinds of bundles.
MAX_LINK_ENTRIES = 200_000


@dataclass(frozen=True, slots=True, eq=False)
class PlanLinks:
    """The links that are used, numbered in the order of first use, and what occupies them.

    Links of one shared capacity have one number and one queue; `links` has the first one used.
    """

    links: tuple[Link, ...]
    transfers: LinkTransfers


@dataclass(frozen=True, slots=True)
class _Way:
    """One way over a boundary: how many of its rank pairs use each link, and the longest latency.

    `users` counts by the number of the link and its rate, in which links of one shared capacity
    may differ. It is empty where the time is given or unknown: then no link is occupied.
    """

    message_bytes: Amount
    users: dict[tuple[int, float], int]
    latency_seconds: float
    picoseconds: Amount


def plan_links(resolved: ResolvedPlan) -> PlanLinks:
    """The bundle of each boundary, way and size of microbatches.

    On each link: the bytes of all rank pairs over it / its effective bandwidth (the nominal one
    where none is known), rounded up, so that no sum of them is less than the bytes take; on a
    shared capacity the sum over the links that share it. The
    latency is the greatest of the pairs' paths; a bundle takes alone at least what its slowest pair
    does in latency mode.

    Raises `WorkBudgetExceeded` for more than `MAX_LINK_ENTRIES`.
    """
    numbers: dict[str, int] = {}
    links: list[Link] = []
    ways = [
        _way(
            boundary,
            numbers,
            links,
            gradient=gradient,
            sent=not gradient or boundary.returns,
        )
        for boundary in resolved.boundaries
        for gradient in (False, True)
    ]
    entries = sum(len(way.users) * _classes(way) for way in ways)
    if entries > MAX_LINK_ENTRIES:
        detail = (
            f"the transfers of the plan occupy {entries} links, each boundary, way and size by "
            f"itself; at most {MAX_LINK_ENTRIES} are simulated: use latency mode or fewer ranks"
        )
        raise WorkBudgetExceeded(
            [Fault(FaultCode.WORK_BUDGET, ("schedule", "transfer_mode"), detail)]
        )
    occupied: list[list[tuple[int, int]]] = []
    latencies: list[int] = []
    kinds: list[Amount] = []
    for way in ways:
        first = len(occupied)
        for number in range(_classes(way)):
            parts, latency = _bundle(way, number)
            occupied.append(parts)
            latencies.append(latency)
        alike = len(occupied) == first + 1
        kinds.append(first if alike else tuple(range(first, len(occupied))))
    forward, backward = (resolved.sizes.table(kinds[way::2]).astype(np.int32) for way in (0, 1))
    bundles = Bundles.of(len(links), occupied, latencies)
    return PlanLinks(tuple(links), LinkTransfers.of(bundles, forward, backward))


def link_picoseconds(message_bytes: int, bytes_per_second: float) -> Fraction:
    """How long a link is occupied, exactly."""
    return Fraction(message_bytes * PICOSECONDS_PER_SECOND) / Fraction(bytes_per_second)


def _classes(way: _Way) -> int:
    """How many kinds of bundles one way needs: one for each size, if any number differs."""
    given = (way.message_bytes, way.picoseconds)
    return max((len(amount) for amount in given if isinstance(amount, tuple)), default=1)


def _way(
    boundary: Boundary,
    numbers: dict[str, int],
    links: list[Link],
    *,
    gradient: bool,
    sent: bool,
) -> _Way:
    size = boundary.backward_bytes if gradient else boundary.forward_bytes
    picoseconds = boundary.backward_picoseconds if gradient else boundary.forward_picoseconds
    users: dict[tuple[int, float], int] = {}
    latency = 0.0
    if not sent or boundary.origin is not TransferOrigin.PATH or not size:
        return _Way(0, users, latency, picoseconds)
    for path in _paths(boundary, gradient=gradient):
        latency = max(latency, path.latency_seconds)
        for link in path.links:
            if link.resource not in numbers:
                numbers[link.resource] = len(links)
                links.append(link)
            rate = link.effective_bytes_per_second or link.bandwidth_bytes_per_second
            key = numbers[link.resource], rate
            users[key] = users.get(key, 0) + 1
    return _Way(size, users, latency, picoseconds)


def _paths(boundary: Boundary, *, gradient: bool) -> Iterator[PhysicalPath]:
    for pair in boundary.pairs:
        path = pair.backward_path if gradient else pair.forward_path
        if path is not None:
            yield path


def _bundle(way: _Way, number: int) -> tuple[list[tuple[int, int]], int]:
    """(link, picoseconds) and the latency of one kind; nothing to send occupies nothing."""
    size, alone = at_class(way.message_bytes, number), at_class(way.picoseconds, number)
    if not size:
        return [], alone
    occupied: dict[int, int] = {}
    for (link, rate), pairs in way.users.items():
        above, below = rate.as_integer_ratio()
        time = -(-size * pairs * PICOSECONDS_PER_SECOND * below // above)
        occupied[link] = occupied.get(link, 0) + time
    latency = round(Fraction(way.latency_seconds) * PICOSECONDS_PER_SECOND)
    longest = max(occupied.values(), default=0)
    return list(occupied.items()), max(latency, alone - longest)
