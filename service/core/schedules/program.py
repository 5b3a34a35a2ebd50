"""A schedule as arrays without durations: who runs what, in which order, waiting for whom."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum

import numpy as np
import numpy.typing as npt

__all__ = ["OpKind", "Program", "RecomputeMode", "StageEdge"]

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Int8Array = npt.NDArray[np.int8]


class OpKind(IntEnum):
    """What one operation does to one microbatch on one stage."""

    FORWARD = 0
    BACKWARD = 1
    BACKWARD_INPUT = 2
    BACKWARD_WEIGHT = 3
    RECOMPUTE = 4

    @property
    def letter(self) -> str:
        """The one-letter name used in order tables: F, B, I, W, R."""
        return "FBIWR"[self]


class RecomputeMode(StrEnum):
    """Where the recomputation of a forward stands, as an operation of its own before a backward."""

    NONE = "none"
    AFTER_GRADIENT = "after_gradient"
    BEFORE_GRADIENT = "before_gradient"


@dataclass(frozen=True, slots=True, order=True)
class StageEdge:
    """Tensors go from stage `source` to the later stage `target`; gradients go back."""

    source: int
    target: int


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """All operations of one iteration, rank after rank, each rank in execution order.

    Operation ids are 0..n-1; the operations of rank r are `rank_offsets[r]:rank_offsets[r+1]`, and
    each waits for the one before it on its rank. Besides, operation i waits for the operations
    `inputs[input_offsets[i]:input_offsets[i+1]]` (the values that cross ranks; what is on the
    same rank and earlier in its order is implied). All arrays are read-only.
    """

    schedule: str
    ranks: int
    stages: int
    microbatches: int
    chunks_per_rank: int
    recompute: RecomputeMode
    stage_edges: tuple[StageEdge, ...]
    rank_offsets: Int64Array  # (ranks + 1,)
    rank: Int32Array  # (n,)
    kind: Int8Array  # (n,) of OpKind
    stage: Int32Array  # (n,) global stage
    microbatch: Int32Array  # (n,)
    input_offsets: Int64Array  # (n + 1,)
    inputs: Int64Array  # (number of inputs,) operation ids
    input_edges: Int32Array  # (number of inputs,) index into stage_edges of the edge it crosses
    order: Int64Array  # (n,) a topological order of all operations

    @property
    def operations(self) -> int:
        """How many operations the iteration has."""
        return len(self.kind)
