"""V-shaped schedules that repeat one building block, squeezed together by trying.

Two stages a rank: rank r has stage r and stage 2P-1-r. A block says in which slot each rank runs
the two forwards and the two input halves of microbatch 0; six slots later the next microbatch does
the same, so that no two of them meet, and the weight halves have the two slots that are left. The
block bounds what is kept; how tightly its beginning and its end can be packed is found by trying.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.schedules.greedy_kernels import NOT_RUN, list_block
from service.core.schedules.order_costs import equal_costs
from service.core.schedules.orders import RankOrder
from service.core.schedules.program import OpKind
from service.core.schedules.shape import Shape
from service.core.schedules.weight_filling import (
    ANY_NUMBER,
    Filling,
    Sequences,
    complete,
    fill,
)

__all__ = ["V_PASSES", "Block", "block_orders", "block_peak"]

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]

_PERIOD = 6
# With far fewer microbatches than ranks most ranks have nothing to do in most slots, and looking at
# each would be more than linear work; the block itself is as good then.
_FEWEST_PART = 4


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Slots of microbatch 0: (4, ranks), the forwards of the first and of the second stage of each
    rank, then the input halves of the second and of the first.
    """

    slots: Int64Array


# Haste by kind (slots that an operation is put forward), how many activations of the first stage
# are kept beyond those of the block, how many weight halves may wait. First-stage forwards have
# least haste: they are what brings memory, not what brings time. Found on 2 to 32 ranks.
_WAYS = (((0, 3, 3, 12), 0, ANY_NUMBER), ((0, 0, 0, 3), 1, 1))

# Of making an order: the block, run once, and the ways, slower as every slot is looked at.
V_PASSES = 8

_KINDS = np.array(
    (
        *(OpKind.FORWARD, OpKind.FORWARD),
        *(OpKind.BACKWARD_INPUT, OpKind.BACKWARD_INPUT),
        *(OpKind.BACKWARD_WEIGHT, OpKind.BACKWARD_WEIGHT),
    ),
    dtype=np.int8,
)
_OF_FIRST = np.array((True, False, False, True, False, True))


def block_orders(block: Block, shape: Shape) -> tuple[RankOrder, ...]:
    """The order of each rank: the shortest that was found with equal operations.

    No rank keeps more activations than the block does when it is repeated for ever.
    """
    limit = block_peak(block)
    ((squeezed,),) = fill(
        [_in_slot_order(block, shape.microbatches)],
        [Filling((ANY_NUMBER,) * shape.ranks, 100, 100)],
        shape.microbatches,
        equal_costs(2 * shape.ranks),
        np.full(shape.ranks, limit, dtype=np.int64),
    )
    if squeezed is None:
        raise RuntimeError("a block that repeats keeps within its own peak")
    shortest, listed = (squeezed.makespan, squeezed.span), None
    if shape.microbatches * _FEWEST_PART >= shape.ranks:
        for way in _WAYS:
            makespan, span, sequence = _list(block, shape, limit, *way)
            if makespan != NOT_RUN and (makespan, span) < shortest:
                shortest, listed = (makespan, span), sequence
    return complete(squeezed) if listed is None else _orders(listed, shape.microbatches)


def _list(
    block: Block, shape: Shape, limit: int, haste: tuple[int, ...], more: int, waiting: int
) -> tuple[int, int, npt.NDArray[np.int8]]:
    """Makespan, span and kinds where each rank takes what the block has first, but for haste."""
    sequence = np.zeros((shape.ranks, _PERIOD * shape.microbatches), dtype=np.int8)
    result = np.empty(2, dtype=np.int64)
    under_way = -(-(block.slots[3] + 2 - block.slots[0]) // _PERIOD)
    list_block(
        shape.microbatches,
        block.slots,
        np.array(haste, dtype=np.int64),
        limit,
        under_way + more,
        waiting,
        sequence,
        result,
    )
    makespan, span = result.tolist()
    return makespan, span, sequence


def _orders(sequence: npt.NDArray[np.int8], microbatches: int) -> tuple[RankOrder, ...]:
    microbatch, stage = _places(sequence, microbatches)
    return tuple(
        RankOrder(_KINDS[kind], s, m)
        for kind, s, m in zip(sequence, stage, microbatch, strict=True)
    )


def block_peak(block: Block) -> int:
    """The most activations of a stage that any rank keeps while the block repeats."""
    slots = block.slots
    taken = np.zeros((_PERIOD, slots.shape[1]), dtype=np.bool_)
    for row in slots:
        taken[row % _PERIOD, np.arange(slots.shape[1])] = True
    free = np.argsort(taken, axis=0, kind="stable")[:2]  # (2, ranks) the two slots that are left
    peaks = []
    for of_first, of_second in ((free[0], free[1]), (free[1], free[0])):
        ends = [
            half + 1 + (own - half - 1) % _PERIOD
            for half, own in ((slots[3], of_first), (slots[2], of_second))
        ]
        now = np.arange(_PERIOD)[:, None]
        # Microbatches whose forward has begun by a slot, less those whose weight half is over.
        alive = sum(
            (now - begin) // _PERIOD - (now - end - 1) // _PERIOD
            for begin, end in zip(slots[:2], ends, strict=True)
        )
        peaks.append(np.max(alive, axis=0))
    return int(np.minimum(*peaks).max())


def _in_slot_order(block: Block, microbatches: int) -> Sequences:
    """The block, repeated, without its idle slots."""
    slots = block.slots[:, :, None] + _PERIOD * np.arange(microbatches)
    ranks = block.slots.shape[1]
    flat = slots.transpose(1, 0, 2).reshape(ranks, -1)
    kind = (np.argsort(flat, axis=1, kind="stable") // microbatches).astype(np.int8)
    microbatch, stage = _places(kind, microbatches)
    return Sequences(
        rank_offsets=np.arange(ranks + 1, dtype=np.int64) * kind.shape[1],
        is_input=(kind >= 2).reshape(-1),
        stage=stage.reshape(-1),
        microbatch=microbatch.reshape(-1),
    )


def _places(kind: npt.NDArray[np.int8], microbatches: int) -> tuple[Int32Array, Int32Array]:
    """Microbatch and stage of what each rank runs, (ranks, operations): each kind by microbatch."""
    ranks = len(kind)
    microbatch = np.empty(kind.shape, dtype=np.int32)
    for number in range(kind.shape[1] // microbatches):
        microbatch[kind == number] = np.tile(np.arange(microbatches, dtype=np.int32), ranks)
    rank = np.arange(ranks, dtype=np.int32)[:, None]
    return microbatch, np.where(_OF_FIRST[kind], rank, 2 * ranks - 1 - rank)
