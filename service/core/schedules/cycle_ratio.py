"""The maximum cycle ratio of a graph, exactly: what sets the pace of anything periodic.

Policy iteration after Howard (Cochet-Terrasson and others, "Numerical computation of spectral
elements in max-plus algebra", 1998), in whole numbers: every node keeps one arc; the cycles that
these make are valued; nodes change to arcs that lead to a better cycle, then to arcs that lengthen
the way to the same one; when none is left, no cycle of the graph has a greater ratio.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["Arc", "CycleRatio", "maximum_cycle_ratio"]


@dataclass(frozen=True, slots=True)
class Arc:
    """From node `tail` to node `head`: takes `weight` and passes `tokens` (may be negative)."""

    tail: int
    head: int
    weight: int
    tokens: int


@dataclass(frozen=True, slots=True)
class CycleRatio:
    """The greatest weight / tokens of a cycle, and one cycle that has it (indices of arcs)."""

    ratio: Fraction
    cycle: tuple[int, ...]


@dataclass(slots=True)
class _Values:
    """What a policy is worth: for every node the cycle it ends in and the length of its way.

    `height` is in units of 1 / the ratio's denominator; `cycles` gives a cycle's arcs by its root.
    """

    ratio: list[Fraction]
    height: list[int]
    root: list[int]
    cycles: dict[int, tuple[int, ...]]


def maximum_cycle_ratio(nodes: int, arcs: Sequence[Arc]) -> CycleRatio:
    """The maximum over all cycles of the sum of weights / the sum of tokens.

    Nodes are 0..nodes-1; every node has an arc leaving it, and the tokens of every cycle sum to at
    least 1 (with fewer, an operation would wait for itself).
    """
    outgoing: list[list[int]] = [[] for _ in range(nodes)]
    for index, arc in enumerate(arcs):
        outgoing[arc.tail].append(index)
    policy = [max(choices, key=lambda i: arcs[i].weight) for choices in outgoing]
    values = _value(arcs, policy, None)
    while _improve_ratio(arcs, policy, values) or _improve_height(arcs, policy, values):
        values = _value(arcs, policy, values)
    best = max(range(nodes), key=lambda node: values.ratio[node])
    return CycleRatio(values.ratio[best], values.cycles[values.root[best]])


def _value(arcs: Sequence[Arc], policy: Sequence[int], before: _Values | None) -> _Values:
    nodes = len(policy)
    values = _Values([Fraction(0)] * nodes, [0] * nodes, [-1] * nodes, {})
    for first in range(nodes):
        way: list[int] = []
        seen: dict[int, int] = {}
        node = first
        while values.root[node] < 0 and node not in seen:
            seen[node] = len(way)
            way.append(node)
            node = arcs[policy[node]].head
        if values.root[node] < 0:
            _value_cycle(arcs, policy, before, values, way[seen[node] :])
        for node in reversed(way):
            if values.root[node] < 0:
                _value_node(arcs, policy, values, node)
    return values


def _value_cycle(
    arcs: Sequence[Arc],
    policy: Sequence[int],
    before: _Values | None,
    values: _Values,
    cycle: Sequence[int],
) -> None:
    chosen = [policy[node] for node in cycle]
    ratio = Fraction(sum(arcs[i].weight for i in chosen), sum(arcs[i].tokens for i in chosen))
    root = cycle[0]
    values.cycles[root] = tuple(chosen)
    values.root[root] = root
    values.ratio[root] = ratio
    # Heights of cycles with equal ratios are compared, so a root keeps its height while it can;
    # without that the iteration might not end.
    if before is not None and before.ratio[root] == ratio:
        values.height[root] = before.height[root]


def _value_node(arcs: Sequence[Arc], policy: Sequence[int], values: _Values, node: int) -> None:
    arc = arcs[policy[node]]
    values.root[node] = values.root[arc.head]
    values.ratio[node] = values.ratio[arc.head]
    values.height[node] = _height_by(arc, values)


def _height_by(arc: Arc, values: _Values) -> int:
    """The height of the arc's tail, if it went this way."""
    ratio = values.ratio[arc.head]
    return ratio.denominator * arc.weight - ratio.numerator * arc.tokens + values.height[arc.head]


def _improve_ratio(arcs: Sequence[Arc], policy: list[int], values: _Values) -> bool:
    improved = False
    reached = list(values.ratio)
    for index, arc in enumerate(arcs):
        if values.ratio[arc.head] > reached[arc.tail]:
            reached[arc.tail] = values.ratio[arc.head]
            policy[arc.tail] = index
            improved = True
    return improved


def _improve_height(arcs: Sequence[Arc], policy: list[int], values: _Values) -> bool:
    improved = False
    reached = list(values.height)
    for index, arc in enumerate(arcs):
        if values.ratio[arc.head] == values.ratio[arc.tail]:
            height = _height_by(arc, values)
            if height > reached[arc.tail]:
                reached[arc.tail] = height
                policy[arc.tail] = index
                improved = True
    return improved
