"""The chain of operations, transfers and queues that sets the makespan."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.schedules.link_use import LinkService, service_of
from service.core.schedules.program import OpKind
from service.core.schedules.simulate import last_sends
from service.core.schedules.timeline import Timeline

__all__ = ["CriticalPath", "PathOperation", "PathQueue", "PathTransfer", "find_critical_path"]

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


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """From time 0 to the makespan without a gap; picoseconds that sum to the makespan exactly.

    `by_transfer` is keyed by (edge index, gradient or not). `by_queue` has, by link, how long other
    transfers held it on the path.
    """

    operations: tuple[PathOperation, ...]
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
    program, run = timeline.program, timeline.run
    follow = _Follow(timeline)
    operation = int(run.end.argmax())
    backwards: list[int] = []
    waited: list[PathTransfer | None] = []
    while operation >= 0:
        backwards.append(operation)
        operation, after = follow.back(operation)
        waited.append(after)
    on_path = np.array(backwards[::-1], dtype=np.int64)
    columns = (
        program.stage[on_path],
        program.kind[on_path],
        program.microbatch[on_path],
        run.start[on_path],
        run.end[on_path],
    )
    kinds = tuple(OpKind)
    path = tuple(
        PathOperation(number, stage, kinds[kind], microbatch, start, end, after)
        for number, stage, kind, microbatch, start, end, after in zip(
            backwards[::-1], *(column.tolist() for column in columns), waited[::-1], strict=True
        )
    )

    times = run.end[on_path] - run.start[on_path]
    by_stage = np.zeros(program.stages, dtype=np.int64)
    np.add.at(by_stage, program.stage[on_path], times)
    by_kind = {
        OpKind(kind): int(times[program.kind[on_path] == kind].sum())
        for kind in np.unique(program.kind[on_path]).tolist()
    }
    by_transfer: dict[tuple[int, bool], int] = {}
    by_queue: dict[int, int] = {}
    for transfer in reversed(waited):
        if transfer is not None:
            key = (transfer.edge, transfer.gradient)
            by_transfer[key] = by_transfer.get(key, 0) + transfer.latency
            for ahead in transfer.ahead:
                by_queue[ahead.link] = by_queue.get(ahead.link, 0) + ahead.end - ahead.start
    return CriticalPath(path, tuple(by_stage.tolist()), by_kind, by_transfer, by_queue)


class _Follow:
    """Goes back from an operation to the one that made it wait."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self._first = frozenset(timeline.program.rank_offsets.tolist())
        self._served: dict[int, LinkService] = {}
        self._sends: Int64Array | None = None
        if timeline.transfers.holds_senders:
            _, self._sends = last_sends(timeline.program, timeline.latencies)

    def back(self, operation: int) -> tuple[int, PathTransfer | None]:
        """The operation before it on the path, -1 for none, and what is between the two."""
        program, run = self.timeline.program, self.timeline.run
        # Single items by `item`: a path is long, and indexing makes a numpy number of each.
        binding = run.binding.item(operation)
        if binding >= 0:
            transfer = self._transfer(binding)
            first = transfer.ahead[0].input if transfer.ahead else binding
            return program.inputs.item(first), transfer
        if operation in self._first:
            return -1, None
        sent = -1 if self._sends is None else int(self._sends[operation - 1])
        if sent < 0 or not self.timeline.latencies[sent]:
            return operation - 1, None
        latency = int(self.timeline.latencies[sent])
        return operation - 1, self._named(sent, latency, holds_sender=True)

    def _transfer(self, binding: int) -> PathTransfer:
        timeline = self.timeline
        queues = timeline.run.queues
        if queues is None:
            return self._named(binding, timeline.latencies.item(binding))
        arrival = timeline.arrival_of(binding)
        if queues.behind[binding] < 0:
            sent = int(timeline.run.end[timeline.program.inputs[binding]])
            return self._named(binding, arrival - sent)
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
        return self._named(binding, latency, ahead=tuple(reversed(ahead)))

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

    def _named(
        self,
        number: int,
        latency: int,
        *,
        ahead: tuple[PathQueue, ...] = (),
        holds_sender: bool = False,
    ) -> PathTransfer:
        program = self.timeline.program
        return PathTransfer(
            input=number,
            edge=program.input_edges.item(number),
            gradient=program.input_gradient.item(number),
            latency=latency,
            ahead=ahead,
            holds_sender=holds_sender,
        )
