"""Lower bounds of an iteration that has more in it than its schedule."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from service.core.estimates.bounds import IterationBound
from service.core.estimates.iteration import Iteration
from service.core.estimates.least_times import exchanges_assumed, least_times
from service.core.estimates.reduction.planned import PlannedPart
from service.core.estimates.reduction.pricing import Step
from service.core.estimates.simulation import SimulatedPlan
from service.core.plans.gradient_reduction import ReductionOverlap
from service.core.schedules.program import Program
from service.core.schedules.stage_times import StageTimes, operation_durations
from service.core.units import to_seconds

__all__ = ["bounds_beyond_schedule"]

Int64Array = npt.NDArray[np.int64]

_RANK = "a rank runs one operation at a time"
_STEP = "the optimizer's step of a rank follows its last operation and the reduction of its stages"
_MEMORY = "a memory moves no more than its nominal bandwidth, or the plan's own time of the step"
_REDUCTION = (
    "gradients are reduced when they are complete, by any algorithm over any routes",
    "no switch adds up",
    "links carry no more than their nominal bandwidth in each direction",
)


def bounds_beyond_schedule(
    simulated: SimulatedPlan, iteration: Iteration, least: StageTimes | None = None
) -> Iterator[IterationBound]:
    """What a rank has to do at least, with its step, and with the reduction of a stage before that.

    None where the pipeline is never drained. `least` are those of `least_times`, for who has them.
    """
    if not iteration.ranks:
        return
    program, experts = simulated.timeline.program, exchanges_assumed(simulated)
    durations = operation_durations(program, least_times(simulated) if least is None else least)
    work = [int(busy) for busy in np.add.reduceat(durations, program.rank_offsets[:-1])]
    steps = [0] * len(work)
    if iteration.steps is not None:
        steps = [step.bound_picoseconds for step in iteration.steps]
        rank = max(range(len(work)), key=lambda number: work[number] + steps[number])
        yield IterationBound(
            name="busiest_device_with_step",
            picoseconds=work[rank] + steps[rank],
            mode="latency",
            routing="any",
            witness=(
                f"rank {rank} works {to_seconds(work[rank])!r} s, and its optimizer's step takes "
                f"at least {to_seconds(steps[rank])!r} s"
            ),
            assumes=(_RANK, _STEP, _MEMORY, *experts),
        )
    if iteration.planned.parts:
        found = _with_reduction(program, durations, iteration, steps)
        yield replace(found, assumes=(*found.assumes, *experts))


def _with_reduction(
    program: Program, durations: Int64Array, iteration: Iteration, steps: list[int]
) -> IterationBound:
    """The greatest over parts of what comes before, in and after their reduction."""
    overlap = iteration.planned.reduction.overlap
    before = _before(program, durations, overlap)
    best: tuple[int, PlannedPart, int, int, int] | None = None
    for part in iteration.planned.parts:
        reduction, gather = part.bound(Step.REDUCTION), part.bound(Step.GATHER)
        for rank in part.part.pipeline_ranks:
            first = before.get((part.part.held.stage, rank), 0)
            total = first + reduction + steps[rank] + gather
            if best is None or total > best[0]:
                best = total, part, rank, first, reduction
    if best is None:
        raise RuntimeError("no part was looked at")
    total, part, rank, first, reduction = best
    stage = part.part.held.stage
    return IterationBound(
        name="stage_with_reduction",
        picoseconds=total,
        mode="latency",
        routing="any",
        witness=(
            f"rank {rank} works {to_seconds(first)!r} s before the gradients of stage {stage} can "
            f"be reduced, which takes at least {to_seconds(reduction)!r} s; "
            f"{to_seconds(total - first - reduction)!r} s follow at least"
        ),
        assumes=(_RANK, *_REDUCTION, _STEP, _MEMORY),
    )


def _before(
    program: Program, durations: Int64Array, overlap: ReductionOverlap
) -> Mapping[tuple[int, int], int]:
    """(stage, rank) -> what the rank has to do at least before the reduction of the stage begins.

    All operations that touch the stage; those of all its stages where the reduction waits for the
    rank, and all but the longest where it may begin within the last of them.
    """
    if overlap is ReductionOverlap.NONE:
        busy = np.add.reduceat(durations, program.rank_offsets[:-1]).tolist()
        return {
            (stage, rank): busy[rank]
            for way in program.stage_ranks.tolist()
            for stage, rank in enumerate(way)
        }
    paired = program.backward_stage != program.stage
    stages = np.concatenate((program.stage, program.backward_stage[paired])).astype(np.int64)
    ranks = np.concatenate((program.rank, program.rank[paired]))
    places, at = np.unique(stages * program.ranks + ranks, return_inverse=True)
    sums = np.zeros(len(places), dtype=np.int64)
    np.add.at(sums, at, np.concatenate((durations, durations[paired])))
    touched = {
        divmod(place, program.ranks): time
        for place, time in zip(places.tolist(), sums.tolist(), strict=True)
    }
    if overlap is ReductionOverlap.STAGES:
        return touched
    longest = int(durations.max())
    return {place: max(0, time - longest) for place, time in touched.items()}
