"""From the order of each rank to a `Program`: index, cross-rank inputs, topological order.

This accepts any order, also one written by hand, and refuses what can't run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode, InvalidInput, Path
from service.core.schedules.kernels import topological_order
from service.core.schedules.orders import RankOrder
from service.core.schedules.program import OpKind, Program, RecomputeMode, StageEdge

__all__ = ["assemble_program"]

_PATH: Path = ("schedule", "order")
# An order of many operations can be wrong in as many places; the first few tell the story.
_MOST_FAULTS = 20

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Int8Array = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True, eq=False)
class _Operations:
    """All operations, rank after rank, and where each (kind, stage, microbatch) stands."""

    rank_offsets: Int64Array
    rank: Int32Array
    kind: Int8Array
    stage: Int32Array
    microbatch: Int32Array
    position: Int64Array  # (kinds, stages, microbatches) operation id, -1 when there is none
    stage_rank: Int64Array  # (stages,)

    def label(self, operation: int) -> str:
        """As in order tables: stage, kind, microbatch (`2B7`)."""
        letter = OpKind(self.kind[operation]).letter
        return f"{self.stage[operation]}{letter}{self.microbatch[operation]}"


def assemble_program(
    schedule: str,
    rank_orders: Sequence[RankOrder],
    *,
    stages: int,
    microbatches: int,
    recompute: RecomputeMode = RecomputeMode.NONE,
    stage_edges: tuple[StageEdge, ...],
) -> Program:
    """A runnable program from what each rank runs in order.

    `rank_orders` has one entry a rank and already holds any RECOMPUTE operation; `stage_edges` are
    distinct edges between stages below `stages`. A stage lives on the rank that runs it. Each
    (stage, microbatch) has one F and, unless the whole order is forward only, one B or one I and
    one W; with a recompute mode also one R.

    Raises `InvalidInput` when an operation is missing, doubled, unknown or before what it needs on
    its own rank, when two ranks run one stage, and when the ranks wait for each other for ever (the
    blocked operation of each is named).
    """
    operations = _index(rank_orders, stages, microbatches)
    _check_complete(operations, recompute)
    _check_own_rank(operations, stage_edges, recompute)
    input_offsets, inputs, input_edges = _cross_rank_inputs(operations, stage_edges, recompute)
    order = np.empty(len(operations.kind), dtype=np.int64)
    reached = np.empty(len(rank_orders), dtype=np.int64)
    ran = topological_order(
        operations.rank_offsets, operations.rank, input_offsets, inputs, order, reached
    )
    if ran < len(order):
        raise InvalidInput(
            _deadlock_faults(operations, reached, input_offsets, inputs, order[:ran])
        )
    program = Program(
        schedule=schedule,
        ranks=len(rank_orders),
        stages=stages,
        microbatches=microbatches,
        chunks_per_rank=-(-stages // len(rank_orders)),
        recompute=recompute,
        stage_edges=stage_edges,
        rank_offsets=operations.rank_offsets,
        rank=operations.rank,
        kind=operations.kind,
        stage=operations.stage,
        microbatch=operations.microbatch,
        input_offsets=input_offsets,
        inputs=inputs,
        input_edges=input_edges,
        order=order,
    )
    for array in (
        *(program.rank_offsets, program.rank, program.kind, program.stage, program.microbatch),
        *(program.input_offsets, program.inputs, program.input_edges, program.order),
    ):
        array.setflags(write=False)
    return program


def _refuse(details: Sequence[str], code: FaultCode = FaultCode.ILLEGAL_SCHEDULE) -> None:
    if details:
        raise InvalidInput(Fault(code, _PATH, detail) for detail in details[:_MOST_FAULTS])


def _index(rank_orders: Sequence[RankOrder], stages: int, microbatches: int) -> _Operations:
    _refuse(
        [
            f"every rank runs at least one operation; rank {r} has none"
            for r, rank_order in enumerate(rank_orders)
            if len(rank_order.kind) == 0
        ]
    )
    lengths = [len(rank_order.kind) for rank_order in rank_orders]
    rank_offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    rank = np.repeat(np.arange(len(rank_orders), dtype=np.int32), lengths)
    kind = np.concatenate([o.kind for o in rank_orders]).astype(np.int8, copy=False)
    stage = np.concatenate([o.stage for o in rank_orders]).astype(np.int32, copy=False)
    microbatch = np.concatenate([o.microbatch for o in rank_orders]).astype(np.int32, copy=False)

    known = (stage >= 0) & (stage < stages) & (microbatch >= 0) & (microbatch < microbatches)
    known &= (kind >= 0) & (kind < len(OpKind))
    _refuse(
        [
            f"stages are 0..{stages - 1} and microbatches 0..{microbatches - 1}; rank {rank[i]} "
            f"runs kind {kind[i]} on stage {stage[i]}, microbatch {microbatch[i]}"
            for i in np.flatnonzero(~known)[:_MOST_FAULTS]
        ]
    )

    ids = np.arange(len(kind), dtype=np.int64)
    position = np.full((len(OpKind), stages, microbatches), -1, dtype=np.int64)
    position[kind, stage, microbatch] = ids
    stage_rank = np.full(stages, -1, dtype=np.int64)
    stage_rank[stage] = rank
    operations = _Operations(rank_offsets, rank, kind, stage, microbatch, position, stage_rank)
    doubled = np.flatnonzero(position[kind, stage, microbatch] != ids)
    elsewhere = np.flatnonzero(stage_rank[stage] != rank)
    _refuse(
        [
            f"an operation is run once; {operations.label(i)} stands twice"
            for i in doubled[:_MOST_FAULTS].tolist()
        ]
        + [
            f"a stage lives on one rank; rank {rank[i]} runs {operations.label(i)}, "
            f"rank {stage_rank[stage[i]]} runs others of stage {stage[i]}"
            for i in elsewhere[:_MOST_FAULTS].tolist()
        ]
    )
    return operations


def _check_complete(operations: _Operations, recompute: RecomputeMode) -> None:
    has = operations.position >= 0
    forward, full = has[OpKind.FORWARD], has[OpKind.BACKWARD]
    half_input, half_weight = has[OpKind.BACKWARD_INPUT], has[OpKind.BACKWARD_WEIGHT]
    again = has[OpKind.RECOMPUTE]

    any_backward = bool((full | half_input | half_weight).any())
    whole = full ^ (half_input & half_weight)
    whole &= ~(full & (half_input | half_weight))
    wanted_again = any_backward and recompute is not RecomputeMode.NONE
    wrong = [
        ("has one F", ~forward),
        ("has one B, or one I and one W", ~whole if any_backward else np.zeros_like(whole)),
        ("has one R" if wanted_again else "has no R", again != wanted_again),
    ]
    _refuse(
        [
            f"every microbatch {rule} on every stage; microbatch {m} on stage {s} does not"
            for rule, where in wrong
            for s, m in np.argwhere(where)[:_MOST_FAULTS].tolist()
        ]
    )


def _gradient_producers(operations: _Operations) -> Int64Array:
    """(stages, microbatches) the operation whose end gives a stage's input gradient: B or I."""
    full: Int64Array = operations.position[OpKind.BACKWARD]
    half: Int64Array = operations.position[OpKind.BACKWARD_INPUT]
    return np.where(full >= 0, full, half)


def _gradient_consumers(operations: _Operations, recompute: RecomputeMode) -> Int64Array:
    """(stages, microbatches) the operation that waits for a stage's output gradient."""
    if recompute is RecomputeMode.AFTER_GRADIENT:
        again: Int64Array = operations.position[OpKind.RECOMPUTE]
        return again
    return _gradient_producers(operations)


def _check_own_rank(
    operations: _Operations, edges: Sequence[StageEdge], recompute: RecomputeMode
) -> None:
    position = operations.position
    forward, weight = position[OpKind.FORWARD], position[OpKind.BACKWARD_WEIGHT]
    gives, takes = _gradient_producers(operations), _gradient_consumers(operations, recompute)
    again = position[OpKind.RECOMPUTE]
    pairs = [(forward, gives), (forward, again), (again, gives), (gives, weight)]
    for edge in edges:
        if operations.stage_rank[edge.source] == operations.stage_rank[edge.target]:
            pairs.append((forward[edge.source], forward[edge.target]))
            pairs.append((gives[edge.target], takes[edge.source]))
    details = [
        f"{operations.label(after)} needs {operations.label(before)}, which its own rank "
        f"{operations.rank[after]} runs later"
        for before_ids, after_ids in pairs
        for before, after in _reversed(before_ids, after_ids)
    ]
    _refuse(details)


def _reversed(before: Int64Array, after: Int64Array) -> list[tuple[int, int]]:
    """Pairs that stand the wrong way round, where both exist."""
    wrong = (before >= 0) & (after >= 0) & (before > after)
    if not wrong.any():
        return []
    return list(zip(before[wrong].tolist(), after[wrong].tolist(), strict=True))[:_MOST_FAULTS]


def _cross_rank_inputs(
    operations: _Operations, edges: Sequence[StageEdge], recompute: RecomputeMode
) -> tuple[Int64Array, Int64Array, Int32Array]:
    """`input_offsets`, `inputs` and `input_edges`; an operation's inputs stand in edge order."""
    forward = operations.position[OpKind.FORWARD]
    gives, takes = _gradient_producers(operations), _gradient_consumers(operations, recompute)
    crossings: list[tuple[int, Int64Array, Int64Array]] = []  # edge, producers, consumers
    for index, edge in enumerate(edges):
        if operations.stage_rank[edge.source] == operations.stage_rank[edge.target]:
            continue
        crossings.append((index, forward[edge.source], forward[edge.target]))
        if gives[0, 0] >= 0:
            crossings.append((index, gives[edge.target], takes[edge.source]))

    next_slot = np.zeros(len(operations.kind) + 1, dtype=np.int64)
    for _, _, consumers in crossings:
        next_slot[consumers + 1] += 1
    np.cumsum(next_slot, out=next_slot)
    input_offsets = next_slot.copy()
    inputs = np.empty(input_offsets[-1], dtype=np.int64)
    input_edges = np.empty(input_offsets[-1], dtype=np.int32)
    for index, producers, consumers in crossings:
        slots = next_slot[consumers]
        inputs[slots] = producers
        input_edges[slots] = index
        next_slot[consumers] += 1
    return input_offsets, inputs, input_edges


def _deadlock_faults(
    operations: _Operations,
    reached: Int64Array,
    input_offsets: Int64Array,
    inputs: Int64Array,
    ran: Int64Array,
) -> list[Fault]:
    done = np.zeros(len(operations.kind), dtype=np.bool_)
    done[ran] = True
    blocked = []
    for r, operation in enumerate(reached.tolist()):
        if operation == operations.rank_offsets[r + 1]:
            continue
        needs = inputs[input_offsets[operation] : input_offsets[operation + 1]]
        missing = next(i for i in needs.tolist() if not done[i])
        blocked.append(
            f"rank {r} waits at {operations.label(operation)} for {operations.label(missing)} "
            f"of rank {operations.rank[missing]}"
        )
    detail = "the ranks wait for each other for ever: " + "; ".join(blocked)
    return [Fault(FaultCode.ILLEGAL_SCHEDULE, _PATH, detail)]
