"""A timeline in the Chrome trace event format, which Perfetto and chrome://tracing open.

Groups of lanes: what each rank runs, what each rank waits for, the transfers of each boundary and
direction, and what each link carries where links have queues. An arrow leads from the operation
that was waited for to the one that waited. Times are microseconds on a grid of nanoseconds, the
finest that viewers keep: on it slices of one lane meet and never overlap, for viewers drop what
overlaps.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain, groupby
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.schedules.link_use import count_intervals, intervals_of
from service.core.schedules.program import OpKind
from service.core.schedules.program_links import carried
from service.core.schedules.selection import EVERYTHING, Selection
from service.core.schedules.slack import Slack
from service.core.schedules.timeline import Timeline
from service.core.schedules.waits import operation_waits
from service.core.units import to_seconds

__all__ = ["MAX_TRACED", "chrome_trace"]

Int64Array = npt.NDArray[np.int64]
Event = dict[str, Any]

# Operations and transfers of one trace; some forty megabytes and a second at the most.
MAX_TRACED = 100_000

# Processes are the groups of lanes. No id is 0, which viewers take for the idle process or thread.
_RANKS, _WAITS, _TRANSFERS, _LINKS = 1, 2, 3, 4
_GROUPS = {_RANKS: "ranks", _WAITS: "waits", _TRANSFERS: "transfers", _LINKS: "links"}

# Where a wait stands that is not before an operation.
_WAIT_PLACES = {"drain": "after", "send": "after", "exchange wait": "within"}

_PICOSECONDS_PER_NANOSECOND = 1_000


def chrome_trace(
    timeline: Timeline,
    selection: Selection = EVERYTHING,
    *,
    slack: Slack | None = None,
    links: Sequence[str] = (),
) -> bytes:
    """The selected operations as a JSON object of trace events, one event a line.

    Each operation is a complete event named by stage, kind and microbatch (`2B7`) in the lane of
    its rank, with these as arguments, what its start waited for, and its slack where that is given.
    In lanes of their own stand the waits before the selected operations (fill and drain beside a
    rank's first and last, the time for which a rank is held by what it sends, and at the end of an
    operation what it took longer as what it exchanged itself waited for links), the transfers
    that they received and that took time, and where links have queues what each link carried of the
    selected messages; `links` are the names by number. Where an operation waited for one of another
    rank and both are selected, a flow joins them.

    Raises `InvalidInput` when that makes more than `MAX_TRACED` operations, transfers and intervals
    on links.
    """
    program = timeline.program
    chosen = selection.operations(timeline)
    received = int(np.diff(program.input_offsets)[chosen].sum())
    wanted = selection.messages(timeline)
    carried = count_intervals(timeline, wanted)
    if len(chosen) + received + carried > MAX_TRACED:
        what, numbers = "operations and transfers", f"{len(chosen)} and {received}"
        if carried:
            what = "operations, transfers and intervals on links"
            numbers = f"{len(chosen)}, {received} and {carried}"
        detail = (
            f"one trace holds {MAX_TRACED} {what}; {numbers} are selected: choose ranks, "
            "microbatches or a time window"
        )
        raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, (), detail)])
    lanes = _Lanes(program.ranks)
    events = chain(
        lanes.metadata(selection.shown_ranks(timeline), with_links=carried > 0),
        _operations(timeline, lanes, chosen, slack),
        _waits(timeline, lanes, chosen),
        _transfers(timeline, lanes, chosen),
        _links(timeline, lanes, wanted, selection.window(timeline), links),
    )
    encode = msgspec.json.Encoder().encode
    about = {
        "schedule": program.schedule,
        "ranks": program.ranks,
        "microbatches": program.microbatches,
        "makespan_seconds": to_seconds(timeline.makespan),
    }
    lines = b",\n".join(encode(event) for event in events)
    head = b'{"displayTimeUnit":"ms","otherData":' + encode(about) + b',"traceEvents":[\n'
    return head + lines + b"\n]}\n"


@dataclass(frozen=True, slots=True)
class _Lanes:
    """Which lane (`tid`) holds what; numbers are unique over all groups."""

    ranks: int

    def rank(self, rank: int) -> int:
        return 1 + rank

    def wait(self, rank: int) -> int:
        return 1 + self.ranks + rank

    def transfer(self, number: int) -> int:
        return 1 + 2 * self.ranks + number

    def link(self, number: int) -> int:
        return self.transfer(MAX_TRACED + number)

    def metadata(self, shown: Sequence[int], *, with_links: bool) -> Iterator[Event]:
        """Names of the groups and of the lanes of these ranks; the others name theirs as needed."""
        for group, name in _GROUPS.items():
            if group == _LINKS and not with_links:
                continue
            yield _metadata("process_name", group, args={"name": name})
            yield _metadata("process_sort_index", group, args={"sort_index": group})
        for rank in shown:
            yield from _lane_name(_RANKS, self.rank(rank), f"rank {rank}")
            yield from _lane_name(_WAITS, self.wait(rank), f"rank {rank} waits")


def _operations(
    timeline: Timeline, lanes: _Lanes, chosen: Int64Array, slack: Slack | None
) -> Iterator[Event]:
    """Each operation, right after it the flows that it ends and begins.

    A flow belongs to the slice that was begun last on its lane, so this order tells apart slices
    that begin together because one of them takes no time.
    """
    program, run = timeline.program, timeline.run
    producers = _producers(timeline, chosen)
    consumers_of: dict[int, list[int]] = {}
    for consumer, producer in producers.items():
        consumers_of.setdefault(producer, []).append(consumer)
    start, end = _nanoseconds(run.start), _nanoseconds(run.end)
    for operation in chosen.tolist():
        lane, begin = lanes.rank(int(program.rank[operation])), int(start[operation])
        kind = OpKind(program.kind[operation]).name.lower()
        args: Event = {
            "stage": int(program.stage[operation]),
            "kind": kind,
            "microbatch": int(program.microbatch[operation]),
        }
        if program.kind[operation] == OpKind.FORWARD_BACKWARD:
            args["backward_stage"] = int(program.backward_stage[operation])
            args["backward_microbatch"] = int(program.backward_microbatch[operation])
        args["waited_for"] = timeline.waited_for(operation)
        if slack is not None:
            args["slack_seconds"] = to_seconds(int(slack.operations[operation]))
        name = timeline.label(operation)
        yield _slice(_RANKS, lane, name, kind, begin, int(end[operation]), args)
        if operation in producers:
            yield {**_flow("f", lane, operation, begin), "bp": "e"}
        for consumer in consumers_of.get(operation, ()):
            yield _flow("s", lane, consumer, begin)


def _waits(timeline: Timeline, lanes: _Lanes, chosen: Int64Array) -> Iterator[Event]:
    """The gap before each operation, and what is before the first and after the last of a rank."""
    program, run = timeline.program, timeline.run
    start, end = _nanoseconds(run.start), _nanoseconds(run.end)
    waits = operation_waits(timeline)
    sent = _nanoseconds(run.start - waits.transfer)
    queued = _nanoseconds(run.start - waits.transfer - waits.contention)
    released = _nanoseconds(timeline.released)
    alone = _nanoseconds(run.end - timeline.exchange_waits)
    makespan = int(end.max())
    for operation in chosen.tolist():
        rank = int(program.rank[operation])
        first, stop = program.rank_offsets[rank], program.rank_offsets[rank + 1]
        spans = []
        if operation == first:
            spans.append(("fill", 0, int(start[operation])))
        else:
            begin = int(released[operation - 1])
            spans.append(("dependency wait", begin, int(queued[operation])))
            spans.append(("contention wait", int(queued[operation]), int(sent[operation])))
            spans.append(("transfer wait", int(sent[operation]), int(start[operation])))
        spans.append(("exchange wait", int(alone[operation]), int(end[operation])))
        spans.append(("send", int(end[operation]), int(released[operation])))
        if operation == stop - 1:
            spans.append(("drain", int(released[operation]), makespan))
        for name, begin, until in spans:
            if until > begin:
                args = {_WAIT_PLACES.get(name, "before"): timeline.label(operation)}
                yield _slice(_WAITS, lanes.wait(rank), name, "wait", begin, until, args)


def _transfers(timeline: Timeline, lanes: _Lanes, chosen: Int64Array) -> Iterator[Event]:
    """Transfers in the lanes of their boundary and direction, several where they overlap."""
    program, run = timeline.program, timeline.run
    consumers = np.repeat(np.arange(program.operations), np.diff(program.input_offsets))
    sent = run.end[program.inputs]
    start, end = _nanoseconds(sent), _nanoseconds(timeline.arrival)
    shown = np.flatnonzero(_selected(timeline, chosen)[consumers] & (end > start))
    crossing = 2 * program.input_edges + program.input_gradient
    shown = shown[np.lexsort((start[shown], crossing[shown]))]
    named = 0
    for key, group in groupby(shown.tolist(), lambda index: int(crossing[index])):
        indices = list(group)
        rows = _rows(start[indices].tolist(), end[indices].tolist())
        edge, gradient = program.stage_edges[key // 2], bool(key % 2)
        stages = (edge.target, edge.source) if gradient else (edge.source, edge.target)
        lane_name = f"stage {stages[0]} to {stages[1]}"
        if program.directions > 1:
            sender, receiver = program.stage_ranks[edge.direction, list(stages)].tolist()
            lane_name += f", rank {sender} to {receiver}"
        for row in range(max(rows) + 1):
            again = f" ({row + 1})" if row else ""
            yield from _lane_name(_TRANSFERS, lanes.transfer(named + row), lane_name + again)
        microbatch = program.backward_microbatch if gradient else program.microbatch
        for index, row in zip(indices, rows, strict=True):
            consumer = int(consumers[index])
            yield _slice(
                _TRANSFERS,
                lanes.transfer(named + row),
                timeline.label(int(program.inputs[index])),
                "transfer",
                int(start[index]),
                int(end[index]),
                {
                    "source_stage": stages[0],
                    "target_stage": stages[1],
                    "direction": "backward" if gradient else "forward",
                    "microbatch": int(microbatch[consumer]),
                    "for": timeline.label(consumer),
                    "waited_for": bool(run.binding[consumer] == index),
                },
            )
        named += max(rows) + 1


def _links(
    timeline: Timeline,
    lanes: _Lanes,
    wanted: npt.NDArray[np.bool_],
    window: tuple[int, int],
    names: Sequence[str],
) -> Iterator[Event]:
    """What each link carried of the wanted messages in the window, in a lane of its own."""
    program = timeline.program
    found = intervals_of(timeline, wanted)
    start, end = _nanoseconds(found.start), _nanoseconds(found.end)
    shown = np.flatnonzero((found.end > window[0]) & (found.start < window[1]) & (end > start))
    shown = shown[np.argsort(found.link[shown], kind="stable")]
    for link, rows in groupby(shown.tolist(), lambda row: int(found.link[row])):
        lane = lanes.link(link)
        yield from _lane_name(_LINKS, lane, names[link] if names else f"link {link}")
        for row in rows:
            what = carried(program, int(found.bundle[row]))
            source, target = reversed(what.ends) if what.backward else what.ends
            yield _slice(
                _LINKS,
                lane,
                timeline.label(what.operation),
                "link" if what.edge is not None else "exchange",
                int(start[row]),
                int(end[row]),
                {
                    "source_stage": source,
                    "target_stage": target,
                    "direction": "backward" if what.backward else "forward",
                    "microbatch": what.microbatch,
                },
            )


def _rows(starts: Sequence[int], ends: Sequence[int]) -> list[int]:
    """A row for each interval, ascending by start, so that none overlap: the first that is free."""
    busy: list[tuple[int, int]] = []  # (until when, row)
    free: list[int] = []
    rows = []
    for start, end in zip(starts, ends, strict=True):
        while busy and busy[0][0] <= start:
            heappush(free, heappop(busy)[1])
        row = heappop(free) if free else len(busy)
        heappush(busy, (end, row))
        rows.append(row)
    return rows


def _selected(timeline: Timeline, chosen: Int64Array) -> npt.NDArray[np.bool_]:
    """(operations,) whether each is among the chosen."""
    selected = np.zeros(timeline.program.operations, dtype=np.bool_)
    selected[chosen] = True
    return selected


def _producers(timeline: Timeline, chosen: Int64Array) -> dict[int, int]:
    """The operation of another rank that each waited for, where both are chosen."""
    binding = timeline.run.binding[chosen]
    consumers = chosen[binding >= 0]
    producers = timeline.program.inputs[binding[binding >= 0]]
    both = _selected(timeline, chosen)[producers]
    return dict(zip(consumers[both].tolist(), producers[both].tolist(), strict=True))


def _nanoseconds(picoseconds: Int64Array) -> Int64Array:
    """To the nearest, half up: equal times stay equal, and none overtakes another."""
    return (picoseconds + _PICOSECONDS_PER_NANOSECOND // 2) // _PICOSECONDS_PER_NANOSECOND


def _metadata(name: str, group: int, **more: Any) -> Event:
    return {"ph": "M", "name": name, "pid": group, **more}


def _lane_name(group: int, lane: int, name: str) -> Iterator[Event]:
    yield _metadata("thread_name", group, tid=lane, args={"name": name})
    yield _metadata("thread_sort_index", group, tid=lane, args={"sort_index": lane})


def _slice(
    group: int, lane: int, name: str, category: str, start: int, end: int, args: Event
) -> Event:
    """A complete event from nanosecond `start` to `end`."""
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": group,
        "tid": lane,
        "ts": start / 1_000,
        "dur": (end - start) / 1_000,
        "args": args,
    }


def _flow(phase: str, lane: int, consumer: int, at: int) -> Event:
    """One end of a flow: viewers join those of the same category, name and id."""
    return {
        "ph": phase,
        "name": "waited for",
        "cat": "dependency",
        "id": consumer,
        "pid": _RANKS,
        "tid": lane,
        "ts": at / 1_000,
    }
