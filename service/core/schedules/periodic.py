"""The repeating part of a program's order, as a graph whose cycles set the pace."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.schedules.cycle_ratio import Arc
from service.core.schedules.program import OpKind, Program
from service.core.schedules.stage_times import StageTimes

__all__ = ["PeriodicGraph", "PeriodicNode", "periodic_graph"]


@dataclass(frozen=True, slots=True, order=True)
class PeriodicNode:
    """All operations of one kind on one stage whose microbatch has one place in the period."""

    stage: int
    kind: OpKind
    place: int


@dataclass(frozen=True, slots=True)
class PeriodicGraph:
    """Nodes, arcs between their indices (weights in ps, tokens in periods), and what each arc is.

    `edges[i]` is the stage edge that arc i crosses, or None where a rank goes on in its order.
    """

    nodes: tuple[PeriodicNode, ...]
    arcs: tuple[Arc, ...]
    edges: tuple[int | None, ...]


# tail, head, periods from tail to head, stage edge
_Link = tuple[PeriodicNode, PeriodicNode, int, int | None]


def periodic_graph(
    program: Program,
    kinds: AbstractSet[OpKind],
    period: int,
    times: StageTimes,
    latencies: dict[tuple[int, bool], int],
) -> PeriodicGraph:
    """The graph of the operations of these kinds in the middle of the program.

    An arc goes from an operation to one that waits for it and takes the duration of the first (and
    the transfer: `latencies[edge index, is gradient]`); its tokens are how many periods later the
    waiting operation's microbatch is. Two neighbouring periods must have the same arcs: the program
    has to be long enough that its middle is steady.

    Raises `InvalidInput` when they differ.
    """
    middle = program.microbatches // 2 // period * period
    links = _links(program, kinds, period, middle)
    if links != _links(program, kinds, period, middle + period):
        detail = (
            f"the order of {program.schedule} does not repeat itself every {period} microbatches"
        )
        raise InvalidInput([Fault(FaultCode.NOT_SUPPORTED, ("schedule", "kind"), detail)])
    nodes = tuple(sorted({head for _, head, *_ in links}))
    index = {node: i for i, node in enumerate(nodes)}
    durations = {kind: times.of_kind(kind).tolist() for kind in {node.kind for node in nodes}}
    arcs = []
    for tail, head, tokens, edge in links:
        weight = durations[tail.kind][tail.stage]
        if edge is not None:
            weight += latencies[edge, head.kind is not OpKind.FORWARD]
        arcs.append(Arc(index[tail], index[head], weight, tokens))
    return PeriodicGraph(nodes, tuple(arcs), tuple(edge for *_, edge in links))


def _links(program: Program, kinds: AbstractSet[OpKind], period: int, first: int) -> list[_Link]:
    """What the operations of the microbatches first .. first+period-1 wait for."""
    in_phase = np.isin(program.kind, list(kinds))
    operations = np.flatnonzero(in_phase)
    microbatch = program.microbatch[operations]
    wanted = np.flatnonzero((microbatch >= first) & (microbatch < first + period))

    def node(operation: int) -> PeriodicNode:
        return PeriodicNode(
            int(program.stage[operation]),
            OpKind(program.kind[operation]),
            int(program.microbatch[operation]) % period,
        )

    def link(before: int, after: int, edge: int | None) -> _Link:
        periods = program.microbatch[after] // period - program.microbatch[before] // period
        return node(before), node(after), int(periods), edge

    links: list[_Link] = []
    for place in wanted.tolist():
        operation = int(operations[place])
        previous = int(operations[place - 1]) if place else operation
        if previous != operation and program.rank[previous] == program.rank[operation]:
            links.append(link(previous, operation, None))
        for i in range(program.input_offsets[operation], program.input_offsets[operation + 1]):
            source = int(program.inputs[i])
            if in_phase[source]:
                links.append(link(source, operation, int(program.input_edges[i])))
    return sorted(links, key=lambda link: (link[0], link[1], link[2], link[3] or 0))
