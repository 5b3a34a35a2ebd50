"""Which part of a timeline someone wants to see."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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

    def _includes(self, microbatch: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
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


EVERYTHING = Selection()
