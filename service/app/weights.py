"""Weights of questions about one cluster, and what of it was done before."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum

__all__ = ["EXPANSION_UNITS", "LOOK_UNITS", "Preparation", "Seen", "Weight"]

# Operation-runs for each vertex and link of a cluster: 6 us to make it of its document, about 1 us
# for a question that looks at all of it.
EXPANSION_UNITS = 100
LOOK_UNITS = 20

# Answers and preparations of one cluster that count as kept; the core keeps 32 answers.
_MAX_SEEN = 16


class Preparation(Enum):
    """What is made once for a cluster; the value is operation-runs for each vertex and link."""

    PATHS = 60  # numbers and arrays for searches: 4 us
    FLOWS = 100  # symmetries and families of cuts: 6 us


@dataclass(frozen=True, slots=True)
class Weight:
    """What a question takes: `units` by itself, and `preparations` unless they were made before.

    An equal `question` that was answered before takes no more than a look at the cluster.
    """

    units: int
    preparations: tuple[Preparation, ...] = ()
    question: Hashable = None


class Seen:
    """What was prepared and asked of one cluster lately."""

    def __init__(self) -> None:
        self._seen: OrderedDict[Hashable, None] = OrderedDict()

    def units(self, weight: Weight, size: int) -> int:
        """What is still to be done of a question about a cluster of so many vertices and links."""
        new = sum(each.value for each in weight.preparations if each not in self._seen)
        was_asked = weight.question is not None and weight.question in self._seen
        return new * size + (LOOK_UNITS * size if was_asked else weight.units)

    def note(self, weight: Weight) -> None:
        """A question has been answered."""
        questions = () if weight.question is None else (weight.question,)
        for key in (*questions, *weight.preparations):
            self._seen.pop(key, None)
            self._seen[key] = None
        while len(self._seen) > _MAX_SEEN:
            self._seen.popitem(last=False)
