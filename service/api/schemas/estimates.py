"""Wire types of an estimate: every term of a plan, in one answer."""

from fractions import Fraction
from typing import Annotated

import msgspec
from msgspec import Meta

from service.api.schemas.answers import answer_type
from service.api.schemas.boundary_transfers import BoundaryTransfers, boundary_transfers_terms
from service.api.schemas.bubble import Bubble, bubble_terms
from service.api.schemas.cadence import Cadence, cadence_terms
from service.api.schemas.critical_path import CriticalPath, critical_path_terms
from service.api.schemas.efficiency import EfficiencyTerms, efficiency_terms
from service.api.schemas.iteration import IterationTerms, iteration_terms
from service.api.schemas.live_activations import LiveActivations, live_activations_terms
from service.api.schemas.memory import MemorySummary, memory_summary
from service.api.schemas.ranges import known_seconds
from service.api.schemas.sensitivities import Sensitivity, sensitivity_terms
from service.api.schemas.slack import Slack, slack_terms
from service.api.schemas.weight_versions import WeightVersions, weight_versions_terms
from service.core.estimates.bounds import IterationBound
from service.core.estimates.estimate import Estimate
from service.core.estimates.iteration import schedule_picoseconds, throughput
from service.core.schedules.effects import MicrobatchEffect
from service.core.units import exact_seconds, to_seconds
from service.formats.documents.fields import or_unset
from service.formats.documents.plan import PlanDocument

__all__ = [
    "EstimateAnswer",
    "EstimateTerms",
    "LowerBoundOut",
    "MicrobatchCount",
    "Verdict",
    "estimate_terms",
]

Unset = msgspec.UnsetType


class LowerBoundOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A time that no iteration can beat, under what it assumes."""

    name: str
    seconds: Annotated[float, Meta(ge=0)]
    mode: Annotated[
        str,
        Meta(
            description=(
                "The transfer mode whose predictions it bounds: `latency` bounds hold in every "
                "mode; a `link` bound gives links a capacity, which `latency` predictions do not."
            )
        ),
    ]
    routing: Annotated[str, Meta(description="pinned (to the stated paths) or any")]
    witness: Annotated[str, Meta(description="What it rests on.")]
    assumes: Annotated[list[str], Meta(description="Resources and rules it takes for granted.")]
    above_prediction: Annotated[
        bool | Unset,
        Meta(
            description=(
                "True only for a bound of another mode: the plan is then not feasible in the "
                "predicted time on these links. Absent where no time is predicted."
            )
        ),
    ] = msgspec.UNSET


class MicrobatchCount(msgspec.Struct, kw_only=True, frozen=True):
    """The same stages with this many microbatches of the same size."""

    microbatches: Annotated[int, Meta(ge=1)]
    makespan_seconds: Annotated[float, Meta(ge=0)]
    seconds_per_microbatch: Annotated[float, Meta(ge=0)]
    idle_fraction: Annotated[float, Meta(ge=0, le=1)]


class Verdict(msgspec.Struct, kw_only=True, frozen=True):
    """What the bounds and the prediction say of a claimed iteration time."""

    asserted_iteration_seconds: Annotated[float, Meta(gt=0)]
    verdict: Annotated[
        str,
        Meta(
            description="below_lower_bound, below_prediction or not_below_prediction; "
            "not_below_lower_bound where there is no prediction"
        ),
    ]
    detail: str


class EstimateTerms(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """All terms of one plan, from one simulated timeline."""

    digest: Annotated[str, Meta(description="Identity of this estimate, and its ETag.")]
    plan: Annotated[
        PlanDocument, Meta(description="The plan as priced: patched, references pinned.")
    ]
    iteration_seconds: Annotated[
        Annotated[float, Meta(ge=0)] | Unset,
        Meta(
            description="Prediction: until the last rank has run its last operation, reduced its "
            "gradients and stepped, as far as these are known; where the pipeline is never "
            "drained, its microbatches times the pace of the steady state, and absent where no "
            "such pace was found.",
        ),
    ] = msgspec.UNSET
    samples_per_second: Annotated[
        float | Unset, Meta(description="Absent when the batch has no size.")
    ] = msgspec.UNSET
    tokens_per_second: Annotated[
        float | Unset, Meta(description="Absent when the batch or the sequence has no size.")
    ] = msgspec.UNSET
    verdict: Annotated[
        Verdict | Unset, Meta(description="Absent when the request asserts nothing.")
    ] = msgspec.UNSET
    lower_bounds: list[LowerBoundOut]
    iteration: IterationTerms
    efficiency: EfficiencyTerms
    cadence: Cadence
    bubble: Bubble
    boundary_transfers: BoundaryTransfers
    live_activations: LiveActivations
    memory: Annotated[
        MemorySummary | Unset,
        Meta(description="Absent where the plan says no parameters of any rank."),
    ] = msgspec.UNSET
    critical_path: CriticalPath
    slack: Slack
    sensitivity: Annotated[
        Sensitivity | Unset,
        Meta(description="Absent in `link` mode: where transfers queue a slope bounds nothing."),
    ] = msgspec.UNSET
    weight_versions: Annotated[
        WeightVersions | Unset,
        Meta(description="Absent when all microbatches of an iteration meet the same weights."),
    ] = msgspec.UNSET
    other_microbatch_counts: Annotated[
        list[MicrobatchCount] | Unset,
        Meta(
            description="Predictions; absent when the global batch is held fixed, and when the "
            "pipeline is never drained."
        ),
    ] = msgspec.UNSET


EstimateAnswer = answer_type("EstimateAnswer", EstimateTerms)


def estimate_terms(
    estimate: Estimate, digest: str, plan: PlanDocument, asserted_iteration_seconds: float | None
) -> EstimateTerms:
    """The wire form of an estimate."""
    simulated, timeline = estimate.simulated, estimate.simulated.timeline
    samples, tokens = throughput(simulated, estimate.iteration)
    counts = estimate.other_microbatch_counts
    return EstimateTerms(
        digest=digest,
        plan=plan,
        iteration_seconds=known_seconds(estimate.iteration),
        samples_per_second=or_unset(samples),
        tokens_per_second=or_unset(tokens),
        verdict=msgspec.UNSET
        if asserted_iteration_seconds is None
        else _verdict(asserted_iteration_seconds, estimate),
        lower_bounds=[_bound(bound, estimate.iteration) for bound in estimate.lower_bounds],
        iteration=iteration_terms(
            estimate.iteration_parts,
            schedule_picoseconds(simulated, estimate.cadence),
            simulated.resolved.tied_copies,
        ),
        efficiency=efficiency_terms(estimate.efficiency),
        cadence=cadence_terms(simulated, estimate.cadence),
        bubble=bubble_terms(estimate.bubble),
        boundary_transfers=boundary_transfers_terms(simulated, estimate.transfers),
        live_activations=live_activations_terms(
            simulated.resolved, timeline.program, estimate.live, timeline
        ),
        memory=msgspec.UNSET if estimate.memory is None else memory_summary(estimate.memory),
        critical_path=critical_path_terms(simulated, estimate.critical_path),
        slack=slack_terms(estimate.slack),
        sensitivity=msgspec.UNSET
        if estimate.sensitivity is None
        else sensitivity_terms(timeline, estimate.sensitivity),
        weight_versions=msgspec.UNSET
        if estimate.weight_versions is None
        else weight_versions_terms(estimate.weight_versions),
        other_microbatch_counts=msgspec.UNSET
        if counts is None
        else [_microbatch_count(count) for count in counts],
    )


def _bound(bound: IterationBound, iteration: Fraction | None) -> LowerBoundOut:
    return LowerBoundOut(
        name=bound.name,
        seconds=to_seconds(bound.picoseconds),
        mode=bound.mode,
        routing=bound.routing,
        witness=bound.witness,
        assumes=list(bound.assumes),
        above_prediction=msgspec.UNSET if iteration is None else bound.picoseconds > iteration,
    )


def _verdict(asserted: float, estimate: Estimate) -> Verdict:
    iteration = estimate.iteration
    predicted = None if iteration is None else exact_seconds(iteration)
    highest = max(estimate.lower_bounds, key=lambda bound: bound.picoseconds)
    bound_seconds = to_seconds(highest.picoseconds)
    if asserted < bound_seconds:
        verdict = "below_lower_bound"
        detail = (
            f"{asserted!r} s is below the lower bound {highest.name} of {bound_seconds!r} s: not "
            "possible under what that bound assumes"
        )
        if iteration is not None and highest.picoseconds > iteration:
            detail += (
                f"; the predicted {predicted!r} s is below it too, as its mode gives links no "
                "capacity"
            )
    elif predicted is None:
        verdict = "not_below_lower_bound"
        detail = (
            f"{asserted!r} s is below no lower bound (the highest is {bound_seconds!r} s), and "
            "there is no prediction to hold it against"
        )
    elif asserted < predicted:
        verdict = "below_prediction"
        detail = (
            f"{asserted!r} s is below no lower bound (the highest is {bound_seconds!r} s) and "
            f"below the predicted {predicted!r} s: not ruled out, not expected"
        )
    else:
        verdict = "not_below_prediction"
        detail = f"{asserted!r} s is not below the predicted {predicted!r} s"
    return Verdict(asserted_iteration_seconds=asserted, verdict=verdict, detail=detail)


def _microbatch_count(effect: MicrobatchEffect) -> MicrobatchCount:
    return MicrobatchCount(
        microbatches=effect.microbatches,
        makespan_seconds=to_seconds(effect.makespan),
        seconds_per_microbatch=exact_seconds(effect.per_microbatch),
        idle_fraction=effect.idle_fraction,
    )
