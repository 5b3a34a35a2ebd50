"""What the makespan follows: its derivative by each time that a stage or a transfer has.

With every rank's order held fixed the makespan is the length of the longest chain of operations and
transfers, so it is a convex function of their times, and how often each of them stands on the chain
that is longest now is a slope of it. Hence what a shorter time gains is at most slope x change, and
what a longer time loses is at least that; both are equal as long as the same chain stays longest.

None of that holds where transfers queue on links: less work may then lengthen the makespan.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.schedules.critical_path import CriticalPath
from service.core.schedules.program import OpKind
from service.core.schedules.stage_times import operation_kinds, pick
from service.core.schedules.timeline import Timeline

__all__ = [
    "Derivative",
    "Sensitivity",
    "measure_sensitivity",
    "path_inputs",
    "path_operations",
    "timed_kinds",
]

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
    groups = program.stages * len(OpKind)
    group, time = _parts(timeline, path_operations(path))
    counts, sums = _totals(group, time, groups)
    crossed = path_inputs(path)
    crossings = 2 * program.input_edges.astype(np.int64) + program.input_gradient
    crossing_counts, crossing_sums = _totals(
        crossings[crossed], timeline.latencies[crossed], 2 * len(program.stage_edges)
    )
    return Sensitivity(
        operations={
            (index // len(OpKind), OpKind(index % len(OpKind))): Derivative(
                counts[index], sums[index]
            )
            for index in np.flatnonzero(_is_run(timeline)).tolist()
        },
        transfers={
            (index // 2, bool(index % 2)): Derivative(crossing_counts[index], crossing_sums[index])
            for index in np.flatnonzero(np.bincount(crossings)).tolist()
        },
    )


def path_operations(path: CriticalPath) -> Int64Array:
    """Ids of the operations on the path, from time 0."""
    return np.array([step.operation for step in path.operations], dtype=np.int64)


def path_inputs(path: CriticalPath) -> Int64Array:
    """Indices into `program.inputs` of the transfers on the path, from time 0."""
    crossed = [step.after.input for step in path.operations if step.after is not None]
    return np.array(crossed, dtype=np.int64)


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
    stage, kind = program.stage[operations].astype(np.int64), program.kind[operations]
    group: Int64Array = stage * len(OpKind) + kind
    time = timeline.durations[operations]
    pair = np.flatnonzero(kind == OpKind.FORWARD_BACKWARD)
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


def _is_run(timeline: Timeline) -> npt.NDArray[np.bool_]:
    """(stages x kinds,) whether there are such parts, stage after stage."""
    program = timeline.program
    groups = program.stages * len(OpKind)
    group = program.stage.astype(np.int64) * len(OpKind) + program.kind
    is_run = np.bincount(group, minlength=groups) > 0
    pair = np.flatnonzero(program.kind == OpKind.FORWARD_BACKWARD)
    if len(pair) and timeline.times.forward_backward is None:
        is_run[group[pair]] = False
        parts, _ = _parts(timeline, pair)
        is_run[parts] = True
    return is_run


def _totals(group: Int64Array, times: Int64Array, groups: int) -> tuple[list[int], list[int]]:
    """How many there are of each group, and their times together."""
    sums = np.zeros(groups, dtype=np.int64)
    np.add.at(sums, group, times)
    counts: list[int] = np.bincount(group, minlength=groups).tolist()
    return counts, sums.tolist()
