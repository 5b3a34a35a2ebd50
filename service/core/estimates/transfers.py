"""What each boundary's transfers cost on the simulated timeline: exposed or hidden."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.schedules.program import OpKind, StageEdge
from service.core.schedules.timeline import Timeline

__all__ = ["TransferExposure", "transfer_exposure"]


@dataclass(frozen=True, slots=True)
class TransferExposure:
    """One direction of one boundary over the whole iteration, in picoseconds.

    `exposed` is the delay of consumers that the transfers themselves cause: how much earlier each
    consuming operation would have started had the transfer it waited for been instantaneous, all
    else as it was. `hidden` is the rest of the transfer time.
    """

    edge: StageEdge
    forward: bool
    messages: int
    total_picoseconds: int
    exposed_picoseconds: int

    @property
    def hidden_picoseconds(self) -> int:
        """Transfer time that delayed nobody."""
        return self.total_picoseconds - self.exposed_picoseconds


def transfer_exposure(timeline: Timeline) -> tuple[TransferExposure, ...]:
    """Exposure of every boundary and direction, in edge order, forward before backward."""
    program = timeline.program
    consumers = np.repeat(np.arange(program.operations), np.diff(program.input_offsets))
    exposed = _exposed(timeline, consumers)
    is_forward = program.kind[consumers] == OpKind.FORWARD
    result = []
    for index, edge in enumerate(program.stage_edges):
        for forward in (True, False):
            mine = (program.input_edges == index) & (is_forward == forward)
            if mine.any():
                result.append(
                    TransferExposure(
                        edge=edge,
                        forward=forward,
                        messages=int(np.count_nonzero(mine)),
                        total_picoseconds=int(timeline.latencies[mine].sum()),
                        exposed_picoseconds=int(exposed[mine].sum()),
                    )
                )
    return tuple(result)


def _exposed(timeline: Timeline, consumers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Picoseconds by which each input's transfer delayed its consumer (0 unless it binds)."""
    program, run = timeline.program, timeline.run
    exposed = np.zeros(len(program.inputs), dtype=np.int64)
    if not len(program.inputs):
        return exposed
    produced = run.end[program.inputs]
    binds = run.binding[consumers] == np.arange(len(program.inputs))
    # When each input would be there with the binding transfer, and it alone, instantaneous.
    arrival = np.where(binds, produced, produced + timeline.latencies)
    start = np.zeros(program.operations, dtype=np.int64)
    start[1:] = run.end[:-1]
    start[program.rank_offsets[:-1]] = 0
    np.maximum.at(start, consumers, arrival)
    bound = np.flatnonzero(binds)
    exposed[bound] = (run.start - start)[consumers[bound]]
    return exposed
