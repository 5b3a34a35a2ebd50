"""What another number of microbatches would do to a plan, everything else held fixed."""

from dataclasses import dataclass
from fractions import Fraction

from service.core.schedules.build import MAX_OPERATIONS, build_program, program_work
from service.core.schedules.timeline import Timeline, simulate_timeline

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
    down and left out when it is none; twice is left out when its program would be too large.
    """
    program = timeline.program
    counts = [program.microbatches]
    if program.microbatches // 2:
        counts.insert(0, program.microbatches // 2)
    twice_the_work = program_work(
        program.schedule,
        program.ranks,
        2 * program.microbatches,
        chunks_per_rank=program.chunks_per_rank,
        recompute=program.recompute,
        stage_edges=program.stage_edges,
    )
    if twice_the_work <= MAX_OPERATIONS:
        counts.append(2 * program.microbatches)
    return tuple(_effect(timeline, count) for count in counts)


def _effect(timeline: Timeline, microbatches: int) -> MicrobatchEffect:
    program = timeline.program
    if microbatches != program.microbatches:
        other = build_program(
            program.schedule,
            program.ranks,
            microbatches,
            chunks_per_rank=program.chunks_per_rank,
            recompute=program.recompute,
            stage_edges=program.stage_edges,
        )
        timeline = simulate_timeline(
            other, timeline.times, timeline.forward_latencies, timeline.backward_latencies
        )
    busy = sum(timeline.busy.tolist())
    return MicrobatchEffect(
        microbatches=microbatches,
        makespan=timeline.makespan,
        per_microbatch=Fraction(timeline.makespan, microbatches),
        idle_fraction=1 - busy / (timeline.makespan * program.ranks),
    )
