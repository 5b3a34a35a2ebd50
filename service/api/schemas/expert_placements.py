"""Wire types of what other capacity factors and other placements of experts would do."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from service.api.schemas.expert_layers import ImbalanceOut, imbalance_out
from service.core.estimates.experts.advice import BetterPlacement, ExpertAdvice
from service.core.estimates.experts.sweep import FactorPoint
from service.core.moe.balance import BalanceMethod
from service.core.units import to_seconds
from service.formats.documents.fields import or_unset

__all__ = [
    "BetterPlacementOut",
    "CapacityPoint",
    "ExpertAdviceOut",
    "advice_out",
    "capacity_points",
]

_Seconds = Annotated[float, Meta(ge=0)]
_Fraction = Annotated[float, Meta(ge=0, le=1)]


class CapacityPoint(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What one capacity factor would do, over all layers and microbatches of an iteration."""

    capacity_factor: Annotated[float, Meta(gt=0)]
    capacity_rows: Annotated[
        int | UnsetType, Meta(description="Of an expert, by the plan's scope; the most of any.")
    ] = UNSET
    dropped_fraction: Annotated[_Fraction, Meta(description="Of all assignments.")]
    fallback_fraction: _Fraction
    rerouted_fraction: _Fraction
    padded_fraction: Annotated[_Fraction, Meta(description="Of the rows computed, padding.")]
    most_rank_rows: Annotated[int, Meta(ge=0, description="Of any rank in any layer.")]
    expert_seconds: Annotated[
        _Seconds, Meta(description="What the layers' steps take together, one after the other.")
    ]


class BetterPlacementOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A placement, and what it would gain; a stated placement of the plan is `moe.placement`."""

    layer: Annotated[
        int | UnsetType, Meta(description="Its number; absent where it is one for all layers.")
    ] = UNSET
    method: Annotated[
        BalanceMethod,
        Meta(description="greedy: over all ranks; by_node: hosts first; exact: all were tried."),
    ]
    optimal: Annotated[bool, Meta(description="Whether no placement has a less busy rank.")]
    experts_by_rank: list[list[int]]
    ranks_before: ImbalanceOut
    ranks_after: ImbalanceOut
    hosts_after: ImbalanceOut | UnsetType = UNSET
    bound_rows: Annotated[
        float, Meta(ge=0, description="No placement in as many slots has a less busy rank.")
    ]
    expert_seconds_before: Annotated[_Seconds, Meta(description="Of an iteration, predicted.")]
    expert_seconds_after: Annotated[_Seconds, Meta(description="The same with this placement.")]
    gain_seconds: Annotated[float, Meta(description="Negative where exchanges take longer.")]


class ExpertAdviceOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Better placements for the load of an iteration, each replica with an equal share."""

    slots: Annotated[int, Meta(ge=1, description="Experts and replicas of a layer.")]
    all_layers: Annotated[
        BetterPlacementOut | UnsetType,
        Meta(description="One for all; absent where layers have different numbers of experts."),
    ] = UNSET
    layers: Annotated[
        list[BetterPlacementOut],
        Meta(description="For single layers, those with the most to lose; largest gain first."),
    ]


def capacity_points(points: Sequence[FactorPoint]) -> list[CapacityPoint]:
    """The wire form of a sweep."""
    return [
        CapacityPoint(
            capacity_factor=point.factor,
            capacity_rows=or_unset(point.totals.capacity_rows),
            dropped_fraction=point.totals.dropped_fraction,
            fallback_fraction=_share(point.totals.fallback, point.totals.asked),
            rerouted_fraction=_share(point.totals.rerouted, point.totals.asked),
            padded_fraction=point.totals.padded_fraction,
            most_rank_rows=point.totals.most_rank_rows,
            expert_seconds=to_seconds(point.totals.picoseconds),
        )
        for point in points
    ]


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def advice_out(advice: ExpertAdvice) -> ExpertAdviceOut:
    """The wire form of advice."""
    return ExpertAdviceOut(
        slots=advice.slots,
        all_layers=UNSET if advice.for_all is None else _better(advice.for_all),
        layers=[_better(one) for one in advice.layers],
    )


def _better(found: BetterPlacement) -> BetterPlacementOut:
    nodes = found.proposal.nodes
    return BetterPlacementOut(
        layer=UNSET if found.layer is None else found.layer.layer.number,
        method=found.proposal.method,
        optimal=found.proposal.is_optimal,
        experts_by_rank=[list(experts) for experts in found.experts_by_rank],
        ranks_before=imbalance_out(found.before),
        ranks_after=imbalance_out(found.proposal.ranks),
        hosts_after=UNSET if nodes is None else imbalance_out(nodes),
        bound_rows=found.bound_rows,
        expert_seconds_before=to_seconds(found.picoseconds_before),
        expert_seconds_after=to_seconds(found.picoseconds_after),
        gain_seconds=to_seconds(found.gain),
    )
