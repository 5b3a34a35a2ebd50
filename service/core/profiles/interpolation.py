"""Costs of a layer at shapes between (or, where asked for, beyond) those that it was measured at.

Piecewise linear in the microbatch size, in the sequence length, or in both (bilinear), between the
nearest measured points of the same layer, tensor-parallel degree and recompute policy; never scaled
through the origin. A chord lies above what grows faster than in proportion, as attention does with
the sequence, so a line over a wide bracket costs too much rather than too little there. How far off
it may be is told by measured points that lie on the same line: each is left out in turn and held
against the line through its neighbours.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum

from service.core.profiles.measurement import Communication, LayerCost, Point, Recompute
from service.core.profiles.provenance import Provenance

__all__ = ["Approximation", "Bracket", "ErrorSource", "Shapes", "UnmeasuredShapes"]

# So many measured microbatch sizes on either side are looked at for a pair with common lengths.
_NEAREST = 2


class UnmeasuredShapes(StrEnum):
    """What is done where a layer was not measured at the shape of the plan."""

    REFUSE = "refuse"
    INTERPOLATE = "interpolate"  # between measured shapes
    EXTRAPOLATE = "extrapolate"  # and beyond them


class ErrorSource(StrEnum):
    """What an error was told by."""

    LEFT_OUT = "left_out"  # measured points on the line, each left out in turn
    ENDS = "ends"  # the costs at the ends, between which they lie if they only grow
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Bracket:
    """The two measured values of one variable that a line goes through."""

    variable: str
    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.variable} {self.low} and {self.high}"


@dataclass(frozen=True, slots=True)
class Approximation:
    """A cost that was not measured, from which points it is, and how far off it may be.

    `miss` is by how much of the work the same line misses measured points, as a fraction. Between
    them that is an error of the cost; beyond them it only says how straight the costs are there.
    """

    cost: LayerCost
    brackets: tuple[Bracket, ...]
    miss: float | None
    source: ErrorSource


@dataclass(frozen=True, slots=True, eq=False)
class _Grid:
    """The measured points of one degree and policy; a length of 0 is one that was not stated."""

    costs: Mapping[tuple[int, int], LayerCost]
    sizes_at: Mapping[int, tuple[int, ...]]  # by length, ascending
    lengths_at: Mapping[int, tuple[int, ...]]  # by size, ascending, without 0
    sizes: tuple[int, ...]  # that have lengths


@dataclass(frozen=True, slots=True, eq=False)
class Shapes:
    """The shapes of one layer (or pattern) and what it cost at each."""

    costs: Mapping[Point, LayerCost]
    _grids: Mapping[tuple[int, Recompute], _Grid]

    @classmethod
    def of(cls, costs: Mapping[Point, LayerCost]) -> "Shapes":
        """Index the measured points."""
        parts: dict[tuple[int, Recompute], dict[tuple[int, int], LayerCost]] = {}
        for point, cost in costs.items():
            part = parts.setdefault((point.tensor_parallel, point.recompute), {})
            part[point.microbatch_size, point.sequence_length or 0] = cost
        return cls(costs, {key: _grid(part) for key, part in parts.items()})

    def near(self, point: Point, *, beyond: bool) -> Approximation | None:
        """The cost at a point that was not measured, from those around it.

        Along one variable where there are measured points with the same other one, else over both.
        With `beyond` the nearest line is drawn on where no points lie around; None where there is
        none, and where it would lead to a time below zero.
        """
        grid = self._grids.get((point.tensor_parallel, point.recompute))
        if grid is None:
            return None
        size, length = point.microbatch_size, point.sequence_length or 0
        for outside in (False, True) if beyond else (False,):
            for way in (_along_size, _along_length, _over_both):
                found = way(grid, size, length, outside)
                if found is not None:
                    return found
        return None


def _grid(costs: Mapping[tuple[int, int], LayerCost]) -> _Grid:
    sizes_at: dict[int, list[int]] = {}
    lengths_at: dict[int, list[int]] = {}
    for size, length in sorted(costs):
        sizes_at.setdefault(length, []).append(size)
        if length:
            lengths_at.setdefault(size, []).append(length)
    return _Grid(
        costs=costs,
        sizes_at={length: tuple(sizes) for length, sizes in sizes_at.items()},
        lengths_at={size: tuple(lengths) for size, lengths in lengths_at.items()},
        sizes=tuple(lengths_at),
    )


# A measured value of one variable with its place on the line, and the cost there.
_Line = tuple[Sequence[int], Callable[[int], LayerCost]]


def _along_size(grid: _Grid, size: int, length: int, outside: bool) -> Approximation | None:
    sizes = grid.sizes_at.get(length, ())
    pair = _pair(sizes, size, outside)
    if pair is None:
        return None
    line = (sizes, _costs_at_length(grid, length))
    return _on_lines([Bracket("microbatch_size", *pair)], [size], [[line]])


def _along_length(grid: _Grid, size: int, length: int, outside: bool) -> Approximation | None:
    lengths = grid.lengths_at.get(size, ())
    pair = _pair(lengths, length, outside) if length else None
    if pair is None:
        return None
    line = (lengths, _costs_at_size(grid, size))
    return _on_lines([Bracket("sequence_length", *pair)], [length], [[line]])


def _over_both(grid: _Grid, size: int, length: int, outside: bool) -> Approximation | None:
    if not length:
        return None
    for sizes in _pairs_around(grid.sizes, size, outside):
        common = _common(grid.lengths_at[sizes[0]], grid.lengths_at[sizes[1]], length)
        lengths = _pair(common, length, outside)
        if lengths is not None:
            brackets = [Bracket("microbatch_size", *sizes), Bracket("sequence_length", *lengths)]
            along_sizes = [(grid.sizes_at[at], _costs_at_length(grid, at)) for at in lengths]
            along_lengths = [(grid.lengths_at[at], _costs_at_size(grid, at)) for at in sizes]
            lines = [along_sizes, along_lengths]
            return _on_lines(brackets, [size, length], lines)
    return None


def _costs_at_length(grid: _Grid, length: int) -> Callable[[int], LayerCost]:
    return lambda size: grid.costs[size, length]


def _costs_at_size(grid: _Grid, size: int) -> Callable[[int], LayerCost]:
    return lambda length: grid.costs[size, length]


def _pair(values: Sequence[int], at: int, outside: bool) -> tuple[int, int] | None:
    """Neighbours around it, or with `outside` the two nearest where it lies beyond them all."""
    place = bisect_left(values, at)
    if 0 < place < len(values):
        return values[place - 1], values[place]
    if not outside or len(values) < 2:
        return None
    return (values[0], values[1]) if place == 0 else (values[-2], values[-1])


def _pairs_around(values: Sequence[int], at: int, outside: bool) -> list[tuple[int, int]]:
    """Pairs of values around it, the nearest first; with `outside` the two nearest beyond."""
    place = bisect_left(values, at)
    above = place + (place < len(values) and values[place] == at)
    below_it = values[max(0, place - _NEAREST) : place][::-1]
    above_it = values[above : above + _NEAREST]
    pairs = [(low, high) for low in below_it for high in above_it]
    if not pairs and outside and len(values) >= 2:
        pair = _pair(values, at, outside)
        return [] if pair is None else [pair]
    return pairs


def _common(one: Sequence[int], other: Sequence[int], at: int) -> tuple[int, ...]:
    """Values of both near it: of each side the two nearest that both have, ascending."""
    shorter, longer = sorted((one, other), key=len)
    place = bisect_left(shorter, at)
    # Few steps: a grid has the next value in both, and what has not is no grid.
    below = [v for v in shorter[max(0, place - 8) : place][::-1] if _has(longer, v)]
    above = [v for v in shorter[place : place + 8] if _has(longer, v)]
    return (*below[:2][::-1], *above[:2])


def _has(values: Sequence[int], value: int) -> bool:
    place = bisect_left(values, value)
    return place < len(values) and values[place] == value


def _on_lines(
    brackets: Sequence[Bracket],
    at: Sequence[int],
    lines: Sequence[Sequence[_Line]],
) -> Approximation | None:
    """From the costs at the ends of one bracket, or at the corners of two.

    `lines` are those along each variable: at the other one's only value, or at both of its ends.
    """
    first = brackets[0]
    corners = [lines[0][0][1](end) for end in (first.low, first.high)]
    weights = [first.high - at[0], at[0] - first.low]
    if len(brackets) == 2:
        second = brackets[1]
        corners += [lines[0][1][1](end) for end in (first.low, first.high)]
        along = (second.high - at[1], at[1] - second.low)
        weights = [weight * share for share in along for weight in weights]
    beyond = any(weight < 0 for weight in weights)
    cost = _mean(corners, weights, Provenance.EXTRAPOLATED if beyond else Provenance.INTERPOLATED)
    if cost is None:
        return None
    miss, source = _miss(brackets, at, lines, cost, corners)
    error = None if beyond else miss
    return Approximation(replace(cost, relative_error=error), tuple(brackets), miss, source)


def _mean(
    costs: Sequence[LayerCost], weights: Sequence[int], provenance: Provenance
) -> LayerCost | None:
    """The weighted mean, whole numbers rounded to the nearest; None where a number is below 0."""
    whole = sum(weights)

    def mean(values: Sequence[object]) -> int | None:
        if not all(isinstance(value, int) for value in values):
            return None
        summed = sum(
            weight * value
            for weight, value in zip(weights, values, strict=True)
            if isinstance(value, int)
        )
        return (2 * summed + whole) // (2 * whole)

    def of(field: str) -> int | None:
        return mean([getattr(cost, field) for cost in costs])

    communication = {
        field.name: mean([getattr(cost.communication, field.name) for cost in costs])
        for field in fields(Communication)
    }
    found = {
        name: of(f"{name}_picoseconds")
        for name in ("forward", "backward", "backward_input", "backward_weight", "recompute")
    }
    halves = found["backward_input"], found["backward_weight"]
    if halves[0] is not None and halves[1] is not None:
        found["backward"] = halves[0] + halves[1]
    saved, workspace = of("saved_activation_bytes"), of("workspace_bytes")
    numbers = (*found.values(), *communication.values(), saved, workspace)
    if any(number is not None and number < 0 for number in numbers):
        return None
    samples = [cost.samples for cost in costs]
    recompute = found["recompute"] or 0
    return LayerCost(
        forward_picoseconds=found["forward"] or 0,
        backward_picoseconds=found["backward"],
        backward_input_picoseconds=halves[0],
        backward_weight_picoseconds=halves[1],
        recompute_picoseconds=recompute,
        communication=Communication(**communication),
        saved_activation_bytes=saved,
        recomputed_activation_bytes=None if recompute else 0,
        workspace_bytes=workspace,
        samples=None if None in samples else min(filter(None, samples), default=None),
        relative_deviation=_deviation(costs, weights),
        provenance=provenance,
    )


def _deviation(costs: Sequence[LayerCost], weights: Sequence[int]) -> float | None:
    """Of the weighted mean at most, whatever the correlation of the measurements."""
    spread = work = 0.0
    for cost, weight in zip(costs, weights, strict=True):
        if cost.relative_deviation is None:
            return None
        spread += abs(weight) * cost.work_picoseconds * cost.relative_deviation
        work += weight * cost.work_picoseconds
    return spread / work if work > 0 else None


def _miss(
    brackets: Sequence[Bracket],
    at: Sequence[int],
    lines: Sequence[Sequence[_Line]],
    cost: LayerCost,
    corners: Sequence[LayerCost],
) -> tuple[float | None, ErrorSource]:
    """By how much of the work the lines miss what is known of it, and what that is.

    Over two variables the misses along each add up.
    """
    of_each = [
        _left_out(bracket, here, along)
        for bracket, here, along in zip(brackets, at, lines, strict=True)
    ]
    known = [error for error in of_each if error is not None]
    if len(known) == len(of_each):
        return sum(known), ErrorSource.LEFT_OUT
    work = cost.work_picoseconds
    if cost.provenance is Provenance.EXTRAPOLATED or not work:
        return None, ErrorSource.NONE
    ends = [corner.work_picoseconds for corner in corners]
    return max(max(ends) - work, work - min(ends)) / work, ErrorSource.ENDS


def _left_out(bracket: Bracket, at: int, lines: Sequence[_Line]) -> float | None:
    """The worst miss of a measured point that is left out near the bracket; None without one."""
    misses = []
    for values, cost_at in lines:
        low, high = bisect_left(values, bracket.low), bisect_left(values, bracket.high)
        if at > bracket.high:
            # Drawn on beyond the end: the end is held against the line of the two before it.
            tried = [(low - 1, low, high)] if low > 0 else []
        elif at < bracket.low:
            tried = [(high, high + 1, low)] if high + 1 < len(values) else []
        else:
            tried = [(low, high, inner) for inner in range(low + 1, high)]
            tried += [(low - 1, high, low)] if low > 0 else []
            tried += [(low, high + 1, high)] if high + 1 < len(values) else []
        for one, other, left_out in tried[:8]:
            x = [values[place] for place in (one, other, left_out)]
            y = [cost_at(value).work_picoseconds for value in x]
            if y[2]:
                line = y[0] + (y[1] - y[0]) * (x[2] - x[0]) / (x[1] - x[0])
                misses.append(abs(line - y[2]) / y[2])
    return max(misses, default=None)
