"""One rank's operations as a bounded number of shapes on a line of pixels.

Operations wide enough to be told apart are boxes. Where they are narrower the line is cut into bins
and each bin is filled from below by the share of its time that each kind takes, so that a picture
of a hundred thousand operations stays small and still shows work and idle time truly.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.schedules.timeline import Timeline

__all__ = ["OTHER", "Box", "Line", "RowShapes", "row_shapes"]

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

# The colour of operations of microbatches that were not asked for.
OTHER = -1


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

    kind: int  # of OpKind, or OTHER
    left: float
    right: float
    bottom: float
    top: float
    microbatch: int | None  # None where it stands for several operations


@dataclass(frozen=True, slots=True)
class RowShapes:
    """The boxes of one row, and whether they are shares of bins."""

    boxes: tuple[Box, ...]
    binned: bool


def row_shapes(
    timeline: Timeline, operations: Int64Array, wanted: npt.NDArray[np.bool_], line: Line
) -> RowShapes:
    """The shapes of the operations of one rank that are given by their ids.

    `wanted` is (all operations,): those not wanted are drawn as OTHER, so that the rank is not
    taken for idle.
    """
    lefts = line.pixels(timeline.run.start[operations])
    rights = line.pixels(timeline.run.end[operations])
    visible = rights > lefts
    operations, lefts, rights = operations[visible], lefts[visible], rights[visible]
    kinds = np.where(wanted[operations], timeline.program.kind[operations], OTHER)
    busy_pixels = float((rights - lefts).sum())
    if len(operations) * line.narrowest > busy_pixels:
        return RowShapes(_bins(kinds, lefts, rights, line), binned=True)
    microbatches = timeline.program.microbatch[operations]
    boxes = (
        Box(int(kind), float(left), float(right), 0.0, 1.0, None if kind == OTHER else int(m))
        for kind, left, right, m in zip(kinds, lefts, rights, microbatches, strict=True)
    )
    return RowShapes(tuple(boxes), binned=False)


def _bins(
    kinds: npt.NDArray[np.int_], lefts: FloatArray, rights: FloatArray, line: Line
) -> tuple[Box, ...]:
    count = max(int(line.width / line.narrowest), 1)
    edges: FloatArray = np.linspace(line.left, line.left + line.width, count + 1)
    boxes: list[Box] = []
    below = np.zeros(count)
    for kind in sorted(set(kinds.tolist()), key=lambda kind: (kind == OTHER, kind)):
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
