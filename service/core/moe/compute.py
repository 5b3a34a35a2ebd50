"""What the products of experts take on each rank, and packing tokens for their way.

An expert's rows are rounded up to tiles. By a measured curve its products take what the curve says
of so many rows; else they take the longer of 6 h f FLOPs a row (4 h f where it is not gated) over
what the device computes and of reading its 3 h f weights (2 h f) over what its memory gives, h
being the hidden size and f the part of the expert's width that a rank has. A rank computes its
experts one after the other. Mean rows say nothing here: what counts is the rank that has most.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.models.dtypes import DType
from service.core.moe.settings import Payload, RowsSeconds
from service.core.profiles.roofline import Roofline
from service.core.units import PICOSECONDS_PER_SECOND, to_picoseconds

__all__ = ["ComputeTimes", "Experts", "Packing", "Products", "expert_times", "least_expert_times"]

BoolArray = npt.NDArray[np.bool_]
Float64Array = npt.NDArray[np.float64]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Experts:
    """The experts of one layer as a rank has them: `width` is its part of one, under expert tensor
    parallelism the quotient. Weights are of `dtype`.
    """

    hidden_size: int
    width: int
    gated: bool
    dtype: DType = DType.BF16

    @property
    def row_flops(self) -> int:
        """Of one row forward: two for each weight."""
        return 2 * self._weights

    @property
    def weight_bytes(self) -> int:
        """Of one expert."""
        return self._weights * self.dtype.bytes_per_element

    @property
    def _weights(self) -> int:
        return (3 if self.gated else 2) * self.hidden_size * self.width


@dataclass(frozen=True, slots=True)
class Products:
    """How a device computes them: by `curve`, or where that is empty by `sustained` rates.

    The curve is that of the part of an expert that a rank has. `launch_picoseconds` come once for
    all experts of a rank together. A backward takes `backward_ratio` times the products.
    """

    curve: tuple[RowsSeconds, ...] = ()
    sustained: Roofline | None = None
    tile_rows: int = 1
    launch_picoseconds: int = 0
    backward_ratio: float = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class ComputeTimes:
    """(Q,) int64 picoseconds of each rank of those that differ in their experts.

    `extrapolated`: some expert has fewer rows than the curve's first point, or more than its last.
    """

    forward_picoseconds: Int64Array
    backward_picoseconds: Int64Array
    extrapolated: bool


def expert_times(
    experts: Experts, products: Products, slot_rows: Int64Array, slot_rank: Int32Array, ranks: int
) -> ComputeTimes:
    """What `slot_rows` (P,) rows of the experts on `slot_rank` (P,) of `ranks` take.

    A rank that has experts but no rows launches its products all the same; one without experts does
    nothing. Raises `InvalidInput` for more than a time may be, and `ValueError` with neither a
    curve nor rates.
    """
    rows = -(-slot_rows // products.tile_rows) * products.tile_rows
    if products.curve:
        seconds, beyond = _on_curve(products.curve, rows)
    elif products.sustained is not None:
        rates = products.sustained
        computing = rows * (experts.row_flops / rates.flops_per_second)
        reading = experts.weight_bytes / rates.bytes_per_second
        seconds, beyond = np.where(rows > 0, np.maximum(computing, reading), 0.0), False
    else:
        raise ValueError("products need a curve, or rates")
    of_rank = np.bincount(slot_rank, seconds, ranks).astype(np.float64)
    launch = np.where(np.bincount(slot_rank, minlength=ranks) > 0, products.launch_picoseconds, 0)
    return ComputeTimes(
        forward_picoseconds=_picoseconds(of_rank) + launch,
        backward_picoseconds=_picoseconds(of_rank * products.backward_ratio) + launch,
        extrapolated=beyond,
    )


def least_expert_times(
    experts: Experts, peak: Roofline, slot_rows: Int64Array, slot_rank: Int32Array, ranks: int
) -> Int64Array:
    """(Q,) picoseconds that no rank goes below forward, at nominal rates and without any padding.

    All FLOPs of a rank, or reading the weights of all its experts that have rows.
    """
    flops = np.bincount(slot_rank, slot_rows.astype(np.float64), ranks) * experts.row_flops
    weights = np.bincount(slot_rank, slot_rows > 0, ranks) * experts.weight_bytes
    seconds = np.maximum(flops / peak.flops_per_second, weights / peak.bytes_per_second)
    least: Int64Array = np.floor(seconds * PICOSECONDS_PER_SECOND).astype(np.int64)
    return least


@dataclass(frozen=True, slots=True)
class Packing:
    """Moving tokens about in a device's memory before a dispatch and after its combine.

    Tokens come and go with `token_bytes` each. Before the dispatch they are cast where its payload
    is smaller than that, and copied into the order of their destinations; after the combine their
    copies are read, weighted and added up.
    """

    token_bytes: int
    dispatch_bytes: int
    combine_bytes: int
    bytes_per_second: float
    launch_picoseconds: int = 0

    @classmethod
    def of(
        cls,
        hidden_size: int,
        dispatch: Payload,
        combine: Payload,
        bytes_per_second: float,
        launch_picoseconds: int = 0,
    ) -> "Packing":
        """Of tokens that are cast for a dispatch and are of the combine's type elsewhere."""
        return cls(
            token_bytes=hidden_size * combine.dtype.bytes_per_element,
            dispatch_bytes=dispatch.bytes_of(hidden_size),
            combine_bytes=combine.bytes_of(hidden_size),
            bytes_per_second=bytes_per_second,
            launch_picoseconds=launch_picoseconds,
        )

    def pack(self, tokens: Int64Array, copies: Int64Array) -> Int64Array:
        """(R,) picoseconds for `tokens` (R,) of each rank and all `copies` (R,) made of them."""
        moved = tokens * self.dispatch_bytes + copies * self.dispatch_bytes
        if self.dispatch_bytes < self.token_bytes:
            moved = moved + tokens * (self.token_bytes + self.dispatch_bytes)
        return self._picoseconds(moved)

    def unpack(self, tokens: Int64Array, copies: Int64Array) -> Int64Array:
        """(R,) picoseconds for what comes back of the same."""
        return self._picoseconds(copies * self.combine_bytes + tokens * self.token_bytes)

    def _picoseconds(self, moved_bytes: Int64Array) -> Int64Array:
        found = _picoseconds(moved_bytes / self.bytes_per_second)
        return np.where(moved_bytes > 0, found + self.launch_picoseconds, 0).astype(np.int64)


def _on_curve(curve: Sequence[RowsSeconds], rows: Int64Array) -> tuple[Float64Array, bool]:
    """Seconds of each, and whether any lies outside the curve.

    Between points on a straight line. Below the first point what that takes, as reading the weights
    takes its time however few rows there are; beyond the last on by the slope of the last two, with
    one point alone in proportion. No rows take nothing.
    """
    at = np.array([point.rows for point in curve], dtype=np.float64)
    seconds = np.array([point.seconds for point in curve])
    if len(curve) > 1:
        slope = (seconds[-1] - seconds[-2]) / (at[-1] - at[-2])
    else:
        slope = seconds[0] / at[0]
    # More rows never take less, whatever the last two points say.
    found = np.interp(rows, at, seconds) + np.maximum(rows - at[-1], 0) * max(slope, 0.0)
    outside = (rows > 0) & ((rows < at[0]) | (rows > at[-1]))
    return np.where(rows > 0, found, 0.0), bool(outside.any())


def _picoseconds(seconds: Float64Array) -> Int64Array:
    """Whole picoseconds; raises `InvalidInput` for more than a time may be."""
    to_picoseconds(float(seconds.max(initial=0.0)))
    whole: Int64Array = np.rint(seconds * PICOSECONDS_PER_SECOND).astype(np.int64)
    return whole
