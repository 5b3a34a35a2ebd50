"""What the makespan follows: its derivative by each time that a stage or a transfer has.

With every rank's order held fixed the makespan is the length of the longest chain of operations and
transfers, so it is a convex function of their times, and how often each of them stands on the chain
that is longest now is a slope of it. Hence what a shorter time gains is at most slope x change, and
what a longer time loses is at least that; both are equal as long as the same chain stays longest.

None of that holds where transfers queue on links: less work may then lengthen the makespan.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from service.core.schedules.critical_path import CriticalPath, totals
from service.core.schedules.program import OpKind, Program, kept_with_program
from service.core.schedules.stage_times import (
    input_ways,
    operation_groups,
    operation_kinds,
    pick,
)
from service.core.schedules.timeline import Timeline

__all__ = [
    "Derivative",
    "Sensitivity",
    "measure_sensitivity",
    "path_inputs",
    "timed_kinds",
]

Key = TypeVar("Key")

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Derivative:
    """One stage's operations of one kind, or one edge's transfers in one direction.

    `count` is how many of them are on the critical path: picoseconds of makespan for each
    picosecond that all of them take longer. `picoseconds` is what they take on the path together,
    the most that could be gained if they took no time at all.
    """

    count: int
    picoseconds: int


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Derivatives along one critical path; where several are equally long, others may differ.

    `operations` has every (stage, kind) that is run, stage after stage; `transfers` every (edge
    index, gradient or not) that crosses ranks, edge after edge. Those off the path have zeros. A
    fused pair without a time of its own counts as the forward and the backward that it is.
    """

    operations: Mapping[tuple[int, OpKind], Derivative]
    transfers: Mapping[tuple[int, bool], Derivative]


def measure_sensitivity(timeline: Timeline, path: CriticalPath) -> Sensitivity:
    """Derivative of the makespan by each stage and kind, and by each edge and direction.

    `path` is a critical path of this timeline. Raises `ValueError` in link mode.
    """
    if timeline.transfers.links is not None:
        raise ValueError("where transfers queue on links a slope bounds nothing")
    program = timeline.program
    group, time = _parts(timeline, path.operations.operation)
    crossed = path_inputs(path)
    return Sensitivity(
        _derivatives(
            _run_parts(program, timeline.times.forward_backward is None),
            totals(group, time, program.stages * len(OpKind)),
        ),
        _derivatives(
            _crossed_ways(program),
            totals(
                input_ways(program)[crossed],
                timeline.latencies[crossed],
                2 * len(program.stage_edges),
            ),
        ),
    )


def path_inputs(path: CriticalPath) -> Int64Array:
    """Indices into `program.inputs` of the transfers on the path, from time 0."""
    crossed = path.operations.crossed
    return crossed[crossed >= 0]


@dataclass(frozen=True, slots=True, eq=False)
class _Keys(Generic[Key]):
    """What there are derivatives by, and at which index of all counts each stands."""

    index: Int64Array
    keys: tuple[Key, ...]


def _derivatives(
    by: _Keys[Key], counts_and_sums: tuple[Int64Array, Int64Array]
) -> dict[Key, Derivative]:
    counts, sums = (of_all[by.index].tolist() for of_all in counts_and_sums)
    return dict(zip(by.keys, map(Derivative, counts, sums), strict=True))


def timed_kinds(timeline: Timeline) -> tuple[OpKind, ...]:
    """The kinds that are run and have times of their own, in the order of their numbers."""
    kinds = set(operation_kinds(timeline.program))
    if OpKind.FORWARD_BACKWARD in kinds and timeline.times.forward_backward is None:
        kinds.remove(OpKind.FORWARD_BACKWARD)
        kinds |= {OpKind.FORWARD, OpKind.BACKWARD}
    return tuple(sorted(kinds))


def _parts(timeline: Timeline, operations: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Stage and kind (as one number, stage after stage) and picoseconds of what operations do.

    A pair without a time of its own stands there as two.
    """
    program, times = timeline.program, timeline.times
    group: Int64Array = operation_groups(program)[operations]
    time = timeline.durations[operations]
    pair = np.flatnonzero(program.kind[operations] == OpKind.FORWARD_BACKWARD)
    if times.forward_backward is not None or not len(pair):
        return group, time
    group[pair] += OpKind.FORWARD - OpKind.FORWARD_BACKWARD
    backward_stage = program.backward_stage[operations[pair]].astype(np.int64)
    backward_microbatch = program.backward_microbatch[operations[pair]]
    backward_time = pick(times.backward, backward_stage, backward_microbatch)
    time[pair] -= backward_time
    return (
        np.concatenate((group, backward_stage * len(OpKind) + OpKind.BACKWARD)),
        np.concatenate((time, backward_time)),
    )


@kept_with_program
def _run_parts(program: Program, halves: bool) -> _Keys[tuple[int, OpKind]]:
    """Stages and kinds that are run, stage after stage, pairs as two where they are `halves`."""
    group = operation_groups(program)
    is_run = np.bincount(group, minlength=program.stages * len(OpKind)) > 0
    pair = np.flatnonzero(program.kind == OpKind.FORWARD_BACKWARD)
    if halves and len(pair):
        is_run[group[pair]] = False
        is_run[group[pair] + OpKind.FORWARD - OpKind.FORWARD_BACKWARD] = True
        backward_stage = program.backward_stage[pair].astype(np.int64)
        is_run[backward_stage * len(OpKind) + OpKind.BACKWARD] = True
    index = np.flatnonzero(is_run)
    keys = tuple((i // len(OpKind), OpKind(i % len(OpKind))) for i in index.tolist())
    return _Keys(index, keys)


@kept_with_program
def _crossed_ways(program: Program) -> _Keys[tuple[int, bool]]:
    """Edges and ways that cross ranks, edge after edge."""
    index = np.flatnonzero(np.bincount(input_ways(program)))
    return _Keys(index, tuple((way // 2, way % 2 > 0) for way in index.tolist()))
