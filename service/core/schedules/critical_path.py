"""The chain of operations, transfers and queues that sets the makespan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import numpy.typing as npt

from service.core.schedules.explain_kernels import add_up, follow_back
from service.core.schedules.link_use import LinkService, service_of
from service.core.schedules.program import OpKind
from service.core.schedules.simulate import last_sends
from service.core.schedules.stage_times import input_ways, operation_groups
from service.core.schedules.timeline import Timeline

__all__ = [
    "CriticalPath",
    "PathOperation",
    "PathOperations",
    "PathQueue",
    "PathTransfer",
    "find_critical_path",
    "totals",
]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PathQueue:
    """A stretch of the path in which another transfer held a link that was waited for.

    `input` is an index into the program's inputs, `edge` one into its stage edges.
    """

    link: int
    input: int
    edge: int
    gradient: bool
    start: int  # ps
    end: int  # ps


@dataclass(frozen=True, slots=True)
class PathTransfer:
    """A transfer on the path; `input` and `edge` are indices into the program's.

    `latency` is what it took on the path (ps): from its producer's end to its arrival, or from when
    the link on which it was last had served what was `ahead` of it there, in sequence. The path
    goes on from the producer of the first of these. `holds_sender` says that the next operation is
    the sender's own, which was held until the value had arrived.
    """

    input: int
    edge: int
    gradient: bool  # it goes back along the edge
    latency: int  # ps
    ahead: tuple[PathQueue, ...] = ()
    holds_sender: bool = False


@dataclass(frozen=True, slots=True)
class PathOperation:
    """An operation on the path, and the transfer that it waited for, if any.

    A fused pair stands there with the stage and microbatch of its forward.
    """

    operation: int
    stage: int
    kind: OpKind
    microbatch: int
    start: int  # ps
    end: int  # ps
    after: PathTransfer | None


@dataclass(frozen=True, slots=True, eq=False)
class PathOperations(Sequence[PathOperation]):
    """The operations of a path from time 0, kept as columns: each is made when it is asked for.

    `operation` are their ids; `crossed` is the input that each waited for, or by which its rank was
    held, -1 for none; `latency` what that took on the path (ps), and `ahead`, by place on the path,
    what was served before it.
    """

    timeline: Timeline
    operation: Int64Array
    crossed: Int64Array
    latency: Int64Array
    ahead: Mapping[int, tuple[PathQueue, ...]]

    def __len__(self) -> int:
        """How many there are."""
        return len(self.operation)

    @overload
    def __getitem__(self, place: int) -> PathOperation: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[PathOperation, ...]: ...
    def __getitem__(self, place: int | slice) -> PathOperation | tuple[PathOperation, ...]:
        """One of them, or those of a slice."""
        places = range(len(self))[place]
        return self._at(places) if isinstance(places, int) else tuple(map(self._at, places))

    def __eq__(self, other: object) -> bool:
        """Whether all steps are alike, whatever program they are of."""
        return isinstance(other, PathOperations) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        """That of the steps."""
        return hash(tuple(self))

    def _at(self, place: int) -> PathOperation:
        program, run = self.timeline.program, self.timeline.run
        operation, crossed = int(self.operation[place]), int(self.crossed[place])
        after = None
        if crossed >= 0:
            after = PathTransfer(
                input=crossed,
                edge=int(program.input_edges[crossed]),
                gradient=bool(program.input_gradient[crossed]),
                latency=int(self.latency[place]),
                ahead=self.ahead.get(place, ()),
                holds_sender=int(run.binding[operation]) < 0,
            )
        return PathOperation(
            operation=operation,
            stage=int(program.stage[operation]),
            kind=OpKind(program.kind[operation]),
            microbatch=int(program.microbatch[operation]),
            start=int(run.start[operation]),
            end=int(run.end[operation]),
            after=after,
        )


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """From time 0 to the makespan without a gap; picoseconds that sum to the makespan exactly.

    `by_transfer` is keyed by (edge index, gradient or not). `by_queue` has, by link, how long other
    transfers held it on the path.
    """

    operations: PathOperations
    by_stage: tuple[int, ...]
    by_kind: Mapping[OpKind, int]
    by_transfer: Mapping[tuple[int, bool], int]
    by_queue: Mapping[int, int]

    @property
    def transfer(self) -> int:
        """All transfers on the path, ps."""
        return sum(self.by_transfer.values())

    @property
    def queue(self) -> int:
        """All queueing on the path, ps."""
        return sum(self.by_queue.values())


def find_critical_path(timeline: Timeline) -> CriticalPath:
    """Follow, from the operation that ends last, what each operation waited for.

    Of several that end last the lowest rank's is taken. Other chains of the same length may exist.
    Where a transfer queued, the path goes over the transfers that the link served before it, back
    to one that found the link free.
    """
    program = timeline.program
    path = _path(timeline) if timeline.run.queues is None else _path_over_links(timeline)

    groups = operation_groups(program)[path.operation]
    counts, sums = totals(groups, timeline.durations[path.operation], program.stages * len(OpKind))
    counts, sums = (of.reshape(program.stages, len(OpKind)) for of in (counts, sums))
    of_kind = sums.sum(axis=0).tolist()
    there = np.flatnonzero(path.crossed >= 0)
    ways, way_sums = totals(
        input_ways(program)[path.crossed[there]], path.latency[there], 2 * len(program.stage_edges)
    )
    by_queue: dict[int, int] = {}
    for queues in path.ahead.values():
        for ahead in queues:
            by_queue[ahead.link] = by_queue.get(ahead.link, 0) + ahead.end - ahead.start
    return CriticalPath(
        path,
        tuple(sums.sum(axis=1).tolist()),
        {OpKind(kind): of_kind[kind] for kind in np.flatnonzero(counts.any(axis=0)).tolist()},
        {(way // 2, way % 2 > 0): int(way_sums[way]) for way in np.flatnonzero(ways).tolist()},
        by_queue,
    )


def totals(groups: Int64Array, times: Int64Array, count: int) -> tuple[Int64Array, Int64Array]:
    """(count,) how many there are of each group, and (count,) their times together."""
    counts, sums = np.zeros((2, count), dtype=np.int64)
    add_up(groups, times, counts, sums)
    return counts, sums


def _path(timeline: Timeline) -> PathOperations:
    program, run, latencies = timeline.program, timeline.run, timeline.latencies
    sends = np.zeros(0, dtype=np.int64)
    if timeline.transfers.holds_senders:
        _, sends = last_sends(program, latencies)
    operations, crossed = np.empty((2, program.operations), dtype=np.int64)
    steps = follow_back(
        int(run.end.argmax()),
        program.rank_offsets,
        program.rank,
        program.inputs,
        run.binding,
        sends,
        latencies,
        operations,
        crossed,
    )
    # Copied, so that no path keeps what is as long as the program.
    operations, crossed = operations[:steps][::-1].copy(), crossed[:steps][::-1].copy()
    latency = np.zeros(steps, dtype=np.int64)
    there = crossed >= 0
    latency[there] = latencies[crossed[there]]
    return PathOperations(timeline, operations, crossed, latency, {})


def _path_over_links(timeline: Timeline) -> PathOperations:
    program, run = timeline.program, timeline.run
    follow = _Follow(timeline)
    rank_starts = frozenset(program.rank_offsets.tolist())
    operation = int(run.end.argmax())
    steps: list[tuple[int, int, int]] = []
    queued: list[tuple[PathQueue, ...]] = []
    while operation >= 0:
        # Single items by `item`: a path is long, and indexing makes a numpy number of each.
        binding = run.binding.item(operation)
        latency, ahead = follow.transfer(binding) if binding >= 0 else (0, ())
        steps.append((operation, binding, latency))
        queued.append(ahead)
        if binding >= 0:
            operation = program.inputs.item(ahead[0].input if ahead else binding)
        else:
            operation = -1 if operation in rank_starts else operation - 1
    operations, crossed, latencies = np.array(steps[::-1], dtype=np.int64).T
    ahead_of = {place: ahead for place, ahead in enumerate(reversed(queued)) if ahead}
    return PathOperations(timeline, operations, crossed, latencies, ahead_of)


class _Follow:
    """What a transfer that queued took, and what was served before it."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self._served: dict[int, LinkService] = {}

    def transfer(self, binding: int) -> tuple[int, tuple[PathQueue, ...]]:
        """Its time on the path (ps), and what the link served just before it, in sequence."""
        timeline, queues = self.timeline, self.timeline.run.queues
        arrival = timeline.arrival_of(binding)
        if queues is None or queues.behind[binding] < 0:
            return arrival - timeline.run.end.item(timeline.program.inputs[binding]), ()
        link = int(queues.bound_link[binding])
        if link not in self._served:
            self._served[link] = service_of(timeline, link)
        served = self._served[link]
        place = served.place(binding)
        latency = arrival - int(served.start[place])
        ahead = []
        while served.start[place] > served.ready[place]:
            place -= 1
            ahead.append(self._queue(link, served, place))
        return latency, tuple(reversed(ahead))

    def _queue(self, link: int, served: LinkService, place: int) -> PathQueue:
        program, number = self.timeline.program, int(served.input[place])
        return PathQueue(
            link=link,
            input=number,
            edge=int(program.input_edges[number]),
            gradient=bool(program.input_gradient[number]),
            start=int(served.start[place]),
            end=int(served.end[place]),
        )
