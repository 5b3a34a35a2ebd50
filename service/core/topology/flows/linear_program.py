"""The maximum concurrent flow as a linear program, solved by HiGHS."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import highspy
import numpy as np
import numpy.typing as npt

# The class beneath `highspy.Highs`, whose callbacks print a banner into the output of the process
# before it can be told not to.
from highspy._core import _Highs

from service.core.topology.flows.routes import FREE, Commodity

__all__ = ["LpSolution", "solve"]

Float64Array = npt.NDArray[np.float64]

# Turns of the simplex method times rows and columns, about a second. It ends at a vertex, whose
# lengths are ratios of small numbers; with many equal ways to choose from it may take for ever. The
# interior point method takes some twenty turns whatever the program, and gives nine digits.
_SIMPLEX_WORK = 20_000_000
_IPM_TURNS = 100


@dataclass(frozen=True, slots=True, eq=False)
class LpSolution:
    """`lengths` (R,) are the dual values of the capacities, `loads` (R,) the bytes each carries.

    Both are a solver's floats: lengths become a bound only once they are added up again, and loads
    are those of one optimal routing among many.
    """

    seconds: float
    lengths: Float64Array
    loads: Float64Array


def solve(commodities: Sequence[Commodity], capacity: Float64Array) -> LpSolution | None:
    """The largest share of all demands that can be routed together in a second, and its dual.

    Variables are the share and, for each commodity, the flow on each of its arcs; constraints keep
    the flow at each node and the capacities (R,), in bytes per second. Flows are aggregated by
    root, which is exact for fractional flow. None when there is nothing to send or the solver gives
    up.
    """
    demanded = max((float(sum(one.amounts)) for one in commodities), default=0.0)
    widest = float(capacity.max(initial=0.0))
    if demanded <= 0 or widest <= 0:
        return None
    rows, columns, values = [], [], []
    column = 1
    row = len(capacity)
    for one in commodities:
        arcs = np.arange(column, column + len(one.tail))
        sign = -1.0 if one.inward else 1.0
        ends = np.array([one.root, *one.terminals.tolist()])
        supplies = np.array([float(sum(one.amounts)), *(-float(part) for part in one.amounts)])
        limited = one.resource != FREE
        rows += [one.tail + row, one.head + row, ends + row, one.resource[limited]]
        columns += [arcs, arcs, np.zeros(len(ends), dtype=np.int64), arcs[limited]]
        values += [
            np.ones(len(arcs)),
            -np.ones(len(arcs)),
            -sign * supplies / demanded,
            np.full(int(limited.sum()), float(one.weight)),
        ]
        column += len(one.tail)
        row += one.nodes
    solved = _run(
        np.concatenate(rows),
        np.concatenate(columns),
        np.concatenate(values),
        row,
        column,
        capacity / widest,
    )
    if solved is None:
        return None
    share, flows, duals = solved
    if share <= 0:
        return None
    loads = np.zeros(len(capacity))
    first = 0
    for one in commodities:
        flow = flows[first : first + len(one.tail)]
        limited = one.resource != FREE
        np.add.at(loads, one.resource[limited], one.weight * flow[limited])
        first += len(one.tail)
    seconds = demanded / (share * widest)
    return LpSolution(seconds, np.maximum(duals, 0.0), loads * demanded / share)


def _solved(
    model: highspy.HighsLp, options: Mapping[str, str | int]
) -> highspy.HighsSolution | None:
    """An optimal solution; None when the limits among the options are reached before."""
    solver = _Highs()
    solver.setOptionValue("output_flag", False)
    # One thread: the same request gives the same answer, and other requests go on.
    solver.setOptionValue("parallel", "off")
    solver.setOptionValue("threads", 1)
    for name, value in options.items():
        solver.setOptionValue(name, value)
    solver.passModel(model)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    return solver.getSolution()


def _run(
    rows: npt.NDArray[np.int64],
    columns: npt.NDArray[np.int64],
    values: Float64Array,
    row_count: int,
    column_count: int,
    capacity: Float64Array,
) -> tuple[float, Float64Array, Float64Array] | None:
    """The value of column 0 at its greatest, the other columns, and the duals of the first rows."""
    order = np.lexsort((rows, columns))
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = column_count, row_count
    model.sense_ = highspy.ObjSense.kMaximize
    cost = np.zeros(column_count)
    cost[0] = 1.0
    model.col_cost_ = cost
    model.col_lower_ = np.zeros(column_count)
    model.col_upper_ = np.full(column_count, highspy.kHighsInf)
    others = np.zeros(row_count - len(capacity))
    model.row_lower_ = np.concatenate([np.full(len(capacity), -highspy.kHighsInf), others])
    model.row_upper_ = np.concatenate([capacity, others])
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = np.concatenate(
        [[0], np.cumsum(np.bincount(columns, minlength=column_count))]
    ).astype(np.int32)
    model.a_matrix_.index_ = rows[order].astype(np.int32)
    model.a_matrix_.value_ = values[order]
    turns = _SIMPLEX_WORK // (row_count + column_count)
    solution = _solved(model, {"solver": "simplex", "simplex_iteration_limit": turns})
    if solution is None:
        interior: dict[str, str | int] = {
            "solver": "ipx",
            "run_crossover": "off",
            "ipm_iteration_limit": _IPM_TURNS,
        }
        solution = _solved(model, interior)
    if solution is None:
        return None
    column_values = np.array(solution.col_value)
    duals = np.array(solution.row_dual[: len(capacity)])
    return float(column_values[0]), column_values[1:], duals
