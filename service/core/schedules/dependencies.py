"""What each operation needs from others, whatever order the ranks run them in."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.schedules.program import (
    OpKind,
    Program,
    RecomputeMode,
    StageEdge,
    kept_with_program,
)
from service.core.schedules.program_kernels import place_operations, sort_needs

__all__ = ["Dependencies", "Need", "needs_of", "operation_table", "program_dependencies", "table"]

BoolArray = npt.NDArray[np.bool_]
Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Need:
    """Operation `after[i]` needs the value that operation `before[i]` makes, for all i.

    `edge` is the stage edge over which the value goes, or -1 within a stage; `gradient` whether it
    goes back over it, `crosses` whether it leaves the rank.
    """

    edge: int
    gradient: bool
    crosses: bool
    before: Int32Array
    after: Int32Array


@dataclass(frozen=True, slots=True, eq=False)
class Dependencies:
    """All needs by operation: those of i stand at `offsets[i]:offsets[i+1]`, edges ascending."""

    offsets: Int64Array  # (operations + 1,)
    before: Int64Array  # (needs,) operation ids
    edges: Int32Array  # (needs,) -1 within a stage
    gradient: BoolArray  # (needs,)


def operation_table(
    kind: npt.NDArray[np.int8],
    stage: Int32Array,
    microbatch: Int32Array,
    backward_stage: Int32Array,
    backward_microbatch: Int32Array,
    shape: tuple[int, int],
) -> Int32Array:
    """(kinds, stages, microbatches) the operation that does it, -1 when there is none.

    A fused pair stands under FORWARD and under BACKWARD, at the two places it does. Of operations
    that do the same the last one stands.
    """
    position = np.full((len(OpKind), *shape), -1, dtype=np.int32)
    place_operations(kind, stage, microbatch, backward_stage, backward_microbatch, position)
    return position


def needs_of(
    position: Int32Array,
    stage_ranks: npt.NDArray[np.integer],
    edges: Sequence[StageEdge],
    recompute: RecomputeMode,
) -> list[Need]:
    """Every need between operations of a table, within the stages and then edge by edge.

    Forward after forward over an edge, and gradient after gradient back over it if any goes back;
    within a stage the backward after the forward, a recomputation between them, the weight half
    after the input half. With a recompute after the gradient it is the recomputation that waits for
    the gradient.
    """
    forward, again = position[OpKind.FORWARD], position[OpKind.RECOMPUTE]
    weight = position[OpKind.BACKWARD_WEIGHT]
    full, half = position[OpKind.BACKWARD], position[OpKind.BACKWARD_INPUT]
    gives = np.where(full >= 0, full, half)  # the operation at whose end the gradient is there
    takes = again if recompute is RecomputeMode.AFTER_GRADIENT else gives
    directions = len(stage_ranks)

    needs = [
        _need(-1, before.ravel(), after.ravel(), gradient=False, crosses=False, all_there=False)
        for before, after in ((forward, gives), (forward, again), (again, gives), (half, weight))
    ]
    # Looked at once for all stages, not edge by edge: mostly none is missing.
    all_forward, all_back = (int(ends.min(initial=0)) >= 0 for ends in (forward, takes))
    all_back &= int(gives.min(initial=0)) >= 0
    for index, edge in enumerate(edges):
        ranks, every = stage_ranks[edge.direction], slice(edge.direction, None, directions)
        crosses = bool(ranks[edge.source] != ranks[edge.target])
        for gradient, all_there, before, after in (
            (False, all_forward, forward[edge.source, every], forward[edge.target, every]),
            (True, all_back, gives[edge.target, every], takes[edge.source, every]),
        ):
            if edge.gradient or not gradient:
                needs.append(
                    _need(
                        index,
                        before,
                        after,
                        gradient=gradient,
                        crosses=crosses,
                        all_there=all_there,
                    )
                )
    return [need for need in needs if len(need.before)]


def _need(
    edge: int,
    before: Int32Array,
    after: Int32Array,
    *,
    gradient: bool,
    crosses: bool,
    all_there: bool,
) -> Need:
    if not all_there:
        there = (before >= 0) & (after >= 0)
        before, after = before[there], after[there]
    return Need(edge, gradient, crosses, before, after)


def table(needs: Sequence[Need], operations: int) -> Dependencies:
    """The needs by operation; those of one operation keep their sequence."""
    lengths = [len(need.before) for need in needs]
    group_offsets = np.cumsum([0, *lengths], dtype=np.int64)
    none = [np.zeros(0, dtype=np.int32)]
    offsets = np.empty(operations + 1, dtype=np.int64)
    before = np.empty(group_offsets[-1], dtype=np.int64)
    edges = np.empty(group_offsets[-1], dtype=np.int32)
    gradient = np.empty(group_offsets[-1], dtype=np.bool_)
    sort_needs(
        group_offsets,
        np.concatenate([need.before for need in needs] or none),
        np.concatenate([need.after for need in needs] or none),
        np.array([need.edge for need in needs], dtype=np.int32),
        np.array([need.gradient for need in needs], dtype=np.bool_),
        offsets,
        before,
        edges,
        gradient,
    )
    return Dependencies(offsets, before, edges, gradient)


@kept_with_program
def program_dependencies(program: Program) -> Dependencies:
    """All needs of a program, those within its ranks included."""
    position = operation_table(
        program.kind,
        program.stage,
        program.microbatch,
        program.backward_stage,
        program.backward_microbatch,
        (program.stages, program.microbatches),
    )
    needs = needs_of(position, program.stage_ranks, program.stage_edges, program.recompute)
    return table(needs, program.operations)
