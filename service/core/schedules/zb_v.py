"""ZB-V: zero bubble on V-shaped stages, with the activations of 1F1B.

The static order of "Pipeline Parallelism with Controllable Memory" (2024), as frameworks run it.
Rank r holds chunk 0 (stage r) and chunk 1 (stage 2P-1-r); every backward is split.
"""

import numpy as np

from service.core.schedules.orders import RankOrder, numbered, repeated
from service.core.schedules.program import OpKind
from service.core.schedules.shape import Shape

__all__ = ["zb_v_order"]

_F0, _F1 = (OpKind.FORWARD, 0), (OpKind.FORWARD, 1)
_I0, _I1 = (OpKind.BACKWARD_INPUT, 0), (OpKind.BACKWARD_INPUT, 1)
_W0, _W1 = (OpKind.BACKWARD_WEIGHT, 0), (OpKind.BACKWARD_WEIGHT, 1)
_KINDS = (OpKind.FORWARD, OpKind.BACKWARD_INPUT, OpKind.BACKWARD_WEIGHT)


def zb_v_order(rank: int, shape: Shape) -> RankOrder:
    """The order for N = max(M, 2P-1) microbatches, without those beyond M.

    F0 are 2P-1-r ahead when the steady part begins, F1 are P: the first rounds run a new F0 each,
    the others only finish what is in flight.
    """
    ranks = shape.ranks
    count = max(shape.microbatches, 2 * ranks - 1)
    rounds = count - ranks
    with_new = min(rounds, count - (2 * ranks - 1 - rank))
    kind, chunk = repeated(
        (
            ((_F0,), 2 * (ranks - rank) - 1),
            ((_F1, _F0), rank),
            ((_F1, _I1, _W1), ranks - rank),
            ((_F0, _I0, _W0, _F1, _I1, _W1), with_new),
            ((_I0, _W0, _F1, _I1, _W1), rounds - with_new),
            ((_I0, _I1), rank),
            ((_I0, _W0), ranks - rank),
            ((_W1,), rank),
            ((_W0,), rank),
        )
    )
    microbatch = numbered([(kind == k) & (chunk == c) for k in _KINDS for c in (0, 1)])
    stage = np.where(chunk == 0, rank, 2 * ranks - 1 - rank).astype(np.int32)
    kept = microbatch < shape.microbatches
    return RankOrder(kind[kept], stage[kept], microbatch[kept])
