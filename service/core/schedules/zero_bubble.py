"""Zero bubble, by hand: the weight half of each backward waits until the rank would idle.

ZB-H1 and ZB-H2 of "Zero Bubble Pipeline Parallelism" (2024), and the generalisation of ZB-H1 to
several chunks a rank that frameworks call interleaved zero bubble.
"""

import numpy as np

from service.core.schedules.interleaved import Int32Array, chunk_sequence, group_of
from service.core.schedules.orders import RankOrder
from service.core.schedules.program import OpKind
from service.core.schedules.shape import Shape

__all__ = ["interleaved_zero_bubble_order", "zb_h1_order", "zb_h2_order"]


def zb_h1_order(rank: int, shape: Shape) -> RankOrder:
    """As many activations as 1F1B, about a third of its bubble."""
    return _handcrafted(1, rank, shape)


def zb_h2_order(rank: int, shape: Shape) -> RankOrder:
    """About twice the activations of 1F1B; no bubble between iterations that are not flushed."""
    return _handcrafted(2, rank, shape)


def _handcrafted(times: int, rank: int, shape: Shape) -> RankOrder:
    """Warm-up of min(M, k (P-1-rank)) forwards; W lags k rank steps behind I."""
    microbatch = np.arange(shape.microbatches, dtype=np.int32)
    stage = np.full(shape.microbatches, rank, dtype=np.int32)
    warm_up = times * (shape.ranks - 1 - rank)
    return _lagging((stage, microbatch), (stage, microbatch), warm_up, times * rank)


def interleaved_zero_bubble_order(rank: int, shape: Shape) -> RankOrder:
    """Chunks and groups as in interleaved 1F1B; W lags `rank` steps behind I.

    The warm-up is min(M v, (P-1-rank) + (v-1) g) forwards.
    """
    group = group_of(shape)
    chunk, microbatch = chunk_sequence(shape, group)
    last = shape.chunks_per_rank - 1
    forward = (rank + chunk * shape.ranks).astype(np.int32)
    backward = (rank + (last - chunk) * shape.ranks).astype(np.int32)
    warm_up = (shape.ranks - 1 - rank) + last * group
    return _lagging((forward, microbatch), (backward, microbatch), warm_up, rank)


def _lagging(
    forward: tuple[Int32Array, Int32Array],
    backward: tuple[Int32Array, Int32Array],
    warm_up: int,
    lag: int,
) -> RankOrder:
    """`warm_up` forwards; then steps of the next F if any, the next I, and the W of `lag` steps
    before if there is one; then the W that are left. Stages and microbatches in their order.
    """
    count = len(forward[0])
    warm_up = min(warm_up, count)
    number = np.arange(count)
    # Three slots a step, and the warm-up before step 0.
    when_forward = np.where(number < warm_up, number - warm_up, 3 * (number - warm_up))
    when_input = 3 * number + 1
    when_weight = np.where(number + lag < count, 3 * (number + lag) + 2, 3 * count + number)
    sequence = np.argsort(np.concatenate((when_forward, when_input, when_weight)))
    kinds = (OpKind.FORWARD, OpKind.BACKWARD_INPUT, OpKind.BACKWARD_WEIGHT)
    kind = np.repeat(np.array(kinds, dtype=np.int8), count)
    stage = np.concatenate((forward[0], backward[0], backward[0]))
    microbatch = np.concatenate((forward[1], backward[1], backward[1]))
    return RankOrder(kind[sequence], stage[sequence], microbatch[sequence])
