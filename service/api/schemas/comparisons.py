"""Wire types of comparisons: what is asked, what is unlike, and all of it under workloads."""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from service.api.schemas.answers import StatementOut, statements
from service.api.schemas.compared_plans import (
    AttributionOut,
    ComparedPlanOut,
    ComparisonOut,
    attribution_terms,
    change_terms,
    compared_plan,
    comparison_terms,
    summary_of,
)
from service.api.schemas.requests import Patch, PlanGiven
from service.api.schemas.workloads import WorkloadCase, WorkloadMixOut, mix_terms
from service.app.comparisons import Compared, ComparedCase, ComparedMix
from service.core.estimates.attribution import NOT_MIXED
from service.core.estimates.version import MODEL_VERSION
from service.core.plans.likeness import ContractField
from service.formats.documents.fields import ElementName, or_unset

__all__ = [
    "MAX_COMPARED_PLANS",
    "MAX_COMPARED_WORKLOADS",
    "ComparedMixOut",
    "ComparedWorkload",
    "ComparisonPlan",
    "ComparisonRequest",
    "ComparisonsAnswer",
    "MixedComparison",
    "MixedPlan",
    "UnlikeTerm",
    "UnlikeValue",
    "comparisons_answer",
]

MAX_COMPARED_PLANS = 8
MAX_COMPARED_WORKLOADS = 8


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
    workloads: (
        Annotated[
            list[WorkloadCase],
            Meta(
                min_length=1,
                max_length=MAX_COMPARED_WORKLOADS,
                description="All plans are compared under each, in place of their own workloads, "
                "which these patch, and under their mix. When absent, each plan has its own.",
            ),
        ]
        | UnsetType
    ) = UNSET
    allow_unlike: Annotated[
        list[ContractField],
        Meta(
            max_length=len(ContractField),
            description="Terms of the contracts that may differ, or be said by some of the plans "
            "only. Any other difference is refused.",
            examples=[["global_batch_size", "global_batch_construction"]],
        ),
    ] = []


class UnlikeValue(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What one plan says of a term."""

    plan: str
    value: Annotated[str | UnsetType, Meta(description="Absent where it says nothing.")] = UNSET


class UnlikeTerm(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A term in which the plans differ, as the request allows."""

    term: ContractField
    values: Annotated[list[UnlikeValue], Meta(description="Of each plan, in order.")]
    workloads: Annotated[
        list[str] | UnsetType,
        Meta(description="Under which they have these values; absent where under all."),
    ] = UNSET


class ComparedWorkload(msgspec.Struct, kw_only=True, frozen=True):
    """All plans under one workload."""

    name: str
    weight_fraction: Annotated[
        float, Meta(ge=0, le=1, description="Of the iterations, those with this workload.")
    ]
    plans: Annotated[list[ComparedPlanOut], Meta(description="In the order of the request.")]
    comparisons: Annotated[
        list[ComparisonOut], Meta(description="Each later plan against the first.")
    ]


class MixedPlan(msgspec.Struct, kw_only=True, frozen=True):
    """One plan under all workloads by their shares."""

    name: str
    mix: WorkloadMixOut


class MixedComparison(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A plan against the first one, on average over the workloads by their shares."""

    plan: str
    summary: Annotated[str, Meta(description="A sentence for people.")]
    difference_seconds: Annotated[
        float | UnsetType,
        Meta(description="Of mean_iteration_seconds; absent where either is unknown."),
    ] = UNSET
    iteration_ratio: Annotated[
        float | UnsetType, Meta(description="Its mean iteration over that of the first plan.")
    ] = UNSET
    attribution: Annotated[
        AttributionOut | UnsetType,
        Meta(
            description="The mean of those under each workload. Absent where one of them is, and "
            "where they were made in different ways."
        ),
    ] = UNSET
    not_represented: Annotated[
        list[StatementOut],
        Meta(description="Why there is no attribution; empty where there is one."),
    ]


class ComparedMixOut(msgspec.Struct, kw_only=True, frozen=True):
    """All workloads together."""

    plans: list[MixedPlan]
    comparisons: list[MixedComparison]


class ComparisonsAnswer(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
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
    plans: Annotated[
        list[ComparedPlanOut] | UnsetType,
        Meta(description="In the order of the request; absent where workloads are asked for."),
    ] = UNSET
    comparisons: Annotated[
        list[ComparisonOut] | UnsetType,
        Meta(
            description="Each later plan against the first; absent where workloads are asked for."
        ),
    ] = UNSET
    workloads: Annotated[
        list[ComparedWorkload] | UnsetType,
        Meta(description="The same under each workload, in the order of the request."),
    ] = UNSET
    mix: Annotated[
        ComparedMixOut | UnsetType, Meta(description="Under all workloads by their shares.")
    ] = UNSET


def comparisons_answer(compared: Compared) -> ComparisonsAnswer:
    """The wire form of a comparison."""
    first = compared.cases[0]
    answer = ComparisonsAnswer(
        unlike=_unlike_terms(compared.cases),
        unknown_terms=[
            field
            for field in first.likeness.unknown
            if all(field in case.likeness.unknown for case in compared.cases)
        ],
        model_version=MODEL_VERSION,
        objective="iteration_seconds",
    )
    if compared.mix is None:
        return msgspec.structs.replace(
            answer,
            plans=[compared_plan(plan) for plan in first.plans],
            comparisons=_comparisons(first),
        )
    names = [case.workload.name for case in compared.cases if case.workload is not None]
    shares = compared.mix.plans[0].weight_fractions
    return msgspec.structs.replace(
        answer,
        workloads=[
            ComparedWorkload(
                name=name,
                weight_fraction=float(share),
                plans=[compared_plan(plan) for plan in case.plans],
                comparisons=_comparisons(case),
            )
            for name, share, case in zip(names, shares, compared.cases, strict=True)
        ],
        mix=_mix(compared.mix, compared.cases),
    )


def _unlike_terms(cases: Sequence[ComparedCase]) -> list[UnlikeTerm]:
    """What differs alike under several workloads is told once."""
    under: dict[tuple[ContractField, tuple[str | None, ...]], list[str]] = {}
    for case in cases:
        name = "" if case.workload is None else case.workload.name
        for field in case.likeness.unlike:
            terms = [plan.contract.get(field) for plan in case.plans]
            texts = tuple(None if term is None else term.text for term in terms)
            under.setdefault((field, texts), []).append(name)
    names = [plan.name for plan in cases[0].plans]
    return [
        UnlikeTerm(
            term=field,
            values=[
                UnlikeValue(plan=name, value=or_unset(text))
                for name, text in zip(names, texts, strict=True)
            ],
            workloads=UNSET if len(found) == len(cases) else found,
        )
        for (field, texts), found in under.items()
    ]


def _mix(mix: ComparedMix, cases: Sequence[ComparedCase]) -> ComparedMixOut:
    plans = list(zip([plan.name for plan in cases[0].plans], mix.plans, strict=True))
    first, *later = plans
    names = [case.workload.name for case in cases if case.workload is not None]
    return ComparedMixOut(
        plans=[
            MixedPlan(
                name=name,
                mix=mix_terms(found, names, [case.plans[place].terms.iteration for case in cases]),
            )
            for place, (name, found) in enumerate(plans)
        ],
        comparisons=[
            MixedComparison(
                plan=name,
                summary=summary_of(
                    first[0], first[1].mean_iteration, name, found.mean_iteration, attribution
                ),
                **change_terms(first[1].mean_iteration, found.mean_iteration),
                attribution=UNSET if attribution is None else attribution_terms(attribution),
                not_represented=statements((NOT_MIXED,) if attribution is None else ()),
            )
            for (name, found), attribution in zip(later, mix.attributions, strict=True)
        ],
    )


def _comparisons(case: ComparedCase) -> list[ComparisonOut]:
    first, *later = case.plans
    return [
        comparison_terms(first, plan, found)
        for plan, found in zip(later, case.comparisons, strict=True)
    ]
