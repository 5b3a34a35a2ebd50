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
    """Input `input` of the program held link `link` from `start` to `end` (ps): four columns."""

    link: Int32Array
    input: Int64Array
    start: Int64Array
    end: Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class LinkService:
    """The inputs that one link served, first to last, and when, in picoseconds.

    One that found the link free starts when it is ready, any other when the one before it ends.
    """

    input: Int64Array
    ready: Int64Array
    start: Int64Array
    end: Int64Array

    def place(self, wanted: int) -> int:
        """Where an input stands in the sequence."""
        return int(np.flatnonzero(self.input == wanted)[0])


def link_busy(timeline: Timeline) -> Int64Array:
    """(links,) picoseconds for which each link is occupied over the iteration."""
    links = timeline.transfers.links
    if links is None:
        return np.empty(0, dtype=np.int64)
    bundles = links.bundles
    messages = np.bincount(timeline.transfers.kinds(timeline.program), minlength=bundles.kinds)
    busy = np.zeros(bundles.links, dtype=np.int64)
    np.add.at(busy, bundles.link, np.repeat(messages, bundles.sizes) * bundles.occupied)
    return busy


def count_intervals(timeline: Timeline, wanted: BoolArray) -> int:
    """How many intervals `intervals_of` would give."""
    links = timeline.transfers.links
    if links is None:
        return 0
    return int(links.bundles.sizes[timeline.transfers.kinds(timeline.program)[wanted]].sum())


def intervals_of(timeline: Timeline, wanted: BoolArray) -> LinkIntervals:
    """When each link was held by the inputs that `wanted` (inputs,) marks, as they were served."""
    links, queues = timeline.transfers.links, timeline.run.queues
    if links is None or queues is None:
        nothing = np.empty(0, dtype=np.int64)
        return LinkIntervals(nothing.astype(np.int32), nothing, nothing, nothing)
    kinds = timeline.transfers.kinds(timeline.program)
    served = service_order(timeline.program, queues)
    count = count_intervals(timeline, wanted)
    link = np.empty(count, dtype=np.int32)
    bundle, start, end = np.empty((3, count), dtype=np.int64)
    link_intervals(
        served,
        ready_times(timeline.program, timeline.run, served),
        kinds,
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
    links, queues = timeline.transfers.links, timeline.run.queues
    if links is None or queues is None:
        raise ValueError(f"{timeline.mode.value} mode has no links")
    bundles = links.bundles
    occupied = np.full(bundles.kinds, -1, dtype=np.int64)
    on_link = np.flatnonzero(bundles.link == link)
    occupied[np.repeat(np.arange(bundles.kinds), bundles.sizes)[on_link]] = bundles.occupied[
        on_link
    ]
    served = service_order(timeline.program, queues)
    times = occupied[timeline.transfers.kinds(timeline.program)[served]]
    served, times = served[times >= 0], times[times >= 0]
    ready = ready_times(timeline.program, timeline.run, served)
    # With all later work taken off, each end is a running maximum of ready times.
    worked = np.cumsum(times)
    end = np.maximum.accumulate(ready - (worked - times)) + worked
    return LinkService(served, ready, end - times, end)
