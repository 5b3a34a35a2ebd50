"""Wire types of what differs between two plans: stages, cuts, lifetimes."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from service.api.schemas.boundary_transfers import BoundaryOut, boundary_transfers_terms
from service.api.schemas.cadence import CadenceStage, cadence_terms
from service.api.schemas.expert_differences import (
    ExpertDifferencesOut,
    expert_differences_terms,
)
from service.api.schemas.iteration import RankTerms, rank_terms
from service.api.schemas.memory import MemoryRankVerdict, rank_verdict
from service.api.schemas.ranges import BytesRanges, bytes_ranges, same_bytes
from service.core.estimates.comparison import ComparedTerms, Comparison
from service.core.estimates.differences import (
    LinkDifference,
    LinkUse,
    MemoryDifference,
    slowest_pair,
)
from service.core.memory.live import LiveActivations
from service.core.memory.terms import RankMemory, Term
from service.core.plans.plan import ResolvedPlan, ResolvedStage
from service.core.units import exact_seconds, to_seconds
from service.formats.documents.fields import or_unset

__all__ = [
    "CutDifferenceOut",
    "Differences",
    "LifetimeDifferenceOut",
    "LifetimeSide",
    "LinkDifferenceOut",
    "LinkSide",
    "MemoryDifferenceOut",
    "MemoryTermDifference",
    "MemoryTermSide",
    "StageDifferenceOut",
    "StageSide",
    "UpdateDifferenceOut",
    "differences_terms",
]

MAX_LINKS = 64

Key = TypeVar("Key")

_ALONE = (
    "By how much the iteration of the first plan gets longer when it is given these times of the "
    "other one and nothing else; negative where shorter. Those of several are not to be added. "
    "Absent where they are equal, where they can't be exchanged alone, and beyond the 32 that "
    "differ most."
)
AloneSeconds = Annotated[float | UnsetType, Meta(description=_ALONE)]


class StageSide(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A stage of one plan: what it takes, holds and keeps."""

    costs: CadenceStage
    saved_activation_bytes: Annotated[
        int | UnsetType,
        Meta(
            description="What a device keeps of one microbatch from its forward on; absent where "
            "unknown, and where microbatches differ."
        ),
    ] = UNSET
    recomputed_activation_bytes: Annotated[
        int | UnsetType,
        Meta(
            description="What its recomputation makes beside that until the backward is done; 0 "
            "without one, absent where unknown."
        ),
    ] = UNSET
    bytes_ranges: BytesRanges = UNSET


class StageDifferenceOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A stage whose layers, times, activations or ranks differ."""

    stage: Annotated[int, Meta(ge=0)]
    layers_gained: Annotated[list[str], Meta(description="That only the other plan has here.")]
    layers_lost: Annotated[list[str], Meta(description="That only the first plan has here.")]
    before: Annotated[
        StageSide | UnsetType, Meta(description="In the first plan; absent where it has no such.")
    ] = UNSET
    after: Annotated[
        StageSide | UnsetType, Meta(description="In the other plan; absent where it has no such.")
    ] = UNSET
    alone_iteration_seconds: AloneSeconds = UNSET


class CutDifferenceOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A cut whose tensors, bytes, times, queues, devices or links differ."""

    source_stage: Annotated[int, Meta(ge=0)]
    target_stage: Annotated[int, Meta(ge=0)]
    before: Annotated[
        BoundaryOut | UnsetType,
        Meta(
            description="In the first plan, with its slowest rank pair alone; absent where it has "
            "no such cut."
        ),
    ] = UNSET
    after: Annotated[BoundaryOut | UnsetType, Meta(description="The same of the other plan.")] = (
        UNSET
    )
    alone_iteration_seconds: AloneSeconds = UNSET


class LifetimeSide(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What one rank keeps alive at the most."""

    peak_activations: Annotated[
        int, Meta(ge=0, description="Counted in activations of one microbatch on one stage.")
    ]
    peak_recomputed_activations: Annotated[
        int | UnsetType,
        Meta(description="Of these alive anew at the most; absent where nothing is recomputed."),
    ] = UNSET
    peak_bytes: Annotated[
        int | UnsetType, Meta(description="On each device of the rank; absent where unknown.")
    ] = UNSET


class LifetimeDifferenceOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A pipeline rank whose peak of live activations differs."""

    rank: Annotated[int, Meta(ge=0, description="Pipeline rank.")]
    before: Annotated[LifetimeSide | UnsetType, Meta(description="In the first plan.")] = UNSET
    after: Annotated[LifetimeSide | UnsetType, Meta(description="In the other plan.")] = UNSET


class UpdateDifferenceOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A pipeline rank on which what follows its last operation takes another time."""

    rank: Annotated[int, Meta(ge=0, description="Pipeline rank.")]
    before: Annotated[RankTerms | UnsetType, Meta(description="In the first plan.")] = UNSET
    after: Annotated[RankTerms | UnsetType, Meta(description="In the other plan.")] = UNSET


class MemoryTermSide(msgspec.Struct, kw_only=True, frozen=True):
    """What one term takes on each device of a rank."""

    at_peak_bytes: Annotated[
        int, Meta(ge=0, description="At the instant when the rank is fullest.")
    ]
    maximum_bytes: Annotated[int, Meta(ge=0, description="The most it takes at any instant.")]


class MemoryTermDifference(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A term of memory that differs."""

    term: Annotated[Term, Meta(extra_json_schema={"x-extensible-enum": True})]
    before: Annotated[
        MemoryTermSide | UnsetType, Meta(description="In the first plan; absent where unknown.")
    ] = UNSET
    after: Annotated[
        MemoryTermSide | UnsetType, Meta(description="In the other plan; absent where unknown.")
    ] = UNSET


class MemoryDifferenceOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A pipeline rank whose memory differs."""

    rank: Annotated[int, Meta(ge=0, description="Pipeline rank.")]
    before: Annotated[MemoryRankVerdict | UnsetType, Meta(description="In the first plan.")] = UNSET
    after: Annotated[MemoryRankVerdict | UnsetType, Meta(description="In the other plan.")] = UNSET
    terms: Annotated[list[MemoryTermDifference], Meta(description="Those that differ.")]


class LinkSide(msgspec.Struct, kw_only=True, frozen=True):
    """What one plan's transfers occupy of a link."""

    busy_seconds: Annotated[float, Meta(ge=0, description="Over the whole iteration.")]
    utilisation_fraction: Annotated[
        float, Meta(ge=0, le=1, description="busy_seconds over the makespan of the plan.")
    ]


class LinkDifferenceOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One direction of a physical link (or a shared capacity) that is occupied for another time."""

    link: Annotated[
        str, Meta(description="source->target; source<->target where both share one capacity.")
    ]
    kind: Annotated[str, Meta(description="nvlink, pcie, host_bridge, socket, network, fabric")]
    before: Annotated[
        LinkSide | UnsetType, Meta(description="Absent where the first plan does not use it.")
    ] = UNSET
    after: Annotated[
        LinkSide | UnsetType, Meta(description="Absent where the other plan does not use it.")
    ] = UNSET


class Differences(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Everything that differs, and nothing that does not."""

    stages: Annotated[list[StageDifferenceOut], Meta(description="Stages that differ.")]
    cuts: Annotated[list[CutDifferenceOut], Meta(description="Cuts that differ.")]
    links: Annotated[
        list[LinkDifferenceOut],
        Meta(
            max_length=MAX_LINKS,
            description="Links that transfers occupy for another time, those first that do so by "
            "most. In link mode only.",
        ),
    ]
    more_links: Annotated[int, Meta(ge=0, description="Others that differ, by less.")]
    lifetimes: Annotated[
        list[LifetimeDifferenceOut],
        Meta(description="Pipeline ranks whose peak of live activations differs."),
    ]
    updates: Annotated[
        list[UpdateDifferenceOut],
        Meta(
            description="Pipeline ranks of which the exposed gradient reduction, the optimizer's "
            "step or the exposed gathering of weights differs."
        ),
    ]
    memory: Annotated[
        list[MemoryDifferenceOut],
        Meta(
            description="Pipeline ranks whose memory differs, and in which terms. Empty too where "
            "the memory of a plan is not known: `feasible` and `not_represented` say so."
        ),
    ]
    experts: Annotated[
        ExpertDifferencesOut | UnsetType,
        Meta(description="Present where what plans say of their experts (moe), or they, differ."),
    ] = UNSET


def differences_terms(comparison: Comparison) -> Differences:
    """The wire form of what differs between two plans."""
    found = comparison.attribution
    alone_stages = {} if found is None else found.stages
    alone_edges = {} if found is None else found.edges
    return Differences(
        stages=_stages(comparison, alone_stages),
        cuts=_cuts(comparison, alone_edges),
        links=[_link(one, comparison) for one in comparison.links[:MAX_LINKS]],
        more_links=max(0, len(comparison.links) - MAX_LINKS),
        lifetimes=[
            LifetimeDifferenceOut(
                rank=one.rank, before=_lifetime(one.before), after=_lifetime(one.after)
            )
            for one in comparison.lifetimes
        ],
        updates=[
            UpdateDifferenceOut(
                rank=one.rank,
                before=UNSET if one.before is None else rank_terms(one.before),
                after=UNSET if one.after is None else rank_terms(one.after),
            )
            for one in comparison.updates
        ],
        memory=[_memory(one) for one in comparison.memory],
        experts=expert_differences_terms(comparison.experts),
    )


def _alone(effects: Mapping[Key, Fraction], key: Key) -> float | UnsetType:
    return exact_seconds(effects[key]) if key in effects else UNSET


def _stages(comparison: Comparison, alone: Mapping[int, Fraction]) -> list[StageDifferenceOut]:
    if not comparison.stages:
        return []
    before, after = (
        cadence_terms(terms.simulated, terms.cadence).stages
        for terms in (comparison.before, comparison.after)
    )
    return [
        StageDifferenceOut(
            stage=one.stage,
            layers_gained=list(one.gained),
            layers_lost=list(one.lost),
            before=_stage(one.before, before, comparison.before.simulated.resolved),
            after=_stage(one.after, after, comparison.after.simulated.resolved),
            alone_iteration_seconds=_alone(alone, one.stage),
        )
        for one in comparison.stages
    ]


def _stage(
    stage: ResolvedStage | None, costs: Sequence[CadenceStage], resolved: ResolvedPlan
) -> StageSide | UnsetType:
    if stage is None:
        return UNSET
    sizes = resolved.sizes
    saved, again = (
        None if amount is None else sizes.spread(amount)
        for amount in (stage.activation_bytes, stage.recomputed_bytes)
    )
    return StageSide(
        costs=costs[stage.stage],
        saved_activation_bytes=same_bytes(saved),
        recomputed_activation_bytes=same_bytes(again),
        bytes_ranges=bytes_ranges(saved_activation_bytes=saved, recomputed_activation_bytes=again),
    )


def _cuts(
    comparison: Comparison, alone: Mapping[tuple[int, int], Fraction]
) -> list[CutDifferenceOut]:
    if not comparison.cuts:
        return []
    before, after = (_boundaries(terms) for terms in (comparison.before, comparison.after))
    return [
        CutDifferenceOut(
            source_stage=one.source,
            target_stage=one.target,
            before=UNSET if one.before is None else before[one.before],
            after=UNSET if one.after is None else after[one.after],
            alone_iteration_seconds=_alone(alone, (one.source, one.target)),
        )
        for one in comparison.cuts
    ]


def _boundaries(terms: ComparedTerms) -> list[BoundaryOut]:
    """Each with its slowest pair alone: all pairs of all cuts are another route's to tell."""
    wire = boundary_transfers_terms(terms.simulated, terms.transfers).boundaries
    found = []
    for boundary, one in zip(terms.simulated.resolved.boundaries, wire, strict=True):
        slowest = slowest_pair(boundary)
        pairs = [] if slowest is None else [one.pairs[boundary.pairs.index(slowest)]]
        found.append(msgspec.structs.replace(one, pairs=pairs))
    return found


def _link(found: LinkDifference, comparison: Comparison) -> LinkDifferenceOut:
    def side(use: LinkUse | None, terms: ComparedTerms) -> LinkSide | UnsetType:
        if use is None:
            return UNSET
        makespan = terms.simulated.timeline.makespan
        return LinkSide(busy_seconds=to_seconds(use.busy), utilisation_fraction=use.busy / makespan)

    (kind, *_) = [use.link.kind.value for use in (found.before, found.after) if use is not None]
    return LinkDifferenceOut(
        link=found.resource,
        kind=kind,
        before=side(found.before, comparison.before),
        after=side(found.after, comparison.after),
    )


def _lifetime(live: LiveActivations | None) -> LifetimeSide | UnsetType:
    if live is None:
        return UNSET
    return LifetimeSide(
        peak_activations=live.peak_activations,
        peak_recomputed_activations=or_unset(live.peak_recomputed),
        peak_bytes=or_unset(live.peak_bytes),
    )


def _memory(found: MemoryDifference) -> MemoryDifferenceOut:
    def side(rank: RankMemory | None, term: Term) -> MemoryTermSide | UnsetType:
        for one in () if rank is None else rank.terms:
            if one.term is term:
                return MemoryTermSide(at_peak_bytes=one.at_peak, maximum_bytes=one.maximum)
        return UNSET

    return MemoryDifferenceOut(
        rank=found.rank,
        before=UNSET if found.before is None else rank_verdict(found.before),
        after=UNSET if found.after is None else rank_verdict(found.after),
        terms=[
            MemoryTermDifference(
                term=term, before=side(found.before, term), after=side(found.after, term)
            )
            for term in found.terms
        ],
    )
