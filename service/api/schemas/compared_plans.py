"""Wire types of two plans side by side: what each takes, and what the difference is due to."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated

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
from service.api.schemas.ranges import known_seconds
from service.api.schemas.uniform_routing import UniformRouting, uniform_routing_terms
from service.app.comparisons import ComparedPlan
from service.core.estimates.attribution import Attribution, AttributionMethod, Cause
from service.core.estimates.comparison import Comparison
from service.core.estimates.iteration import throughput
from service.core.estimates.uniform_routing import beside_uniform
from service.core.plans.likeness import ContractField, ContractTermOrigin
from service.core.plans.plan import Statement
from service.core.schedules.transfers import TransferMode
from service.core.units import exact_seconds, to_seconds
from service.formats.documents.fields import or_unset

__all__ = [
    "AttributionOut",
    "ComparedPlanOut",
    "ComparisonLeftOut",
    "ComparisonOut",
    "EffectOut",
    "OneSidedStatements",
    "TermOut",
    "attribution_terms",
    "change_terms",
    "compared_plan",
    "comparison_terms",
    "summary_of",
]

_CAUSES = (
    "compute: what stages take. transfer: what transfers take when nothing queues, and between "
    "which stages they go. order: the order of operations. contention: queues on links. update: "
    "what gradient reduction, optimizer step and gathered weights add after the last operations; "
    "absent where nothing is known of them. "
    "interaction: what the others do together beyond their sum."
)


class TermOut(msgspec.Struct, kw_only=True, frozen=True):
    """One term of the contract of a plan."""

    term: ContractField
    value: Annotated[str, Meta(description="As a person reads it.", examples=["32"])]
    origin: Annotated[
        ContractTermOrigin,
        Meta(description="Whether it follows from the plan, or the plan states it."),
    ]


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
    update_seconds: Annotated[
        float | UnsetType,
        Meta(
            description="What of it comes after the schedule: exposed gradient reduction, "
            "optimizer step, exposed gathering of weights. Absent where nothing is known of them.",
        ),
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
    feasible: Annotated[
        bool | UnsetType,
        Meta(description="Whether every rank fits, as POST /v1/memory tells; absent where open."),
    ] = UNSET
    least_headroom_bytes: Annotated[
        int | UnsetType,
        Meta(description="Of the fullest rank; below 0 where it does not fit. Absent if unknown."),
    ] = UNSET
    uniform_routing: Annotated[
        UniformRouting | UnsetType,
        Meta(
            description="Beside the same plan with tokens that choose their experts evenly; absent "
            "where they do anyway, and where there are no experts."
        ),
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
        AttributionMethod,
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


class ComparisonLeftOut(OneSidedStatements, kw_only=True, frozen=True):
    """What only one of the two plans leaves out, and what the comparison itself does."""

    between: Annotated[
        list[StatementOut],
        Meta(description="Of the comparison: why there is no attribution. Empty where there is."),
    ]


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
        Meta(
            description="Absent where the difference can't be shared out; between of "
            "not_represented says why."
        ),
    ] = UNSET
    differences: Differences
    assumptions: OneSidedStatements
    represented: OneSidedStatements
    not_represented: ComparisonLeftOut


def compared_plan(plan: ComparedPlan) -> ComparedPlanOut:
    """The wire form of one plan."""
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
        iteration_seconds=known_seconds(terms.iteration),
        update_seconds=known_seconds(terms.update),
        makespan_seconds=to_seconds(terms.simulated.timeline.makespan),
        idle_fraction=terms.idle_fraction,
        slowest_stage=slowest.stage,
        slowest_stage_seconds=exact_seconds(slowest.work),
        steady_seconds=UNSET
        if cadence.steady is None
        else exact_seconds(cadence.steady.per_microbatch),
        samples_per_second=or_unset(samples),
        tokens_per_second=or_unset(tokens),
        feasible=UNSET if terms.memory is None else or_unset(terms.memory.feasible),
        least_headroom_bytes=UNSET
        if terms.memory is None
        else or_unset(terms.memory.least_headroom),
        uniform_routing=UNSET
        if plan.priced.uniform is None
        else uniform_routing_terms(beside_uniform(terms.simulated, plan.priced.uniform)),
        assumptions=statements(_assumptions(plan)),
        represented=statements(terms.represented),
        not_represented=statements(terms.not_represented),
    )


def _assumptions(plan: ComparedPlan) -> tuple[Statement, ...]:
    return (*plan.priced.assumptions, *plan.terms.assumptions)


def comparison_terms(first: ComparedPlan, plan: ComparedPlan, found: Comparison) -> ComparisonOut:
    """The wire form of a plan against the first one."""
    before, after = first.terms.iteration, plan.terms.iteration
    return ComparisonOut(
        plan=plan.name,
        summary=summary_of(first.name, before, plan.name, after, found.attribution),
        **change_terms(before, after),
        attribution=UNSET if found.attribution is None else attribution_terms(found.attribution),
        differences=differences_terms(found),
        assumptions=_one_sided(_assumptions(first), _assumptions(plan)),
        represented=_one_sided(first.terms.represented, plan.terms.represented),
        not_represented=ComparisonLeftOut(
            before=_only(first.terms.not_represented, plan.terms.not_represented),
            after=_only(plan.terms.not_represented, first.terms.not_represented),
            between=statements(found.not_represented),
        ),
    )


def change_terms(before: Fraction | None, after: Fraction | None) -> dict[str, float]:
    """The fields of a change from one iteration to another; none where one is unknown."""
    if before is None or after is None:
        return {}
    return {
        "difference_seconds": exact_seconds(after - before),
        "iteration_ratio": float(after / before),
    }


def attribution_terms(found: Attribution) -> AttributionOut:
    """The wire form of what is due to what."""
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
        before=_only(before, after),
        after=_only(after, before),
    )


def _only(here: Sequence[Statement], there: Sequence[Statement]) -> list[StatementOut]:
    return statements([one for one in here if one not in there])


def summary_of(
    first: str,
    before: Fraction | None,
    name: str,
    after: Fraction | None,
    found: Attribution | None,
) -> str:
    """What happened between two named iterations, in a sentence."""
    if before is None or after is None:
        return f"nobody knows how long an iteration of {first if before is None else name} takes"
    if before == after:
        return f"an iteration of {name} takes as long as one of {first}"
    how = "shorter" if after < before else "longer"
    by = abs(after - before)
    text = (
        f"an iteration of {name} is {_ms(by)} ms ({float(by / before):.1%}) {how} than one of "
        f"{first}"
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
