"""What one rank does and waits for as a bounded number of shapes on a line of pixels.

Operations wide enough to be told apart are boxes. Where they are narrower the line is cut into bins
and each bin is filled from below by the share of its time that each kind takes, so that a picture
of a hundred thousand operations stays small and still shows work and idle time truly.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.schedules.timeline import Timeline
from service.core.schedules.waits import OperationWaits

__all__ = [
    "CONTENTION",
    "DEPENDENCY",
    "OTHER",
    "SENDING",
    "TRANSFER",
    "Box",
    "Intervals",
    "Line",
    "RowShapes",
    "chunk_numbers",
    "rank_waits",
    "row_shapes",
]

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

# Kinds beside those of operations: an operation of microbatches that were not asked for, and what
# a rank does between two operations.
OTHER, SENDING, DEPENDENCY, CONTENTION, TRANSFER = -1, -2, -3, -4, -5


@dataclass(frozen=True, slots=True)
class Line:
    """Where time runs: picoseconds start .. end are pixels left .. left + width.

    A box is at least `narrowest` pixels wide on average, or the row is drawn in bins of that width.
    """

    start: int
    end: int
    left: float
    width: float
    narrowest: float

    def pixels(self, time: Int64Array) -> FloatArray:
        """Pixels of times; what lies outside the line is put on its nearer end."""
        inside = np.clip(time, self.start, self.end) - self.start
        return self.left + inside / max(self.end - self.start, 1) * self.width


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in pixels; `bottom` and `top` are shares of the row's height, from below."""

    kind: int  # of OpKind, or one of the kinds above
    left: float
    right: float
    bottom: float
    top: float
    microbatch: int | None  # None where it stands for several operations, or for none
    part: int = 0  # which chunk (or direction) of the rank


@dataclass(frozen=True, slots=True)
class RowShapes:
    """The boxes of one row, and whether they are shares of bins."""

    boxes: tuple[Box, ...]
    binned: bool


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """Stretches of time of some kinds, picoseconds; arrays of equal length."""

    kind: npt.NDArray[np.int_]
    start: Int64Array
    end: Int64Array


_NOTHING = np.zeros(0, dtype=np.int64)
NO_INTERVALS = Intervals(_NOTHING, _NOTHING, _NOTHING)


def chunk_numbers(timeline: Timeline) -> Int64Array:
    """(directions, stages) which of its rank's chunks a stage is, in execution order.

    Where a rank has stages of two directions those of the second come after those of the first.
    """
    homes = timeline.program.stage_ranks.reshape(-1)
    numbers = np.zeros(len(homes), dtype=np.int64)
    order = np.argsort(homes, kind="stable")
    first = np.flatnonzero(np.diff(homes[order], prepend=-1))
    lengths = np.diff(first, append=len(homes))
    numbers[order] = np.arange(len(homes)) - np.repeat(first, lengths)
    return numbers.reshape(timeline.program.stage_ranks.shape)


def rank_waits(timeline: Timeline, waits: OperationWaits, rank: int) -> Intervals:
    """What a rank does between its operations, in its order: it sends, and waits for causes.

    And at the end of those that took longer than alone, as they waited for links.
    """
    operations = timeline.rank_operations(rank)
    end, released = timeline.run.end[operations], timeline.released[operations]
    first, second, third = (
        waits.dependency[operations],
        waits.contention[operations],
        waits.transfer[operations],
    )
    start = timeline.run.start[operations] - first - second - third
    marks = np.stack((start, start + first, start + first + second, start + first + second + third))
    alone = end - timeline.exchange_waits[operations]
    kinds = (SENDING, DEPENDENCY, CONTENTION, TRANSFER, CONTENTION)
    found = Intervals(
        np.tile(np.array(kinds), len(end)),
        np.stack((end, *marks[:3], alone), axis=1).reshape(-1),
        np.stack((released, *marks[1:], end), axis=1).reshape(-1),
    )
    lasting = np.flatnonzero(found.end > found.start)
    return Intervals(found.kind[lasting], found.start[lasting], found.end[lasting])


def row_shapes(
    timeline: Timeline,
    operations: Int64Array,
    wanted: npt.NDArray[np.bool_],
    line: Line,
    waits: Intervals = NO_INTERVALS,
) -> RowShapes:
    """The shapes of the operations of one rank that are given by their ids, and of its waits.

    `wanted` is (all operations,): those not wanted are drawn as OTHER, so that the rank is not
    taken for idle.
    """
    program = timeline.program
    lefts = line.pixels(timeline.run.start[operations])
    rights = line.pixels((timeline.run.end - timeline.exchange_waits)[operations])
    visible = rights > lefts
    operations, lefts, rights = operations[visible], lefts[visible], rights[visible]
    kinds = np.where(wanted[operations], program.kind[operations], OTHER)
    gaps = waits.kind, line.pixels(waits.start), line.pixels(waits.end)
    kept = gaps[2] > gaps[1]
    wait_kinds, wait_lefts, wait_rights = (column[kept] for column in gaps)
    drawn_pixels = float((rights - lefts).sum() + (wait_rights - wait_lefts).sum())
    if (len(operations) + len(wait_kinds)) * line.narrowest > drawn_pixels:
        return RowShapes(
            _bins(
                np.concatenate((kinds, wait_kinds)),
                np.concatenate((lefts, wait_lefts)),
                np.concatenate((rights, wait_rights)),
                line,
            ),
            binned=True,
        )
    microbatches = program.microbatch[operations]
    parts = chunk_numbers(timeline)[microbatches % program.directions, program.stage[operations]]
    columns = (kinds.tolist(), lefts.tolist(), rights.tolist())
    boxes = [
        Box(kind, left, right, 0.0, 1.0, None if kind == OTHER else m, part)
        for kind, left, right, m, part in zip(
            *columns, microbatches.tolist(), parts.tolist(), strict=True
        )
    ]
    boxes += [
        Box(kind, left, right, 0.0, 1.0, None)
        for kind, left, right in zip(
            wait_kinds.tolist(), wait_lefts.tolist(), wait_rights.tolist(), strict=True
        )
    ]
    return RowShapes(tuple(boxes), binned=False)


def _bins(
    kinds: npt.NDArray[np.int_], lefts: FloatArray, rights: FloatArray, line: Line
) -> tuple[Box, ...]:
    count = max(int(line.width / line.narrowest), 1)
    edges: FloatArray = np.linspace(line.left, line.left + line.width, count + 1)
    boxes: list[Box] = []
    below = np.zeros(count)
    for kind in sorted(set(kinds.tolist()), key=lambda kind: (kind < 0, abs(kind))):
        of_kind = kinds == kind
        share = _covered(lefts[of_kind], rights[of_kind], edges) / np.diff(edges)
        above = np.minimum(below + share, 1.0)
        boxes.extend(
            Box(kind, float(edges[i]), float(edges[i + 1]), float(below[i]), float(above[i]), None)
            for i in np.flatnonzero(share > 1e-3)
        )
        below = above
    return tuple(boxes)


def _covered(lefts: FloatArray, rights: FloatArray, edges: FloatArray) -> FloatArray:
    """How many pixels of each bin lie in intervals that ascend and don't overlap."""
    before = np.concatenate(([0.0], np.cumsum(rights - lefts)))
    index = np.searchsorted(lefts, edges, side="right")  # intervals that begin at or before
    last = np.maximum(index - 1, 0)
    inside = np.where(index > 0, np.minimum(edges, rights[last]) - lefts[last], 0.0)
    return np.diff(before[last] + inside)
