"""What each operation's rank did before it: nothing but wait, and for what."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.schedules.timeline import Timeline

__all__ = ["OperationWaits", "operation_waits"]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class OperationWaits:
    """(operations,) picoseconds between an operation and the one before it on its rank.

    First `dependency`, for the value to be made, then `transfer`, for it to arrive. Both are zero
    for a rank's first operation: what is before that is fill.
    """

    dependency: Int64Array
    transfer: Int64Array


def operation_waits(timeline: Timeline) -> OperationWaits:
    """Split each gap: transfer as far as the latency of the binding input reaches."""
    program, run = timeline.program, timeline.run
    gap = np.empty_like(run.start)
    gap[1:] = run.start[1:] - run.end[:-1]
    gap[program.rank_offsets[:-1]] = 0
    bound = run.binding >= 0
    transfer = np.zeros_like(gap)
    transfer[bound] = np.minimum(gap[bound], timeline.latencies[run.binding[bound]])
    return OperationWaits(dependency=gap - transfer, transfer=transfer)
