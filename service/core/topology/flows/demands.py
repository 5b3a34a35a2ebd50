"""What has to be moved: single messages, or the messages of a collective operation.

Sizes are those of nccl-tests: an all-to-all's `message_bytes` is what each device holds before it
(one block for each device, its own included), an all-gather's what each holds after it, a
reduce-scatter's what each holds before it, an all-reduce's what each holds before and after.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["CollectiveKind", "Crossing", "Demand", "Exchange", "Gathering", "Messages"]

BoolArray = npt.NDArray[np.bool_]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]


class CollectiveKind(StrEnum):
    """The collective operations that have bounds."""

    ALL_TO_ALL = "all_to_all"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_REDUCE = "all_reduce"


@dataclass(frozen=True, slots=True)
class Crossing:
    """What a demand has to carry out of a set of vertices and into it, in bytes."""

    out: Fraction
    into: Fraction


class Demand(Protocol):
    """Anything whose traffic over the border of a set of vertices is known."""

    @property
    def vertices(self) -> Int32Array:
        """All that send or receive, once each, in order."""

    def crossings(self, label: Int32Array, groups: int) -> tuple[Float64Array, Float64Array]:
        """(groups,) bytes out of each group of `label` (V,) and into it, as floats."""

    def crossing(self, inside: BoolArray) -> Crossing:
        """The same for one set (V,), exactly."""


@dataclass(frozen=True, slots=True, eq=False)
class Messages:
    """Messages from vertex to vertex: (F,) sources and targets, and the bytes of each."""

    sources: Int32Array
    targets: Int32Array
    amounts: tuple[Fraction, ...]

    @classmethod
    def of(cls, messages: Iterable[tuple[int, int, Fraction | int]]) -> "Messages":
        """Those messages that move anything: not from a vertex to itself, and not of no bytes."""
        kept = [one for one in messages if one[0] != one[1] and one[2]]
        return cls(
            np.array([source for source, _, _ in kept], dtype=np.int32),
            np.array([target for _, target, _ in kept], dtype=np.int32),
            tuple(Fraction(amount) for _, _, amount in kept),
        )

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The source and the target of each."""
        return list(zip(self.sources.tolist(), self.targets.tolist(), strict=True))

    @property
    def vertices(self) -> Int32Array:
        """All that send or receive, once each, in order."""
        return np.union1d(self.sources, self.targets)

    def crossings(self, label: Int32Array, groups: int) -> tuple[Float64Array, Float64Array]:
        """(groups,) bytes out of each group of `label` (V,) and into it, as floats."""
        amounts = np.array([float(amount) for amount in self.amounts])
        one, other = label[self.sources], label[self.targets]
        leaves, enters = (one != other) & (one >= 0), (one != other) & (other >= 0)
        return (
            np.bincount(one[leaves], amounts[leaves], groups).astype(np.float64),
            np.bincount(other[enters], amounts[enters], groups).astype(np.float64),
        )

    def crossing(self, inside: BoolArray) -> Crossing:
        """The same for one set (V,), exactly."""
        one, other = inside[self.sources], inside[self.targets]
        return Crossing(self._total(one & ~other), self._total(other & ~one))

    def _total(self, chosen: BoolArray) -> Fraction:
        return _sum([self.amounts[number] for number in np.flatnonzero(chosen).tolist()])


def _sum(amounts: Sequence[Fraction]) -> Fraction:
    return sum(amounts, Fraction(0))


@dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """An all-to-all in which each of `vertices` sends `pair_bytes` to each other one."""

    vertices: Int32Array
    pair_bytes: Fraction

    def crossings(self, label: Int32Array, groups: int) -> tuple[Float64Array, Float64Array]:
        """(groups,) bytes out of each group of `label` (V,) and into it, as floats."""
        members = _members(label[self.vertices], groups)
        pairs = (members * (len(self.vertices) - members)).astype(np.float64)
        return pairs * float(self.pair_bytes), pairs * float(self.pair_bytes)

    def crossing(self, inside: BoolArray) -> Crossing:
        """The same for one set (V,), exactly."""
        members = int(inside[self.vertices].sum())
        moved = members * (len(self.vertices) - members) * self.pair_bytes
        return Crossing(moved, moved)


@dataclass(frozen=True, slots=True, eq=False)
class Gathering:
    """An all-gather, reduce-scatter or all-reduce among `vertices`.

    Every byte that a set's devices contribute must leave it, and every byte of a result that its
    devices have no part in must enter it, at least once each, whatever is copied or reduced on the
    way. So the crossings hold with and without reduction in the network.
    """

    kind: CollectiveKind
    vertices: Int32Array
    message_bytes: Fraction

    def crossings(self, label: Int32Array, groups: int) -> tuple[Float64Array, Float64Array]:
        """(groups,) bytes out of each group of `label` (V,) and into it, as floats."""
        members = _members(label[self.vertices], groups)
        count = len(self.vertices)
        split = ((members > 0) & (members < count)).astype(np.float64)
        whole = float(self.message_bytes)
        if self.kind is CollectiveKind.ALL_REDUCE:
            return split * whole, split * whole
        own, others = split * members * (whole / count), split * (count - members) * (whole / count)
        return (own, others) if self.kind is CollectiveKind.ALL_GATHER else (others, own)

    def crossing(self, inside: BoolArray) -> Crossing:
        """The same for one set (V,), exactly."""
        members, count = int(inside[self.vertices].sum()), len(self.vertices)
        if members in (0, count):
            return Crossing(Fraction(0), Fraction(0))
        if self.kind is CollectiveKind.ALL_REDUCE:
            return Crossing(self.message_bytes, self.message_bytes)
        own = self.message_bytes * members / count
        others = self.message_bytes - own
        if self.kind is CollectiveKind.ALL_GATHER:
            return Crossing(own, others)
        return Crossing(others, own)


def _members(labels: Int32Array, groups: int) -> Int64Array:
    return np.bincount(labels[labels >= 0], minlength=groups)
