"""Where the time of a pipeline goes that is not work, per rank and by cause."""

from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.schedules.ideal import ClosedFormFailure, IdealUtilisation, judge_closed_form
from service.core.schedules.program import OpKind
from service.core.schedules.simulate import MAX_PICOSECONDS, bare_makespans
from service.core.schedules.stage_times import TIMES_OF_KIND, operation_kinds
from service.core.schedules.timeline import Timeline
from service.core.schedules.waits import rank_waits

__all__ = [
    "REPLAY_SEQUENCE",
    "Bubble",
    "Excess",
    "RankTime",
    "measure_bubble",
]

Int64Array = npt.NDArray[np.int64]

# The order in which causes are taken away; another order would share the time out differently.
REPLAY_SEQUENCE = ("contention", "transfer", "imbalance", "structural")


class RankTime(NamedTuple):
    """One rank's share of the makespan in picoseconds; the seven times sum to it exactly.

    `fill` is before its first operation and `drain` after its last. In between it is `busy` with
    operations, held by what it sends (`send`, in blocking mode), or waits: of a gap before an
    operation as much is `contention_wait` as the binding input queued for links (in link mode), of
    the rest as much `transfer_wait` as its transfer takes alone, and the rest `dependency_wait`.
    What operations take longer than alone, as what they exchange themselves queues for links, is
    `contention_wait` too.
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

    `contention`: less by this when nothing waits for a link. `transfer`: then less by this when
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
    makespan, ranks = timeline.makespan, timeline.program.ranks
    of_rank = timeline.busy.tolist()
    busy = sum(of_rank)
    first, last = timeline.first_start, timeline.last_end
    span = int((last - first).max())
    closed_form = judge_closed_form(timeline)
    ideal = Fraction(busy, ranks)
    return Bubble(
        makespan=makespan,
        span=span,
        ideal=ideal,
        idle_fraction=timeline.idle_fraction,
        span_idle_fraction=1 - busy / (span * ranks),
        overhead_ratio=(makespan * ranks - busy) / busy,
        excess=_excess(timeline, makespan, ideal),
        ranks=_rank_times(timeline, makespan, of_rank, first.tolist(), (makespan - last).tolist()),
        ideal_utilisation=closed_form if isinstance(closed_form, IdealUtilisation) else None,
        closed_form_fails=closed_form if isinstance(closed_form, ClosedFormFailure) else None,
    )


def _rank_times(
    timeline: Timeline, makespan: int, busy: list[int], fill: list[int], drain: list[int]
) -> tuple[RankTime, ...]:
    ranks = timeline.program.ranks
    waits = rank_waits(timeline)
    contention = waits.contention
    if timeline.links is not None and timeline.links.own:
        contention = contention + np.add.reduceat(
            timeline.exchange_waits, timeline.program.rank_offsets[:-1]
        )
    sends = [0] * ranks
    if timeline.transfers.holds_senders:
        sends = np.add.reduceat(timeline.holds, timeline.program.rank_offsets[:-1]).tolist()
    columns = (
        busy,
        fill,
        drain,
        waits.dependency.tolist(),
        waits.transfer.tolist(),
        sends,
        contention.tolist(),
        [own / makespan for own in busy],
    )
    return tuple(map(RankTime._make, zip(range(ranks), *columns, strict=True)))


def _excess(timeline: Timeline, makespan: int, ideal: Fraction) -> Excess:
    program = timeline.program
    means, scale = _means_of_kinds(timeline)
    try:
        bare, scaled = bare_makespans(program, timeline.durations, means)
    except InvalidInput as invalid:  # the times themselves were fine, so it is their scale
        raise InvalidInput([_too_long(program.stages)]) from invalid
    uncontended = makespan
    if timeline.transfers.links is not None:
        alone = timeline.transfers.without_contention()
        uncontended = int(alone.run(program, timeline.durations).makespan)
    balanced = Fraction(scaled, scale)
    return Excess(
        contention=Fraction(makespan - uncontended),
        transfer=Fraction(uncontended - bare),
        imbalance=bare - balanced,
        structural=balanced - ideal,
    )


def _means_of_kinds(timeline: Timeline) -> tuple[Int64Array, int]:
    """Every kind of a microbatch at its mean over the stages, in a unit that makes means whole.

    Returns the times, as `bare_makespans` takes them, and by how much they are too long.
    """
    program, times = timeline.program, timeline.times
    sums = {
        # In Python's integers: what is together too long is told below.
        name: [sum(column) for column in kind.T.tolist()]
        for name, kind in times.given.items()
    }
    common = gcd(program.stages, *(total for of_kind in sums.values() for total in of_kind))
    if max(max(of_kind) for of_kind in sums.values()) // common > MAX_PICOSECONDS:
        raise InvalidInput([_too_long(program.stages)])
    width = max(map(len, sums.values()))
    means = np.zeros((2, len(OpKind), width), dtype=np.int64)
    halves = times.forward_backward is None
    for kind in operation_kinds(program):
        if kind is OpKind.FORWARD_BACKWARD and halves:  # a pair takes what its two take
            means[0, kind] = [total // common for total in sums["forward"]]
            means[1, kind] = [total // common for total in sums["backward"]]
        else:
            means[0, kind] = [total // common for total in sums[TIMES_OF_KIND[kind]]]
    return means, program.stages // common


def _too_long(stages: int) -> Fault:
    detail = (
        f"means over the stages are exact in units of 1/{stages} ps, and in these no time may pass "
        f"{MAX_PICOSECONDS} (53 days / {stages}): give shorter times, fewer microbatches or fewer "
        "stages"
    )
    return Fault(FaultCode.OUT_OF_RANGE, ("costs", "stages"), detail)
