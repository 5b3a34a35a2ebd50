"""What each operation's rank did before it: nothing but wait, and for what."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.schedules.explain_kernels import add_waits
from service.core.schedules.timeline import Timeline

__all__ = ["OperationWaits", "operation_waits", "rank_waits"]

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
    operations = timeline.program.operations
    return OperationWaits(*_added(timeline, np.arange(operations, dtype=np.int32), operations))


def rank_waits(timeline: Timeline) -> OperationWaits:
    """The same, all operations of each rank together: (ranks,) picoseconds."""
    return OperationWaits(*_added(timeline, timeline.program.rank, timeline.program.ranks))


def _added(timeline: Timeline, place: npt.NDArray[np.int32], places: int) -> Int64Array:
    """(3, places) dependency, transfer, contention."""
    waits = np.zeros((3, places), dtype=np.int64)
    add_waits(
        timeline.program.rank_offsets,
        timeline.run.start,
        timeline.released,
        timeline.run.binding,
        timeline.latencies,
        np.zeros(0, dtype=np.int64) if timeline.run.queues is None else timeline.queueing,
        place,
        waits,
    )
    return waits
