"""Wire types of how a routing loads ranks, and of placements that do better."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from service.api.schemas.answers import Pin, StatementOut, statements
from service.api.schemas.expert_layers import ImbalanceOut, imbalance_out
from service.app.ports import Revision
from service.core.moe.assignments import RoutingLevel
from service.core.moe.balance import BalanceMethod, Proposal
from service.core.moe.balance_question import BalanceQuestion
from service.core.moe.balance_report import BalanceReport, LayerReport, SlotAdvice
from service.core.moe.balance_statements import balance_assumptions, balance_gaps
from service.core.moe.fates import Fates
from service.core.moe.imbalance import Tails
from service.core.moe.placement import by_rank
from service.core.moe.routing import Routing
from service.core.moe.sweep import SweepPoint
from service.formats.documents.fields import or_unset

__all__ = [
    "AdviceOut",
    "BalanceAnswer",
    "BalanceTotals",
    "FactorOut",
    "FatesOut",
    "LayerBalanceOut",
    "ProposalOut",
    "TailsOut",
    "balance_answer",
]

_Rows = Annotated[float, Meta(ge=0)]
_Share = Annotated[float, Meta(ge=0, le=1)]


class TailsOut(msgspec.Struct, kw_only=True, frozen=True):
    """Rows of a rank: of every rank in every step, percentiles that each occurred."""

    p50_rows: Annotated[_Rows, Meta(description="Half of them have no more.")]
    p90_rows: Annotated[_Rows, Meta(description="Nine of ten have no more.")]
    p99_rows: Annotated[_Rows, Meta(description="99 of a hundred have no more.")]
    most_rows: Annotated[_Rows, Meta(description="None has more.")]


class FatesOut(msgspec.Struct, kw_only=True, frozen=True):
    """What becomes of assignments, tokens times experts of each, under the capacity."""

    assigned: Annotated[int, Meta(ge=0, description="How many there are.")]
    dropped_fraction: Annotated[_Share, Meta(description="Of these: nobody serves them.")]
    fallback_fraction: Annotated[_Share, Meta(description="Of these: their source's own path.")]
    rerouted_fraction: Annotated[_Share, Meta(description="Of these: another expert.")]
    padded_fraction: Annotated[
        _Share, Meta(description="Of the rows that travel and are computed: padding.")
    ]


class FactorOut(msgspec.Struct, kw_only=True, frozen=True):
    """What one of `capacity_factors` would do."""

    capacity_factor: float
    capacity_rows: Annotated[
        int,
        Meta(
            ge=0,
            description="Of an expert: from the source that has most of them, or from all under "
            "global scope; the most of any step or layer.",
        ),
    ]
    fates: FatesOut
    most_rank_rows: Annotated[int, Meta(ge=0, description="Of any rank in any step.")]


class ProposalOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One placement, its load divided evenly over replicas."""

    method: Annotated[
        BalanceMethod,
        Meta(
            description="greedy: over all ranks at once; by_node: groups of experts to hosts "
            "first; exact: the best of all placements that were looked at."
        ),
    ]
    ranks: ImbalanceOut
    nodes: ImbalanceOut | UnsetType = UNSET
    is_optimal: Annotated[
        bool, Meta(description="Whether no placement of as many slots has a less busy rank.")
    ]


class AdviceOut(msgspec.Struct, kw_only=True, frozen=True):
    """Placements of so many slots for the load of a layer."""

    slots: Annotated[int, Meta(ge=1, description="Experts and replicas that a placement may have.")]
    present_most_rows: Annotated[
        _Rows, Meta(description="Of the busiest rank on the present placement, all steps together.")
    ]
    most_rows: Annotated[_Rows, Meta(description="Of the busiest rank of the first proposal.")]
    saved_fraction: Annotated[
        float,
        Meta(
            le=1,
            description="1 - most/present: how much less the busiest rank has. Negative where the "
            "present placement has more slots and is better.",
        ),
    ]
    lower_bound_rows: Annotated[
        _Rows, Meta(description="No placement of so many slots has a busiest rank below this.")
    ]
    placement: Annotated[
        list[list[int]],
        Meta(description="Of the first proposal, as `placement` of this request and of plans."),
    ]
    proposals: Annotated[
        list[ProposalOut], Meta(min_length=1, description="From the least busy rank on.")
    ]


class LayerBalanceOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One layer of the routing. Rows are of all its steps together unless said otherwise."""

    layer: Annotated[int, Meta(ge=0, description="Its number in the routing.")]
    experts: Annotated[ImbalanceOut, Meta(description="By what they are asked for.")]
    ranks: Annotated[ImbalanceOut, Meta(description="By the rows that they compute.")]
    nodes: ImbalanceOut | UnsetType = UNSET
    ranks_when_rerouted_near: Annotated[
        ImbalanceOut | UnsetType,
        Meta(
            description="`ranks` where rerouted tokens go to experts of their own host first, not "
            "to the emptiest; between the two lies what happens."
        ),
    ] = UNSET
    rank_rows: TailsOut
    slowest_step: Annotated[int, Meta(description="The number of that with the busiest rank.")]
    slowest_rank_rows: Annotated[
        _Rows, Meta(description="Rows of the busiest rank of each step, added up.")
    ]
    uniform_slowest_rank_rows: Annotated[
        _Rows, Meta(description="The same if the same tokens chose evenly.")
    ]
    straggler_loss_fraction: Annotated[
        _Share,
        Meta(description="1 - mean/slowest: the share of all ranks' time spent waiting."),
    ]
    capacity_rows: Annotated[
        int | UnsetType, Meta(description="Of an expert, as under `capacity_factors`.")
    ] = UNSET
    fates: Annotated[
        FatesOut | UnsetType,
        Meta(description="Absent of loads in a unit that is no number of tokens."),
    ] = UNSET
    capacity_factors: list[FactorOut] | UnsetType = UNSET
    advice: list[AdviceOut]


class BalanceTotals(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Over all layers: ranks wait for the busiest one in each of them."""

    rank_rows: TailsOut
    slowest_rank_rows: Annotated[
        _Rows, Meta(description="Of the busiest rank of each layer and step, added up.")
    ]
    uniform_slowest_rank_rows: Annotated[
        _Rows, Meta(description="The same if the same tokens chose evenly.")
    ]
    straggler_loss_fraction: _Share
    fates: FatesOut | UnsetType = UNSET
    capacity_factors: list[FactorOut] | UnsetType = UNSET


class BalanceAnswer(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """How a routing loads ranks."""

    pins: Annotated[list[Pin], Meta(description="The routing at the revision that was used.")]
    level: Annotated[RoutingLevel, Meta(description="What is known of the routing.")]
    experts: Annotated[int, Meta(ge=1, description="Of each layer.")]
    top_k: Annotated[
        int | UnsetType,
        Meta(description="Experts of each token; absent of loads in a unit of their own."),
    ] = UNSET
    steps: Annotated[int, Meta(ge=1)]
    ranks: Annotated[int, Meta(ge=1, description="As asked.")]
    totals: BalanceTotals
    layers: list[LayerBalanceOut]
    warnings: list[StatementOut]
    assumptions: list[StatementOut]
    not_represented: list[StatementOut]


def balance_answer(
    revision: Revision, routing: Routing, question: BalanceQuestion, report: BalanceReport
) -> BalanceAnswer:
    """The answer of a request."""
    slowest = sum(layer.slowest for layer in report.layers)
    mean = sum(layer.mean for layer in report.layers)
    return BalanceAnswer(
        pins=[Pin(kind=revision.kind.value, reference=revision.reference, digest=revision.digest)],
        level=routing.level,
        experts=routing.experts,
        top_k=or_unset(routing.top_k),
        steps=routing.steps,
        ranks=question.ranks,
        totals=BalanceTotals(
            rank_rows=_tails(report.tails),
            slowest_rank_rows=slowest,
            uniform_slowest_rank_rows=sum(layer.uniform_slowest for layer in report.layers),
            straggler_loss_fraction=_waiting(mean, slowest),
            fates=_fates(report.fates),
            capacity_factors=_factors(report.sweep),
        ),
        layers=[_layer(layer) for layer in report.layers],
        warnings=statements(report.warnings),
        assumptions=statements([*balance_assumptions(routing, question), *report.notes]),
        not_represented=statements([*balance_gaps(routing)]),
    )


def _layer(layer: LayerReport) -> LayerBalanceOut:
    return LayerBalanceOut(
        layer=layer.layer,
        experts=imbalance_out(layer.experts),
        ranks=imbalance_out(layer.ranks),
        nodes=UNSET if layer.nodes is None else imbalance_out(layer.nodes),
        ranks_when_rerouted_near=UNSET if layer.near is None else imbalance_out(layer.near),
        rank_rows=_tails(layer.tails),
        slowest_step=layer.step,
        slowest_rank_rows=layer.slowest,
        uniform_slowest_rank_rows=layer.uniform_slowest,
        straggler_loss_fraction=_waiting(layer.mean, layer.slowest),
        capacity_rows=or_unset(layer.capacity_rows),
        fates=_fates(layer.fates),
        capacity_factors=_factors(layer.sweep),
        advice=[_advice(one) for one in layer.advice],
    )


def _waiting(mean: float, slowest: float) -> float:
    return max(0.0, 1 - mean / slowest) if slowest else 0.0


def _tails(found: Tails[float]) -> TailsOut:
    return TailsOut(
        p50_rows=found.p50, p90_rows=found.p90, p99_rows=found.p99, most_rows=found.most
    )


def _fates(found: Fates | None) -> FatesOut | UnsetType:
    if found is None:
        return UNSET
    return FatesOut(
        assigned=found.assigned,
        dropped_fraction=found.dropped_fraction,
        fallback_fraction=found.fallback_fraction,
        rerouted_fraction=found.rerouted_fraction,
        padded_fraction=found.padded_fraction,
    )


def _factors(points: tuple[SweepPoint, ...]) -> list[FactorOut] | UnsetType:
    found = []
    for point in points:
        fates = _fates(point.fates)
        if not isinstance(fates, UnsetType):
            found.append(
                FactorOut(
                    capacity_factor=point.factor,
                    capacity_rows=point.capacity_rows,
                    fates=fates,
                    most_rank_rows=point.most_rank_rows,
                )
            )
    return found or UNSET


def _advice(one: SlotAdvice) -> AdviceOut:
    best, present = one.advice.proposals[0], one.present.most_rows
    return AdviceOut(
        slots=one.slots,
        present_most_rows=present,
        most_rows=best.ranks.most_rows,
        saved_fraction=1 - best.ranks.most_rows / present if present else 0.0,
        lower_bound_rows=one.advice.bound_rows,
        placement=[list(experts) for experts in by_rank(best.placement)],
        proposals=[_proposal(proposal) for proposal in one.advice.proposals],
    )


def _proposal(proposal: Proposal) -> ProposalOut:
    return ProposalOut(
        method=proposal.method,
        ranks=imbalance_out(proposal.ranks),
        nodes=UNSET if proposal.nodes is None else imbalance_out(proposal.nodes),
        is_optimal=proposal.is_optimal,
    )
