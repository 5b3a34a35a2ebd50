"""Which part of a timeline someone wants to see."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.schedules.stage_times import input_microbatches
from service.core.schedules.timeline import Timeline

__all__ = ["EVERYTHING", "Selection"]


@dataclass(frozen=True, slots=True)
class Selection:
    """Filters that all hold; None means any.

    `ranks` are the ranks to show, microbatches run from `first_microbatch` to `last_microbatch`
    inclusive, and an operation is inside the window when it runs at some moment between `start` and
    `end` (picoseconds); to end as the window starts, or to start as it ends, is not enough.
    """

    ranks: frozenset[int] | None = None
    first_microbatch: int | None = None
    last_microbatch: int | None = None
    start: int | None = None
    end: int | None = None

    def shown_ranks(self, timeline: Timeline) -> tuple[int, ...]:
        """The ranks to show, ascending; ranks that the timeline lacks are left out."""
        every = range(timeline.program.ranks)
        return tuple(r for r in every if self.ranks is None or r in self.ranks)

    def window(self, timeline: Timeline) -> tuple[int, int]:
        """The part of [0, makespan] to show; start = end when they don't meet."""
        makespan = timeline.makespan
        start = min(max(self.start or 0, 0), makespan)
        end = makespan if self.end is None else min(self.end, makespan)
        return start, max(start, end)

    def microbatches(self, timeline: Timeline) -> npt.NDArray[np.bool_]:
        """(operations,) whether the operation's microbatch is wanted, of a pair one of its two."""
        program = timeline.program
        wanted = self._includes(program.microbatch)
        if program.backward_microbatch is not program.microbatch:
            wanted |= self._includes(program.backward_microbatch)
        return wanted

    def _includes(self, microbatch: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
        wanted = np.ones(len(microbatch), dtype=np.bool_)
        if self.first_microbatch is not None:
            wanted &= microbatch >= self.first_microbatch
        if self.last_microbatch is not None:
            wanted &= microbatch <= self.last_microbatch
        return wanted

    def operations(self, timeline: Timeline) -> npt.NDArray[np.int64]:
        """Ids of the operations to show, ascending: rank after rank, each in its order.

        An operation that takes no time counts as running at its start.
        """
        wanted = self.microbatches(timeline)
        if self.ranks is not None:
            wanted &= np.isin(timeline.program.rank, list(self.ranks))
        if self.start is not None:
            lasting = timeline.run.end > self.start
            wanted &= lasting | (timeline.run.start == self.start)
        if self.end is not None:
            wanted &= timeline.run.start < self.end
        return np.flatnonzero(wanted)

    def messages(self, timeline: Timeline) -> npt.NDArray[np.bool_]:
        """(inputs,) whether each value that crosses ranks is to be shown.

        It is of a wanted microbatch, sent or received by a wanted rank, and under way at some
        moment of the window. Where operations have bundles of their own these follow, shown where
        the operation is.
        """
        program = timeline.program
        wanted = self._includes(input_microbatches(program))
        if self.ranks is not None:
            consumers = np.repeat(np.arange(program.operations), np.diff(program.input_offsets))
            senders = np.isin(program.rank[program.inputs], list(self.ranks))
            wanted &= senders | np.isin(program.rank[consumers], list(self.ranks))
        if self.start is not None:
            wanted &= timeline.arrival > self.start
        if self.end is not None:
            wanted &= timeline.run.end[program.inputs] < self.end
        if timeline.links is None or not timeline.links.own:
            return wanted
        own = np.zeros(program.operations, dtype=np.bool_)
        own[self.operations(timeline)] = True
        return np.concatenate((wanted, own & (timeline.links.own_kinds >= 0)))


EVERYTHING = Selection()
