"""Who held which link when, read off a timeline whose links have queues."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.schedules.link_kernels import exchange_pieces, link_intervals
from service.core.schedules.link_run import exchange_order, ready_times, service_order
from service.core.schedules.timeline import Timeline

__all__ = [
    "LinkExchanges",
    "LinkIntervals",
    "LinkService",
    "count_intervals",
    "intervals_of",
    "link_busy",
    "link_exchanges",
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

    def at(self, rows: Int64Array | BoolArray) -> "LinkIntervals":
        """Those at some rows, or that a mask chooses."""
        return LinkIntervals(self.link[rows], self.bundle[rows], self.start[rows], self.end[rows])


_NOTHING = np.empty(0, dtype=np.int64)
_NO_INTERVALS = LinkIntervals(_NOTHING.astype(np.int32), _NOTHING, _NOTHING, _NOTHING)


@dataclass(frozen=True, slots=True, eq=False)
class LinkService:
    """The messages that one link served, first to last, and when, in picoseconds.

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
    """How many intervals `intervals_of` would give; at most, where messages divide exchanges."""
    links = timeline.links
    if links is None:
        return 0
    kinds = links.kinds[wanted]
    count = int(links.bundles.sizes[kinds[kinds >= 0]].sum())
    if wanted[links.messages :].any():
        count += int(links.bundles.sizes[links.input_kinds].sum())
    return count


def intervals_of(timeline: Timeline, wanted: BoolArray) -> LinkIntervals:
    """When each link was held by the bundles that `wanted` marks, by link, each in sequence.

    `wanted` is as long as the `kinds` of the timeline's links. What operations exchange themselves
    holds a link in several intervals where messages came between.
    """
    links, queues = timeline.links, timeline.run.queues
    if links is None or queues is None:
        return _NO_INTERVALS
    if not wanted[links.messages :].any():
        return _in_sequence(_messages(timeline, wanted[: links.messages]))
    pieces = link_exchanges(timeline).pieces
    shown = wanted[pieces.bundle]
    messages, own = _messages(timeline, wanted[: links.messages]), pieces.at(shown)
    return _in_sequence(
        LinkIntervals(
            np.concatenate((messages.link, own.link)),
            np.concatenate((messages.bundle, own.bundle)),
            np.concatenate((messages.start, own.start)),
            np.concatenate((messages.end, own.end)),
        )
    )


@dataclass(frozen=True, slots=True, eq=False)
class LinkExchanges:
    """What operations exchange themselves, by link and there in the sequence of their turns.

    `bundle` was ready at `ready`, occupied `link` for `occupied` and was `done` with it at that
    (ps); `pieces` are when it held it.
    """

    link: Int32Array
    bundle: Int64Array
    ready: Int64Array
    occupied: Int64Array
    done: Int64Array
    pieces: LinkIntervals


def link_exchanges(timeline: Timeline) -> LinkExchanges:
    """Those of a timeline in link mode. Raises `ValueError` in the other modes."""
    links, queues = timeline.links, timeline.run.queues
    if links is None or queues is None:
        raise ValueError(f"{timeline.mode.value} mode has no links")
    every = np.ones(links.messages, dtype=np.bool_)
    messages = _in_sequence(_messages(timeline, every))
    held = messages.end > messages.start
    bundles = links.bundles
    operations = exchange_order(timeline.program, queues)
    kinds = links.own_kinds[operations]
    sizes = bundles.sizes[kinds]
    entry = np.repeat(bundles.offsets[kinds] - (np.cumsum(sizes) - sizes), sizes)
    entry += np.arange(len(entry))
    by_link = np.argsort(bundles.link[entry], kind="stable")
    entry, of = entry[by_link], np.repeat(operations, sizes)[by_link]
    link, ready, occupied = bundles.link[entry], timeline.run.start[of], bundles.occupied[entry]
    ends = np.arange(bundles.links + 1)
    done = np.empty(len(of), dtype=np.int64)
    place, begin, end = np.empty((3, len(of) + int(held.sum())), dtype=np.int64)
    count = exchange_pieces(
        messages.link[held].searchsorted(ends).astype(np.int64),
        messages.start[held],
        messages.end[held],
        link.searchsorted(ends).astype(np.int64),
        ready,
        occupied,
        done,
        place,
        begin,
        end,
    )
    place, bundle = place[:count], links.messages + of
    pieces = LinkIntervals(link[place], bundle[place], begin[:count], end[:count])
    return LinkExchanges(link, bundle, ready, occupied, done, pieces)


def _in_sequence(found: LinkIntervals) -> LinkIntervals:
    """By link, each by time; what begins at the same time in the order in which it stands."""
    return found.at(np.lexsort((found.start, found.link)))


def _messages(timeline: Timeline, wanted: BoolArray) -> LinkIntervals:
    """When links were held by these inputs, (inputs,), as they were served."""
    links, queues = timeline.links, timeline.run.queues
    if links is None or queues is None:
        return _NO_INTERVALS
    served = service_order(timeline.program, queues)
    count = int(links.bundles.sizes[links.input_kinds[wanted]].sum())
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
    """All messages that one link served."""
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
