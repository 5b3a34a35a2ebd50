"""A program with its times, simulated once: what every view of a plan's timeline reads."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.schedules.program import Program
from service.core.schedules.simulate import Run, simulate
from service.core.schedules.stage_times import (
    StageTimes,
    edge_latencies,
    operation_durations,
    stage_work,
)

__all__ = ["Timeline", "simulate_timeline"]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """One run of one program, with the inputs it came from. All times are picoseconds.

    `forward_latencies` and `backward_latencies` are (stage edges, microbatches or 1); `durations`
    has one entry an operation, `latencies` one a cross-rank input; `run` has no leading axis.
    """

    program: Program
    times: StageTimes
    forward_latencies: Int64Array
    backward_latencies: Int64Array
    durations: Int64Array
    latencies: Int64Array
    run: Run

    @property
    def makespan(self) -> int:
        """From time 0 to the last end."""
        return int(self.run.makespan)

    @property
    def first_start(self) -> Int64Array:
        """(ranks,) when each rank starts its first operation."""
        return self.run.start[self.program.rank_offsets[:-1]]

    @property
    def last_end(self) -> Int64Array:
        """(ranks,) when each rank ends its last operation."""
        return self.run.end[self.program.rank_offsets[1:] - 1]

    @property
    def busy(self) -> Int64Array:
        """(ranks,) sum of the durations of each rank's operations."""
        return np.add.reduceat(self.durations, self.program.rank_offsets[:-1])

    @property
    def stage_work(self) -> Int64Array:
        """(stages, microbatches or 1) what each stage does for one microbatch."""
        return stage_work(self.program, self.times)

    @property
    def has_equal_microbatches(self) -> bool:
        """Whether every microbatch takes the same times on the same stages and edges."""
        latencies = self.forward_latencies, self.backward_latencies
        return self.times.widths == {1} and all(given.shape[-1] == 1 for given in latencies)

    def rank_operations(self, rank: int) -> slice:
        """Where the operations of one rank stand in every per-operation array."""
        offsets = self.program.rank_offsets
        return slice(int(offsets[rank]), int(offsets[rank + 1]))

    def label(self, operation: int) -> str:
        """Stage, kind, microbatch, as in order tables: `2B7`, and `0F3&3B1` for a pair."""
        return self.program.label(operation)

    def waited_for(self, operation: int) -> str:
        """What the start of an operation waited for.

        The label of an operation of another rank, `rank` for the rank's operation before it, or
        `start` for time 0.
        """
        binding = int(self.run.binding[operation])
        if binding >= 0:
            return self.label(int(self.program.inputs[binding]))
        first = self.program.rank_offsets[self.program.rank[operation]]
        return "start" if operation == first else "rank"


def simulate_timeline(
    program: Program,
    times: StageTimes,
    forward_latencies: npt.ArrayLike = 0,
    backward_latencies: npt.ArrayLike | None = None,
) -> Timeline:
    """Simulate one run of the program.

    Latencies are int64 picoseconds: one for all, one for each of `program.stage_edges`, or (edges,
    microbatches); gradients take as long as activations unless `backward_latencies` says otherwise.

    Raises `InvalidInput` on times that `simulate` refuses and when no operation takes any time:
    nothing could be said of utilisation then.
    """
    edges = len(program.stage_edges)
    forward = _per_edge(forward_latencies, edges)
    backward = forward if backward_latencies is None else _per_edge(backward_latencies, edges)
    durations = operation_durations(program, times)
    latencies = edge_latencies(program, forward, backward)
    run = simulate(program, durations, latencies)
    if not durations.any():
        detail = "at least one operation takes time; got zero everywhere"
        raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, ("costs", "stages"), detail)])
    return Timeline(program, times, forward, backward, durations, latencies, run)


def _per_edge(latencies: npt.ArrayLike, edges: int) -> Int64Array:
    given = np.asarray(latencies, dtype=np.int64)
    if given.ndim == 0:
        return np.full((edges, 1), given)
    return given[:, np.newaxis] if given.ndim == 1 else given
