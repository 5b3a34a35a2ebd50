"""What is said of the experts of one layer: bytes, bounds, predictions, and who waits for whom."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from service.core.moe.exchange import ExchangeCost
from service.core.moe.exchange_bounds import ExchangeBounds
from service.core.moe.imbalance import Imbalance
from service.core.moe.traffic import Traffic
from service.core.plans.moe.inputs import ExpertLayer
from service.core.plans.moe.results import ExpertPass, GroupLoad
from service.core.topology.bisection import Bisection

__all__ = [
    "EvenFacts",
    "Exchange",
    "ExchangeFacts",
    "LayerFacts",
    "StepBounds",
    "StepFacts",
    "in_turn",
]

Int64Array = npt.NDArray[np.int64]


class Exchange(StrEnum):
    """The exchanges of a layer. The gradient of a combine is a dispatch, and the other way."""

    FORWARD_DISPATCH = "forward_dispatch"
    FORWARD_COMBINE = "forward_combine"
    BACKWARD_DISPATCH = "backward_dispatch"
    BACKWARD_COMBINE = "backward_combine"

    @property
    def is_combine(self) -> bool:
        """Whether it goes the way back."""
        return self in (Exchange.FORWARD_COMBINE, Exchange.BACKWARD_COMBINE)

    @property
    def is_forward(self) -> bool:
        """Whether the forward makes it, and the recomputation of one."""
        return self in (Exchange.FORWARD_DISPATCH, Exchange.FORWARD_COMBINE)


@dataclass(frozen=True, slots=True, eq=False)
class ExchangeFacts:
    """One exchange of the group that stands for all, W ranks, in bytes of `copy_bytes` each.

    `sent` and `received` (W,) are what leaves and enters each rank over all stages, the own rank's
    left out; `between_hosts` what of it crosses from host to host, None without a
    topology. `fewest` and `most` bound the
    sum where copies are only expected, else they are None. `logical` counts a copy for each
    expert of a token, wherever it is. `cost` is a prediction of all groups of the stage together,
    `bounds` are of the same; both None without a topology.
    """

    exchange: Exchange
    copy_bytes: int
    sent: Int64Array
    received: Int64Array
    fewest: int | None
    most: int | None
    between_hosts: int | None
    logical: int
    cost: ExchangeCost | None
    bounds: ExchangeBounds | None

    @property
    def total(self) -> int:
        """Bytes on the wire, of all ranks of the group."""
        return int(self.sent.sum())


@dataclass(frozen=True, slots=True)
class StepBounds:
    """What no overlap of exchanges and products goes below, in picoseconds, by family of routes."""

    pinned: int
    any_route: int


@dataclass(frozen=True, slots=True, eq=False)
class StepFacts:
    """A way through the layer, of the group that stands for all, in picoseconds.

    `step` is what the plan takes for it, `in_turn` one part after the other.
    """

    dispatch: ExchangeFacts
    combine: ExchangeFacts
    packing: int
    products: int
    unpacking: int
    fallback: int
    in_turn: int
    step: int
    bounds: StepBounds | None


@dataclass(frozen=True, slots=True)
class EvenFacts:
    """The same layer with tokens that choose evenly: rows of the busiest rank, bytes of the forward
    dispatch on the wire, and picoseconds of the steps.
    """

    most_rank_rows: int
    wire_bytes: int
    forward: int
    backward: int | None


@dataclass(frozen=True, slots=True, eq=False)
class LayerFacts:
    """A layer in the microbatches of one step of the routing and one length.

    `microbatches` of an iteration are such, and each rank brings `tokens` of one. `experts`,
    `ranks` and `hosts` say how unevenly rows fall on each; ranks are the group's by their expert
    coordinate, hosts are numbered among those of the group, None without a topology. `traffic` is
    what `load` says of copies, pair by pair. `bisection` is that of the group's devices. `even` is
    None where tokens choose evenly anyway.
    """

    layer: ExpertLayer
    routing_step: int
    microbatches: int
    tokens: int
    repeats: bool
    load: GroupLoad
    experts: Imbalance
    ranks: Imbalance
    hosts: Imbalance | None
    traffic: Traffic
    forward: StepFacts
    backward: StepFacts | None
    bisection: Bisection | None
    even: EvenFacts | None

    @property
    def picoseconds(self) -> int:
        """Of one microbatch, forward and backward."""
        return self.forward.step + (0 if self.backward is None else self.backward.step)


def in_turn(made: ExpertPass, group: int) -> int:
    """One part after the other, without any overlap."""
    exchanges = sum(0 if one is None else one.picoseconds for one in (made.dispatch, made.combine))
    parts = (made.packing, made.products, made.unpacking, made.fallback)
    return exchanges + sum(int(one[group]) for one in parts)
