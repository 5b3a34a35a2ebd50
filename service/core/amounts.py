"""Numbers that may differ among microbatches: one for all of them, or one for each size class.

Microbatches fall into few sizes even where they are many (sequences are padded to some lengths), so
what depends on the size is worked out once a class and told apart by microbatch only in arrays.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

__all__ = [
    "Amount",
    "SizeClasses",
    "Spread",
    "at_class",
    "combine",
    "largest",
    "repeat_of",
    "smallest",
    "total",
]

# The same for every microbatch, or one for each class of a `SizeClasses`.
Amount = int | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Spread:
    """An amount over `count` microbatches: the least, the most, and all of them together."""

    least: int
    most: int
    total: int
    count: int

    @property
    def mean(self) -> Fraction:
        """Of one microbatch; exact."""
        return Fraction(self.total, self.count)

    @property
    def differs(self) -> bool:
        """Whether one number would pose for several."""
        return self.least < self.most


@dataclass(frozen=True, slots=True)
class SizeClasses:
    """Which of the microbatches of an iteration are alike in all that a plan says of them.

    `of_microbatch` has the class of each, numbered by first appearance. It is empty where all are
    alike, which makes one class.
    """

    microbatches: int
    of_microbatch: tuple[int, ...] = ()
    first: tuple[int, ...] = field(default=(0,))  # the first microbatch of each class

    @classmethod
    def of(cls, microbatches: int, columns: Sequence[Sequence[Hashable]]) -> "SizeClasses":
        """From columns with an entry for each microbatch: alike are those alike in every column."""
        first: dict[tuple[Hashable, ...], int] = {}
        number: dict[tuple[Hashable, ...], int] = {}
        classes = []
        for microbatch, entries in enumerate(zip(*columns, strict=True)):
            first.setdefault(entries, microbatch)
            classes.append(number.setdefault(entries, len(number)))
        if len(first) <= 1:
            return cls(microbatches)
        return cls(microbatches, tuple(classes), tuple(first.values()))

    @property
    def count(self) -> int:
        """How many classes there are."""
        return len(self.first)

    def amount(self, numbers: Sequence[int]) -> Amount:
        """The amount of which microbatch m has `numbers[m]`."""
        return combine(lambda number: number, tuple(numbers[m] for m in self.first))

    def spread(self, amount: Amount, direction: int = 0, directions: int = 1) -> Spread:
        """The amount over the microbatches direction, direction + directions, ..."""
        count = len(range(direction, self.microbatches, directions))
        if isinstance(amount, int):
            return Spread(amount, amount, amount * count, count)
        numbers = [amount[index] for index in self.of_microbatch[direction::directions]]
        return Spread(min(numbers), max(numbers), sum(numbers), count)

    def table(self, amounts: Sequence[Amount]) -> npt.NDArray[np.int64]:
        """(rows, microbatches) the number of each microbatch; (rows, 1) where none differs."""
        if all(isinstance(amount, int) for amount in amounts):
            return np.array(amounts, dtype=np.int64).reshape(len(amounts), 1)
        of_class = np.empty((len(amounts), self.count), dtype=np.int64)
        for row, amount in enumerate(amounts):
            of_class[row] = amount
        return of_class[:, self.of_microbatch]


def repeat_of(sequence: Sequence[int]) -> int:
    """The least p > 0 with sequence[i] == sequence[i + p] for all i, by the prefix function."""
    border = [0] * len(sequence)
    for i in range(1, len(sequence)):
        length = border[i - 1]
        while length and sequence[i] != sequence[length]:
            length = border[length - 1]
        border[i] = length + (sequence[i] == sequence[length])
    return len(sequence) - border[-1]


def combine(function: Callable[..., int], *amounts: Amount) -> Amount:
    """The function of amounts, class by class; one number again where all classes give the same."""
    classes = max((len(amount) for amount in amounts if not isinstance(amount, int)), default=0)
    if not classes:
        return function(*amounts)
    columns = [(amount,) * classes if isinstance(amount, int) else amount for amount in amounts]
    found = tuple(function(*numbers) for numbers in zip(*columns, strict=True))
    return found[0] if len(set(found)) == 1 else found


def largest(amount: Amount) -> int:
    """The most that any microbatch has."""
    return amount if isinstance(amount, int) else max(amount)


def smallest(amount: Amount) -> int:
    """The least that any microbatch has."""
    return amount if isinstance(amount, int) else min(amount)


def at_class(amount: Amount, number: int) -> int:
    """What the microbatches of one class have."""
    return amount if isinstance(amount, int) else amount[number]


def total(*amounts: Amount) -> Amount:
    """The sum of amounts, class by class; 0 of none."""
    return combine(lambda *numbers: sum(numbers), *amounts)
