"""What another number of microbatches would do to a plan, everything else held fixed."""

from dataclasses import dataclass
from fractions import Fraction

from service.core.errors import InvalidInput
from service.core.schedules.build import with_microbatches
from service.core.schedules.timeline import Timeline, simulate_transfers

__all__ = ["MicrobatchEffect", "effects_of_microbatches"]


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
    microbatches = timeline.program.microbatches
    effects = []
    for count in (microbatches // 2, microbatches, 2 * microbatches):
        of_count = _with_microbatches(timeline, count)
        if of_count is not None:
            effects.append(_effect(of_count))
    return tuple(effects)


def _with_microbatches(timeline: Timeline, microbatches: int) -> Timeline | None:
    if microbatches == timeline.program.microbatches:
        return timeline
    other = with_microbatches(timeline.program, microbatches) if microbatches else None
    if other is None:
        return None
    try:
        return simulate_transfers(other, timeline.times, timeline.transfers)
    except InvalidInput:  # the plan itself was fine, so it is the count that adds up to too much
        return None


def _effect(timeline: Timeline) -> MicrobatchEffect:
    program = timeline.program
    busy = sum(timeline.busy.tolist())
    return MicrobatchEffect(
        microbatches=program.microbatches,
        makespan=timeline.makespan,
        per_microbatch=Fraction(timeline.makespan, program.microbatches),
        idle_fraction=1 - busy / (timeline.makespan * program.ranks),
    )
