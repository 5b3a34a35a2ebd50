"""What each operation's rank did before it: nothing but wait, and for what."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.schedules.timeline import Timeline

__all__ = ["OperationWaits", "operation_waits"]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class OperationWaits:
    """(operations,) picoseconds in which an operation's rank was free and waited for it.

    First `dependency`, for the value to be made, then `contention`, for links to be free, then
    `transfer`, for it to arrive. All are zero for a rank's first operation: what is before that is
    fill.
    """

    dependency: Int64Array
    transfer: Int64Array
    contention: Int64Array


def operation_waits(timeline: Timeline) -> OperationWaits:
    """Split each gap by what the binding input did in it.

    Contention as far as its queueing reaches, of the rest transfer as far as what it takes alone
    reaches, and the rest dependency.
    """
    program, run = timeline.program, timeline.run
    gap = np.empty_like(run.start)
    gap[1:] = run.start[1:] - timeline.released[:-1]
    gap[program.rank_offsets[:-1]] = 0
    bound = np.flatnonzero(run.binding >= 0)
    binding = run.binding[bound]
    contention, transfer = np.zeros_like(gap), np.zeros_like(gap)
    rest = gap
    if run.queues is not None:
        contention[bound] = np.minimum(gap[bound], timeline.queueing[binding])
        rest = gap - contention
    transfer[bound] = np.minimum(rest[bound], timeline.latencies[binding])
    return OperationWaits(rest - transfer, transfer, contention)
