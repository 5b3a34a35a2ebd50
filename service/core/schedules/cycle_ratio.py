"""The maximum cycle ratio of a graph, exactly: what sets the pace of anything periodic.

Policy iteration after Howard (Cochet-Terrasson and others, "Numerical computation of spectral
elements in max-plus algebra", 1998), in whole numbers: every node keeps one arc; the cycles that
these make are valued; nodes change to arcs that lead to a better cycle, then to arcs that lengthen
the way to the same one; when none is left, no cycle of the graph has a greater ratio.
"""

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from service.core.schedules.cycle_kernels import (
    TOO_LARGE,
    improve_height,
    improve_ratio,
    value_policy,
)

__all__ = ["Arc", "CycleRatio", "maximum_cycle_ratio"]

Int64Array = npt.NDArray[np.int64]


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


# Below int64 by more than the rounding of what is held against it.
_MOST_HEIGHT = 2.0**62


def maximum_cycle_ratio(nodes: int, arcs: Sequence[Arc]) -> CycleRatio:
    """The maximum over all cycles of the sum of weights / the sum of tokens.

    Nodes are 0..nodes-1; every node has an arc leaving it, and the tokens of every cycle sum to at
    least 1 (with fewer, an operation would wait for itself).
    """
    found = _search(nodes, arcs, compiled=True)
    if found is None:  # numbers that int64 does not hold
        found = _search(nodes, arcs, compiled=False)
    if found is None:
        raise ArithmeticError("numbers of any size have no limit")
    return found


def _search(nodes: int, arcs: Sequence[Arc], *, compiled: bool) -> CycleRatio | None:
    """None where a number passes what compiled loops hold."""
    if compiled and sum(abs(arc.weight) for arc in arcs) > _MOST_HEIGHT:
        return None
    number: npt.DTypeLike = np.int64 if compiled else np.object_
    limit = _MOST_HEIGHT if compiled else math.inf
    loops: list[Callable[..., int]] = [value_policy, improve_ratio, improve_height]
    if not compiled:
        loops = [inspect.unwrap(loop) for loop in loops]
    value, raise_ratio, raise_height = loops
    tails, heads = (
        np.array([getattr(arc, end) for arc in arcs], dtype=np.int64) for end in ("tail", "head")
    )
    weights, tokens = (
        np.array([getattr(arc, name) for arc in arcs], dtype=number)
        for name in ("weight", "tokens")
    )
    policy = np.full(nodes, -1, dtype=np.int64)
    for index, arc in enumerate(arcs):
        chosen = policy[arc.tail]
        if chosen < 0 or arc.weight > arcs[chosen].weight:
            policy[arc.tail] = index

    cycle = np.full(nodes, -1, dtype=np.int64)
    roots = np.empty(nodes, dtype=np.int64)
    height, numerators, denominators = (np.zeros(nodes, dtype=number) for _ in range(3))
    while True:
        values = (cycle, height, numerators, denominators)
        cycles = value(heads, weights, tokens, policy, limit, *values, roots)
        if cycles == TOO_LARGE:
            return None
        ratios = [
            Fraction(int(above), int(below))
            for above, below in zip(numerators[:cycles], denominators[:cycles], strict=True)
        ]
        # Places among all different ratios compare faster than they do.
        places = {ratio: place for place, ratio in enumerate(sorted(set(ratios)))}
        level = np.array([places[ratio] for ratio in ratios], dtype=np.int64)
        if len(ratios) > 1 and raise_ratio(tails, heads, level, cycle, policy):
            continue
        improved = raise_height(tails, heads, weights, tokens, limit, level, *values, policy)
        if improved == TOO_LARGE:
            return None
        if not improved:
            best = int(level.argmax())
            return CycleRatio(ratios[best], _arcs_from(int(roots[best]), heads, policy))


def _arcs_from(root: int, heads: Int64Array, policy: Int64Array) -> tuple[int, ...]:
    """The arcs of the cycle that a node is on."""
    chosen = [int(policy[root])]
    while (node := int(heads[chosen[-1]])) != root:
        chosen.append(int(policy[node]))
    return tuple(chosen)
