"""1F1B with a flush (PipeDream-flush, DAPPLE): one forward, one backward, few activations alive."""

import numpy as np

from service.core.schedules.orders import RankOrder, in_turns
from service.core.schedules.shape import Shape

__all__ = ["one_f_one_b_order"]


def one_f_one_b_order(rank: int, shape: Shape) -> RankOrder:
    """Warm-up forwards, pairs of one forward and one backward, cool-down backwards.

    The warm-up is n = min(M, P-1-rank) forwards; then M-n pairs (F n+k, B k); then B M-n .. M-1.
    Fewer microbatches than ranks are legal: such a rank has no pairs.
    """
    microbatch = np.arange(shape.microbatches, dtype=np.int32)
    both = np.full(shape.microbatches, rank, dtype=np.int32), microbatch
    return in_turns(both, both, min(shape.microbatches, shape.ranks - 1 - rank))
