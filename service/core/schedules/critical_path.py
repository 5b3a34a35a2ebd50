"""The chain of operations, transfers and queues that sets the makespan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt

from service.core.schedules.explain_kernels import add_up_path, follow_back
from service.core.schedules.link_use import LinkService, service_of
from service.core.schedules.program import OpKind
from service.core.schedules.simulate import last_sends
from service.core.schedules.stage_times import input_ways, operation_groups
from service.core.schedules.timeline import Timeline

__all__ = [
    "CriticalPath",
    "LinkShare",
    "PathExchange",
    "PathOperation",
    "PathOperations",
    "PathQueue",
    "PathTransfer",
    "find_critical_path",
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
    goes on from the producer of the first of these. `link` is the one on which it was last, None
    where it occupied none. `holds_sender` says that the next operation is
    the sender's own, which was held until the value had arrived.
    """

    input: int
    edge: int
    gradient: bool  # it goes back along the edge
    latency: int  # ps
    link: int | None = None
    ahead: tuple[PathQueue, ...] = ()
    holds_sender: bool = False


@dataclass(frozen=True, slots=True)
class PathExchange:
    """What an operation exchanged itself was last on `link`, and `waited` so long for it (ps)."""

    link: int
    waited: int


@dataclass(frozen=True, slots=True)
class PathOperation:
    """An operation on the path, and the transfer that it waited for, if any.

    A fused pair stands there with the stage and microbatch of its forward. Where it took longer
    than alone, as its own `exchange` waited for a link, that wait is its last part.
    """

    operation: int
    stage: int
    kind: OpKind
    microbatch: int
    start: int  # ps
    end: int  # ps
    after: PathTransfer | None
    exchange: PathExchange | None = None


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
            link = -1 if run.queues is None else int(run.queues.bound_link[crossed])
            after = PathTransfer(
                input=crossed,
                edge=int(program.input_edges[crossed]),
                gradient=bool(program.input_gradient[crossed]),
                latency=int(self.latency[place]),
                link=None if link < 0 else link,
                ahead=self.ahead.get(place, ()),
                holds_sender=int(run.binding[operation]) < 0,
            )
        exchange = None
        waited = self.timeline.exchange_wait(operation)
        if waited and run.queues is not None:
            own = int(run.queues.bound_link[len(program.inputs) + operation])
            exchange = PathExchange(own, waited)
        return PathOperation(
            operation=operation,
            stage=int(program.stage[operation]),
            kind=OpKind(program.kind[operation]),
            microbatch=int(program.microbatch[operation]),
            start=int(run.start[operation]),
            end=int(run.end[operation]),
            after=after,
            exchange=exchange,
        )


class LinkShare(NamedTuple):
    """What one link does to the path, in picoseconds.

    `occupied` by the path's own transfers that were on it last, and `queued` for others, which it
    served before these, or while operations of the path waited to exchange something over it.
    """

    occupied: int
    queued: int


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """From time 0 to the makespan without a gap; picoseconds that sum to the makespan exactly.

    `by_transfer` is keyed by (edge index, gradient or not). `by_link` is empty but where links have
    queues: what is `occupied` there is a part of `by_transfer`, the rest of which is latency and
    the time of transfers that occupy no link; what is `queued` stands beside it. `by_group` is
    (2, stages, kinds) and `by_way` (2, ways): how many of each there are on the path, and how long
    they take on it.
    """

    operations: PathOperations
    by_group: Int64Array = field(compare=False)
    by_way: Int64Array = field(compare=False)
    by_stage: tuple[int, ...]
    by_kind: Mapping[OpKind, int]
    by_transfer: Mapping[tuple[int, bool], int]
    by_link: Mapping[int, LinkShare]

    @property
    def transfer(self) -> int:
        """All transfers on the path, ps."""
        return sum(self.by_transfer.values())

    @property
    def queue(self) -> int:
        """All queueing on the path, ps."""
        return sum(share.queued for share in self.by_link.values())

    @property
    def off_links(self) -> int:
        """All of the transfers on the path in which no link was occupied, ps."""
        return self.transfer - sum(share.occupied for share in self.by_link.values())


def find_critical_path(timeline: Timeline) -> CriticalPath:
    """Follow, from the operation that ends last, what each operation waited for.

    Of several that end last the lowest rank's is taken. Other chains of the same length may exist.
    Where a transfer queued, the path goes over the transfers that the link served before it, back
    to one that found the link free.
    """
    program = timeline.program
    path = _path(timeline) if timeline.run.queues is None else _path_over_links(timeline)

    by_group = np.zeros((2, program.stages, len(OpKind)), dtype=np.int64)
    by_way = np.zeros((2, 2 * len(program.stage_edges)), dtype=np.int64)
    by_stage = np.zeros(program.stages, dtype=np.int64)
    by_kind = np.zeros((2, len(OpKind)), dtype=np.int64)
    add_up_path(
        path.operation,
        path.crossed,
        path.latency,
        timeline.durations,
        operation_groups(program),
        input_ways(program),
        by_group,
        by_way,
        by_stage,
        by_kind,
    )
    return CriticalPath(
        path,
        by_group,
        by_way,
        tuple(by_stage.tolist()),
        {kind: time for kind, count, time in zip(OpKind, *by_kind.tolist(), strict=True) if count},
        {
            (way // 2, way % 2 > 0): time
            for way, (count, time) in enumerate(zip(*by_way.tolist(), strict=True))
            if count
        },
        _by_link(timeline, path),
    )


def _path(timeline: Timeline) -> PathOperations:
    program, run, latencies = timeline.program, timeline.run, timeline.latencies
    sends = np.zeros(0, dtype=np.int64)
    if timeline.transfers.holds_senders:
        _, sends = last_sends(program, latencies)
    steps = np.empty((3, program.operations), dtype=np.int64)
    count = follow_back(
        _last_operation(timeline),
        program.rank_offsets,
        program.rank,
        program.inputs,
        run.binding,
        sends,
        latencies,
        steps,
    )
    # Copied, so that no path keeps what is as long as the program.
    operations, crossed, latency = steps[:, program.operations - count :].copy()
    return PathOperations(timeline, operations, crossed, latency, {})


def _last_operation(timeline: Timeline) -> int:
    """The one that ends last; of several the first of the lowest rank."""
    end, offsets = timeline.run.end, timeline.program.rank_offsets
    last = end[offsets[1:] - 1]
    rank = int(last.argmax())
    # Ends of a rank ascend, and only operations that take no time share one.
    first, stop = offsets[rank : rank + 2].tolist()
    return int(first + end[first:stop].searchsorted(last[rank]))


def _path_over_links(timeline: Timeline) -> PathOperations:
    program, run = timeline.program, timeline.run
    follow = _Follow(timeline)
    rank_starts = frozenset(program.rank_offsets.tolist())
    operation = _last_operation(timeline)
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
    operations, crossed, latencies = np.array(list(zip(*steps[::-1], strict=True)), dtype=np.int64)
    ahead_of = {place: ahead for place, ahead in enumerate(reversed(queued)) if ahead}
    return PathOperations(timeline, operations, crossed, latencies, ahead_of)


def _by_link(timeline: Timeline, path: PathOperations) -> dict[int, LinkShare]:
    links, queues = timeline.links, timeline.run.queues
    if links is None or queues is None:
        return {}
    shares = np.zeros((links.served.links, 2), dtype=np.int64)
    crossed = path.crossed[path.crossed >= 0]
    last_on = queues.bound_link[crossed]
    on_link = last_on >= 0
    travels = links.served.latency[links.kinds[crossed]]
    occupied = path.latency[path.crossed >= 0] - travels
    np.add.at(shares[:, 0], last_on[on_link], occupied[on_link])
    for ahead in path.ahead.values():
        for queue in ahead:
            shares[queue.link, 1] += queue.end - queue.start
    waited = timeline.exchange_waits[path.operation]
    late = path.operation[waited > 0]
    if len(late):
        np.add.at(shares[:, 1], queues.bound_link[links.messages + late], waited[waited > 0])
    used = np.union1d(np.flatnonzero(shares.any(axis=1)), last_on[on_link]).tolist()
    return {link: LinkShare(*shares[link].tolist()) for link in used}


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
        program, number = self.timeline.program, int(served.bundle[place])
        return PathQueue(
            link=link,
            input=number,
            edge=int(program.input_edges[number]),
            gradient=bool(program.input_gradient[number]),
            start=int(served.start[place]),
            end=int(served.end[place]),
        )
