"""The links that a plan's transfers occupy, and for how long: the bundle of each boundary and way.

All data, tensor and context ranks of a stage send at the same time, and all replicas run the same
times, so the transfer of one microbatch over a boundary is the flows of all its rank pairs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from service.core.amounts import Amount, at_class
from service.core.estimates.exchange_links import exchange_bundles
from service.core.estimates.link_times import (
    LinkNumbers,
    check_entries,
    occupied_picoseconds,
    predicted_rate,
)
from service.core.plans.plan import Boundary, ResolvedPlan, TransferOrigin
from service.core.schedules.bundles import Bundles
from service.core.schedules.transfers import LinkTransfers
from service.core.topology.cluster import Link
from service.core.topology.paths import PhysicalPath
from service.core.units import PICOSECONDS_PER_SECOND

__all__ = ["PlanLinks", "plan_links"]


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
    """The bundle of each boundary, way and size of microbatches, and those of experts' exchanges.

    On each link: the bytes of all rank pairs over it / its effective bandwidth (the nominal one
    where none is known), rounded up, so that no sum of them is less than the bytes take; on a
    shared capacity the sum over the links that share it. The
    latency is the greatest of the pairs' paths; a bundle takes alone at least what its slowest pair
    does in latency mode.

    Raises `WorkBudgetExceeded` as `check_entries`.
    """
    numbers = LinkNumbers()
    ways = [
        _way(
            boundary,
            numbers,
            gradient=gradient,
            sent=not gradient or boundary.returns,
        )
        for boundary in resolved.boundaries
        for gradient in (False, True)
    ]
    entries = sum(len(way.users) * _classes(way) for way in ways)
    check_entries(entries)
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
    exchanges = exchange_bundles(resolved, numbers, len(occupied), entries)
    if exchanges is not None:
        occupied += exchanges.occupied
        latencies += exchanges.latency
    bundles = Bundles.of(len(numbers.links), occupied, latencies)
    own = None if exchanges is None else exchanges.own
    return PlanLinks(tuple(numbers.links), LinkTransfers.of(bundles, forward, backward, own))


def _classes(way: _Way) -> int:
    """How many kinds of bundles one way needs: one for each size, if any number differs."""
    given = (way.message_bytes, way.picoseconds)
    return max((len(amount) for amount in given if isinstance(amount, tuple)), default=1)


def _way(
    boundary: Boundary,
    numbers: LinkNumbers,
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
            key = numbers(link), predicted_rate(link)
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
    parts: dict[int, list[tuple[int, float]]] = {}
    for (link, rate), pairs in way.users.items():
        parts.setdefault(link, []).append((size * pairs, rate))
    occupied = {link: occupied_picoseconds(of_link) for link, of_link in parts.items()}
    latency = round(Fraction(way.latency_seconds) * PICOSECONDS_PER_SECOND)
    longest = max(occupied.values(), default=0)
    return list(occupied.items()), max(latency, alone - longest)
