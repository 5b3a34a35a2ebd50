"""A program with its times, simulated once: what every view of a plan's timeline reads."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.schedules.program import Program
from service.core.schedules.program_links import ProgramLinks
from service.core.schedules.simulate import Run, last_sends, simulate
from service.core.schedules.stage_times import StageTimes, operation_durations, stage_work
from service.core.schedules.transfers import TransferMode, Transfers

__all__ = ["Timeline", "simulate_together", "simulate_transfers"]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """One run of one program, with the inputs it came from. All times are picoseconds.

    `durations`, what each takes alone, has one entry an operation, `latencies`, what each transfer
    takes alone, one a cross-rank input, and `holds` how long a rank is held by what it sends after
    the end of each operation; `run` has no leading axis, and `makespan` is from time 0 to its last
    end. `times` are no shorter than what operations exchange themselves. `links` is there exactly
    in `link` mode.
    """

    program: Program
    times: StageTimes
    transfers: Transfers
    durations: Int64Array
    latencies: Int64Array
    holds: Int64Array
    run: Run
    makespan: int
    links: ProgramLinks | None = None

    @property
    def forward_latencies(self) -> Int64Array:
        """(stage edges, microbatches or 1) what an activation takes alone."""
        return self.transfers.forward

    @property
    def backward_latencies(self) -> Int64Array:
        """(stage edges, microbatches or 1) what a gradient takes alone."""
        return self.transfers.backward

    @property
    def mode(self) -> TransferMode:
        """How transfers are charged."""
        return self.transfers.mode

    @property
    def released(self) -> Int64Array:
        """(operations,) when each operation's rank is free after it."""
        return self.run.end + self.holds if self.transfers.holds_senders else self.run.end

    @property
    def arrival(self) -> Int64Array:
        """(inputs,) when each input is there."""
        if self.run.queues is not None:
            return self.run.queues.arrival[: len(self.program.inputs)]
        return self.run.end[self.program.inputs] + self.latencies

    def arrival_of(self, number: int) -> int:
        """When one input is there."""
        if self.run.queues is not None:
            return int(self.run.queues.arrival[number])
        return int(self.run.end[self.program.inputs[number]] + self.latencies[number])

    @property
    def queueing(self) -> Int64Array:
        """(inputs,) how much longer each transfer took than alone."""
        return self.arrival - self.run.end[self.program.inputs] - self.latencies

    @property
    def exchange_waits(self) -> Int64Array:
        """(operations,) how much longer each took than alone: its own bundle waited for links."""
        return self.run.end - self.run.start - self.durations

    def exchange_wait(self, operation: int) -> int:
        """That of one operation."""
        lasted = self.run.end[operation] - self.run.start[operation]
        return int(lasted - self.durations[operation])

    @property
    def first_start(self) -> Int64Array:
        """(ranks,) when each rank starts its first operation."""
        return self.run.start[self.program.rank_offsets[:-1]]

    @property
    def last_end(self) -> Int64Array:
        """(ranks,) when each rank is done with its last operation and what it sends."""
        return self.released[self.program.rank_offsets[1:] - 1]

    @property
    def busy(self) -> Int64Array:
        """(ranks,) sum of the durations of each rank's operations."""
        return np.add.reduceat(self.durations, self.program.rank_offsets[:-1])

    @property
    def idle_fraction(self) -> float:
        """The idle share of makespan x ranks."""
        busy: int = sum(self.busy.tolist())
        return 1 - busy / (self.makespan * self.program.ranks)

    @property
    def stage_work(self) -> Int64Array:
        """(stages, microbatches or 1) what each stage does for one microbatch."""
        return stage_work(self.program, self.times)

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


def simulate_transfers(program: Program, times: StageTimes, transfers: Transfers) -> Timeline:
    """Simulate one run of the program with transfers of any mode.

    Raises `InvalidInput` on times that `simulate` or `simulate_links` refuse and when no operation
    takes any time: nothing could be said of utilisation then.
    """
    times = transfers.lengthened(program, times)
    durations = operation_durations(program, times)
    if transfers.links is None:
        run, links = transfers.run(program, durations), None
    else:
        links = transfers.links.on(program, durations)
        run = links.run(durations)
    latencies = transfers.latencies(program)
    return _timeline(program, times, transfers, durations, latencies, run, links)


def simulate_together(
    program: Program, cases: Sequence[tuple[StageTimes, Transfers]]
) -> list[Timeline]:
    """The timelines of one program with several times and transfers, in one call of the kernel.

    Each is the one that `simulate_transfers` makes; where links have queues, or modes differ, they
    are made one by one. Raises as that does when any of them is refused.
    """
    modes = {transfers.mode for _, transfers in cases}
    if len(cases) == 1 or len(modes) > 1 or any(given.links is not None for _, given in cases):
        return [simulate_transfers(program, times, transfers) for times, transfers in cases]
    durations = np.stack([operation_durations(program, times) for times, _ in cases])
    latencies = np.stack([transfers.latencies(program) for _, transfers in cases])
    runs = simulate(program, durations, latencies, blocking=cases[0][1].holds_senders)
    return [
        _timeline(
            program,
            times,
            transfers,
            durations[row],
            latencies[row],
            Run(runs.start[row], runs.end[row], runs.binding[row]),
        )
        for row, (times, transfers) in enumerate(cases)
    ]


def _timeline(
    program: Program,
    times: StageTimes,
    transfers: Transfers,
    durations: Int64Array,
    latencies: Int64Array,
    run: Run,
    links: ProgramLinks | None = None,
) -> Timeline:
    if not durations.any():
        detail = "at least one operation takes time; got zero everywhere"
        raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, ("costs", "stages"), detail)])
    holds = np.zeros(program.operations, dtype=np.int64)
    if transfers.holds_senders:
        holds, _ = last_sends(program, latencies)
    # No operation of a rank ends before the one before it.
    makespan = int(run.end[program.rank_offsets[1:] - 1].max())
    return Timeline(program, times, transfers, durations, latencies, holds, run, makespan, links)
