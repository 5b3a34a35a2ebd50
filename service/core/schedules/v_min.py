"""V-Min: V-shaped stages with about a third of the activations of 1F1B.

The building block of "Pipeline Parallelism with Controllable Memory" (2024).
"""

import numpy as np

from service.core.schedules.orders import RankOrder
from service.core.schedules.shape import Shape
from service.core.schedules.v_blocks import Block, block_orders

__all__ = ["v_min_block", "v_min_orders"]


def v_min_orders(shape: Shape) -> tuple[RankOrder, ...]:
    """The order of each rank; at most 2 P / 3, rounded up, + 2 stage activations on any."""
    return block_orders(v_min_block(shape.ranks), shape)


def v_min_block(ranks: int) -> Block:
    """One slot a stage on the way down, up, and back: a microbatch is gone as soon as it can be."""
    r = np.arange(ranks, dtype=np.int64)
    turn = 2 * ranks + (2 if ranks % 3 == 0 else 0)
    return Block(np.stack((r, 2 * ranks - 1 - r, turn + r, turn + 2 * ranks - 1 - r)))
