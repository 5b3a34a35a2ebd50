"""Where the time of a pipeline goes that is not work, per rank and by cause."""

from dataclasses import dataclass
from fractions import Fraction
from math import gcd

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.schedules.build import chain
from service.core.schedules.catalogue import SCHEDULES
from service.core.schedules.program import RecomputeMode
from service.core.schedules.simulate import MAX_PICOSECONDS, simulate
from service.core.schedules.stage_times import StageTimes, operation_durations, operation_kinds
from service.core.schedules.timeline import Timeline

__all__ = ["REPLAY_SEQUENCE", "Bubble", "Excess", "IdealUtilisation", "RankTime", "measure_bubble"]

Int64Array = npt.NDArray[np.int64]

# The order in which causes are taken away; another order would share the time out differently.
REPLAY_SEQUENCE = ("contention", "transfer", "imbalance", "structural")


@dataclass(frozen=True, slots=True)
class RankTime:
    """One rank's share of the makespan in picoseconds; the seven times sum to it exactly.

    `fill` is before its first operation and `drain` after its last. A gap between two operations is
    `transfer_wait` as far as the latency of the binding input reaches and `dependency_wait` before.
    `send` and `contention_wait` are zero: in latency mode transfers hold no rank and no link.
    """

    rank: int
    busy: int
    fill: int
    drain: int
    dependency_wait: int
    transfer_wait: int
    send: int
    contention_wait: int
    utilisation: float


@dataclass(frozen=True, slots=True)
class Excess:
    """Makespan - ideal, split by replays in `REPLAY_SEQUENCE`; signed picoseconds, exact.

    `transfer`: less by this when transfers take no time. `imbalance`: then less by this when every
    kind of operation takes its mean over the stages. `structural`: what that replay still is above
    ideal, the cost of the order itself.
    """

    contention: Fraction
    transfer: Fraction
    imbalance: Fraction
    structural: Fraction

    @property
    def total(self) -> Fraction:
        """All causes together: makespan - ideal."""
        return self.contention + self.transfer + self.imbalance + self.structural


@dataclass(frozen=True, slots=True)
class IdealUtilisation:
    """Utilisation by the schedule's closed form, where its conditions are met."""

    utilisation: float
    makespan: int  # ps
    formula: str
    conditions: str


@dataclass(frozen=True, slots=True)
class Bubble:
    """Idle time of an iteration. Times are picoseconds.

    `span` is the longest time from a rank's own first start to its own last end. `ideal` is the
    time at which every rank would only work: microbatches x mean work of a rank, recompute
    included. `idle_fraction` is the idle share of makespan x ranks, `span_idle_fraction` of
    span x ranks, and `overhead_ratio` is (makespan - ideal) / ideal.
    """

    makespan: int
    span: int
    ideal: Fraction
    idle_fraction: float
    span_idle_fraction: float
    overhead_ratio: float
    excess: Excess
    ranks: tuple[RankTime, ...]
    ideal_utilisation: IdealUtilisation | None


def measure_bubble(timeline: Timeline) -> Bubble:
    """Measure idle time per rank and split the makespan's excess over ideal by cause.

    Two more simulations of the same order. Definitions: waits as in Bubble's and RankTime's
    docstrings; transfers first, then imbalance, and the sequence matters.
    """
    makespan = timeline.makespan
    ranks = timeline.program.ranks
    busy = sum(timeline.busy.tolist())
    span = int((timeline.last_end - timeline.first_start).max())
    ideal = Fraction(busy, ranks)
    return Bubble(
        makespan=makespan,
        span=span,
        ideal=ideal,
        idle_fraction=1 - busy / (makespan * ranks),
        span_idle_fraction=1 - busy / (span * ranks),
        overhead_ratio=float((makespan - ideal) / ideal),
        excess=_excess(timeline, ideal),
        ranks=_rank_times(timeline),
        ideal_utilisation=_ideal_utilisation(timeline),
    )


def _rank_times(timeline: Timeline) -> tuple[RankTime, ...]:
    program, run = timeline.program, timeline.run
    starts = program.rank_offsets[:-1]
    gap = np.empty_like(run.start)
    gap[1:] = run.start[1:] - run.end[:-1]
    gap[starts] = 0  # what is before a rank's first operation is fill
    bound = run.binding >= 0
    transfer = np.zeros_like(gap)
    transfer[bound] = np.minimum(gap[bound], timeline.latencies[run.binding[bound]])
    gaps = np.add.reduceat(gap, starts).tolist()
    transfer_waits = np.add.reduceat(transfer, starts).tolist()
    busy = timeline.busy.tolist()
    first, last = timeline.first_start.tolist(), timeline.last_end.tolist()
    makespan = timeline.makespan
    return tuple(
        RankTime(
            rank=r,
            busy=busy[r],
            fill=first[r],
            drain=makespan - last[r],
            dependency_wait=gaps[r] - transfer_waits[r],
            transfer_wait=transfer_waits[r],
            send=0,
            contention_wait=0,
            utilisation=busy[r] / makespan,
        )
        for r in range(program.ranks)
    )


def _excess(timeline: Timeline, ideal: Fraction) -> Excess:
    program = timeline.program
    no_latency = np.zeros(len(program.inputs), dtype=np.int64)
    without_transfers = int(simulate(program, timeline.durations, no_latency).makespan)
    mean_times, scale = _scaled_means(timeline)
    balanced_run = simulate(program, operation_durations(program, mean_times), no_latency)
    balanced = Fraction(int(balanced_run.makespan), scale)
    return Excess(
        contention=Fraction(0),
        transfer=Fraction(timeline.makespan - without_transfers),
        imbalance=without_transfers - balanced,
        structural=balanced - ideal,
    )


def _scaled_means(timeline: Timeline) -> tuple[StageTimes, int]:
    """Every kind at its mean over the stages, in a unit that makes the means whole.

    Returns the times and by how much they are too long.
    """
    stages = timeline.program.stages
    times = timeline.times
    sums = [sum(kind.tolist()) for kind in (times.forward, times.backward, times.recompute)]
    common = gcd(stages, *sums)
    if max(sums) // common > MAX_PICOSECONDS:
        detail = "the times of all stages together pass 53 days: give shorter times"
        raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, ("costs", "stages"), detail)])
    return StageTimes.of(*([total // common] * stages for total in sums)), stages // common


def _ideal_utilisation(timeline: Timeline) -> IdealUtilisation | None:
    """The closed form where it is exact: see `ClosedForm.conditions`."""
    program = timeline.program
    family = SCHEDULES.get(program.schedule)
    if family is None or family.closed_form is None or program.chunks_per_rank != 1:
        return None
    equal = all(
        (timeline.times.of_kind(kind) == timeline.times.of_kind(kind)[0]).all()
        for kind in operation_kinds(program)
    )
    chained = set(chain(program.stages)) <= set(program.stage_edges)
    early = program.recompute is RecomputeMode.BEFORE_GRADIENT and bool(
        timeline.times.recompute.any() and family.has_backward
    )
    if not equal or not chained or early or timeline.latencies.any():
        return None
    work = int(timeline.stage_work[0])
    makespan = family.closed_form.makespan(program.ranks, program.microbatches, work)
    return IdealUtilisation(
        utilisation=program.microbatches * work / makespan,
        makespan=makespan,
        formula=family.closed_form.name,
        conditions=family.closed_form.conditions,
    )
