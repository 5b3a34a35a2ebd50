"""When the gradients of each stage are complete on each rank that it lives on."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.schedules.program import OpKind
from service.core.schedules.timeline import Timeline

__all__ = ["StageGradients", "stage_gradients"]

Int64Array = npt.NDArray[np.int64]

_GIVES_WEIGHT_GRADIENTS = (OpKind.BACKWARD, OpKind.BACKWARD_WEIGHT, OpKind.FORWARD_BACKWARD)


@dataclass(frozen=True, slots=True)
class StageGradients:
    """The last operation on a rank that adds to the gradients of a stage, in picoseconds.

    Before its start the gradients lack a microbatch, and at its end they are complete.
    """

    stage: int
    rank: int
    last_microbatch: int
    last_start: int
    complete: int


def stage_gradients(timeline: Timeline) -> tuple[StageGradients, ...]:
    """By stage, then rank; none where the schedule has no backward.

    Of a backward in two halves the second one gives the gradients of weights, a fused pair those of
    its backward's stage. A stage of a schedule with two directions has one entry on each of its two
    ranks, if any microbatch comes by.
    """
    program, run = timeline.program, timeline.run
    last: dict[tuple[int, int], int] = {}
    operations = np.flatnonzero(
        np.isin(program.kind, [int(kind) for kind in _GIVES_WEIGHT_GRADIENTS])
    )
    stages, ranks = program.backward_stage[operations], program.rank[operations]
    # A rank runs its operations in this order, so that the last one of a stage has the last word.
    for operation, stage, rank in zip(
        operations.tolist(), stages.tolist(), ranks.tolist(), strict=True
    ):
        last[stage, rank] = operation
    return tuple(
        StageGradients(
            stage=stage,
            rank=rank,
            last_microbatch=int(program.backward_microbatch[operation]),
            last_start=int(run.start[operation]),
            complete=int(run.end[operation]),
        )
        for (stage, rank), operation in sorted(last.items())
    )
