"""Looped breadth-first: chunk by chunk, each for all microbatches.

"Breadth-First Pipeline Parallelism" (2023). Gradients of a chunk are complete early, and every
activation is kept.
"""

import numpy as np

from service.core.schedules.orders import RankOrder, run_of
from service.core.schedules.program import OpKind
from service.core.schedules.shape import Shape

__all__ = ["looped_bfs_order"]


def looped_bfs_order(rank: int, shape: Shape) -> RankOrder:
    """All F of chunk 0, of chunk 1, ...; then backwards by chunk and microbatch, descending."""
    chunk = np.repeat(np.arange(shape.chunks_per_rank, dtype=np.int32), shape.microbatches)
    stage = rank + chunk * shape.ranks
    microbatch = np.tile(np.arange(shape.microbatches, dtype=np.int32), shape.chunks_per_rank)
    forward = run_of(OpKind.FORWARD, stage, microbatch)
    return forward.then(run_of(OpKind.BACKWARD, stage[::-1], microbatch[::-1]))
