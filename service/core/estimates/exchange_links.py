"""The links that the experts of a plan occupy, and for how long: the bundle of each operation.

All expert groups of a stage exchange at the same time, so what one operation exchanges is the
dispatches and combines of all groups in all layers of its stage.
"""

from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np
import numpy.typing as npt

from service.core.amounts import Amount, at_class
from service.core.estimates.link_times import (
    LinkNumbers,
    check_entries,
    occupied_picoseconds,
    predicted_rate,
)
from service.core.moe.exchange import LinkLoads
from service.core.plans.moe.results import Pass, PlanMoe
from service.core.plans.plan import Plan, ResolvedPlan, ResolvedStage
from service.core.plans.schedule import has_backward, splits_backward
from service.core.schedules.own_bundles import OwnBundles
from service.core.schedules.program import OpKind, Program, RecomputeMode
from service.core.topology.cluster import Link
from service.core.topology.flows.study import flow_study

__all__ = ["ExchangeBundles", "exchange_bundles", "exchanged_bytes", "exchanging_passes"]

# Which exchanges an operation makes. Those of a backward belong to the half of it that gives the
# gradients of inputs.
_PASSES = {
    OpKind.FORWARD: Pass.FORWARD,
    OpKind.BACKWARD: Pass.BACKWARD,
    OpKind.BACKWARD_INPUT: Pass.BACKWARD,
    OpKind.RECOMPUTE: Pass.RECOMPUTE,
}


@dataclass(frozen=True, slots=True, eq=False)
class ExchangeBundles:
    """Further kinds of bundles, what each occupies and its latency (ps), and whose they are."""

    occupied: list[list[tuple[int, int]]]
    latency: list[int]
    own: OwnBundles


def exchange_bundles(
    resolved: ResolvedPlan, numbers: LinkNumbers, first: int, entries: int
) -> ExchangeBundles | None:
    """The bundle of each kind of operation, stage and size of microbatches, numbered from `first`.

    On each link: the bytes of all groups and layers over it / the share of its effective bandwidth
    that exchanges get, rounded up. A bundle alone is there when its operation ends, so that what
    it waits for comes on top; where links are occupied for longer than that, they decide. None
    where nothing is exchanged over links.

    Raises `WorkBudgetExceeded` for more than `MAX_LINK_ENTRIES`, of which there are `entries`.
    """
    if resolved.moe is None or resolved.cluster is None:
        return None
    found = _Bundles(resolved, resolved.moe, numbers, first, entries)
    tables = {kind: found.table(kind) for kind in _PASSES}
    if not found.latency:
        return None
    own = OwnBundles(**{kind.name.lower(): table for kind, table in tables.items()})
    return ExchangeBundles(found.occupied, found.latency, own)


def exchanged_bytes(resolved: ResolvedPlan, program: Program) -> list[tuple[Link, int]]:
    """What experts put on each capacity over the iteration at least, by the first link of each."""
    moe, sizes = resolved.moe, resolved.sizes
    if moe is None or resolved.cluster is None:
        return []
    passes = exchanging_passes(resolved.plan, program.recompute)
    network = flow_study(resolved.cluster).network
    carried = np.zeros(len(network.links), dtype=np.int64)
    for stage in resolved.stages:
        for direction, home in enumerate(stage.ranks):
            of_class = sizes.of_microbatch[direction :: len(stage.ranks)]
            counts = [len(range(direction, sizes.microbatches, len(stage.ranks)))]
            if of_class:
                counts = np.bincount(of_class, minlength=sizes.count).tolist()
            for (number, count), way in product(enumerate(counts), passes):
                loads = moe.least_loads(stage.stage, number, way, home) if count else None
                if loads is not None:
                    carried[loads.links] += loads.bytes * count
    resources, total = LinkLoads.of(carried).resources(network)
    return [
        (network.links[int(network.representative[resource])], size)
        for resource, size in zip(resources.tolist(), total.tolist(), strict=True)
    ]


class _Bundles:
    """Kinds of bundles as they are needed: alike ones are one."""

    def __init__(
        self,
        resolved: ResolvedPlan,
        moe: PlanMoe,
        numbers: LinkNumbers,
        first: int,
        entries: int,
    ) -> None:
        self.occupied: list[list[tuple[int, int]]] = []
        self.latency: list[int] = []
        self._resolved, self._moe, self._numbers, self._first = resolved, moe, numbers, first
        self._entries = entries
        self._kinds: dict[tuple[tuple[tuple[int, int], ...], int], int] = {}
        self._occupied_by: dict[LinkLoads, tuple[tuple[int, int], ...]] = {}
        links = [] if resolved.cluster is None else flow_study(resolved.cluster).network.links
        self._links = links
        self._share = Fraction(moe.inputs.settings.exchange_efficiency)

    def table(self, kind: OpKind) -> npt.NDArray[np.int32]:
        """(stages, microbatches or 1) the kind of bundle of each operation, -1 for none.

        Microbatch m goes in direction m modulo the directions, in each of which a stage lives on a
        pipeline rank of its own.
        """
        stages, sizes = self._resolved.stages, self._resolved.sizes
        homes = list(zip(*(stage.ranks for stage in stages), strict=True))
        if kind not in _kinds(self._resolved.plan):
            return np.full((len(stages), 1), -1, dtype=np.int32)
        ways = [
            sizes.table(
                [self._amount(stage, home, kind) for stage, home in zip(stages, of, strict=True)]
            )
            for of in homes
        ]
        found = ways[0]
        if len(ways) > 1 and not all(np.array_equal(way, found) for way in ways):
            found = np.broadcast_to(found, (len(stages), sizes.microbatches)).copy()
            for direction, way in enumerate(ways):
                every = np.arange(direction, sizes.microbatches, len(ways))
                found[:, every] = way if way.shape[-1] == 1 else way[:, every]
        return found.astype(np.int32)

    def _amount(self, stage: ResolvedStage, home: int, kind: OpKind) -> Amount:
        loads = [
            self._moe.loads(stage.stage, number, _PASSES[kind], home)
            for number in range(self._resolved.sizes.count)
        ]
        times: Amount | None = getattr(stage, f"{kind.name.lower()}_picoseconds")
        classes = tuple(
            -1 if of is None else self._number(of, at_class(times or 0, number))
            for number, of in enumerate(loads)
        )
        return classes[0] if len(set(classes)) == 1 else classes

    def _number(self, loads: LinkLoads, alone: int) -> int:
        occupied = self._occupied(loads)
        latency = max(0, alone - max(time for _, time in occupied))
        if (occupied, latency) not in self._kinds:
            self._kinds[occupied, latency] = self._first + len(self.latency)
            self._entries += len(occupied)
            check_entries(self._entries)
            self.occupied.append(list(occupied))
            self.latency.append(latency)
        return self._kinds[occupied, latency]

    def _occupied(self, loads: LinkLoads) -> tuple[tuple[int, int], ...]:
        if loads not in self._occupied_by:
            found: dict[int, list[tuple[int, float]]] = {}
            for number, size in zip(loads.links.tolist(), loads.bytes.tolist(), strict=True):
                link = self._links[number]
                found.setdefault(self._numbers(link), []).append((size, predicted_rate(link)))
            self._occupied_by[loads] = tuple(
                (place, occupied_picoseconds(parts, self._share)) for place, parts in found.items()
            )
        return self._occupied_by[loads]


def exchanging_passes(plan: Plan, recompute: RecomputeMode | None = None) -> tuple[Pass, ...]:
    """Those in which the experts of a plan exchange something; without a mode those that may."""
    if not has_backward(plan):
        return (Pass.FORWARD,)
    again = () if recompute is RecomputeMode.NONE else (Pass.RECOMPUTE,)
    return (Pass.FORWARD, Pass.BACKWARD, *again)


def _kinds(plan: Plan) -> tuple[OpKind, ...]:
    """The kinds of operations that a plan may run and that exchange something."""
    passes = exchanging_passes(plan)
    return tuple(
        kind
        for kind, way in _PASSES.items()
        if way in passes and (kind is not OpKind.BACKWARD_INPUT or splits_backward(plan))
    )
