"""Wire types of a plan under several workloads."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Any

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
from service.api.schemas.ranges import known_seconds
from service.api.schemas.requests import PlanRequest
from service.app.workloads import NamedWorkload, Weighed, WorkloadOutcome
from service.core.estimates.iteration import still_left_out, throughput
from service.core.estimates.workloads import WorkloadMix
from service.core.plans.plan import Statement
from service.core.schedules.transfers import TransferMode
from service.core.units import exact_seconds
from service.formats.documents.fields import or_unset

__all__ = [
    "MAX_WORKLOADS",
    "SlowestStageShare",
    "WorkloadCase",
    "WorkloadEstimate",
    "WorkloadEstimatesAnswer",
    "WorkloadEstimatesRequest",
    "WorkloadMixOut",
    "mix_terms",
    "named_workloads",
    "workload_estimates_answer",
]

MAX_WORKLOADS = 32

_Seconds = Annotated[float, Meta(ge=0)]
_Fraction = Annotated[float, Meta(ge=0, le=1)]
_Name = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,62}$(?!\n)",
        max_length=63,
        examples=["long-documents"],
    ),
]


class WorkloadCase(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One of the workloads that a plan will meet."""

    name: Annotated[_Name, Meta(description="What the answer calls it; unique in the request.")]
    weight: Annotated[
        Annotated[float, Meta(gt=0, le=1e9)] | UnsetType,
        Meta(
            description="How many of the iterations have it, relative to the others; 1 when absent."
        ),
    ] = UNSET
    workload: Annotated[
        dict[str, Any],
        Meta(
            max_length=16,
            description="JSON merge patch (RFC 7396) of the plan's `workload`. Of microbatch_size "
            "and global_batch_size the plan holds fixed the one that it gives, unless a null here "
            "takes it away; another number of microbatches changes the other one.",
            examples=[{"sequence_length": 8192, "microbatches": 8}],
        ),
    ]


class WorkloadEstimatesRequest(PlanRequest, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A plan to judge on several workloads."""

    workloads: Annotated[
        list[WorkloadCase],
        Meta(
            min_length=1,
            max_length=MAX_WORKLOADS,
            description="In place of the plan's own workload, which they patch.",
        ),
    ]


class WorkloadEstimate(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The main numbers of the plan under one workload: those that its estimate has."""

    name: str
    weight_fraction: Annotated[
        _Fraction, Meta(description="Of the iterations, those with this workload.")
    ]
    workload: WorkloadOut
    transfer_mode: TransferMode
    iteration_seconds: Annotated[
        _Seconds | UnsetType, Meta(description="Prediction; absent where none is known.")
    ] = UNSET
    samples_per_second: Annotated[
        float | UnsetType, Meta(description="Samples per second of an iteration, where known.")
    ] = UNSET
    tokens_per_second: Annotated[
        float | UnsetType, Meta(description="Tokens per second of an iteration, where known.")
    ] = UNSET
    slowest_stage: Annotated[
        int, Meta(ge=0, description="The stage with the most work; the first of equals.")
    ]
    cadence_bound_seconds: Annotated[
        float, Meta(ge=0, description="Lower bound of the seconds that each microbatch adds.")
    ]
    steady_seconds: Annotated[
        _Seconds | UnsetType,
        Meta(description="Predicted seconds that each further microbatch adds, where known."),
    ] = UNSET
    idle_fraction: Annotated[
        _Fraction, Meta(description="Idle share of the makespan over all pipeline ranks.")
    ]
    peak_activations: Annotated[
        int, Meta(ge=0, description="The most that any rank keeps alive at once.")
    ]
    peak_activation_bytes: Annotated[
        Annotated[int, Meta(ge=0)] | UnsetType,
        Meta(description="The most bytes that they take on any rank; absent where not known."),
    ] = UNSET
    assumptions: Annotated[
        list[StatementOut], Meta(description="Those that do not hold of every workload alike.")
    ]
    not_represented: Annotated[
        list[StatementOut], Meta(description="That which not every workload alike leaves out.")
    ]


class SlowestStageShare(msgspec.Struct, kw_only=True, frozen=True):
    """A stage that is the slowest of the plan under some workload."""

    stage: Annotated[int, Meta(ge=0)]
    weight_fraction: Annotated[_Fraction, Meta(description="Of the iterations in which it is.")]


class WorkloadMixOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """All workloads together, each by its share of the iterations."""

    mean_iteration_seconds: Annotated[
        _Seconds | UnsetType,
        Meta(description="Weighted mean; absent unless every iteration_seconds is known."),
    ] = UNSET
    worst: Annotated[
        str | UnsetType,
        Meta(description="The workload with the longest iteration, the first of equals."),
    ] = UNSET
    worst_iteration_seconds: _Seconds | UnsetType = UNSET
    samples_per_second: Annotated[
        float | UnsetType, Meta(description="All samples over all of the time.")
    ] = UNSET
    tokens_per_second: Annotated[
        float | UnsetType, Meta(description="All tokens over all of the time.")
    ] = UNSET
    slowest_stages: Annotated[
        list[SlowestStageShare],
        Meta(description="More than one where no workload speaks for the others."),
    ]


class WorkloadEstimatesAnswer(msgspec.Struct, kw_only=True, frozen=True):
    """One plan under each workload, in the order of the request, and under their mix."""

    model_version: str
    pins: list[Pin]
    workloads: list[WorkloadEstimate]
    mix: WorkloadMixOut
    assumptions: Annotated[list[StatementOut], Meta(description="Of every workload alike.")]
    represented: Annotated[list[StatementOut], Meta(description="Of every workload alike.")]
    not_represented: Annotated[list[StatementOut], Meta(description="Of every workload alike.")]


def named_workloads(cases: Sequence[WorkloadCase]) -> list[NamedWorkload]:
    """What is asked of the plan, one after the other."""
    return [
        NamedWorkload(case.name, 1.0 if case.weight is UNSET else case.weight, case.workload)
        for case in cases
    ]


def workload_estimates_answer(weighed: Weighed) -> WorkloadEstimatesAnswer:
    """The wire form of a plan under several workloads."""
    first = weighed.outcomes[0].priced
    assumed = [_assumed(one) for one in weighed.outcomes]
    left_out = [_left_out(one) for one in weighed.outcomes]
    common, not_in = _in_all(assumed), _in_all(left_out)
    return WorkloadEstimatesAnswer(
        model_version=first.model_version,
        pins=pin_terms(first.pins),
        workloads=[
            _workload(outcome, share, _without(of, common), _without(out, not_in))
            for outcome, share, of, out in zip(
                weighed.outcomes, weighed.mix.weight_fractions, assumed, left_out, strict=True
            )
        ],
        mix=mix_terms(
            weighed.mix,
            [outcome.workload.name for outcome in weighed.outcomes],
            [outcome.weighed.estimate.iteration for outcome in weighed.outcomes],
        ),
        assumptions=statements(common),
        represented=statements(_in_all([one.priced.represented for one in weighed.outcomes])),
        not_represented=statements(not_in),
    )


def _workload(
    outcome: WorkloadOutcome,
    share: Fraction,
    assumed: Sequence[Statement],
    left_out: Sequence[Statement],
) -> WorkloadEstimate:
    estimate, resolved = outcome.weighed.estimate, outcome.priced.resolved
    cadence = estimate.cadence
    samples, tokens = throughput(outcome.priced.simulated, estimate.iteration)
    sizes = [one.peak_bytes for one in estimate.live if one.peak_bytes is not None]
    return WorkloadEstimate(
        name=outcome.workload.name,
        weight_fraction=float(share),
        workload=workload_terms(resolved),
        transfer_mode=resolved.transfer_mode,
        iteration_seconds=known_seconds(estimate.iteration),
        samples_per_second=or_unset(samples),
        tokens_per_second=or_unset(tokens),
        slowest_stage=cadence.slowest_stage,
        cadence_bound_seconds=exact_seconds(cadence.bound),
        steady_seconds=UNSET
        if cadence.steady is None
        else exact_seconds(cadence.steady.per_microbatch),
        idle_fraction=estimate.bubble.idle_fraction,
        peak_activations=max(one.peak_activations for one in estimate.live),
        peak_activation_bytes=max(sizes, default=UNSET),
        assumptions=statements(assumed),
        not_represented=statements(left_out),
    )


def mix_terms(
    mix: WorkloadMix, names: Sequence[str], iterations: Sequence[Fraction | None]
) -> WorkloadMixOut:
    """The wire form of a mix; `names` and `iterations` (picoseconds) are those of its workloads."""
    worst = mix.worst
    return WorkloadMixOut(
        mean_iteration_seconds=known_seconds(mix.mean_iteration),
        worst=UNSET if worst is None else names[worst],
        worst_iteration_seconds=UNSET if worst is None else known_seconds(iterations[worst]),
        samples_per_second=_rate(mix.samples_per_second),
        tokens_per_second=_rate(mix.tokens_per_second),
        slowest_stages=[
            SlowestStageShare(stage=stage, weight_fraction=float(share))
            for stage, share in mix.slowest_stages
        ],
    )


def _rate(rate: Fraction | None) -> float | UnsetType:
    return UNSET if rate is None else float(rate)


def _assumed(outcome: WorkloadOutcome) -> list[Statement]:
    return [*outcome.priced.assumptions, *outcome.weighed.estimate.assumptions]


def _left_out(outcome: WorkloadOutcome) -> list[Statement]:
    estimate = outcome.weighed.estimate
    of_plan = still_left_out(estimate.iteration_parts, outcome.priced.not_represented)
    return [*of_plan, *estimate.not_represented]


def _in_all(said: Sequence[Sequence[Statement]]) -> list[Statement]:
    """What all of them say, in the order of the first."""
    others = [set(one) for one in said[1:]]
    return [one for one in said[0] if all(one in other for other in others)]


def _without(said: Sequence[Statement], common: Sequence[Statement]) -> list[Statement]:
    known = set(common)
    return [one for one in said if one not in known]
