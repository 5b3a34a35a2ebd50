"""From the order of each rank to a `Program`: index, cross-rank inputs, topological order.

This accepts any order, also one written by hand, and refuses what can't run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode, InvalidInput, Path
from service.core.schedules.dependencies import Need, needs_of, operation_table, table
from service.core.schedules.order_costs import OrderCosts
from service.core.schedules.orders import RankOrder
from service.core.schedules.program import (
    OpKind,
    PairMode,
    Program,
    RecomputeMode,
    StageEdge,
    operation_label,
)
from service.core.schedules.program_kernels import topological_order

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
    backward_stage: Int32Array
    backward_microbatch: Int32Array
    position: Int32Array  # (kinds, stages, microbatches) operation id, -1 when there is none
    stage_ranks: Int32Array  # (directions, stages)

    def label(self, operation: int) -> str:
        """As in order tables: stage, kind, microbatch (`2B7`, `0F3&3B1`)."""
        return operation_label(
            OpKind(self.kind[operation]),
            (int(self.stage[operation]), int(self.microbatch[operation])),
            (int(self.backward_stage[operation]), int(self.backward_microbatch[operation])),
        )


def assemble_program(
    schedule: str,
    rank_orders: Sequence[RankOrder],
    *,
    stages: int,
    microbatches: int,
    directions: int = 1,
    group_size: int | None = None,
    pair_mode: PairMode = PairMode.SERIAL,
    recompute: RecomputeMode = RecomputeMode.NONE,
    stage_edges: tuple[StageEdge, ...],
    memory_limit_activations: int | None = None,
    costs: OrderCosts | None = None,
) -> Program:
    """A runnable program from what each rank runs in order.

    `rank_orders` has one entry a rank and already holds any RECOMPUTE operation; `stage_edges` are
    distinct edges between stages below `stages`. The last two are only kept, to say what the order
    was made for. A stage lives on the rank that runs it, for the
    microbatches m mod `directions` of each direction. Each (stage, microbatch) has one F and,
    unless the whole order is forward only, one B or one I and one W, where a fused pair is an F and
    a B; with a recompute mode also one R.

    Raises `InvalidInput` when an operation is missing, doubled, unknown or before what it needs on
    its own rank, when two ranks run one stage in one direction, and when the ranks wait for each
    other for ever (the blocked operation of each is named).
    """
    operations = _index(rank_orders, stages, microbatches, directions)
    _check_complete(operations, recompute)
    needs = needs_of(operations.position, operations.stage_ranks, stage_edges, recompute)
    _check_own_rank(operations, needs)
    inputs = table([need for need in needs if need.crosses], len(operations.kind))
    order = np.empty(len(operations.kind), dtype=np.int64)
    reached = np.empty(len(rank_orders), dtype=np.int64)
    ran = topological_order(
        operations.rank_offsets, operations.rank, inputs.offsets, inputs.before, order, reached
    )
    if ran < len(order):
        raise InvalidInput(
            _deadlock_faults(operations, reached, inputs.offsets, inputs.before, order[:ran])
        )
    program = Program(
        schedule=schedule,
        ranks=len(rank_orders),
        stages=stages,
        microbatches=microbatches,
        chunks_per_rank=-(-stages // len(rank_orders)),
        group_size=group_size,
        pair_mode=pair_mode,
        recompute=recompute,
        stage_edges=stage_edges,
        stage_ranks=operations.stage_ranks,
        rank_offsets=operations.rank_offsets,
        rank=operations.rank,
        kind=operations.kind,
        stage=operations.stage,
        microbatch=operations.microbatch,
        backward_stage=operations.backward_stage,
        backward_microbatch=operations.backward_microbatch,
        input_offsets=inputs.offsets,
        inputs=inputs.before,
        input_edges=inputs.edges,
        input_gradient=inputs.gradient,
        order=order,
        memory_limit_activations=memory_limit_activations,
        costs=costs,
    )
    for array in (
        *(program.stage_ranks, program.rank_offsets, program.rank, program.kind, program.stage),
        *(program.microbatch, program.backward_stage, program.backward_microbatch),
        *(program.input_offsets, program.inputs, program.input_edges, program.input_gradient),
        program.order,
    ):
        array.setflags(write=False)
    return program


def _refuse(details: Sequence[str], code: FaultCode = FaultCode.ILLEGAL_SCHEDULE) -> None:
    if details:
        raise InvalidInput(Fault(code, _PATH, detail) for detail in details[:_MOST_FAULTS])


def _index(
    rank_orders: Sequence[RankOrder], stages: int, microbatches: int, directions: int
) -> _Operations:
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
    backward_stage, backward_microbatch = stage, microbatch
    if any(o.backward_stage is not None for o in rank_orders):
        backward_stage, backward_microbatch = _backwards_of_pairs(rank_orders)

    limited: list[tuple[npt.NDArray[np.signedinteger], int]] = [
        (kind, len(OpKind)),
        *((s, stages) for s in (stage, backward_stage)),
        *((m, microbatches) for m in (microbatch, backward_microbatch)),
    ]
    if any(column.min() < 0 or column.max() >= limit for column, limit in limited):
        known = np.logical_and.reduce([(c >= 0) & (c < limit) for c, limit in limited])
        _refuse(
            [
                f"stages are 0..{stages - 1} and microbatches 0..{microbatches - 1}; rank "
                f"{rank[i]} runs kind {kind[i]} on stage {stage[i]}, microbatch {microbatch[i]}"
                for i in np.flatnonzero(~known)[:_MOST_FAULTS]
            ]
        )

    position = operation_table(
        kind, stage, microbatch, backward_stage, backward_microbatch, (stages, microbatches)
    )
    stage_ranks = np.full((directions, stages), -1, dtype=np.int32)
    if directions == 1:
        stage_ranks[0, stage] = rank
    else:
        stage_ranks[microbatch % directions, stage] = rank
    operations = _Operations(
        rank_offsets=rank_offsets,
        rank=rank,
        kind=kind,
        stage=stage,
        microbatch=microbatch,
        backward_stage=backward_stage,
        backward_microbatch=backward_microbatch,
        position=position,
        stage_ranks=stage_ranks,
    )
    _check_once(operations, directions)
    return operations


def _backwards_of_pairs(rank_orders: Sequence[RankOrder]) -> tuple[Int32Array, Int32Array]:
    stages = [o.stage if o.backward_stage is None else o.backward_stage for o in rank_orders]
    microbatches = [
        o.microbatch if o.backward_microbatch is None else o.backward_microbatch
        for o in rank_orders
    ]
    return (
        np.concatenate(stages).astype(np.int32, copy=False),
        np.concatenate(microbatches).astype(np.int32, copy=False),
    )


def _check_once(operations: _Operations, directions: int) -> None:
    """No operation is run twice, no stage of a direction on two ranks."""
    kind, rank = operations.kind, operations.rank
    pair = kind == OpKind.FORWARD_BACKWARD
    details = []
    # Each operation has filled places of the table of its own, unless two do the same.
    if np.count_nonzero(operations.position >= 0) < len(kind) + np.count_nonzero(pair):
        details = _doubled(operations, pair)
    for stage, microbatch in (
        (operations.stage, operations.microbatch),
        (operations.backward_stage, operations.backward_microbatch),
    ):
        ways = operations.stage_ranks
        home = ways[0][stage] if directions == 1 else ways[microbatch % directions, stage]
        details += [
            f"a stage lives on one rank; rank {rank[i]} runs {operations.label(i)}, "
            f"rank {home[i]} runs others of stage {stage[i]}"
            for i in np.flatnonzero(home != rank)[:_MOST_FAULTS].tolist()
        ]
        if operations.backward_stage is operations.stage:
            break
    _refuse(details)


def _doubled(operations: _Operations, pair: npt.NDArray[np.bool_]) -> list[str]:
    kind, position = operations.kind, operations.position
    ids = np.arange(len(kind), dtype=np.int64)
    forward_or_own = np.where(pair, OpKind.FORWARD, kind)
    backward_or_own = np.where(pair, OpKind.BACKWARD, kind)
    own = position[forward_or_own, operations.stage, operations.microbatch]
    back = position[backward_or_own, operations.backward_stage, operations.backward_microbatch]
    return [
        f"an operation is run once; {operations.label(i)} stands twice"
        for i in np.flatnonzero((own != ids) | (back != ids))[:_MOST_FAULTS].tolist()
    ]


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


def _check_own_rank(operations: _Operations, needs: Sequence[Need]) -> None:
    """What an operation needs from its own rank stands before it there."""
    details = []
    for need in needs:
        # An operation can't need itself either: no pair holds a microbatch and its own gradient.
        wrong = np.flatnonzero(need.before >= need.after) if not need.crosses else ()
        details += [
            f"{operations.label(need.after[i])} needs {operations.label(need.before[i])}, which "
            f"its own rank {operations.rank[need.after[i]]} runs later"
            if need.before[i] != need.after[i]
            else f"{operations.label(need.after[i])} needs its own result: pair two microbatches"
            for i in wrong[:_MOST_FAULTS]
        ]
    _refuse(details)


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
