"""Which stages, cuts and lifetimes two plans have otherwise, each with what it was and is."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import zip_longest

from service.core.amounts import Amount, SizeClasses
from service.core.estimates.iteration import Iteration, RankIteration
from service.core.estimates.memory import PlanMemory
from service.core.estimates.simulation import SimulatedPlan
from service.core.estimates.transfers import TransferExposure
from service.core.memory.live import LiveActivations
from service.core.memory.terms import RankMemory, Term
from service.core.plans.plan import (
    ActivationChange,
    Boundary,
    RankPair,
    ResolvedPlan,
    ResolvedStage,
)
from service.core.schedules.link_use import link_busy
from service.core.topology.cluster import Link

__all__ = [
    "CutDifference",
    "LifetimeDifference",
    "LinkDifference",
    "LinkUse",
    "MemoryDifference",
    "StageDifference",
    "UpdateDifference",
    "cut_differences",
    "lifetime_differences",
    "link_differences",
    "memory_differences",
    "slowest_pair",
    "stage_differences",
    "update_differences",
]


@dataclass(frozen=True, slots=True)
class StageDifference:
    """A stage that differs; one side is None where only the other plan has it.

    `gained` and `lost` are layers, in execution order.
    """

    stage: int
    before: ResolvedStage | None
    after: ResolvedStage | None

    @property
    def gained(self) -> tuple[str, ...]:
        """Layers that only the second plan has here."""
        return _only(self.after, self.before)

    @property
    def lost(self) -> tuple[str, ...]:
        """Layers that only the first plan has here."""
        return _only(self.before, self.after)


@dataclass(frozen=True, slots=True)
class CutDifference:
    """What crosses from stage `source` to `target` in one direction of the schedule, if it differs.

    In tensors, bytes, times, what it waits for links, or the devices and links of any pair of
    ranks. `before` and `after` are positions in the boundaries of each plan, None where only the
    other plan has it.
    """

    source: int
    target: int
    direction: int
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class LinkUse:
    """One direction of a link, or a shared capacity; `busy` in picoseconds of an iteration."""

    link: Link
    busy: int


@dataclass(frozen=True, slots=True)
class LinkDifference:
    """A link that is occupied for another time; one side is None where a plan does not use it."""

    resource: str
    before: LinkUse | None
    after: LinkUse | None

    @property
    def longer(self) -> int:
        """By how much it is occupied longer in the second plan, in picoseconds."""
        return sum(sign * use.busy for sign, use in ((-1, self.before), (1, self.after)) if use)


@dataclass(frozen=True, slots=True)
class MemoryDifference:
    """A pipeline rank of which some term of memory differs, at its peak or at its own most.

    `terms` are those that differ; `before` and `after` have the others too.
    """

    rank: int
    before: RankMemory | None
    after: RankMemory | None
    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class LifetimeDifference:
    """A pipeline rank whose peak of live activations differs, in count or in bytes."""

    rank: int
    before: LiveActivations | None
    after: LiveActivations | None


@dataclass(frozen=True, slots=True)
class UpdateDifference:
    """A pipeline rank on which what follows its last operation takes another time."""

    rank: int
    before: RankIteration | None
    after: RankIteration | None


def stage_differences(before: ResolvedPlan, after: ResolvedPlan) -> tuple[StageDifference, ...]:
    """The stages whose layers, weights, times, activations or ranks differ, ascending."""
    found = []
    for number, (one, other) in enumerate(zip_longest(before.stages, after.stages)):
        if one is None or other is None or _stage(one, before) != _stage(other, after):
            found.append(StageDifference(number, one, other))
    return tuple(found)


def cut_differences(
    before: SimulatedPlan,
    after: SimulatedPlan,
    exposures: tuple[Sequence[TransferExposure], Sequence[TransferExposure]],
) -> tuple[CutDifference, ...]:
    """The cuts that differ, by (source, target, direction); `exposures` are those of both plans."""
    plans = before.resolved, after.resolved
    places = [
        {(cut.source, cut.target, cut.direction): n for n, cut in enumerate(plan.boundaries)}
        for plan in plans
    ]
    queued = [_queued(of_plan) for of_plan in exposures]
    found = []
    for key in sorted(places[0].keys() | places[1].keys()):
        one, other = places[0].get(key), places[1].get(key)
        if (
            one is None
            or other is None
            or queued[0].get(key) != queued[1].get(key)
            or _cut(plans[0].boundaries[one], plans[0])
            != _cut(plans[1].boundaries[other], plans[1])
        ):
            found.append(CutDifference(*key, one, other))
    return tuple(found)


def lifetime_differences(
    before: Sequence[LiveActivations], after: Sequence[LiveActivations]
) -> tuple[LifetimeDifference, ...]:
    """The ranks whose peaks differ, ascending."""
    found = []
    for rank, (one, other) in enumerate(zip_longest(before, after)):
        if one is None or other is None or _peaks(one) != _peaks(other):
            found.append(LifetimeDifference(rank, one, other))
    return tuple(found)


def update_differences(before: Iteration, after: Iteration) -> tuple[UpdateDifference, ...]:
    """The ranks of which exposed reduction, step or exposed gather differ, ascending."""
    ranks = [{one.rank: one for one in plan.ranks} for plan in (before, after)]
    found = []
    for rank in sorted(ranks[0].keys() | ranks[1].keys()):
        one, other = ranks[0].get(rank), ranks[1].get(rank)
        if _following(one) != _following(other):
            found.append(UpdateDifference(rank, one, other))
    return tuple(found)


def _following(rank: RankIteration | None) -> tuple[int | None, ...]:
    if rank is None:
        return ()
    return rank.exposed_reduction, rank.step, rank.exposed_gather


def link_differences(before: SimulatedPlan, after: SimulatedPlan) -> tuple[LinkDifference, ...]:
    """The links that transfers occupy longer or shorter, in link mode: by how much, most first."""
    busy = [
        {
            link.resource: LinkUse(link, int(time))
            for link, time in zip(plan.links, link_busy(plan.timeline), strict=True)
        }
        for plan in (before, after)
    ]
    found = []
    for name in sorted(busy[0].keys() | busy[1].keys()):
        one, other = busy[0].get(name), busy[1].get(name)
        if one is None or other is None or one.busy != other.busy:
            found.append(LinkDifference(name, one, other))
    return tuple(sorted(found, key=lambda one: -abs(one.longer)))


def memory_differences(
    before: PlanMemory | None, after: PlanMemory | None
) -> tuple[MemoryDifference, ...]:
    """The ranks whose memory differs, ascending; none where the memory of a plan is not known."""
    if before is None or after is None:
        return ()
    found = []
    for number, (one, other) in enumerate(zip_longest(before.ranks, after.ranks)):
        sizes = [_term_sizes(rank) for rank in (one, other)]
        terms = tuple(term for term in Term if sizes[0].get(term) != sizes[1].get(term))
        capacities = [None if rank is None else rank.capacity for rank in (one, other)]
        if terms or capacities[0] != capacities[1]:
            found.append(MemoryDifference(number, one, other, terms))
    return tuple(found)


def _term_sizes(rank: RankMemory | None) -> dict[Term, tuple[int, int]]:
    return {} if rank is None else {one.term: (one.at_peak, one.maximum) for one in rank.terms}


def slowest_pair(boundary: Boundary) -> RankPair | None:
    """The rank pair whose transfer forward takes longest, the first of equals."""

    def time(pair: RankPair) -> int:
        amount = pair.forward_picoseconds
        if amount is None:
            return 0
        return amount if isinstance(amount, int) else sum(amount)

    return max(boundary.pairs, key=time, default=None)


def _only(one: ResolvedStage | None, other: ResolvedStage | None) -> tuple[str, ...]:
    if one is None:
        return ()
    elsewhere = set() if other is None else set(other.layers)
    return tuple(layer for layer in one.layers if layer not in elsewhere)


def _spreads(sizes: SizeClasses, *amounts: Amount | None) -> tuple[tuple[Fraction, ...], ...]:
    """What one microbatch has at least, at most and on average; nothing where that is unknown.

    Comparable among plans, whose classes are numbered by each for itself.
    """
    spreads = [None if amount is None else sizes.spread(amount) for amount in amounts]
    return tuple(
        () if one is None else (Fraction(one.least), Fraction(one.most), one.mean)
        for one in spreads
    )


def _stage(stage: ResolvedStage, plan: ResolvedPlan) -> tuple[object, ...]:
    return (
        stage.ranks,
        stage.layers,
        None if plan.weights is None else plan.weights[stage.stage],
        *_spreads(
            plan.sizes,
            stage.forward_picoseconds,
            stage.backward_picoseconds,
            stage.backward_input_picoseconds,
            stage.backward_weight_picoseconds,
            stage.recompute_picoseconds,
            stage.pair_picoseconds,
            stage.activation_bytes,
            stage.recomputed_bytes,
            *_deltas(stage.activation_deltas),
        ),
    )


def _deltas(change: ActivationChange | None) -> tuple[Amount, ...]:
    return () if change is None else (change.backward_input_bytes, change.backward_weight_bytes)


def _cut(cut: Boundary, plan: ResolvedPlan) -> tuple[object, ...]:
    return (
        cut.origin,
        cut.returns,
        _spreads(
            plan.sizes,
            cut.forward_bytes,
            cut.backward_bytes,
            cut.forward_picoseconds,
            cut.backward_picoseconds,
            cut.forward_bound_picoseconds,
            cut.backward_bound_picoseconds,
        ),
        [
            (tensor.name, tensor.produced_stage, tensor.consumed_stages)
            for tensor in cut.tensors or ()
        ],
        [(pair.source_device, pair.target_device, *_links(pair)) for pair in cut.pairs],
    )


def _queued(exposures: Sequence[TransferExposure]) -> dict[tuple[int, int, int], int]:
    """Picoseconds that the transfers of each cut spend behind others on links, both ways."""
    queued: dict[tuple[int, int, int], int] = {}
    for one in exposures:
        key = one.edge.source, one.edge.target, one.edge.direction
        queued[key] = queued.get(key, 0) + one.queued_picoseconds
    return queued


def _links(pair: RankPair) -> Iterator[tuple[str, ...]]:
    for path in (pair.forward_path, pair.backward_path):
        if path is not None:
            yield tuple(link.name for link in path.links)


def _peaks(live: LiveActivations) -> tuple[int | None, ...]:
    return live.peak_activations, live.peak_recomputed or 0, live.peak_bytes
