"""What the experts of a plan do and take: by layer, size class of microbatches, and stage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce

import numpy as np
import numpy.typing as npt

from service.core.amounts import Amount
from service.core.moe.assignments import RoutingLevel
from service.core.moe.exchange import ExchangeCost, LinkLoads
from service.core.plans.moe.inputs import ExpertLayer, MoeInputs

__all__ = [
    "ExchangePart",
    "ExpertPass",
    "GroupLoad",
    "LayerRun",
    "MoeLayer",
    "Pass",
    "PlanMoe",
    "StageExperts",
]

Int64Array = npt.NDArray[np.int64]


class Pass(StrEnum):
    """The operations of a stage in which its experts work."""

    FORWARD = "forward"
    BACKWARD = "backward"  # the whole of it
    BACKWARD_WEIGHT = "backward_weight"  # the part of it that gives the gradients of weights
    RECOMPUTE = "recompute"  # a forward again


class ExchangePart(StrEnum):
    """Tokens on their way to their experts, or back; in a backward their gradients."""

    DISPATCH = "dispatch"
    COMBINE = "combine"


@dataclass(frozen=True, slots=True, eq=False)
class GroupLoad:
    """What one expert group of W ranks has to do in one layer of one microbatch.

    `expert_rows` (E,) are assignments as they were asked for, `slot_rows` (P,) what each slot of
    the placement computes, padding included, `rank_rows` (expert,) what each rank does. By source
    (W,): `tokens`, `dropped`, `fallback` and `rerouted` assignments, copies `sent` to others,
    `received` from them and `staying` on their rank over all stages of the dispatch, and `logical`
    ones. `counted` says whether copies were counted, and are not only expected.
    """

    level: RoutingLevel
    expert_rows: Int64Array
    slot_rows: Int64Array
    rank_rows: Int64Array
    tokens: Int64Array
    dropped: Int64Array
    fallback: Int64Array
    rerouted: Int64Array
    capacity: int | None
    sent: Int64Array
    received: Int64Array
    staying: Int64Array
    logical: Int64Array
    counted: bool

    @property
    def asked(self) -> int:
        """Assignments of all sources together."""
        return int(self.expert_rows.sum())

    @property
    def dropped_fraction(self) -> float:
        """Of all assignments those that nobody serves; 0 of none."""
        return int(self.dropped.sum()) / self.asked if self.asked else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class ExpertPass:
    """One way through the experts of a layer: there, their products, and back, in picoseconds.

    `dispatch` and `combine` are of all groups of the stage, which exchange at once; None without a
    topology. By group (G,): `packing` and `unpacking` and `products` of the rank that takes longest
    over each, `weight_products` the part of these that gives the gradients of weights, `fallback`
    of the path beside the experts, and the `step` made of all.
    """

    dispatch: ExchangeCost | None
    combine: ExchangeCost | None
    packing: Int64Array
    products: Int64Array
    weight_products: Int64Array
    unpacking: Int64Array
    fallback: Int64Array
    step: Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class LayerRun:
    """One layer for the microbatches of one size class; `backward` None where there is none.

    `groups` has each expert group of the stage's ranks in order; those alike are the same object.
    """

    groups: tuple[GroupLoad, ...]
    forward: ExpertPass
    backward: ExpertPass | None


@dataclass(frozen=True, slots=True, eq=False)
class MoeLayer:
    """A layer with experts and its run for each size class, `by_home` on each pipeline rank that
    has its stage, `runs` those on the one whose groups count.

    It `repeats` its forward where its activations are computed again. In picoseconds, `takes` is
    what the group that stands for all takes, `contained` what of it the given or assumed cost of
    the layer had in it: products, or all, of tokens that choose evenly.
    """

    layer: ExpertLayer
    runs: tuple[LayerRun, ...]
    repeats: bool
    takes: Mapping[Pass, Amount]
    contained: Mapping[Pass, Amount]
    by_home: Mapping[int, tuple[LayerRun, ...]]

    def exchanging(self, size_class: int, way: Pass, home: int | None = None) -> ExpertPass | None:
        """The pass whose exchanges an operation makes, None where it makes none.

        `home` is the pipeline rank it runs on, None for the one whose groups count.
        """
        run = (self.runs if home is None else self.by_home[home])[size_class]
        if way is Pass.BACKWARD_WEIGHT or (way is Pass.RECOMPUTE and not self.repeats):
            return None
        return run.backward if way is Pass.BACKWARD else run.forward


@dataclass(frozen=True, slots=True, eq=False)
class StageExperts:
    """The experts of one stage: `takes` and `contained` summed over its layers, see `MoeLayer`.

    `home` is the pipeline rank whose expert groups these are: of several the one that takes longer.
    """

    stage: int
    home: int
    layers: tuple[int, ...]
    takes: Mapping[Pass, Amount]
    contained: Mapping[Pass, Amount]


@dataclass(frozen=True, slots=True, eq=False)
class PlanMoe:
    """The experts of a plan. `group` is the number of the expert group that stands for all: the
    one whose layers take longest in all. `stages` has one for each stage, in order.
    """

    inputs: MoeInputs
    layers: tuple[MoeLayer, ...]
    stages: tuple[StageExperts, ...]
    group: int

    def loads(
        self, stage: int, size_class: int, way: Pass, home: int | None = None
    ) -> LinkLoads | None:
        """Bytes on each link in one operation, of all exchanges of all groups of a pipeline rank.

        `home` as in `MoeLayer.exchanging`. None without a topology, and where the operation
        exchanges nothing over links.
        """
        exchanges = self._exchanges(stage, size_class, way, home)
        return _together([exchange.loads for exchange in exchanges])

    def least_loads(
        self, stage: int, size_class: int, way: Pass, home: int | None = None
    ) -> LinkLoads | None:
        """The same at least, where copies are only expected: what bounds are taken of."""
        exchanges = self._exchanges(stage, size_class, way, home)
        return _together([exchange.least for exchange in exchanges])

    def exchange_loads(
        self, layer: int, size_class: int, way: Pass, part: ExchangePart, home: int | None = None
    ) -> LinkLoads | None:
        """The expected ones of one exchange of one layer."""
        exchange = self._exchange(layer, size_class, way, part, home)
        return None if exchange is None else _together([exchange.loads])

    def _exchanges(
        self, stage: int, size_class: int, way: Pass, home: int | None
    ) -> list[ExchangeCost]:
        return [
            exchange
            for number in self.stages[stage].layers
            for part in ExchangePart
            if (exchange := self._exchange(number, size_class, way, part, home)) is not None
        ]

    def _exchange(
        self, layer: int, size_class: int, way: Pass, part: ExchangePart, home: int | None
    ) -> ExchangeCost | None:
        made = self.layers[layer].exchanging(size_class, way, home)
        if made is None:
            return None
        return made.dispatch if part is ExchangePart.DISPATCH else made.combine


def _together(every: Sequence[LinkLoads]) -> LinkLoads | None:
    carried = [loads for loads in every if len(loads.links)]
    return reduce(LinkLoads.plus, carried) if carried else None
