"""What another number of microbatches would do to a plan, everything else held fixed."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from service.core.errors import InvalidInput
from service.core.schedules.build import with_microbatches
from service.core.schedules.timeline import Timeline, simulate_together

__all__ = ["MicrobatchEffect", "effects_of_all", "effects_of_microbatches"]


@dataclass(frozen=True, slots=True)
class MicrobatchEffect:
    """The same stages, order and transfers with this many microbatches of the same size."""

    microbatches: int
    makespan: int  # ps
    per_microbatch: Fraction  # ps, makespan / microbatches
    idle_fraction: float


def effects_of_microbatches(timeline: Timeline) -> tuple[MicrobatchEffect, ...]:
    """Predictions at half, the same and twice as many microbatches, ascending.

    The microbatch size is held fixed, so the global batch changes with the count. Half is rounded
    down. A count that the schedule refuses is left out, and one whose program would be too large or
    whose times would be too long.
    """
    return effects_of_all([timeline])[0]


def effects_of_all(timelines: Sequence[Timeline]) -> list[tuple[MicrobatchEffect, ...]]:
    """`effects_of_microbatches` of timelines of one program, which are simulated together."""
    microbatches = timelines[0].program.microbatches
    of_count = [
        _with_microbatches(timelines, count)
        for count in (microbatches // 2, microbatches, 2 * microbatches)
    ]
    return [
        tuple(_effect(found) for found in found_at_each if found is not None)
        for found_at_each in zip(*of_count, strict=True)
    ]


def _with_microbatches(
    timelines: Sequence[Timeline], microbatches: int
) -> Sequence[Timeline | None]:
    program = timelines[0].program
    if microbatches == program.microbatches:
        return timelines
    other = with_microbatches(program, microbatches) if microbatches else None
    if other is None:
        return [None] * len(timelines)
    try:
        return simulate_together(other, [(one.times, one.transfers) for one in timelines])
    except InvalidInput:  # the plan itself was fine, so it is the count that adds up to too much
        if len(timelines) == 1:
            return [None]
        return [found for one in timelines for found in _with_microbatches([one], microbatches)]


def _effect(timeline: Timeline) -> MicrobatchEffect:
    program, makespan = timeline.program, timeline.makespan
    return MicrobatchEffect(
        microbatches=program.microbatches,
        makespan=makespan,
        per_microbatch=Fraction(makespan, program.microbatches),
        idle_fraction=timeline.idle_fraction,
    )
