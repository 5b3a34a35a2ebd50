"""V-Half: V-shaped stages with about half the activations of 1F1B.

The building block of "Pipeline Parallelism with Controllable Memory" (2024).
"""

import numpy as np

from service.core.schedules.orders import RankOrder
from service.core.schedules.shape import Shape
from service.core.schedules.v_blocks import Block, block_orders

__all__ = ["v_half_block", "v_half_orders"]


def v_half_orders(shape: Shape) -> tuple[RankOrder, ...]:
    """The order of each rank; at most 2 (P // 2 + 1) stage activations on any."""
    return block_orders(v_half_block(shape.ranks), shape)


def v_half_block(ranks: int) -> Block:
    """Two slots a stage on the way down, one on the way up, and so back."""
    r = np.arange(ranks, dtype=np.int64)
    turn = 3 * ranks + (3 if ranks % 2 == 0 else 0)
    return Block(
        np.stack((2 * r, 3 * ranks - 2 - r, turn - 1 + 2 * r, turn + 3 * ranks - 2 - r)),
    )
