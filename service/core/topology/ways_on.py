"""From a graph of equally good ways on to the paths in it, vertices being numbers.

In such a graph every way from the source leads to the target.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Leg", "walk"]


@dataclass(frozen=True, slots=True, eq=False)
class Leg:
    """From one anchor (a vertex in a host, or an end) to the next, over switches between them.

    Entry 0 is the leg's start, the others are switches. The equally good next vertices of entry i
    are `choices[offsets[i]:offsets[i + 1]]`, in order, and `entries` tells which entry each of them
    is, -1 for `end`. Most legs are a few short lists; in a torus they are long arrays.
    """

    end: int
    choices: Sequence[int] | npt.NDArray[np.int32]
    offsets: Sequence[int] | npt.NDArray[np.int32]
    entries: Sequence[int] | npt.NDArray[np.int32]

    @classmethod
    def of(
        cls,
        end: int,
        choices: npt.NDArray[np.int32],
        offsets: npt.NDArray[np.int64],
        entries: npt.NDArray[np.int32],
    ) -> "Leg":
        """A leg that keeps copies of these arrays."""
        if len(choices) <= _MOST_IN_LISTS:
            lists = (tuple(array.tolist()) for array in (choices, offsets, entries))
            return cls(end, *lists)
        return cls(end, choices.copy(), offsets.astype(np.int32), entries.copy())

    @property
    def size(self) -> int:
        """How many ways on it holds."""
        return len(self.choices)

    def passed(self, number: int) -> list[int]:
        """The vertices after the start, to the end, when a destination's number decides."""
        entry, vertices = 0, []
        while entry >= 0:
            first, last = self.offsets[entry], self.offsets[entry + 1]
            number, choice = divmod(number, int(last - first))
            vertices.append(int(self.choices[first + choice]))
            entry = self.entries[first + choice]
        return vertices


_MOST_IN_LISTS = 64


def walk(
    onward: Callable[[int], Sequence[int]], source: int, target: int
) -> Iterator[tuple[int, ...]]:
    """Every path from one end to the other, in the order in which the ways on are listed."""
    path, ahead = [source], [iter(onward(source))]
    while ahead:
        vertex = next(ahead[-1], None)
        if vertex is None:
            ahead.pop()
            path.pop()
        elif vertex == target:
            yield (*path, target)
        else:
            path.append(vertex)
            ahead.append(iter(onward(vertex)))
