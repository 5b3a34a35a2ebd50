"""Timelines as Chrome traces, parsed back and held against the timeline they came from."""

import json
import random
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from service.core.errors import InvalidInput
from service.core.schedules.build import build_program
from service.core.schedules.program import OpKind, PairMode
from service.core.schedules.selection import EVERYTHING, Selection
from service.core.schedules.slack import measure_slack
from service.core.schedules.stage_times import StageTimes
from service.core.schedules.timeline import Timeline
from service.formats.chrome_trace import MAX_TRACED, chrome_trace
from tests.core.schedules.plans import (
    MILLISECOND,
    simulate_timeline,
    timeline,
)
from tests.core.schedules.random_cases import random_cases

Event = dict[str, Any]


class Trace:
    """A trace read back: lanes by name, events by phase and lane."""

    def __init__(self, line: Timeline, selection: Selection = EVERYTHING) -> None:
        self.document = json.loads(chrome_trace(line, selection, slack=measure_slack(line)))
        self.events: list[Event] = self.document["traceEvents"]
        self.groups = self._names("process_name", "pid")
        self.lanes = self._names("thread_name", "tid")

    def _names(self, what: str, key: str) -> dict[int, str]:
        named = [e for e in self.events if e["ph"] == "M" and e["name"] == what]
        assert len({e[key] for e in named}) == len(named)
        return {e[key]: e["args"]["name"] for e in named}

    def slices(self, group: str) -> dict[str, list[Event]]:
        """Complete events of a group by lane, in order of time."""
        found = defaultdict(list)
        for event in self.events:
            if event["ph"] == "X" and self.groups[event["pid"]] == group:
                found[self.lanes[event["tid"]]].append(event)
        return {lane: sorted(events, key=span) for lane, events in found.items()}

    def flows(self) -> dict[int, dict[str, Event]]:
        """Both ends of each flow by its id."""
        found: dict[int, dict[str, Event]] = defaultdict(dict)
        for event in self.events:
            if event["ph"] in "sf":
                assert event["ph"] not in found[event["id"]]
                found[event["id"]][event["ph"]] = event
        return found


def span(event: Event) -> tuple[int, int]:
    """Begin and end in nanoseconds; numbers of the file have no more digits than that."""
    begin, length = event["ts"] * 1000, event["dur"] * 1000
    assert abs(begin - round(begin)) < 1e-3
    assert abs(length - round(length)) < 1e-3
    return round(begin), round(begin) + round(length)


def nanoseconds(picoseconds: int) -> int:
    """To the nearest, half up."""
    return (2 * int(picoseconds) + 1000) // 2000


def random_timelines(seed: int, count: int) -> Iterator[Timeline]:
    """Of every schedule; times that are no whole nanoseconds, zeros among them."""
    for unit in (1, 377, 1_500, 10**6):
        for _, line in random_cases(random.Random(seed + unit), count, unit=unit):
            yield line


def test_by_hand() -> None:
    line = timeline("1f1b", 1, [2 * MILLISECOND], [4 * MILLISECOND])
    assert chrome_trace(line).decode() == (
        '{"displayTimeUnit":"ms","otherData":{"schedule":"1f1b","ranks":1,"microbatches":1,'
        '"makespan_seconds":0.006},"traceEvents":[\n'
        '{"ph":"M","name":"process_name","pid":1,"args":{"name":"ranks"}},\n'
        '{"ph":"M","name":"process_sort_index","pid":1,"args":{"sort_index":1}},\n'
        '{"ph":"M","name":"process_name","pid":2,"args":{"name":"waits"}},\n'
        '{"ph":"M","name":"process_sort_index","pid":2,"args":{"sort_index":2}},\n'
        '{"ph":"M","name":"process_name","pid":3,"args":{"name":"transfers"}},\n'
        '{"ph":"M","name":"process_sort_index","pid":3,"args":{"sort_index":3}},\n'
        '{"ph":"M","name":"thread_name","pid":1,"tid":1,"args":{"name":"rank 0"}},\n'
        '{"ph":"M","name":"thread_sort_index","pid":1,"tid":1,"args":{"sort_index":1}},\n'
        '{"ph":"M","name":"thread_name","pid":2,"tid":2,"args":{"name":"rank 0 waits"}},\n'
        '{"ph":"M","name":"thread_sort_index","pid":2,"tid":2,"args":{"sort_index":2}},\n'
        '{"ph":"X","name":"0F0","cat":"forward","pid":1,"tid":1,"ts":0.0,"dur":2000.0,"args":'
        '{"stage":0,"kind":"forward","microbatch":0,"waited_for":"start"}},\n'
        '{"ph":"X","name":"0B0","cat":"backward","pid":1,"tid":1,"ts":2000.0,"dur":4000.0,"args":'
        '{"stage":0,"kind":"backward","microbatch":0,"waited_for":"rank"}}\n'
        "]}\n"
    )


def test_waits_transfers_and_flows_by_hand() -> None:
    """Two stages, two microbatches, 1 ms a hop; milliseconds 0 to 24."""
    ms = MILLISECOND
    trace = Trace(timeline("1f1b", 2, [2 * ms, 3 * ms], [4 * ms, 5 * ms], ms))

    def shown(group: str) -> dict[str, list[tuple[str, float, float]]]:
        return {
            lane: [(e["name"], e["ts"] / 1000, (e["ts"] + e["dur"]) / 1000) for e in events]
            for lane, events in trace.slices(group).items()
        }

    assert shown("waits") == {
        "rank 0 waits": [
            ("dependency wait", 4, 11),
            ("transfer wait", 11, 12),
            ("dependency wait", 16, 19),
            ("transfer wait", 19, 20),
        ],
        "rank 1 waits": [("fill", 0, 3), ("drain", 19, 24)],
    }
    assert shown("transfers") == {
        "stage 0 to 1": [("0F0", 2, 3), ("0F1", 4, 5)],
        "stage 1 to 0": [("1B0", 11, 12), ("1B1", 19, 20)],
    }
    operations = {
        (trace.lanes[e["tid"]], e["ts"]): e["name"] for e in trace.events if e["ph"] == "X"
    }
    arrows = [
        tuple(operations[trace.lanes[flow[end]["tid"]], flow[end]["ts"]] for end in ("s", "f"))
        for flow in trace.flows().values()
    ]
    assert sorted(arrows) == [("0F0", "1F0"), ("1B0", "0B0"), ("1B1", "0B1")]


def test_every_event_is_the_timelines(seed: int) -> None:
    for line in random_timelines(seed, 50):
        trace, program, run = Trace(line), line.program, line.run
        slack = measure_slack(line)
        operations = trace.slices("ranks")
        found = {
            event["name"]: (lane, span(event), event["args"])
            for lane, events in operations.items()
            for event in events
        }
        assert len(found) == program.operations
        for operation in range(program.operations):
            lane, (begin, end), args = found[line.label(operation)]
            assert lane == f"rank {program.rank[operation]}"
            assert begin == nanoseconds(run.start[operation])
            assert end == nanoseconds(run.end[operation])
            expected = {
                "stage": program.stage[operation],
                "kind": OpKind(program.kind[operation]).name.lower(),
                "microbatch": program.microbatch[operation],
                "waited_for": line.waited_for(operation),
                "slack_seconds": slack.operations[operation] / 1e12,
            }
            if args["kind"] == "forward_backward":
                expected["backward_stage"] = program.backward_stage[operation]
                expected["backward_microbatch"] = program.backward_microbatch[operation]
            assert args == expected
        waiting = np.flatnonzero(run.binding >= 0)
        flows = trace.flows()
        assert flows.keys() == set(waiting.tolist())
        for consumer, flow in flows.items():
            producer = int(program.inputs[run.binding[consumer]])
            for phase, operation in (("s", producer), ("f", consumer)):
                event = flow[phase]
                assert trace.lanes[event["tid"]] == f"rank {program.rank[operation]}"
                assert round(event["ts"] * 1000) == nanoseconds(run.start[operation])
            assert {flow["s"][key] for key in ("name", "cat")} == {
                flow["f"][key] for key in ("name", "cat")
            }
            assert flow["f"]["bp"] == "e"


def test_a_flow_is_read_right_after_the_slice_it_belongs_to(seed: int) -> None:
    """Readers sort by time, keep the order of equal times, and take the slice begun last."""
    for line in random_timelines(seed, 33):
        trace, program = Trace(line), line.program
        begun_last: dict[int, str] = {}
        timed = [e for e in trace.events if e["ph"] != "M"]
        for event in sorted(timed, key=lambda e: e["ts"]):
            if event["ph"] == "X":
                begun_last[event["tid"]] = event["name"]
            elif event["ph"] == "f":
                assert begun_last[event["tid"]] == line.label(event["id"])
            else:
                producer = int(program.inputs[line.run.binding[event["id"]]])
                assert begun_last[event["tid"]] == line.label(producer)


def test_work_and_waits_fill_each_rank_and_lanes_never_overlap(seed: int) -> None:
    overlapped = 0
    for line in random_timelines(seed, 50):
        trace, program = Trace(line), line.program
        work, waits = trace.slices("ranks"), trace.slices("waits")
        for rank in range(program.ranks):
            both = [*work[f"rank {rank}"], *waits.get(f"rank {rank} waits", [])]
            spans = sorted(span(event) for event in both)
            assert spans[0][0] == 0
            assert spans[-1][1] == nanoseconds(line.makespan)
            assert all(before[1] == after[0] for before, after in pairwise(spans))
        transfers = trace.slices("transfers")
        count = 0
        for lane, events in transfers.items():
            overlapped += lane.endswith(")")
            assert all(span(a)[1] <= span(b)[0] for a, b in pairwise(events))
            for event in events:
                args = event["args"]
                assert lane.startswith(f"stage {args['source_stage']} to {args['target_stage']}")
                assert args["direction"] == (
                    "forward" if args["source_stage"] < args["target_stage"] else "backward"
                )
            count += len(events)
        sent = line.run.end[program.inputs]
        expected = [
            (nanoseconds(begin), nanoseconds(begin + latency))
            for begin, latency in zip(sent.tolist(), line.latencies.tolist(), strict=True)
        ]
        found = [span(event) for events in transfers.values() for event in events]
        assert sorted(found) == sorted(s for s in expected if s[1] > s[0])
    assert overlapped > 20


def test_pairs_and_two_directions() -> None:
    """DualPipe on two ranks: each boundary lies between them twice, a pair has two microbatches."""
    line = timeline(
        "dualpipe", 4, [10**6] * 2, latency=10**5, halves=([10**6] * 2, [10**6] * 2),
        pair_mode=PairMode.FUSED,
    )  # fmt: skip
    trace = Trace(line)
    assert set(trace.slices("transfers")) == {
        f"stage {source} to {target}, rank {sender} to {receiver}"
        for source, target in ((0, 1), (1, 0))
        for sender, receiver in ((0, 1), (1, 0))
    }
    pairs = [e for e in trace.slices("ranks")["rank 0"] if e["cat"] == "forward_backward"]
    assert pairs
    for event in pairs:
        args = event["args"]
        forward, backward = event["name"].split("&")
        assert forward == f"{args['stage']}F{args['microbatch']}"
        assert backward == f"{args['backward_stage']}B{args['backward_microbatch']}"
    for events in trace.slices("transfers").values():
        for event in events:
            kind = "B" if event["args"]["direction"] == "backward" else "F"
            sent = f"{event['args']['source_stage']}{kind}{event['args']['microbatch']}"
            assert sent in event["name"].replace("I", "B")


def test_filters() -> None:
    ms = MILLISECOND
    line = timeline("1f1b", 8, [2 * ms, 3 * ms, 2 * ms], [4 * ms, 5 * ms, 4 * ms], ms)
    selection = Selection(ranks=frozenset({1, 2}), first_microbatch=2, last_microbatch=5)
    trace = Trace(line, selection)
    names = {e["name"] for events in trace.slices("ranks").values() for e in events}
    assert names == {line.label(i) for i in selection.operations(line).tolist()}
    assert {"rank 1", "rank 2", "rank 1 waits", "rank 2 waits"} <= set(trace.lanes.values())
    assert not any("rank 0" in lane for lane in trace.lanes.values())
    # Arrows and transfers are those of what is shown; no arrow hangs in the air.
    flows = trace.flows()
    assert flows
    assert all(set(flow) == {"s", "f"} for flow in flows.values())
    assert all(e["args"]["for"] in names for es in trace.slices("transfers").values() for e in es)
    empty = Trace(line, Selection(ranks=frozenset()))
    assert {event["ph"] for event in empty.events} == {"M"}


def test_a_long_trace_asks_for_a_part() -> None:
    program = build_program("1f1b", 4, 8_000)
    line = simulate_timeline(program, StageTimes.of([2] * 4, [4] * 4), 1)
    assert program.operations < MAX_TRACED < program.operations + len(program.inputs)
    with pytest.raises(InvalidInput, match="choose ranks"):
        chrome_trace(line)
    part = Trace(line, Selection(last_microbatch=9))
    assert sum(len(events) for events in part.slices("ranks").values()) == 4 * 2 * 10
