"""Forward only (inference, or the forward half alone): microbatches in order, nothing kept."""

from service.core.schedules.orders import RankOrder, forwards
from service.core.schedules.shape import Shape

__all__ = ["forward_only_order"]


def forward_only_order(rank: int, shape: Shape) -> RankOrder:
    """F 0 .. M-1 on the rank's one stage."""
    return forwards(rank, 0, shape.microbatches)
