"""Where a plan's experts would better stand, and what that would save."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from service.core.estimates.experts.repricing import Repriced, class_microbatches, totals_of
from service.core.moe.balance import ExpertGroup, Proposal, advise, even_loads
from service.core.moe.imbalance import Imbalance, imbalance
from service.core.moe.served import ExpertPlacement
from service.core.plans.moe.results import MoeLayer, PlanMoe
from service.core.plans.plan import ResolvedPlan

__all__ = [
    "MOST_ADVISED_LAYERS",
    "BetterPlacement",
    "ExpertAdvice",
    "by_rank",
    "expert_advice",
]

Int64Array = npt.NDArray[np.int64]

# Layers that get a placement of their own, those with the most to gain first.
MOST_ADVISED_LAYERS = 8

# The search for the best placement of one load, in its own steps.
_SEARCH_STEPS = 20_000


@dataclass(frozen=True, slots=True, eq=False)
class BetterPlacement:
    """A placement for a load, and what the layers that have it take of an iteration with it.

    `layer` is None where it is one for all layers. Ranks before and after are by the load of an
    iteration; `bound_rows` is what no placement of as many slots brings the busiest rank below.
    """

    layer: MoeLayer | None
    proposal: Proposal
    before: Imbalance
    bound_rows: float
    picoseconds_before: int
    picoseconds_after: int

    @property
    def gain(self) -> int:
        """Picoseconds of an iteration; negative where other things than rows decide."""
        return self.picoseconds_before - self.picoseconds_after

    @property
    def experts_by_rank(self) -> tuple[tuple[int, ...], ...]:
        """As a plan states it."""
        return by_rank(self.proposal.placement)


@dataclass(frozen=True, slots=True, eq=False)
class ExpertAdvice:
    """One placement for all layers, as a plan can state, and one for each of some layers alone.

    `looked_at` of all `layers` were advised on their own.
    """

    slots: int
    for_all: BetterPlacement | None
    layers: tuple[BetterPlacement, ...]
    looked_at: int


def by_rank(placement: ExpertPlacement) -> tuple[tuple[int, ...], ...]:
    """The experts of each rank."""
    found: list[list[int]] = [[] for _ in range(placement.ranks)]
    pairs = zip(placement.slot_rank.tolist(), placement.slot_expert.tolist(), strict=True)
    for rank, expert in pairs:
        found[rank].append(expert)
    return tuple(map(tuple, found))


def expert_advice(resolved: ResolvedPlan, moe: PlanMoe, extra_slots: int = 0) -> ExpertAdvice:
    """Placements in as many places as a layer has experts, and so many more for replicas.

    Loads are the assignments of an iteration; each proposal is priced with the rule by which the
    plan's replicas divide tokens. Raises `InvalidInput` where the ranks can't hold so many.
    """
    count = max(layer.layer.experts for layer in moe.layers) + extra_slots
    loads = {layer.layer.number: _loads(resolved, moe, layer) for layer in moe.layers}
    ranked = sorted(moe.layers, key=lambda layer: -_lost(loads[layer.layer.number], moe, layer))
    own = [
        _better(resolved, moe, (layer,), loads[layer.layer.number], count)
        for layer in ranked[:MOST_ADVISED_LAYERS]
    ]
    for_all = None
    if len({layer.layer.experts for layer in moe.layers}) == 1:
        whole = np.sum(list(loads.values()), axis=0)
        for_all = replace(_better(resolved, moe, moe.layers, whole, count), layer=None)
    own.sort(key=lambda one: -one.gain)
    return ExpertAdvice(count, for_all, tuple(own), len(own))


def _loads(resolved: ResolvedPlan, moe: PlanMoe, layer: MoeLayer) -> Int64Array:
    """(E,) assignments of an iteration."""
    counts = class_microbatches(resolved)
    found = np.zeros(layer.layer.experts, dtype=np.int64)
    for count, run in zip(counts, layer.runs, strict=True):
        found += count * run.groups[moe.group].expert_rows
    return found


def _lost(loads: Int64Array, moe: PlanMoe, layer: MoeLayer) -> float:
    """Rows of the busiest rank beyond the mean."""
    now = imbalance(even_loads(loads, moe.inputs.placement(layer.layer.experts)))
    return now.most_rows - now.mean_rows


def _better(
    resolved: ResolvedPlan,
    moe: PlanMoe,
    layers: Sequence[MoeLayer],
    loads: Int64Array,
    slots: int,
) -> BetterPlacement:
    advice = advise(loads, _group(moe, slots), steps=_SEARCH_STEPS)
    before = imbalance(even_loads(loads, moe.inputs.placement(len(loads))))
    proposal = advice.proposals[0]
    settings = replace(moe.inputs.settings, experts_by_rank=by_rank(proposal.placement))
    repriced = Repriced.with_settings(resolved, moe, settings)
    only = replace(moe, layers=tuple(layers))
    after = {layer.layer.number: repriced.runs(layer) for layer in layers}
    return BetterPlacement(
        layer=layers[0],
        proposal=proposal,
        before=before,
        bound_rows=advice.bound_rows,
        picoseconds_before=totals_of(resolved, only).picoseconds,
        picoseconds_after=totals_of(resolved, only, after).picoseconds,
    )


def _group(moe: PlanMoe, slots: int) -> ExpertGroup:
    """The ranks of the group by their expert coordinate, and how they fall on hosts."""
    inputs = moe.inputs
    return ExpertGroup(inputs.expert, slots, _ranks_per_node(moe))


def _ranks_per_node(moe: PlanMoe) -> int | None:
    """Where each host has as many consecutive ranks; None where not, and without a topology."""
    groups = moe.inputs.groups[moe.stages[moe.layers[0].layer.stage].home]
    if groups.devices is None:
        return None
    nodes = groups.nodes[moe.group, :: moe.inputs.expert_tensor]
    changes = np.flatnonzero(np.diff(nodes)) + 1
    if not len(changes):
        return None
    size = int(changes[0])
    expected = np.arange(len(nodes)) // size
    numbered = np.searchsorted(changes, np.arange(len(nodes)), side="right")
    return size if np.array_equal(numbered, expected) else None
