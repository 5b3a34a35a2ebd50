"""How long the reduction of each part takes alone, and at least, on the physical paths."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

import numpy as np

from service.core.estimates.reduction.parts import Part
from service.core.estimates.reduction.sharing import alone_picoseconds
from service.core.plans.gradient_reduction import ReductionAlgorithm
from service.core.plans.plan import ResolvedPlan
from service.core.topology.cluster import Cluster
from service.core.topology.collectives import (
    Algorithm,
    CollectiveTraffic,
    NoPath,
    collective_traffic,
)
from service.core.topology.flows.demands import CollectiveKind, Gathering
from service.core.topology.flows.results import FlowBound
from service.core.topology.flows.study import flow_study
from service.core.topology.flows.together import bound_together
from service.core.topology.paths import SearchBudget, path_finder
from service.core.units import PICOSECONDS_PER_SECOND

__all__ = ["MAX_LINKS_SEARCHED", "CollectiveBound", "PricedPart", "Step", "price_parts"]

# Looked at to find the paths of all reductions of a plan: about a second.
MAX_LINKS_SEARCHED = 100_000_000


class Step(StrEnum):
    """The collectives of a part, in their order."""

    REDUCTION = "reduction"  # all-reduce or reduce-scatter of gradients
    GATHER = "gather"  # all-gather of weights after the step


@dataclass(frozen=True, slots=True)
class CollectiveBound:
    """The least time of one collective, by any algorithm over any route, and what binds."""

    picoseconds: int
    binding: str


@dataclass(frozen=True, slots=True, eq=False)
class PricedPart:
    """A part with the traffic of each of its steps; `bounds` as long as `steps`."""

    part: Part
    algorithm: ReductionAlgorithm
    traffic: CollectiveTraffic
    steps: tuple[Step, ...]
    bounds: tuple[CollectiveBound, ...]

    def message_bytes(self, step: Step) -> int:
        """What each rank holds before (or after) the step."""
        return _message_bytes(self.part, step)

    @property
    def latency_picoseconds(self) -> int:
        """What comes once, whatever the bytes."""
        return round(Fraction(self.traffic.latency_seconds) * PICOSECONDS_PER_SECOND)

    def alone_picoseconds(self, step: Step) -> int:
        """What a step takes where nothing else is on its links, rounded up."""
        return alone_picoseconds(
            self.message_bytes(step), self.traffic.seconds_per_byte, self.latency_picoseconds
        )

    def bound(self, step: Step) -> int:
        """The least picoseconds of a step; 0 of one that there is not."""
        return dict(zip(self.steps, (b.picoseconds for b in self.bounds), strict=True)).get(step, 0)


def price_parts(
    resolved: ResolvedPlan,
    cluster: Cluster,
    parts: Sequence[Part],
    algorithm: ReductionAlgorithm,
    *,
    gathers: bool,
) -> tuple[PricedPart, ...] | NoPath:
    """Every part, all groups of which work at once; or two devices that no path joins.

    `gathers` says whether an all-gather of the weights follows. Raises `WorkBudgetExceeded` when
    finding the paths looks at more than `MAX_LINKS_SEARCHED` links.
    """
    finder, study = path_finder(cluster), flow_study(cluster)
    budget = SearchBudget(MAX_LINKS_SEARCHED)
    known: dict[tuple[tuple[int, ...], ...], CollectiveTraffic] = {}
    priced = []
    for part in parts:
        groups = [_devices(resolved, group) for group in part.groups]
        if part.groups not in known:
            found = collective_traffic(
                finder, groups, _ALGORITHMS[algorithm], cluster.vertices, budget
            )
            if isinstance(found, NoPath):
                return found
            known[part.groups] = found
        steps = (Step.REDUCTION, Step.GATHER) if gathers else (Step.REDUCTION,)
        vertices = [
            np.array([study.network.number[name] for name in group], dtype=np.int32)
            for group in groups
        ]
        bounds = []
        for step in steps:
            kind, size = _KINDS[algorithm, step], Fraction(_message_bytes(part, step))
            gatherings = [Gathering(kind, one, size) for one in vertices]
            bounds.append(_bound(bound_together(study, gatherings)))
        priced.append(PricedPart(part, algorithm, known[part.groups], steps, tuple(bounds)))
    return tuple(priced)


_ALGORITHMS: Mapping[ReductionAlgorithm, Algorithm] = {
    ReductionAlgorithm.RING: Algorithm.ALL_REDUCE_RING,
    ReductionAlgorithm.TREE: Algorithm.ALL_REDUCE_TREE,
    ReductionAlgorithm.SHARDED: Algorithm.SCATTER_RING,
}
_KINDS = {
    (ReductionAlgorithm.RING, Step.REDUCTION): CollectiveKind.ALL_REDUCE,
    (ReductionAlgorithm.TREE, Step.REDUCTION): CollectiveKind.ALL_REDUCE,
    (ReductionAlgorithm.SHARDED, Step.REDUCTION): CollectiveKind.REDUCE_SCATTER,
    (ReductionAlgorithm.SHARDED, Step.GATHER): CollectiveKind.ALL_GATHER,
}


def _message_bytes(part: Part, step: Step) -> int:
    held = part.held
    return held.gradient_bytes if step is Step.REDUCTION else held.weight_bytes


def _devices(resolved: ResolvedPlan, group: Sequence[int]) -> list[str]:
    names = [resolved.placement[rank].device for rank in group]
    return [name for name in names if name is not None]


def _bound(found: FlowBound | None) -> CollectiveBound:
    """Rounded down, so that rounding puts it above no prediction."""
    if found is None:
        return CollectiveBound(0, "")
    binding = found.binding
    way = "" if binding.direction is None else f", {binding.direction.value}"
    return CollectiveBound(
        int(found.exact_seconds * PICOSECONDS_PER_SECOND),
        f"{binding.kind.value} {binding.name}{way}",
    )
