"""What the experts of a plan are asked, by whom, and where they stand."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from service.core.moe.assignments import RoutingLevel
from service.core.moe.placement import contiguous, given
from service.core.moe.routing import Routing
from service.core.moe.served import ExpertPlacement
from service.core.moe.settings import MoeSettings
from service.core.moe.skews import Skew, SkewKind

__all__ = ["ExpertGroups", "ExpertLayer", "MoeInputs", "uniform_inputs"]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ExpertLayer:
    """One of them: its `number` among all in execution order, and its `place` in its stage.

    `hidden_size` elements of a token go through each of `top_k` of its `experts`, which are `width`
    wide; `shared_width` is that of the expert that all tokens take, None without one. `place` is
    None and `name` too where no model says what its stage is made of. `routing_layer` is the
    routing's own number of the layer that stands for it, None where no routing has layers.
    """

    number: int
    stage: int
    name: str | None
    place: int | None
    hidden_size: int
    experts: int
    top_k: int
    width: int
    gated: bool
    shared_width: int | None = None
    routing_layer: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ExpertGroups:
    """The G groups of W ranks each that one pipeline rank has; all exchange at the same time.

    `ranks` (G, W) are those of the plan: consecutive ones of `Layout.ranks_at`. Position i of a
    group has the expert coordinate i // expert_tensor. `nodes` (G, W) numbers the hosts of the
    cluster, `places` (G, W) says where among the accelerators of its host each stands; both are 0
    without a topology, and `devices` is None.
    """

    ranks: Int64Array
    devices: tuple[tuple[str, ...], ...] | None
    nodes: Int64Array
    places: Int64Array

    @property
    def count(self) -> int:
        """How many groups there are."""
        return len(self.ranks)

    @property
    def width(self) -> int:
        """Ranks of each."""
        return int(self.ranks.shape[1])


@dataclass(frozen=True, slots=True, eq=False)
class MoeInputs:
    """What the experts of a plan are asked, and where they stand.

    `routing` is the document's; without one tokens choose by `settings.skew`, else evenly. `tokens`
    are those of a rank and `steps` the routing's step, each by size class of microbatches. `groups`
    are those of each pipeline rank, `homes` the pipeline ranks of each stage.
    """

    settings: MoeSettings
    routing: Routing | None
    layers: tuple[ExpertLayer, ...]
    tokens: tuple[int, ...]
    steps: tuple[int, ...]
    expert: int
    expert_tensor: int
    groups: tuple[ExpertGroups, ...]
    homes: tuple[tuple[int, ...], ...]

    @property
    def is_uniform(self) -> bool:
        """Whether tokens choose evenly."""
        skew = self.settings.skew if self.routing is None else self.routing.skew
        return (self.routing is None or skew is not None) and (
            skew is None or skew.kind is SkewKind.UNIFORM
        )

    def placement(self, experts: int) -> ExpertPlacement:
        """Where the experts of a layer stand. Raises `InvalidInput` as `given` does."""
        by_rank = self.settings.experts_by_rank
        if by_rank is None:
            return contiguous(experts, self.expert)
        return given(experts, self.expert, by_rank)

    def of(self, layer: ExpertLayer) -> Routing:
        """The routing that a layer reads."""
        if self.routing is not None:
            return self.routing
        skew = self.settings.skew or Skew(SkewKind.UNIFORM)
        return Routing(
            experts=layer.experts,
            top_k=layer.top_k,
            level=RoutingLevel.SKEW,
            step_numbers=tuple(range(skew.steps)),
            skew=skew,
        )


def uniform_inputs(inputs: MoeInputs) -> MoeInputs:
    """The same experts asked evenly."""
    return replace(
        inputs,
        settings=replace(inputs.settings, routing=None, skew=None, routing_layers=None),
        routing=None,
        layers=tuple(replace(layer, routing_layer=None) for layer in inputs.layers),
        steps=(0,) * len(inputs.steps),
    )
