"""Who held which link when, read off a timeline whose links have queues."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.schedules.event_kernels import link_intervals
from service.core.schedules.link_run import ready_times, service_order
from service.core.schedules.timeline import Timeline

__all__ = [
    "LinkIntervals",
    "LinkService",
    "count_intervals",
    "intervals_of",
    "link_busy",
    "service_of",
]

BoolArray = npt.NDArray[np.bool_]
Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class LinkIntervals:
    """Bundle `bundle` held link `link` from `start` to `end` (ps): four columns."""

    link: Int32Array
    bundle: Int64Array
    start: Int64Array
    end: Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class LinkService:
    """The bundles that one link served, first to last, and when, in picoseconds.

    One that found the link free starts when it is ready, any other when the one before it ends.
    """

    bundle: Int64Array
    ready: Int64Array
    start: Int64Array
    end: Int64Array

    def place(self, wanted: int) -> int:
        """Where a bundle stands in the sequence."""
        return int(np.flatnonzero(self.bundle == wanted)[0])


def link_busy(timeline: Timeline) -> Int64Array:
    """(links,) picoseconds for which each link is occupied over the iteration."""
    links = timeline.links
    if links is None:
        return np.empty(0, dtype=np.int64)
    bundles = links.bundles
    messages = np.bincount(links.kinds[links.present], minlength=bundles.kinds)
    busy = np.zeros(bundles.links, dtype=np.int64)
    np.add.at(busy, bundles.link, np.repeat(messages, bundles.sizes) * bundles.occupied)
    return busy


def count_intervals(timeline: Timeline, wanted: BoolArray) -> int:
    """How many intervals `intervals_of` would give."""
    links = timeline.links
    if links is None:
        return 0
    kinds = links.kinds[wanted]
    return int(links.bundles.sizes[kinds[kinds >= 0]].sum())


def intervals_of(timeline: Timeline, wanted: BoolArray) -> LinkIntervals:
    """When each link was held by the bundles that `wanted` marks, as they were served.

    `wanted` is as long as the `kinds` of the timeline's links.
    """
    links, queues = timeline.links, timeline.run.queues
    if links is None or queues is None:
        nothing = np.empty(0, dtype=np.int64)
        return LinkIntervals(nothing.astype(np.int32), nothing, nothing, nothing)
    served = service_order(timeline.program, queues)
    count = count_intervals(timeline, wanted)
    link = np.empty(count, dtype=np.int32)
    bundle, start, end = np.empty((3, count), dtype=np.int64)
    link_intervals(
        served,
        ready_times(timeline.program, timeline.run, served),
        links.kinds,
        links.bundles.offsets,
        links.bundles.link,
        links.bundles.occupied,
        links.bundles.links,
        wanted[served],
        bundle,
        link,
        start,
        end,
    )
    return LinkIntervals(link, bundle, start, end)


def service_of(timeline: Timeline, link: int) -> LinkService:
    """All that one link served."""
    links, queues = timeline.links, timeline.run.queues
    if links is None or queues is None:
        raise ValueError(f"{timeline.mode.value} mode has no links")
    bundles = links.bundles
    occupied = np.full(bundles.kinds, -1, dtype=np.int64)
    on_link = np.flatnonzero(bundles.link == link)
    occupied[np.repeat(np.arange(bundles.kinds), bundles.sizes)[on_link]] = bundles.occupied[
        on_link
    ]
    served = service_order(timeline.program, queues)
    times = occupied[links.kinds[served]]
    served, times = served[times >= 0], times[times >= 0]
    ready = ready_times(timeline.program, timeline.run, served)
    # With all later work taken off, each end is a running maximum of ready times.
    worked = np.cumsum(times)
    end = np.maximum.accumulate(ready - (worked - times)) + worked
    return LinkService(served, ready, end - times, end)
