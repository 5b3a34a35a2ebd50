"""When collectives are done that begin at different times and share links.

Those of one queue follow each other: the ranks of a group run one after another. Those of different
queues that take up a common capacity share it fairly, each at the same rate for a byte of its
message (max-min fair, as congestion control aims at).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode, WorkBudgetExceeded
from service.core.topology.flows.fair_sharing import fair_rates
from service.core.units import PICOSECONDS_PER_SECOND

__all__ = ["MAX_SHARING_WORK", "Job", "Span", "alone_picoseconds", "run_jobs", "sharing_work"]

Int64Array = npt.NDArray[np.int64]

# Capacities looked at in all changes of rates together: a second or two.
MAX_SHARING_WORK = 20_000_000

# Picoseconds by which a float may miss a whole number of them.
_ROUNDING = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """One collective of a queue: from `ready` on, after those before it in its queue.

    It first waits `latency_picoseconds`, then moves `message_bytes`, each of which takes up the
    capacities of `seconds_per_byte` for so long.
    """

    queue: int
    ready: int
    message_bytes: int
    seconds_per_byte: Mapping[str, Fraction]
    latency_picoseconds: int

    @property
    def alone_picoseconds(self) -> int:
        """What it takes where nothing else is on its links, rounded up."""
        return alone_picoseconds(
            self.message_bytes, self.seconds_per_byte, self.latency_picoseconds
        )


def alone_picoseconds(
    message_bytes: int, seconds_per_byte: Mapping[str, Fraction], latency_picoseconds: int
) -> int:
    """A latency and what the capacity that is taken up longest needs for the bytes, rounded up."""
    slowest = max(seconds_per_byte.values(), default=Fraction(0))
    return latency_picoseconds + ceil(message_bytes * slowest * PICOSECONDS_PER_SECOND)


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when one job runs, in picoseconds."""

    start: int
    end: int


def run_jobs(jobs: Sequence[Job]) -> list[Span]:
    """The span of each job; those of a queue run in the order of `ready`, then as they stand here.

    No job takes less than alone. Raises `WorkBudgetExceeded` for more than `MAX_SHARING_WORK`.
    """
    if sharing_work(jobs) > MAX_SHARING_WORK:
        detail = (
            "the reductions of gradients share links in too many turns to be followed: larger "
            "buckets, or fewer stages on the same links"
        )
        raise WorkBudgetExceeded([Fault(FaultCode.WORK_BUDGET, ("training",), detail)])
    spans: dict[int, Span] = {}
    for queues in _sharing(jobs):
        if len(queues) == 1:
            spans |= _one_by_one(jobs, queues[0])
        else:
            spans |= _fairly(jobs, queues)
    return [spans[number] for number in range(len(jobs))]


def sharing_work(jobs: Sequence[Job]) -> int:
    """Capacities that are looked at, at most, each at every change of who is under way."""
    return sum(
        4
        * sum(len(queue) for queue in queues)
        * sum(max(len(jobs[number].seconds_per_byte) for number in queue) for queue in queues)
        for queues in _sharing(jobs)
        if len(queues) > 1
    )


def _sharing(jobs: Sequence[Job]) -> list[list[list[int]]]:
    """Queues (the jobs of each in turn) in sets that have no capacity in common."""
    queues: dict[int, list[int]] = {}
    for number, job in enumerate(jobs):
        queues.setdefault(job.queue, []).append(number)
    first: dict[str, int] = {}
    leader = {queue: queue for queue in queues}

    def find(queue: int) -> int:
        while leader[queue] != queue:
            leader[queue] = leader[leader[queue]]
            queue = leader[queue]
        return queue

    for queue, numbers in queues.items():
        for resource in _capacities(jobs[number] for number in numbers):
            leader[find(queue)] = find(first.setdefault(resource, queue))
    sets: dict[int, list[list[int]]] = {}
    for queue, numbers in queues.items():
        in_turn = sorted(numbers, key=lambda number: jobs[number].ready)
        sets.setdefault(find(queue), []).append(in_turn)
    return list(sets.values())


def _capacities(jobs: Iterable[Job]) -> Iterable[str]:
    # Buckets of a stage share one mapping, which is looked at once.
    mappings = {id(job.seconds_per_byte): job.seconds_per_byte for job in jobs}
    return dict.fromkeys(resource for one in mappings.values() for resource in one)


def _one_by_one(jobs: Sequence[Job], queue: Sequence[int]) -> dict[int, Span]:
    spans = {}
    free = 0
    for number in queue:
        start = max(free, jobs[number].ready)
        free = start + jobs[number].alone_picoseconds
        spans[number] = Span(start, free)
    return spans


class _Rates:
    """The fair rates of those that are under way, in bytes a picosecond."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._numbers: dict[str, int] = {}
        self._entries: dict[int, tuple[Int64Array, npt.NDArray[np.float64]]] = {}
        self._jobs = jobs

    def of(self, under_way: Sequence[int]) -> list[float]:
        """By job, in order."""
        entries = [self._of(number) for number in under_way]
        flow = np.repeat(np.arange(len(entries)), [len(taken) for taken, _ in entries])
        resource = np.concatenate([taken for taken, _ in entries]).astype(np.int32)
        seconds = np.concatenate([seconds for _, seconds in entries])
        rates, _ = fair_rates(flow, resource, seconds, np.ones(len(entries), dtype=np.bool_))
        return [float(rate) / PICOSECONDS_PER_SECOND for rate in rates]

    def _of(self, number: int) -> tuple[Int64Array, npt.NDArray[np.float64]]:
        per_byte = self._jobs[number].seconds_per_byte
        if id(per_byte) not in self._entries:
            taken = [self._numbers.setdefault(one, len(self._numbers)) for one in per_byte]
            seconds = np.array([float(one) for one in per_byte.values()])
            self._entries[id(per_byte)] = np.array(taken, dtype=np.int64), seconds
        return self._entries[id(per_byte)]


def _fairly(jobs: Sequence[Job], queues: Sequence[Sequence[int]]) -> dict[int, Span]:
    """Followed from change to change; time is whole picoseconds, rounded up at each."""
    rates = _Rates(jobs)
    waiting = [list(reversed(queue)) for queue in queues]
    starts: dict[int, int] = {}
    spans: dict[int, Span] = {}
    left: dict[int, float] = {}  # bytes, of those that are past their latency
    heads: dict[int, int] = {}  # queue -> the job that runs
    now = 0
    while True:
        for place, queue in enumerate(waiting):
            if place not in heads and queue and jobs[queue[-1]].ready <= now:
                heads[place] = queue.pop()
                starts[heads[place]] = now
        for number in heads.values():
            past = now >= starts[number] + jobs[number].latency_picoseconds
            if number not in left and past:
                left[number] = float(
                    jobs[number].message_bytes * bool(jobs[number].seconds_per_byte)
                )
        moving = [number for number in heads.values() if left.get(number, 0.0) > 0]
        moved = {place: n for place, n in heads.items() if left.get(n) == 0.0}
        # Rounding may have a job moved a picosecond before its exact time alone is over.
        ends = {place: starts[n] + jobs[n].alone_picoseconds for place, n in moved.items()}
        done = [place for place, end in ends.items() if end <= now]
        if done:
            spans |= {moved[place]: Span(starts[moved[place]], now) for place in done}
            heads = {place: n for place, n in heads.items() if place not in done}
            continue
        events = list(ends.values())
        events += [
            starts[number] + jobs[number].latency_picoseconds
            for number in heads.values()
            if number not in left
        ]
        events += [
            jobs[queue[-1]].ready
            for place, queue in enumerate(waiting)
            if place not in heads and queue
        ]
        speed = rates.of(moving) if moving else []
        events += [
            now + max(1, ceil(left[n] / rate - _ROUNDING))
            for n, rate in zip(moving, speed, strict=True)
        ]
        if not events:
            return spans
        step = min(events) - now
        for number, rate in zip(moving, speed, strict=True):
            rest = left[number] - rate * step
            # What is less than a picosecond's worth is rounding, not bytes.
            left[number] = rest if rest > rate else 0.0
        now += step
