"""What the makespan follows: its derivative by each time that a stage or a transfer has.

With every rank's order held fixed the makespan is the length of the longest chain of operations and
transfers, so it is a convex function of their times, and how often each of them stands on the chain
that is longest now is a slope of it. Hence what a shorter time gains is at most slope x change, and
what a longer time loses is at least that; both are equal as long as the same chain stays longest.

None of that holds where transfers queue on links: less work may then lengthen the makespan.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from service.core.schedules.critical_path import CriticalPath
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


class Derivative(NamedTuple):
    """One stage's operations of one kind, or one edge's transfers in one direction.

    `on_path` is how many of them are on the critical path: picoseconds of makespan for each
    picosecond that all of them take longer. `picoseconds` is what they take on the path together,
    the most that could be gained if they took no time at all.
    """

    on_path: int
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
    whole = timeline.times.forward_backward is not None
    by_group = path.by_group
    if not whole and OpKind.FORWARD_BACKWARD in operation_kinds(program):
        by_group = _in_halves(timeline, path)
    return Sensitivity(
        _derivatives(_run_parts(program, not whole), by_group),
        _derivatives(_crossed_ways(program), path.by_way),
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


def _derivatives(by: _Keys[Key], of_all: Int64Array) -> dict[Key, Derivative]:
    """From (2, all counts) how many there are of each on the path, and their times."""
    counts, sums = of_all.reshape(2, -1).take(by.index, axis=1).tolist()
    return dict(zip(by.keys, map(Derivative._make, zip(counts, sums, strict=True)), strict=True))


def timed_kinds(timeline: Timeline) -> tuple[OpKind, ...]:
    """The kinds that are run and have times of their own, in the order of their numbers."""
    kinds = set(operation_kinds(timeline.program))
    if OpKind.FORWARD_BACKWARD in kinds and timeline.times.forward_backward is None:
        kinds.remove(OpKind.FORWARD_BACKWARD)
        kinds |= {OpKind.FORWARD, OpKind.BACKWARD}
    return tuple(sorted(kinds))


def _in_halves(timeline: Timeline, path: CriticalPath) -> Int64Array:
    """`path.by_group` where a pair, which has no time of its own, stands as two."""
    program = timeline.program
    by_group = path.by_group.copy()
    by_group[..., OpKind.FORWARD] += by_group[..., OpKind.FORWARD_BACKWARD]
    by_group[..., OpKind.FORWARD_BACKWARD] = 0
    operations = path.operations.operation
    pair = operations[program.kind[operations] == OpKind.FORWARD_BACKWARD]
    backward_stage = program.backward_stage[pair]
    time = pick(timeline.times.backward, backward_stage, program.backward_microbatch[pair])
    counts, times = by_group
    np.subtract.at(times[:, OpKind.FORWARD], program.stage[pair], time)
    np.add.at(times[:, OpKind.BACKWARD], backward_stage, time)
    np.add.at(counts[:, OpKind.BACKWARD], backward_stage, 1)
    return by_group


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
