"""The loops of policy iteration over cycles, compiled.

Heights are checked against `limit` as they are made. With whole numbers of any size, in arrays of
objects, the same functions run uncompiled (`.py_func`).
"""

import math

import numpy as np
import numpy.typing as npt
from numba import njit, types

from service.core.signatures import writable

__all__ = ["TOO_LARGE", "improve_height", "improve_ratio", "value_policy"]

Int64Array = npt.NDArray[np.int64]

# Returned where a height passes the limit.
TOO_LARGE = -1

_COLUMN = writable(types.int64, 1)


@njit(
    types.int64(
        *(_COLUMN, _COLUMN, _COLUMN, _COLUMN, types.float64),
        *(_COLUMN, _COLUMN, _COLUMN, _COLUMN, _COLUMN),
    ),
    nogil=True,
    cache=True,
)
def value_policy(
    heads: Int64Array,
    weights: Int64Array,
    tokens: Int64Array,
    policy: Int64Array,
    limit: float,
    cycle: Int64Array,
    height: Int64Array,
    numerators: Int64Array,
    denominators: Int64Array,
    roots: Int64Array,
) -> int:
    """Find the cycles that a policy (an arc for each node) ends in; returns how many.

    Fills for each node the number of its cycle and its height, in units of 1 / the denominator, and
    for each cycle its ratio in lowest terms and its root. The first four of these hold the values
    of the policy before (`cycle` is -1 where there was none): a root keeps its height when it was
    of a cycle of the same ratio. Heights of such cycles are compared, and without that the
    iteration might not end.
    """
    nodes = len(policy)
    last_cycle, last_height = cycle.copy(), height.copy()
    last_numerators, last_denominators = numerators.copy(), denominators.copy()
    place = np.full(nodes, -1, np.int64)  # on the present way
    way = np.empty(nodes, np.int64)
    cycle[:] = -1
    height[:] = 0
    cycles = 0
    for first in range(nodes):
        length = 0
        node = first
        while cycle[node] < 0 and place[node] < 0:
            place[node] = length
            way[length] = node
            length += 1
            node = heads[policy[node]]
        if cycle[node] < 0:
            weight = tokens_passed = weights[policy[node]] * 0
            for i in range(place[node], length):
                weight += weights[policy[way[i]]]
                tokens_passed += tokens[policy[way[i]]]
            common = math.gcd(weight, tokens_passed)
            numerator, denominator = weight // common, tokens_passed // common
            before = last_cycle[node]
            if (
                before >= 0
                and last_numerators[before] == numerator
                and last_denominators[before] == denominator
            ):
                height[node] = last_height[node]
            cycle[node] = cycles
            roots[cycles] = node
            numerators[cycles] = numerator
            denominators[cycles] = denominator
            cycles += 1
        numerator, denominator = numerators[cycle[node]], denominators[cycle[node]]
        for i in range(length - 1, -1, -1):
            node = way[i]
            if cycle[node] < 0:
                arc = policy[node]
                head = heads[arc]
                cycle[node] = cycle[head]
                way_on = denominator * weights[arc] - numerator * tokens[arc]
                height[node] = way_on + height[head]
                about = float(denominator) * weights[arc] - float(numerator) * tokens[arc]
                if abs(about + height[head]) > limit:
                    return TOO_LARGE
    return cycles


@njit(
    types.boolean(_COLUMN, _COLUMN, _COLUMN, _COLUMN, _COLUMN),
    nogil=True,
    cache=True,
)
def improve_ratio(
    tails: Int64Array, heads: Int64Array, level: Int64Array, cycle: Int64Array, policy: Int64Array
) -> bool:
    """Change nodes to arcs that lead to a cycle of a higher `level` (one a cycle)."""
    reached = level[cycle]
    improved = False
    for arc in range(len(tails)):
        ahead = level[cycle[heads[arc]]]
        if ahead > reached[tails[arc]]:
            reached[tails[arc]] = ahead
            policy[tails[arc]] = arc
            improved = True
    return improved


@njit(
    types.int64(
        *(_COLUMN, _COLUMN, _COLUMN, _COLUMN, types.float64),
        *(_COLUMN, _COLUMN, _COLUMN, _COLUMN, _COLUMN, _COLUMN),
    ),
    nogil=True,
    cache=True,
)
def improve_height(
    tails: Int64Array,
    heads: Int64Array,
    weights: Int64Array,
    tokens: Int64Array,
    limit: float,
    level: Int64Array,
    cycle: Int64Array,
    height: Int64Array,
    numerators: Int64Array,
    denominators: Int64Array,
    policy: Int64Array,
) -> int:
    """Change nodes to arcs that lengthen the way to a cycle of the same level; returns if any."""
    reached = height.copy()
    improved = 0
    for arc in range(len(tails)):
        tail, head = tails[arc], heads[arc]
        of = cycle[head]
        if level[of] != level[cycle[tail]]:
            continue
        about = float(denominators[of]) * weights[arc] - float(numerators[of]) * tokens[arc]
        if abs(about + height[head]) > limit:
            return TOO_LARGE
        found = denominators[of] * weights[arc] - numerators[of] * tokens[arc] + height[head]
        if found > reached[tail]:
            reached[tail] = found
            policy[tail] = arc
            improved = 1
    return improved
