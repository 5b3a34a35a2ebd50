"""The greatest flow between two sets of vertices, and the cut that proves it (Dinic, 1970).

Capacities are floats. A link that is filled is left with exactly nothing, because the amount that
fills it is the amount that was left; so the flow ends, and the cut is found where nothing is left.
What is reported is the capacity of that cut, added up anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

__all__ = ["Arc", "MinCut", "min_cut"]

# (from, to, capacity); vertices are numbered from 0.
Arc = tuple[int, int, float]


@dataclass(frozen=True, slots=True)
class MinCut:
    """The arcs of a least cut by their positions, all of them filled by a greatest flow."""

    arcs: tuple[int, ...]


def min_cut(
    count: int, arcs: Sequence[Arc], sources: Sequence[int], targets: Sequence[int]
) -> MinCut:
    """A least cut between `sources` and `targets`, sets without a common vertex, over `arcs`.

    `count` is the number of vertices. Work is at most that of Dinic's method: V^2 E in theory, a
    few passes over the arcs in networks of switches.
    """
    start, end = count, count + 1
    heads: list[int] = []
    left: list[float] = []
    # Arc 2i and its way back 2i + 1 stand beside each other.
    leaving: list[list[int]] = [[] for _ in range(count + 2)]

    def add(tail: int, head: int, capacity: float) -> None:
        leaving[tail].append(len(heads))
        heads.append(head)
        left.append(capacity)
        leaving[head].append(len(heads))
        heads.append(tail)
        left.append(0.0)

    for tail, head, capacity in arcs:
        add(tail, head, capacity)
    for source in sources:
        add(start, source, inf)
    for target in targets:
        add(target, end, inf)
    while (depth := _depths(leaving, heads, left, start))[end] >= 0:
        _fill(leaving, heads, left, depth, start, end)
    depth = _depths(leaving, heads, left, start)
    return MinCut(
        tuple(
            position
            for position, (tail, head, _) in enumerate(arcs)
            if depth[tail] >= 0 > depth[head]
        )
    )


def _depths(
    leaving: Sequence[Sequence[int]], heads: Sequence[int], left: Sequence[float], start: int
) -> list[int]:
    """How many arcs with something left each vertex is away from the start; -1 for unreached."""
    depth = [-1] * len(leaving)
    depth[start] = 0
    found = [start]
    for vertex in found:
        for arc in leaving[vertex]:
            if left[arc] > 0 and depth[heads[arc]] < 0:
                depth[heads[arc]] = depth[vertex] + 1
                found.append(heads[arc])
    return depth


def _fill(
    leaving: Sequence[Sequence[int]],
    heads: Sequence[int],
    left: list[float],
    depth: Sequence[int],
    start: int,
    end: int,
) -> None:
    """Send along shortest ways until each of them has a full arc."""
    ahead = [0] * len(leaving)
    path: list[int] = []
    vertex = start
    while True:
        if vertex == end:
            amount = min(left[arc] for arc in path)
            for arc in path:
                left[arc] -= amount
                left[arc ^ 1] += amount
            first = next(place for place, arc in enumerate(path) if left[arc] <= 0)
            vertex = heads[path[first] ^ 1]
            del path[first:]
            continue
        row = leaving[vertex]
        while ahead[vertex] < len(row):
            arc = row[ahead[vertex]]
            if left[arc] > 0 and depth[heads[arc]] == depth[vertex] + 1:
                break
            ahead[vertex] += 1
        if ahead[vertex] < len(row):
            path.append(arc)
            vertex = heads[arc]
        elif path:
            back = path.pop()
            vertex = heads[back ^ 1]
            ahead[vertex] += 1
        else:
            return
