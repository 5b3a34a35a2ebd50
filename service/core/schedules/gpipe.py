"""GPipe: all forwards, then all backwards.

Backwards run in ascending microbatch order, as frameworks run it; the paper draws them descending,
with the same makespan and the same peak under equal times.
"""

from service.core.schedules.orders import RankOrder, backwards, forwards
from service.core.schedules.shape import Shape

__all__ = ["gpipe_order"]


def gpipe_order(rank: int, shape: Shape) -> RankOrder:
    """F 0 .. M-1, then B 0 .. M-1, on the rank's one stage."""
    return forwards(rank, 0, shape.microbatches).then(backwards(rank, 0, shape.microbatches))
