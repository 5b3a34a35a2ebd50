"""When the gradients of each stage are complete on each rank that it lives on."""

from dataclasses import dataclass

import numpy as np

from service.core.schedules.program import OpKind
from service.core.schedules.timeline import Timeline

__all__ = ["StageGradients", "stage_gradients"]

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
    # A rank runs its operations in this order, so the first from the end is the last of a stage.
    operations = np.flatnonzero(np.isin(program.kind, _GIVES_WEIGHT_GRADIENTS))[::-1]
    held = program.backward_stage[operations] * np.int64(program.ranks) + program.rank[operations]
    places, last = np.unique(held, return_index=True)
    return tuple(
        StageGradients(
            stage=place // program.ranks,
            rank=place % program.ranks,
            last_microbatch=int(program.backward_microbatch[operation]),
            last_start=int(run.start[operation]),
            complete=int(run.end[operation]),
        )
        for place, operation in zip(places.tolist(), operations[last].tolist(), strict=True)
    )
