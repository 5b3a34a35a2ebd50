"""Where the time of a pipeline goes that is not work, per rank and by cause."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.schedules.ideal import ClosedFormFailure, IdealUtilisation, judge_closed_form
from service.core.schedules.simulate import MAX_PICOSECONDS, bare_makespans
from service.core.schedules.stage_times import StageTimes, operation_durations
from service.core.schedules.timeline import Timeline
from service.core.schedules.waits import rank_waits

__all__ = [
    "REPLAY_SEQUENCE",
    "Bubble",
    "Excess",
    "RankTime",
    "measure_bubble",
    "measure_bubbles",
]

Int64Array = npt.NDArray[np.int64]

# The order in which causes are taken away; another order would share the time out differently.
REPLAY_SEQUENCE = ("contention", "transfer", "imbalance", "structural")


@dataclass(frozen=True, slots=True)
class RankTime:
    """One rank's share of the makespan in picoseconds; the seven times sum to it exactly.

    `fill` is before its first operation and `drain` after its last. In between it is `busy` with
    operations, held by what it sends (`send`, in blocking mode), or waits: of a gap before an
    operation as much is `contention_wait` as the binding input queued for links (in link mode), of
    the rest as much `transfer_wait` as its transfer takes alone, and the rest `dependency_wait`.
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

    `contention`: less by this when no transfer waits for a link. `transfer`: then less by this when
    transfers take no time and hold no sender. `imbalance`: then less by this when every
    kind of operation takes its mean over the stages, for each microbatch its own (fused pairs too;
    where some stages run more of them than others, that changes the work a little). `structural`:
    what that replay still is above ideal, the cost of the order itself.
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
class Bubble:
    """Idle time of an iteration. Times are picoseconds.

    `span` is the longest time from a rank's own first start to its own last end. `ideal` is the
    time at which every rank would only work: the mean of what ranks do for all microbatches,
    recompute included. `idle_fraction` is the idle share of makespan x ranks, `span_idle_fraction`
    of span x ranks, and `overhead_ratio` is (makespan - ideal) / ideal. Of `ideal_utilisation`, by
    the schedule's closed form, and `closed_form_fails`, why that is not exact here, one is absent;
    both are where no form was published.
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
    closed_form_fails: ClosedFormFailure | None


def measure_bubble(timeline: Timeline) -> Bubble:
    """Measure idle time per rank and split the makespan's excess over ideal by cause.

    Two more simulations of the same order, three where links have queues. Definitions: waits as in
    Bubble's and RankTime's docstrings; causes go in `REPLAY_SEQUENCE`, and the sequence matters.
    """
    return measure_bubbles([timeline])[0]


def measure_bubbles(timelines: Sequence[Timeline]) -> list[Bubble]:
    """`measure_bubble` of timelines of one program, whose replays are simulated together."""
    excesses = _excesses(timelines)
    return [_bubble(one, excess) for one, excess in zip(timelines, excesses, strict=True)]


def _bubble(timeline: Timeline, excess: Excess) -> Bubble:
    makespan = timeline.makespan
    ranks = timeline.program.ranks
    of_rank = timeline.busy.tolist()
    busy = sum(of_rank)
    span = int((timeline.last_end - timeline.first_start).max())
    closed_form = judge_closed_form(timeline)
    ideal = Fraction(busy, ranks)
    return Bubble(
        makespan=makespan,
        span=span,
        ideal=ideal,
        idle_fraction=1 - busy / (makespan * ranks),
        span_idle_fraction=1 - busy / (span * ranks),
        overhead_ratio=float((makespan - ideal) / ideal),
        excess=excess,
        ranks=_rank_times(timeline, of_rank),
        ideal_utilisation=closed_form if isinstance(closed_form, IdealUtilisation) else None,
        closed_form_fails=closed_form if isinstance(closed_form, ClosedFormFailure) else None,
    )


def _ideal(timeline: Timeline) -> Fraction:
    return Fraction(sum(timeline.busy.tolist()), timeline.program.ranks)


def _rank_times(timeline: Timeline, busy: Sequence[int]) -> tuple[RankTime, ...]:
    waits = rank_waits(timeline)
    dependency_waits, transfer_waits, contention_waits = (
        times.tolist() for times in (waits.dependency, waits.transfer, waits.contention)
    )
    sends = [0] * timeline.program.ranks
    if timeline.transfers.holds_senders:
        sends = np.add.reduceat(timeline.holds, timeline.program.rank_offsets[:-1]).tolist()
    first, last = timeline.first_start.tolist(), timeline.last_end.tolist()
    makespan = timeline.makespan
    return tuple(
        RankTime(
            rank=r,
            busy=busy[r],
            fill=first[r],
            drain=makespan - last[r],
            dependency_wait=dependency_waits[r],
            transfer_wait=transfer_waits[r],
            send=sends[r],
            contention_wait=contention_waits[r],
            utilisation=busy[r] / makespan,
        )
        for r in range(timeline.program.ranks)
    )


def _excesses(timelines: Sequence[Timeline]) -> list[Excess]:
    program = timelines[0].program
    means = [_scaled_means(timeline) for timeline in timelines]
    replays = [timeline.durations for timeline in timelines]
    replays += [operation_durations(program, mean) for mean, _ in means]
    try:
        makespans = bare_makespans(program, np.stack(replays))
    except InvalidInput as invalid:  # the times themselves were fine, so it is their scale
        raise InvalidInput([_too_long(program.stages)]) from invalid
    without_transfers, balanced_runs = makespans[: len(means)], makespans[len(means) :]
    excesses = []
    for timeline, bare, scaled, (_, scale) in zip(
        timelines, without_transfers, balanced_runs, means, strict=True
    ):
        uncontended = timeline.makespan
        if timeline.transfers.links is not None:
            alone = timeline.transfers.without_contention()
            uncontended = int(alone.run(program, timeline.durations).makespan)
        balanced = Fraction(scaled, scale)
        excesses.append(
            Excess(
                contention=Fraction(timeline.makespan - uncontended),
                transfer=Fraction(uncontended - bare),
                imbalance=bare - balanced,
                structural=balanced - _ideal(timeline),
            )
        )
    return excesses


def _scaled_means(timeline: Timeline) -> tuple[StageTimes, int]:
    """Every kind of a microbatch at its mean over the stages, in a unit that makes means whole.

    Returns the times and by how much they are too long.
    """
    stages = timeline.program.stages
    sums = {
        # In Python's integers: what is together too long is told below.
        name: [sum(column) for column in kind.T.tolist()]
        for name, kind in timeline.times.given.items()
    }
    common = gcd(stages, *(total for of_kind in sums.values() for total in of_kind))
    if max(max(of_kind) for of_kind in sums.values()) // common > MAX_PICOSECONDS:
        raise InvalidInput([_too_long(stages)])
    means = {
        name: np.repeat(np.array([[total // common for total in of_kind]]), stages, axis=0)
        for name, of_kind in sums.items()
    }
    return StageTimes(**means), stages // common


def _too_long(stages: int) -> Fault:
    detail = (
        f"means over the stages are exact in units of 1/{stages} ps, and in these no time may pass "
        f"{MAX_PICOSECONDS} (53 days / {stages}): give shorter times, fewer microbatches or fewer "
        "stages"
    )
    return Fault(FaultCode.OUT_OF_RANGE, ("costs", "stages"), detail)
