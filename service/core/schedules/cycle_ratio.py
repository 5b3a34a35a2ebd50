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

    Cycles are numbered; `ratios` and `arcs_of` have an entry for each, and so has `level`, the
    place of its ratio among all different ones, which compare faster. `height` is in units of 1 /
    the ratio's denominator.
    """

    cycle: list[int]  # of each node, -1 while unknown
    height: list[int]
    ratios: list[Fraction]
    arcs_of: list[tuple[int, ...]]
    level: list[int]


# Of each arc: tail, head, weight, tokens.
_Columns = list[tuple[int, int, int, int]]


def maximum_cycle_ratio(nodes: int, arcs: Sequence[Arc]) -> CycleRatio:
    """The maximum over all cycles of the sum of weights / the sum of tokens.

    Nodes are 0..nodes-1; every node has an arc leaving it, and the tokens of every cycle sum to at
    least 1 (with fewer, an operation would wait for itself).
    """
    columns = [(arc.tail, arc.head, arc.weight, arc.tokens) for arc in arcs]
    outgoing: list[list[int]] = [[] for _ in range(nodes)]
    for index, arc in enumerate(arcs):
        outgoing[arc.tail].append(index)
    policy = [max(choices, key=lambda i: arcs[i].weight) for choices in outgoing]
    values = _value(columns, policy, None)
    while _improve_ratio(columns, policy, values) or _improve_height(columns, policy, values):
        values = _value(columns, policy, values)
    best = values.level.index(max(values.level))
    return CycleRatio(values.ratios[best], values.arcs_of[best])


def _value(columns: _Columns, policy: Sequence[int], before: _Values | None) -> _Values:
    nodes = len(policy)
    values = _Values([-1] * nodes, [0] * nodes, [], [], [])
    cycle, height = values.cycle, values.height
    for first in range(nodes):
        if cycle[first] >= 0:
            continue
        way: list[int] = []
        seen: dict[int, int] = {}
        node = first
        while cycle[node] < 0 and node not in seen:
            seen[node] = len(way)
            way.append(node)
            node = columns[policy[node]][1]
        if cycle[node] < 0:
            _value_cycle(columns, policy, before, values, way[seen[node] :])
        ratio = values.ratios[cycle[node]]
        numerator, denominator = ratio.numerator, ratio.denominator
        for node in reversed(way):
            if cycle[node] < 0:
                _, head, weight, tokens = columns[policy[node]]
                cycle[node] = cycle[head]
                height[node] = denominator * weight - numerator * tokens + height[head]
    places = {ratio: place for place, ratio in enumerate(sorted(set(values.ratios)))}
    values.level = [places[ratio] for ratio in values.ratios]
    return values


def _value_cycle(
    columns: _Columns,
    policy: Sequence[int],
    before: _Values | None,
    values: _Values,
    cycle: Sequence[int],
) -> None:
    chosen = tuple(policy[node] for node in cycle)
    ratio = Fraction(sum(columns[i][2] for i in chosen), sum(columns[i][3] for i in chosen))
    root = cycle[0]
    values.cycle[root] = len(values.ratios)
    values.ratios.append(ratio)
    values.arcs_of.append(chosen)
    # Heights of cycles with equal ratios are compared, so a root keeps its height while it can;
    # without that the iteration might not end.
    if before is not None and before.ratios[before.cycle[root]] == ratio:
        values.height[root] = before.height[root]


def _improve_ratio(columns: _Columns, policy: list[int], values: _Values) -> bool:
    if len(values.ratios) == 1:
        return False
    improved = False
    level = [values.level[cycle] for cycle in values.cycle]
    reached = list(level)
    for index, (tail, head, _, _) in enumerate(columns):
        if level[head] > reached[tail]:
            reached[tail] = level[head]
            policy[tail] = index
            improved = True
    return improved


def _improve_height(columns: _Columns, policy: list[int], values: _Values) -> bool:
    improved = False
    heights = values.height
    reached = list(heights)
    level = [values.level[cycle] for cycle in values.cycle]
    of_cycle = [(ratio.numerator, ratio.denominator) for ratio in values.ratios]
    parts = [of_cycle[cycle] for cycle in values.cycle]
    for index, (tail, head, weight, tokens) in enumerate(columns):
        if level[head] == level[tail]:
            numerator, denominator = parts[head]
            height = denominator * weight - numerator * tokens + heights[head]
            if height > reached[tail]:
                reached[tail] = height
                policy[tail] = index
                improved = True
    return improved
