"""DualPipe and DualPipeV: forwards of one kind run together with backwards of the other.

The orders of DeepSeek's DualPipe (2025). In DualPipe microbatches enter at both ends and each stage
lives on two ranks; DualPipeV folds that in half: half the ranks, each with two stages of a V.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode
from service.core.schedules.orders import Int32Array, RankOrder, numbered, repeated
from service.core.schedules.program import OpKind
from service.core.schedules.shape import Shape, near_even

__all__ = ["check_dual_pipe", "check_dual_pipe_v", "dual_pipe_order", "dual_pipe_v_order"]

_F0, _F1 = (OpKind.FORWARD, 0), (OpKind.FORWARD, 1)
_B0, _B1 = (OpKind.BACKWARD, 0), (OpKind.BACKWARD, 1)
_I0, _I1 = (OpKind.BACKWARD_INPUT, 0), (OpKind.BACKWARD_INPUT, 1)
# A fused pair is named by the chunk of its forward; its backward is of the other chunk.
_F0_B1, _F1_B0 = (OpKind.FORWARD_BACKWARD, 0), (OpKind.FORWARD_BACKWARD, 1)
# The oldest pending one, of whichever chunk.
_W = (OpKind.BACKWARD_WEIGHT, 0)


def check_dual_pipe_v(shape: Shape) -> list[Fault]:
    """At least 2P microbatches."""
    if shape.microbatches >= 2 * shape.ranks:
        return []
    detail = (
        f"at least 2 microbatches a rank: {2 * shape.ranks} for {shape.ranks} ranks; "
        f"got {shape.microbatches}"
    )
    return [Fault(FaultCode.ILLEGAL_SCHEDULE, ("workload", "microbatches"), detail)]


def check_dual_pipe(shape: Shape) -> list[Fault]:
    """An even number of ranks, and an even number of at least 2P microbatches."""
    faults = check_dual_pipe_v(shape)
    if shape.ranks % 2:
        detail = (
            "an even number of ranks, half of them for each turn, such as "
            f"{near_even(shape.ranks)}; got {shape.ranks}"
        )
        faults.append(Fault(FaultCode.ILLEGAL_SCHEDULE, ("parallelism", "pipeline"), detail))
    if shape.microbatches % 2:
        detail = (
            "an even number of microbatches, half from each end, such as "
            f"{near_even(max(shape.microbatches, 2 * shape.ranks))}; got {shape.microbatches}"
        )
        faults.append(Fault(FaultCode.ILLEGAL_SCHEDULE, ("workload", "microbatches"), detail))
    return faults


def dual_pipe_v_order(rank: int, shape: Shape) -> RankOrder:
    """Chunk 0 is stage r, chunk 1 stage 2P-1-r."""
    order = _template(rank, shape.ranks, shape.microbatches)
    stages = np.array((rank, 2 * shape.ranks - 1 - rank), dtype=np.int32)
    return RankOrder(
        order.kind,
        stages[order.chunk],
        order.microbatch,
        stages[order.backward_chunk],
        order.backward_microbatch,
    )


def dual_pipe_order(rank: int, shape: Shape) -> RankOrder:
    """DualPipeV's order on half the ranks, mirrored; the chunks are the two directions.

    Direction 0 takes the even microbatches from rank 0 up, direction 1 the odd ones from the last
    rank down. A rank of the second half is in the place of its mirror image, with the directions
    exchanged.
    """
    ranks = shape.ranks
    place = min(rank, ranks - 1 - rank)
    order = _template(place, ranks // 2, shape.microbatches // 2)
    stages = np.array((rank, ranks - 1 - rank), dtype=np.int32)
    first = 0 if rank == place else 1
    direction, backward_direction = order.chunk ^ first, order.backward_chunk ^ first
    return RankOrder(
        order.kind,
        stages[direction],
        2 * order.microbatch + direction,
        stages[backward_direction],
        2 * order.backward_microbatch + backward_direction,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Template:
    """One rank's operations by chunk: `backward_*` are of the backwards of pairs."""

    kind: npt.NDArray[np.int8]
    chunk: Int32Array
    microbatch: Int32Array
    backward_chunk: Int32Array
    backward_microbatch: Int32Array


def _template(rank: int, ranks: int, microbatches: int) -> _Template:
    after = ranks - 1 - rank
    steady = microbatches - 2 * ranks + rank + 1
    # On the turning rank the first pair is run as two operations: the B needs that very F1.
    first = ((_F0, _B1, _F1_B0), 1) if rank == ranks - 1 else ((_F0_B1, _F1_B0), 1)
    # From some point on backwards are split, so that the halves fill the end.
    halfway = (rank + 1) // 2
    switch = ((_I1, _I0), 1) if rank % 2 else ((_B1, _I0), 1)
    kind, chunk = repeated(
        (
            ((_F0,), 2 * after),
            ((_F0, _F1), rank + 1),
            ((_I1, _W, _F1), after),
            first,
            ((_F0_B1, _F1_B0), steady - 1),
            ((_B1, _F1_B0), after),
            ((_B1, _B0), halfway),
            switch,
            ((_I1, _I0), rank - halfway),
            ((_W, _I0), after),
            ((_W,), rank + 1),
        )
    )
    return _numbered(kind, chunk)


def _numbered(kind: npt.NDArray[np.int8], chunk: npt.NDArray[np.int8]) -> _Template:
    """Forwards and backwards of each chunk in microbatch order; a W is the oldest pending one."""
    pair = kind == OpKind.FORWARD_BACKWARD
    forward = (kind == OpKind.FORWARD) | pair
    backward = (kind == OpKind.BACKWARD) | (kind == OpKind.BACKWARD_INPUT) | pair
    backward_chunk = np.where(pair, 1 - chunk, chunk).astype(np.int32)
    microbatch = numbered([forward & (chunk == c) for c in (0, 1)])
    returning = numbered([backward & (backward_chunk == c) for c in (0, 1)])

    kept = np.ones(len(kind), dtype=np.bool_)
    weights = np.flatnonzero(kind == OpKind.BACKWARD_WEIGHT)
    halves = np.flatnonzero(kind == OpKind.BACKWARD_INPUT)
    taken = 0
    for place, pending in zip(weights, np.searchsorted(halves, weights), strict=True):
        if pending == taken:
            kept[place] = False  # nothing is left over: the slot stays empty
            continue
        backward_chunk[place] = backward_chunk[halves[taken]]
        returning[place] = returning[halves[taken]]
        taken += 1
    return _Template(
        kind[kept],
        np.where(forward, chunk, backward_chunk)[kept].astype(np.int32),
        np.where(forward, microbatch, returning)[kept],
        backward_chunk[kept],
        np.where(kind == OpKind.FORWARD, microbatch, returning)[kept],
    )
