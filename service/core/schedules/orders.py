"""What one rank runs, in execution order: the form every schedule family produces."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.schedules.program import OpKind
from service.core.schedules.shape import Shape

__all__ = [
    "RankOrder",
    "backwards",
    "each_rank",
    "forwards",
    "in_turns",
    "numbered",
    "repeated",
    "run_of",
]

Int32Array = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class RankOrder:
    """The operations of one rank, first to last; arrays of equal length.

    The last two name the backwards of fused pairs, whose forwards are (stage, microbatch), and
    repeat these for other operations; an order without pairs leaves them out.
    """

    kind: npt.NDArray[np.int8]  # of OpKind
    stage: Int32Array  # global stage
    microbatch: Int32Array
    backward_stage: Int32Array | None = None
    backward_microbatch: Int32Array | None = None

    def then(self, other: "RankOrder") -> "RankOrder":
        """This order followed by the other; neither has pairs."""
        return RankOrder(
            np.concatenate((self.kind, other.kind)),
            np.concatenate((self.stage, other.stage)),
            np.concatenate((self.microbatch, other.microbatch)),
        )

    def unfused(self) -> "RankOrder":
        """Each pair as a forward and then a whole backward."""
        if self.backward_stage is None or self.backward_microbatch is None:
            return self
        pair = self.kind == OpKind.FORWARD_BACKWARD
        origin = np.repeat(np.arange(len(self.kind)), np.where(pair, 2, 1))
        second = np.zeros(len(origin), dtype=np.bool_)
        second[1:] = origin[1:] == origin[:-1]
        kind = self.kind[origin]
        kind[pair[origin]] = OpKind.FORWARD
        kind[second] = OpKind.BACKWARD
        return RankOrder(
            kind,
            np.where(second, self.backward_stage[origin], self.stage[origin]),
            np.where(second, self.backward_microbatch[origin], self.microbatch[origin]),
        )


def each_rank(order: Callable[[int, Shape], RankOrder]) -> Callable[[Shape], Sequence[RankOrder]]:
    """The orders of all ranks, from a rule that gives that of one."""
    return lambda shape: [order(rank, shape) for rank in range(shape.ranks)]


def forwards(stage: int, first: int, stop: int) -> RankOrder:
    """Forwards of microbatches first .. stop-1 on one stage."""
    return run_of(OpKind.FORWARD, stage, np.arange(first, stop, dtype=np.int32))


def backwards(stage: int, first: int, stop: int) -> RankOrder:
    """Full backwards of microbatches first .. stop-1 on one stage."""
    return run_of(OpKind.BACKWARD, stage, np.arange(first, stop, dtype=np.int32))


def run_of(kind: OpKind, stage: int | Int32Array, microbatch: Int32Array) -> RankOrder:
    """Operations of one kind on one stage, or on a stage for each, in this order."""
    # Filled by assignment: a rank has few operations, and numpy's ways to spread a number take
    # longer than that.
    kinds = np.empty(len(microbatch), dtype=np.int8)
    kinds[:] = kind
    stages = np.empty(len(microbatch), dtype=np.int32)
    stages[:] = stage
    return RankOrder(kinds, stages, microbatch)


def in_turns(
    forward: tuple[Int32Array, Int32Array], backward: tuple[Int32Array, Int32Array], warm_up: int
) -> RankOrder:
    """So many forwards; then a forward and a backward in turn; then the backwards that are left.

    Stages and microbatches of as many whole backwards as forwards, each in their order.
    """
    count = len(forward[0])
    kind = np.empty(2 * count, dtype=np.int8)
    stage, microbatch = np.empty((2, 2 * count), dtype=np.int32)
    turns, rest = slice(warm_up, 2 * count - warm_up), slice(2 * count - warm_up, None)
    for column, of_forward, of_backward in (
        (stage, forward[0], backward[0]),
        (microbatch, forward[1], backward[1]),
    ):
        column[:warm_up] = of_forward[:warm_up]
        column[turns][::2] = of_forward[warm_up:]
        column[turns][1::2] = of_backward[: count - warm_up]
        column[rest] = of_backward[count - warm_up :]
    kind[:] = OpKind.BACKWARD
    kind[:warm_up] = OpKind.FORWARD
    kind[turns][::2] = OpKind.FORWARD
    return RankOrder(kind, stage, microbatch)


def repeated(
    steps: Sequence[tuple[Sequence[tuple[OpKind, int]], int]],
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int8]]:
    """Kinds and chunks of a template: each pattern of (kind, chunk), so many times."""
    patterns = [
        np.tile(np.array(pattern, dtype=np.int8).reshape(-1, 2), (max(times, 0), 1))
        for pattern, times in steps
    ]
    template = np.concatenate(patterns)
    return template[:, 0], template[:, 1]


def numbered(masks: Sequence[npt.NDArray[np.bool_]]) -> Int32Array:
    """Microbatches 0, 1, 2, ... along each mask (they don't overlap); 0 outside of all."""
    microbatch = np.zeros(len(masks[0]), dtype=np.int32)
    for mask in masks:
        microbatch[mask] = np.arange(np.count_nonzero(mask), dtype=np.int32)
    return microbatch
