"""What each boundary's transfers cost on the simulated timeline: exposed or hidden."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.schedules.program import StageEdge
from service.core.schedules.timeline import Timeline

__all__ = ["TransferExposure", "transfer_exposure"]


@dataclass(frozen=True, slots=True)
class TransferExposure:
    """One direction of one boundary over the whole iteration, in picoseconds.

    `total` is from each producer's end to the arrival of its value, and `queued` the part of it
    spent behind others on links. `exposed` is the delay of consumers that the transfers themselves
    cause: how much earlier each consuming operation would have started had the transfer it waited
    for been instantaneous, all else as it was. `hidden` is the rest of the total.
    """

    edge: StageEdge
    forward: bool
    messages: int
    total_picoseconds: int
    exposed_picoseconds: int
    queued_picoseconds: int = 0

    @property
    def hidden_picoseconds(self) -> int:
        """Transfer time that delayed nobody."""
        return self.total_picoseconds - self.exposed_picoseconds


def transfer_exposure(timeline: Timeline) -> tuple[TransferExposure, ...]:
    """Exposure of every boundary and direction, in edge order, forward before backward."""
    program = timeline.program
    consumers = np.repeat(np.arange(program.operations), np.diff(program.input_offsets))
    is_backward = program.input_gradient
    # Edges times directions may be as many as messages, so one pass sums for all of them.
    group = 2 * program.input_edges.astype(np.int64) + is_backward
    groups = 2 * len(program.stage_edges)
    messages = np.bincount(group, minlength=groups)
    queueing = timeline.queueing
    total = _sums(group, groups, timeline.latencies + queueing)
    queued = _sums(group, groups, queueing)
    exposed = _sums(group, groups, _exposed(timeline, consumers))
    return tuple(
        TransferExposure(
            edge=program.stage_edges[number // 2],
            forward=number % 2 == 0,
            messages=int(messages[number]),
            total_picoseconds=int(total[number]),
            exposed_picoseconds=int(exposed[number]),
            queued_picoseconds=int(queued[number]),
        )
        for number in np.flatnonzero(messages).tolist()
    )


def _sums(
    group: npt.NDArray[np.int64], groups: int, amounts: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """(groups,) the sum of the amounts of each group, exact."""
    sums = np.zeros(groups, dtype=np.int64)
    np.add.at(sums, group, amounts)
    return sums


def _exposed(timeline: Timeline, consumers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Picoseconds by which each input's transfer delayed its consumer (0 unless it binds)."""
    program, run = timeline.program, timeline.run
    exposed = np.zeros(len(program.inputs), dtype=np.int64)
    if not len(program.inputs):
        return exposed
    produced = run.end[program.inputs]
    binds = run.binding[consumers] == np.arange(len(program.inputs))
    # When each input would be there with the binding transfer, and it alone, instantaneous.
    arrival = np.where(binds, produced, timeline.arrival)
    start = np.zeros(program.operations, dtype=np.int64)
    start[1:] = timeline.released[:-1]
    start[program.rank_offsets[:-1]] = 0
    np.maximum.at(start, consumers, arrival)
    bound = np.flatnonzero(binds)
    exposed[bound] = (run.start - start)[consumers[bound]]
    return exposed
