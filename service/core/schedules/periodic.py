"""The repeating part of a program's order, as a graph whose cycles set the pace."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.schedules.cycle_ratio import Arc
from service.core.schedules.program import OpKind, Program, kept_with_program
from service.core.schedules.simulate import last_sends

__all__ = ["PeriodicGraph", "PeriodicNode", "periodic_graph"]

Int64Array = npt.NDArray[np.int64]


class PeriodicNode(NamedTuple):
    """All operations of one kind on one stage whose microbatch has one place in the period.

    A pair stands with the stage and microbatch of its forward; `backward_stage` is that of its
    backward, and for others the same stage.
    """

    stage: int
    kind: OpKind
    place: int
    rank: int
    backward_stage: int


@dataclass(frozen=True, slots=True)
class PeriodicGraph:
    """Nodes, arcs between their indices (weights in ps, tokens in periods), and what each arc is.

    `crossings[i]` is the stage edge that arc i crosses, whether as a gradient, and how long that
    takes (ps, a part of the arc's weight); None where a rank goes on in its order.
    """

    nodes: tuple[PeriodicNode, ...]
    arcs: tuple[Arc, ...]
    crossings: tuple[tuple[int, bool, int] | None, ...]


@dataclass(frozen=True, slots=True, order=True)
class _Link:
    """`head` waits for `tail`, whose operation is so many periods earlier."""

    tail: PeriodicNode
    head: PeriodicNode
    periods: int
    edge: int  # of the value that is waited for; -1 where a rank goes on in its order at once
    gradient: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Links:
    """What one period waits for, sorted, and where the times of it stand."""

    links: tuple[_Link, ...]
    before: Int64Array  # (links,) the operation that is waited for
    value: Int64Array  # (links,) the input that brings its value, -1 for none


def periodic_graph(
    program: Program,
    kinds: AbstractSet[OpKind],
    period: int,
    durations: Int64Array,
    latencies: Int64Array,
    *,
    holds_senders: bool = False,
) -> PeriodicGraph:
    """The graph of the operations of these kinds in the middle of the program.

    An arc goes from an operation to one that waits for it and takes the duration of the first (and
    the transfer); its tokens are how many periods later the waiting operation's microbatch is.
    `durations` has one entry an operation and `latencies` one an input, in picoseconds. Two
    neighbouring periods must have the same arcs: the program has to be long enough that its middle
    is steady, and its times must repeat with the period. With `holds_senders` a rank goes on only
    when the last of what it sent has arrived, and that arc crosses the transfer's edge.

    Raises `InvalidInput` when they differ.
    """
    first = program.microbatches // 2 // period * period
    if holds_senders:
        sent = last_sends(program, latencies)[1]
        one, next_one = (
            _links(program, kinds, period, start, sent) for start in (first, first + period)
        )
    else:
        one, next_one = (
            _links_of_order(program, frozenset(kinds), period, start)
            for start in (first, first + period)
        )
    taken, passed = _times(one, durations, latencies)
    if one.links != next_one.links or [taken, passed] != _times(next_one, durations, latencies):
        detail = (
            f"the order of {program.schedule} does not repeat itself every {period} microbatches"
        )
        raise InvalidInput([Fault(FaultCode.NOT_SUPPORTED, ("schedule", "kind"), detail)])
    nodes = tuple(sorted({link.head for link in one.links}))
    index = {node: i for i, node in enumerate(nodes)}
    return PeriodicGraph(
        nodes,
        tuple(
            Arc(index[link.tail], index[link.head], duration + latency, link.periods)
            for link, duration, latency in zip(one.links, taken, passed, strict=True)
        ),
        tuple(
            None if link.edge < 0 else (link.edge, link.gradient, latency)
            for link, latency in zip(one.links, passed, strict=True)
        ),
    )


def _times(links: _Links, durations: Int64Array, latencies: Int64Array) -> list[list[int]]:
    """Picoseconds that each link's tail takes, and its value on the way."""
    on_the_way = np.zeros(len(links.value), dtype=np.int64)
    has_value = links.value >= 0
    on_the_way[has_value] = latencies[links.value[has_value]]
    return [durations[links.before].tolist(), on_the_way.tolist()]


@kept_with_program
def _links_of_order(program: Program, kinds: frozenset[OpKind], period: int, first: int) -> _Links:
    return _links(program, kinds, period, first, None)


def _links(
    program: Program,
    kinds: AbstractSet[OpKind],
    period: int,
    first: int,
    sent: Int64Array | None,
) -> _Links:
    """What the operations of the microbatches first .. first+period-1 wait for.

    `sent` is the input that holds each operation's rank last, -1 for none; or nothing does.
    """
    in_phase = np.isin(program.kind, list(kinds))
    operations = np.flatnonzero(in_phase)
    microbatch = program.microbatch[operations]
    wanted = np.flatnonzero((microbatch >= first) & (microbatch < first + period))

    def node(operation: int) -> PeriodicNode:
        return PeriodicNode(
            int(program.stage[operation]),
            OpKind(program.kind[operation]),
            int(program.microbatch[operation]) % period,
            int(program.rank[operation]),
            int(program.backward_stage[operation]),
        )

    def link(before: int, after: int, value: int) -> tuple[_Link, int, int]:
        periods = program.microbatch[after] // period - program.microbatch[before] // period
        edge = int(program.input_edges[value]) if value >= 0 else -1
        gradient = value >= 0 and bool(program.input_gradient[value])
        return _Link(node(before), node(after), int(periods), edge, gradient), before, value

    found: list[tuple[_Link, int, int]] = []
    for place in wanted.tolist():
        operation = int(operations[place])
        previous = int(operations[place - 1]) if place else operation
        if previous != operation and program.rank[previous] == program.rank[operation]:
            found.append(link(previous, operation, -1 if sent is None else int(sent[previous])))
        for i in range(program.input_offsets[operation], program.input_offsets[operation + 1]):
            source = int(program.inputs[i])
            if in_phase[source]:
                found.append(link(source, operation, i))
    found.sort()
    return _Links(
        tuple(one for one, _, _ in found),
        np.array([before for _, before, _ in found], dtype=np.int64),
        np.array([value for _, _, value in found], dtype=np.int64),
    )
