"""Demands of groups of devices that exchange at the same time, each with a matrix of bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from service.core.topology.flows.block_kernels import add_crossings
from service.core.topology.flows.demands import Crossing, Messages

__all__ = ["Block", "Blocks"]

BoolArray = npt.NDArray[np.bool_]
Float64Array = npt.NDArray[np.float64]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """D devices by their vertices, and (D, D) int64 bytes from each to each.

    What stands on the diagonal stays where it is and is no traffic.
    """

    devices: Int32Array
    between: Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """A `Demand`: groups of devices that send within each group only, in whole bytes."""

    groups: tuple[Block, ...]

    @classmethod
    def of(cls, groups: Sequence[Block]) -> "Blocks":
        """The demand of groups; matrices as the compiled loops read them."""
        return cls(
            tuple(
                Block(
                    np.ascontiguousarray(one.devices, dtype=np.int32),
                    np.ascontiguousarray(one.between, dtype=np.int64),
                )
                for one in groups
            )
        )

    @property
    def vertices(self) -> Int32Array:
        """All that send or receive, once each, in order."""
        used = []
        for one in self.groups:
            stays = np.diagonal(one.between)
            moved = one.between.sum(axis=0) + one.between.sum(axis=1) > 2 * stays
            used.append(one.devices[moved])
        return np.unique(np.concatenate(used)) if used else np.empty(0, dtype=np.int32)

    @property
    def pairs(self) -> int:
        """How many pairs of devices send anything."""
        return sum(
            int(np.count_nonzero(one.between)) - int(np.count_nonzero(np.diagonal(one.between)))
            for one in self.groups
        )

    def crossings(self, label: Int32Array, groups: int) -> tuple[Float64Array, Float64Array]:
        """(groups,) bytes out of each group of `label` (V,) and into it, as floats."""
        out, into = self._crossings(label, groups)
        return out.astype(np.float64), into.astype(np.float64)

    def crossing(self, inside: BoolArray) -> Crossing:
        """The same for one set (V,), exactly."""
        out, into = self._crossings(np.where(inside, 0, -1).astype(np.int32), 1)
        return Crossing(Fraction(int(out[0])), Fraction(int(into[0])))

    def messages(self) -> Messages:
        """The same as single messages, for demands that are small."""
        return Messages.of(
            (one, other, amount)
            for block in self.groups
            for one, row in zip(block.devices.tolist(), block.between.tolist(), strict=True)
            for other, amount in zip(block.devices.tolist(), row, strict=True)
        )

    def _crossings(self, label: Int32Array, groups: int) -> tuple[Int64Array, Int64Array]:
        out, into = np.zeros(groups, dtype=np.int64), np.zeros(groups, dtype=np.int64)
        for one in self.groups:
            add_crossings(one.between, label[one.devices].astype(np.int32), out, into)
        return out, into
