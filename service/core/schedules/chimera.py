"""Chimera: two 1F1B pipelines in opposite directions, each in the other's gaps.

"Chimera: Efficiently Training Large-Scale Neural Networks with Bidirectional Pipelines" (2021),
in blocks of as many microbatches as ranks; more are repeated blocks.
"""

import numpy as np

from service.core.errors import Fault, FaultCode
from service.core.schedules.orders import RankOrder
from service.core.schedules.program import OpKind
from service.core.schedules.shape import Shape, near_even

__all__ = ["check_chimera", "chimera_order"]


def check_chimera(shape: Shape) -> list[Fault]:
    """An even number of ranks, and microbatches in whole blocks of that many."""
    ranks = shape.ranks
    if ranks % 2:
        # No number of microbatches is right for these ranks.
        detail = (
            f"an even number of ranks, such as {near_even(ranks)}, and a multiple of them as "
            f"microbatches; got {ranks} ranks"
        )
        return [Fault(FaultCode.ILLEGAL_SCHEDULE, ("parallelism", "pipeline"), detail)]
    faults = []
    if shape.microbatches % ranks:
        below, above = shape.microbatches // ranks * ranks, -(-shape.microbatches // ranks) * ranks
        legal = f"{below} or {above}" if below else f"{above}"
        detail = f"a multiple of the {ranks} ranks, such as {legal}; got {shape.microbatches}"
        faults.append(Fault(FaultCode.ILLEGAL_SCHEDULE, ("workload", "microbatches"), detail))
    return faults


def chimera_order(rank: int, shape: Shape) -> RankOrder:
    """Both pipelines by the slot in which an operation starts if all take one slot.

    Direction 0 takes the even microbatches from rank 0 up, direction 1 the odd ones from the last
    rank down. As the number of ranks is even the two never want the same slot.
    """
    ranks = shape.ranks
    number = np.arange(ranks // 2, dtype=np.int32)
    starts, kinds, stages, microbatches = [], [], [], []
    for direction, stage in enumerate((rank, ranks - 1 - rank)):
        # A microbatch goes down and back a stage a slot; the next one follows two slots later.
        starts += [stage + 2 * number, 2 * ranks - 1 - stage + 2 * number]
        kinds += [OpKind.FORWARD, OpKind.BACKWARD]
        stages += [stage, stage]
        microbatches += [2 * number + direction] * 2
    block = np.argsort(np.concatenate(starts))
    kind = np.repeat(np.array(kinds, dtype=np.int8), len(number))[block]
    stage_of = np.repeat(np.array(stages, dtype=np.int32), len(number))[block]
    microbatch = np.concatenate(microbatches)[block]
    blocks = shape.microbatches // ranks
    first = np.repeat(np.arange(blocks, dtype=np.int32) * ranks, len(block))
    return RankOrder(
        np.tile(kind, blocks), np.tile(stage_of, blocks), np.tile(microbatch, blocks) + first
    )
