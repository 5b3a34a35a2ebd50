"""Times that no run of the schedule's operations can beat, each with the reason why.

In latency mode links have no capacity: what is assumed is that a rank does one operation at a time
and that values reach another rank no sooner than the given transfer times.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from service.core.schedules.program import OpKind, Program, RecomputeMode
from service.core.schedules.stage_times import StageTimes, operation_kinds, stage_work

__all__ = ["BoundStep", "LowerBound", "makespan_lower_bounds"]

_RANK = "a rank runs one operation at a time"
_DATA = "an operation starts after what it needs"
_TRANSFER = "a value crosses between ranks in no less than the stated transfer time"


@dataclass(frozen=True, slots=True)
class BoundStep:
    """One operation of the chain that a bound rests on."""

    stage: int
    kind: OpKind


@dataclass(frozen=True, slots=True)
class LowerBound:
    """A lower bound of the makespan in picoseconds.

    `rank` is the rank it rests on, if it is one; `chain` the operations of one microbatch that
    follow one another, if it is that; `head` and `tail` what comes at least before the rank's first
    operation and after its last, in picoseconds. `assumes` names the resources.
    """

    name: str
    picoseconds: int
    assumes: tuple[str, ...]
    rank: int | None = None
    chain: tuple[BoundStep, ...] = ()
    head: int = 0
    tail: int = 0


def makespan_lower_bounds(
    program: Program,
    times: StageTimes,
    forward_transfers: Sequence[int],
    backward_transfers: Sequence[int],
) -> tuple[LowerBound, ...]:
    """Lower bounds of the makespan, whatever the order of the operations on each rank.

    `forward_transfers` and `backward_transfers` have one entry for each of `program.stage_edges`:
    the least time (ps) in which a value can cross, so floors of latency and nominal capacity. They
    are at most the latencies that a prediction uses.

    - `dependency_path`: one microbatch alone, through its longest chain of operations.
    - `busiest_device`: all work of the rank that has most.
    - `busiest_device_with_path`: for a rank, the least that comes before its first operation, its
      work, and the least that comes after whichever operation is its last; the greatest over ranks.
    """
    flow = _Flow(program, times, forward_transfers, backward_transfers)
    work = [0] * program.ranks
    for stage, amount in enumerate(stage_work(program, times).tolist()):
        work[flow.rank_of[stage]] += amount * program.microbatches
    busiest = max(range(program.ranks), key=lambda rank: work[rank])
    heads = [flow.least_before(rank) for rank in range(program.ranks)]
    tails = [flow.least_after(rank) for rank in range(program.ranks)]
    between = max(range(program.ranks), key=lambda rank: heads[rank] + work[rank] + tails[rank])
    longest, path = flow.longest_chain()
    return (
        LowerBound("dependency_path", longest, (_DATA, _TRANSFER), chain=path),
        LowerBound("busiest_device", work[busiest], (_RANK,), rank=busiest),
        LowerBound(
            "busiest_device_with_path",
            heads[between] + work[between] + tails[between],
            (_RANK, _DATA, _TRANSFER),
            rank=between,
            head=heads[between],
            tail=tails[between],
        ),
    )


class _Flow:
    """The dependencies of one microbatch, as operations in an order in which they can run."""

    def __init__(
        self,
        program: Program,
        times: StageTimes,
        forward_transfers: Sequence[int],
        backward_transfers: Sequence[int],
    ) -> None:
        ranks = np.empty(program.stages, dtype=np.int64)
        ranks[program.stage] = program.rank
        self.rank_of: list[int] = ranks.tolist()
        self._stages = program.stages
        self._operations = _one_microbatch(program)
        self._on_rank: list[list[BoundStep]] = [[] for _ in range(program.ranks)]
        for step in self._operations:
            self._on_rank[self.rank_of[step.stage]].append(step)
        self._duration = {
            step: int(times.of_kind(step.kind)[step.stage]) for step in self._operations
        }
        # step -> what it needs, and how long after that one's end it can start at the soonest
        self._needs: dict[BoundStep, list[tuple[BoundStep, int]]] = {
            step: [] for step in self._operations
        }
        self._add_own_stage()
        self._add_edges(program, forward_transfers, backward_transfers)
        self._start = dict.fromkeys(self._operations, 0)
        self._after = dict.fromkeys(self._operations, 0)
        self._add_passing_times()

    def _add_own_stage(self) -> None:
        for stage in range(self._stages):
            chain = [
                step
                for kind in (OpKind.FORWARD, OpKind.RECOMPUTE, OpKind.BACKWARD)
                if (step := BoundStep(stage, kind)) in self._needs
            ]
            for before, after in pairwise(chain):
                self._needs[after].append((before, 0))

    def _add_edges(
        self,
        program: Program,
        forward_transfers: Sequence[int],
        backward_transfers: Sequence[int],
    ) -> None:
        takes = OpKind.BACKWARD
        if program.recompute is RecomputeMode.AFTER_GRADIENT:
            takes = OpKind.RECOMPUTE
        for index, edge in enumerate(program.stage_edges):
            crosses = self.rank_of[edge.source] != self.rank_of[edge.target]
            activation = int(forward_transfers[index]) if crosses else 0
            gradient = int(backward_transfers[index]) if crosses else 0
            self._needs[BoundStep(edge.target, OpKind.FORWARD)].append(
                (BoundStep(edge.source, OpKind.FORWARD), activation)
            )
            if (waits := BoundStep(edge.source, takes)) in self._needs:
                self._needs[waits].append((BoundStep(edge.target, OpKind.BACKWARD), gradient))

    def _add_passing_times(self) -> None:
        for step in self._operations:
            for need, gap in self._needs[step]:
                arrival = self._start[need] + self._duration[need] + gap
                self._start[step] = max(self._start[step], arrival)
        for step in reversed(self._operations):
            for need, gap in self._needs[step]:
                follows = gap + self._duration[step] + self._after[step]
                self._after[need] = max(self._after[need], follows)

    def longest_chain(self) -> tuple[int, tuple[BoundStep, ...]]:
        """The longest chain of operations of one microbatch, and its length."""

        def end(step: BoundStep) -> int:
            return self._start[step] + self._duration[step]

        chain = [max(self._operations, key=end)]
        length = end(chain[0])
        while needs := self._needs[chain[-1]]:
            chain.append(max(needs, key=lambda need: end(need[0]) + need[1])[0])
        return length, tuple(reversed(chain))

    def least_before(self, rank: int) -> int:
        """The soonest that any operation of the rank can start."""
        return min(self._start[step] for step in self._on_rank[rank])

    def least_after(self, rank: int) -> int:
        """The least that must follow whichever operation is the rank's last."""
        return min(self._after[step] for step in self._on_rank[rank])


def _one_microbatch(program: Program) -> tuple[BoundStep, ...]:
    kinds = operation_kinds(program)
    up, down = range(program.stages), reversed(range(program.stages))
    forwards = [BoundStep(stage, OpKind.FORWARD) for stage in up]
    if OpKind.BACKWARD not in kinds:
        return tuple(forwards)
    backwards = [kind for kind in (OpKind.RECOMPUTE, OpKind.BACKWARD) if kind in kinds]
    return (*forwards, *(BoundStep(stage, kind) for stage in down for kind in backwards))
