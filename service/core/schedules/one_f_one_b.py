"""1F1B with a flush (PipeDream-flush, DAPPLE): one forward, one backward, few activations alive."""

from service.core.schedules.orders import RankOrder, backwards, forwards
from service.core.schedules.shape import Shape

__all__ = ["one_f_one_b_order"]


def one_f_one_b_order(rank: int, shape: Shape) -> RankOrder:
    """Warm-up forwards, pairs of one forward and one backward, cool-down backwards.

    The warm-up is n = min(M, P-1-rank) forwards; then M-n pairs (F n+k, B k); then B M-n .. M-1.
    Fewer microbatches than ranks are legal: such a rank has no pairs.
    """
    microbatches = shape.microbatches
    warm_up = min(microbatches, shape.ranks - 1 - rank)
    pairs = microbatches - warm_up
    steady = forwards(rank, warm_up, microbatches).alternating(backwards(rank, 0, pairs))
    return forwards(rank, 0, warm_up).then(steady).then(backwards(rank, pairs, microbatches))
