"""Wire types of comparisons: what is asked, what each plan takes, and how one becomes another."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from service.api.schemas.answers import (
    Pin,
    StatementOut,
    WorkloadOut,
    pin_terms,
    statements,
    workload_terms,
)
from service.api.schemas.differences import Differences, differences_terms
from service.api.schemas.requests import Patch, PlanGiven
from service.app.comparisons import Compared, ComparedPlan
from service.core.estimates.attribution import Attribution, Cause, Method
from service.core.estimates.comparison import Comparison
from service.core.estimates.iteration import throughput
from service.core.estimates.version import MODEL_VERSION
from service.core.plans.likeness import ContractField, TermOrigin
from service.core.plans.plan import Statement
from service.core.schedules.transfers import TransferMode
from service.core.units import exact_seconds, to_seconds
from service.formats.documents.fields import ElementName, or_unset

__all__ = [
    "MAX_COMPARED_PLANS",
    "AttributionOut",
    "ComparedPlanOut",
    "ComparisonOut",
    "ComparisonPlan",
    "ComparisonRequest",
    "ComparisonsAnswer",
    "EffectOut",
    "OneSidedStatements",
    "TermOut",
    "UnlikeTerm",
    "UnlikeValue",
    "comparisons_answer",
]

MAX_COMPARED_PLANS = 8

_CAUSES = (
    "compute: what stages take. transfer: what transfers take when nothing queues, and between "
    "which stages they go. order: the order of operations. contention: queues on links. "
    "interaction: what the others do together beyond their sum."
)


class ComparisonPlan(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A plan to compare, and what the answer calls it."""

    name: Annotated[ElementName, Meta(description="Unique in the request", examples=["before"])]
    plan: PlanGiven
    patch: Patch | UnsetType = UNSET


class ComparisonRequest(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Plans to compare with the first of them."""

    plans: Annotated[
        list[ComparisonPlan],
        Meta(
            min_length=2,
            max_length=MAX_COMPARED_PLANS,
            description="The first is what the others are compared with.",
        ),
    ]
    allow_unlike: Annotated[
        list[ContractField],
        Meta(
            max_length=len(ContractField),
            description="Terms of the contracts that may differ, or be said by some of the plans "
            "only. Any other difference is refused.",
            examples=[["global_batch_size", "global_batch_construction"]],
        ),
    ] = []


class TermOut(msgspec.Struct, kw_only=True, frozen=True):
    """One term of the contract of a plan."""

    term: ContractField
    value: Annotated[str, Meta(description="As a person reads it.", examples=["32"])]
    origin: Annotated[
        TermOrigin, Meta(description="Whether it follows from the plan, or the plan states it.")
    ]


class UnlikeValue(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What one plan says of a term."""

    plan: str
    value: Annotated[str | UnsetType, Meta(description="Absent where it says nothing.")] = UNSET


class UnlikeTerm(msgspec.Struct, kw_only=True, frozen=True):
    """A term in which the plans differ, as the request allows."""

    term: ContractField
    values: Annotated[list[UnlikeValue], Meta(description="Of each plan, in order.")]


class ComparedPlanOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What one plan takes, and what its numbers rest on. All times are predictions."""

    name: str
    pins: Annotated[list[Pin], Meta(description="Stored documents this plan used.")]
    world_size: Annotated[int, Meta(ge=1, description="Ranks in all.")]
    transfer_mode: TransferMode
    workload: WorkloadOut
    contract: list[TermOut]
    iteration_seconds: Annotated[
        float | UnsetType, Meta(description="Absent where it is unknown; not_represented says why.")
    ] = UNSET
    makespan_seconds: Annotated[
        float, Meta(ge=0, description="From the first start to the last end of a drained run.")
    ]
    idle_fraction: Annotated[float, Meta(description="Of makespan x ranks.")]
    slowest_stage: Annotated[int, Meta(ge=0, description="The stage with the most work.")]
    slowest_stage_seconds: Annotated[
        float, Meta(ge=0, description="Its work for one microbatch, on average.")
    ]
    steady_seconds: Annotated[
        float | UnsetType,
        Meta(description="That each further microbatch adds to a long iteration; if known."),
    ] = UNSET
    samples_per_second: Annotated[
        float | UnsetType, Meta(description="Samples of an iteration over its time; if both known.")
    ] = UNSET
    tokens_per_second: Annotated[
        float | UnsetType, Meta(description="Tokens of an iteration over its time; if both known.")
    ] = UNSET
    assumptions: list[StatementOut]
    represented: list[StatementOut]
    not_represented: list[StatementOut]


class EffectOut(msgspec.Struct, kw_only=True, frozen=True):
    """What one cause does to the iteration."""

    cause: Annotated[Cause, Meta(description=_CAUSES)]
    iteration_seconds: Annotated[
        float, Meta(description="By how much longer it makes it; negative where shorter.")
    ]


class AttributionOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What of the difference is due to what. The effects sum to difference_seconds."""

    cause: Annotated[
        Cause | UnsetType,
        Meta(
            description="Of the causes that work in the direction of the difference the one that "
            "does most; absent where there is no difference. " + _CAUSES
        ),
    ] = UNSET
    effects: list[EffectOut]
    method: Annotated[
        Method,
        Meta(
            description="one_change_at_a_time: the first plan is simulated again with one thing of "
            "the other plan at a time; transfers do not queue then, and contention is the "
            "difference between what queues cost each plan. difference_of_own_splits, where the "
            "plans have other stages, microbatches or operations: each plan's makespan is split "
            "by itself as POST /v1/bubble does, and the parts are subtracted; compute is then "
            "ideal and imbalance, order the structural part."
        ),
    ]


class OneSidedStatements(msgspec.Struct, kw_only=True, frozen=True):
    """Statements that only one of the two plans makes."""

    before: Annotated[list[StatementOut], Meta(description="Only of the first plan.")]
    after: Annotated[list[StatementOut], Meta(description="Only of the other plan.")]


class ComparisonOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A plan against the first one."""

    plan: str
    summary: Annotated[str, Meta(description="A sentence for people.")]
    difference_seconds: Annotated[
        float | UnsetType,
        Meta(
            description="Of iteration_seconds: by how much longer this plan takes, negative where "
            "it is shorter. Absent where either is unknown."
        ),
    ] = UNSET
    iteration_ratio: Annotated[
        float | UnsetType, Meta(description="Its iteration over that of the first plan.")
    ] = UNSET
    attribution: Annotated[
        AttributionOut | UnsetType,
        Meta(description="Absent where the difference can't be shared out."),
    ] = UNSET
    differences: Differences
    assumptions: OneSidedStatements
    represented: OneSidedStatements
    not_represented: OneSidedStatements


class ComparisonsAnswer(msgspec.Struct, kw_only=True, frozen=True):
    """What is unlike comes first: the numbers below hold in spite of it."""

    unlike: Annotated[
        list[UnlikeTerm],
        Meta(description="Terms of the contracts that differ, as the request allows. Empty: none."),
    ]
    unknown_terms: Annotated[
        list[ContractField],
        Meta(description="Terms that no plan says, so they may differ for all anybody knows."),
    ]
    model_version: Annotated[
        str, Meta(description="Version of the cost model; the same inputs under it repeat exactly.")
    ]
    objective: Annotated[
        Literal["iteration_seconds"], Meta(description="What differences are explained of.")
    ]
    plans: Annotated[list[ComparedPlanOut], Meta(description="In the order of the request.")]
    comparisons: Annotated[
        list[ComparisonOut], Meta(description="Each later plan against the first.")
    ]


def comparisons_answer(compared: Compared) -> ComparisonsAnswer:
    """The wire form of a comparison."""
    first, *later = compared.plans
    return ComparisonsAnswer(
        unlike=[
            UnlikeTerm(term=field, values=[_unlike(plan, field) for plan in compared.plans])
            for field in compared.likeness.unlike
        ],
        unknown_terms=list(compared.likeness.unknown),
        model_version=MODEL_VERSION,
        objective="iteration_seconds",
        plans=[_plan(plan) for plan in compared.plans],
        comparisons=[
            _comparison(first, plan, found)
            for plan, found in zip(later, compared.comparisons, strict=True)
        ],
    )


def _unlike(plan: ComparedPlan, field: ContractField) -> UnlikeValue:
    term = plan.contract.get(field)
    return UnlikeValue(plan=plan.name, value=UNSET if term is None else term.text)


def _plan(plan: ComparedPlan) -> ComparedPlanOut:
    terms, resolved = plan.terms, plan.priced.resolved
    cadence = terms.cadence
    slowest = cadence.stages[cadence.slowest_stage]
    samples, tokens = throughput(terms.simulated, terms.iteration)
    return ComparedPlanOut(
        name=plan.name,
        pins=pin_terms(plan.priced.pins),
        world_size=resolved.plan.degrees.world_size,
        transfer_mode=resolved.transfer_mode,
        workload=workload_terms(resolved),
        contract=[
            TermOut(term=term.field, value=term.text, origin=term.origin)
            for term in plan.contract.values()
        ],
        iteration_seconds=UNSET if terms.iteration is None else exact_seconds(terms.iteration),
        makespan_seconds=to_seconds(terms.simulated.timeline.makespan),
        idle_fraction=terms.idle_fraction,
        slowest_stage=slowest.stage,
        slowest_stage_seconds=exact_seconds(slowest.work),
        steady_seconds=UNSET
        if cadence.steady is None
        else exact_seconds(cadence.steady.per_microbatch),
        samples_per_second=or_unset(samples),
        tokens_per_second=or_unset(tokens),
        assumptions=statements(_assumptions(plan)),
        represented=statements(plan.priced.represented),
        not_represented=statements(_left_out(plan)),
    )


def _assumptions(plan: ComparedPlan) -> tuple[Statement, ...]:
    return (*plan.priced.assumptions, *plan.terms.assumptions)


def _left_out(plan: ComparedPlan) -> tuple[Statement, ...]:
    return (*plan.priced.not_represented, *plan.terms.not_represented)


def _comparison(first: ComparedPlan, plan: ComparedPlan, found: Comparison) -> ComparisonOut:
    difference: float | UnsetType = UNSET
    ratio: float | UnsetType = UNSET
    before, after = first.terms.iteration, plan.terms.iteration
    if before is not None and after is not None:
        difference, ratio = exact_seconds(after - before), float(after / before)
    return ComparisonOut(
        plan=plan.name,
        summary=_summary(first, plan, found.attribution),
        difference_seconds=difference,
        iteration_ratio=ratio,
        attribution=UNSET if found.attribution is None else _attribution(found.attribution),
        differences=differences_terms(found),
        assumptions=_one_sided(_assumptions(first), _assumptions(plan)),
        represented=_one_sided(first.priced.represented, plan.priced.represented),
        not_represented=_one_sided(_left_out(first), _left_out(plan)),
    )


def _attribution(found: Attribution) -> AttributionOut:
    return AttributionOut(
        cause=or_unset(found.cause),
        effects=[
            EffectOut(cause=cause, iteration_seconds=exact_seconds(effect))
            for cause, effect in found.effects.items()
        ],
        method=found.method,
    )


def _one_sided(before: Sequence[Statement], after: Sequence[Statement]) -> OneSidedStatements:
    return OneSidedStatements(
        before=statements([one for one in before if one not in after]),
        after=statements([one for one in after if one not in before]),
    )


def _summary(first: ComparedPlan, plan: ComparedPlan, found: Attribution | None) -> str:
    before, after = first.terms.iteration, plan.terms.iteration
    if before is None or after is None:
        which = first.name if before is None else plan.name
        return f"nobody knows how long an iteration of {which} takes"
    if before == after:
        return f"an iteration of {plan.name} takes as long as one of {first.name}"
    how = "shorter" if after < before else "longer"
    by = abs(after - before)
    text = (
        f"an iteration of {plan.name} is {_ms(by)} ms ({float(by / before):.1%}) {how} than one of "
        f"{first.name}"
    )
    if found is None or found.cause is None:
        return text
    parts = ", ".join(
        f"{cause.value} {_ms(effect, sign='+')} ms"
        for cause, effect in found.effects.items()
        if effect
    )
    return f"{text}, because of {found.cause.value} ({parts})"


def _ms(picoseconds: Fraction, sign: str = "-") -> str:
    return f"{exact_seconds(picoseconds) * 1000:{sign}.6g}"
