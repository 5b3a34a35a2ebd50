"""The repeating part of a program's order, as a graph whose cycles set the pace."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.schedules.cycle_ratio import Arc
from service.core.schedules.program import OpKind, Program
from service.core.schedules.stage_times import StageTimes, operation_durations

__all__ = ["PeriodicGraph", "PeriodicNode", "periodic_graph"]


@dataclass(frozen=True, slots=True, order=True)
class PeriodicNode:
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

    `crossings[i]` is the stage edge that arc i crosses and whether as a gradient, or None where a
    rank goes on in its order.
    """

    nodes: tuple[PeriodicNode, ...]
    arcs: tuple[Arc, ...]
    crossings: tuple[tuple[int, bool] | None, ...]


# tail, head, periods from tail to head, crossing
_Link = tuple[PeriodicNode, PeriodicNode, int, tuple[int, bool] | None]


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
    durations = _durations(program, links, times)
    arcs = []
    for tail, head, tokens, crossing in links:
        weight = durations[tail.kind, tail.stage]
        if crossing is not None:
            weight += latencies[crossing]
        arcs.append(Arc(index[tail], index[head], weight, tokens))
    return PeriodicGraph(nodes, tuple(arcs), tuple(crossing for *_, crossing in links))


def _durations(
    program: Program, links: list[_Link], times: StageTimes
) -> dict[tuple[OpKind, int], int]:
    """Picoseconds by kind and stage; each pair of a stage is with the same other stage."""
    wanted = {(tail.kind, tail.stage) for tail, *_ in links}
    found = operation_durations(program, times)
    first: dict[tuple[OpKind, int], int] = {}
    keys = program.kind.astype(np.int64) * program.stages + program.stage
    for key, operation in zip(*np.unique(keys, return_index=True), strict=True):
        kind, stage = divmod(int(key), program.stages)
        if (OpKind(kind), stage) in wanted:
            first[OpKind(kind), stage] = int(found[operation])
    return first


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
            int(program.rank[operation]),
            int(program.backward_stage[operation]),
        )

    def link(before: int, after: int, crossing: tuple[int, bool] | None) -> _Link:
        periods = program.microbatch[after] // period - program.microbatch[before] // period
        return node(before), node(after), int(periods), crossing

    links: list[_Link] = []
    for place in wanted.tolist():
        operation = int(operations[place])
        previous = int(operations[place - 1]) if place else operation
        if previous != operation and program.rank[previous] == program.rank[operation]:
            links.append(link(previous, operation, None))
        for i in range(program.input_offsets[operation], program.input_offsets[operation + 1]):
            source = int(program.inputs[i])
            if in_phase[source]:
                crossing = int(program.input_edges[i]), bool(program.input_gradient[i])
                links.append(link(source, operation, crossing))
    return sorted(links, key=lambda link: (link[0], link[1], link[2], link[3] or (0, False)))
