"""The pace of a long iteration whose transfers queue on links, read off the simulation.

Queues are first in, first out, so there is no graph whose cycles would set the pace. But what is
simulated may come to repeat itself.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from service.core.schedules.build import with_microbatches
from service.core.schedules.no_steady import NoSteady, no_longer_program
from service.core.schedules.program import OpKind, Program
from service.core.schedules.simulate import Run
from service.core.schedules.stage_times import StageTimes, operation_durations
from service.core.schedules.transfers import Transfers

__all__ = ["LINK_VISITS", "MOST_SIMULATED_EVENTS", "simulated_paces"]

Int64Array = npt.NDArray[np.int64]

# Operations, messages and their turns on links in the longest iteration, which is run up to five
# times, as are the shorter ones before it; so many turns cost as much as an operation.
MOST_SIMULATED_EVENTS = 500_000
LINK_VISITS = 16

# What is simulated may repeat itself after several periods of the order: a chain of waits that
# comes round passes up to as many microbatches as are under way, and a lead has no fewer.
_FEWEST_PERIODS = 4

# Queues settle later than the order does, some of them much later: leads that are simulated before
# those looked at and the cool-down, from one attempt to the next.
_SETTLING_LEADS = (2, 14, 62)


def simulated_paces(
    program: Program,
    phases: Sequence[AbstractSet[OpKind]],
    period: int,
    lead: int,
    times: StageTimes,
    transfers: Transfers,
    repeat: int,
) -> tuple[Fraction, ...] | NoSteady:
    """Picoseconds that each phase adds for one more microbatch, or why they are not known.

    The order repeats itself every `period` microbatches and `times` and `transfers` every `repeat`,
    of which `period` is a multiple; warm-up and cool-down take at most `lead` microbatches. An
    iteration of four leads and 2n periods is simulated, n being the periods of a lead, four at
    least; and where that does not come to repeat itself one with 16 and one with 64 leads, up to
    `MOST_SIMULATED_EVENTS`. It is called periodic if for some p in 1..n

    - in the last lead and 2n periods before the cool-down, whatever operation it is, it starts as
      much later than the one of the same kind and stage p periods before as all others of its kind
      and stage do, and
    - p periods more make the iteration longer by as much as the slowest kind and stage of each
      phase is later, all phases together.

    The pace of a phase is that of its slowest kind and stage.
    """
    leads = -(-lead // period)
    visits = 0
    if transfers.links is not None:
        links = transfers.links.on(program, operation_durations(program, times))
        visits = links.turns(links.served)
    events = program.operations + len(program.inputs) + visits // LINK_VISITS
    reason = NoSteady.TOO_LARGE
    for settling in _SETTLING_LEADS:
        count = period * ((settling + 2) * leads + 2 * _most_periods(leads))
        if events * count > MOST_SIMULATED_EVENTS * program.microbatches:
            return reason
        paces = _paces(program, phases, period, leads, count, times, transfers, repeat)
        if not isinstance(paces, NoSteady):
            return paces
        reason = paces
    return reason


def _paces(
    program: Program,
    phases: Sequence[AbstractSet[OpKind]],
    period: int,
    leads: int,
    count: int,
    times: StageTimes,
    transfers: Transfers,
    repeat: int,
) -> tuple[Fraction, ...] | NoSteady:
    """What an iteration of `count` microbatches shows; `leads` are counted in periods."""
    long_program = with_microbatches(program, count)
    if long_program is None:
        return no_longer_program(program, count)
    run = _run(long_program, times, transfers, repeat)
    last = count - leads * period
    most = _most_periods(leads)
    window = np.arange(last - (leads + 2 * most) * period, last)
    starts = _starts(long_program, run)
    for periods in range(1, most + 1):
        later = [_later(starts, phase, window, periods * period) for phase in phases]
        if None in later:
            continue
        found = [time for time in later if time is not None]
        longer = with_microbatches(program, count + periods * period)
        if longer is None:
            return NoSteady.TOO_LARGE
        makespan = int(_run(longer, times, transfers, repeat).makespan)
        if makespan - int(run.makespan) == sum(found):
            return tuple(Fraction(time, periods * period) for time in found)
    return NoSteady.QUEUES_DO_NOT_REPEAT


def _most_periods(leads: int) -> int:
    return max(_FEWEST_PERIODS, leads)


def _run(program: Program, times: StageTimes, transfers: Transfers, repeat: int) -> Run:
    going_on = np.arange(program.microbatches) % repeat
    durations = operation_durations(program, times.at_microbatches(going_on))
    return transfers.at_microbatches(going_on).run(program, durations)


def _starts(program: Program, run: Run) -> Int64Array:
    """(kinds, stages, microbatches) when each operation starts (ps), -1 where there is none."""
    starts = np.full((len(OpKind), program.stages, program.microbatches), -1, dtype=np.int64)
    starts[program.kind, program.stage, program.microbatch] = run.start
    return starts


def _later(
    starts: Int64Array, phase: AbstractSet[OpKind], window: Int64Array, shift: int
) -> int | None:
    """How much later the slowest is `shift` microbatches on; None where they differ."""
    of_phase = starts[sorted(phase)]
    now, before = of_phase[..., window], of_phase[..., window - shift]
    if ((now < 0) != (before < 0)).any():
        return None
    # What is not run must not decide: zero is no more than what is.
    later = np.where(now < 0, 0, now - before)
    least = np.where(now < 0, np.iinfo(np.int64).max, later).min(axis=-1)
    most = later.max(axis=-1)
    if ((least != most) & (now >= 0).any(axis=-1)).any():
        return None
    return int(most.max())
