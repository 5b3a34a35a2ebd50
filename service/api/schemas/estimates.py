"""Wire types of an estimate: every term of a plan, in one answer."""

from fractions import Fraction
from typing import Annotated

import msgspec
from msgspec import Meta

from service.api.schemas.answers import answer_type
from service.api.schemas.boundary_transfers import BoundaryTransfers, boundary_transfers_terms
from service.api.schemas.bubble import Bubble, bubble_terms
from service.api.schemas.cadence import Cadence, cadence_terms
from service.api.schemas.live_activations import LiveActivations, live_activations_terms
from service.api.schemas.sensitivities import Sensitivity, sensitivity_terms
from service.api.schemas.slack import Slack, slack_terms
from service.api.schemas.weight_versions import WeightVersions, weight_versions_terms
from service.core.estimates.bounds import IterationBound
from service.core.estimates.estimate import Estimate
from service.core.estimates.iteration import throughput
from service.core.schedules.critical_path import CriticalPath as CorePath
from service.core.schedules.effects import MicrobatchEffect
from service.core.schedules.timeline import Timeline
from service.core.units import exact_seconds, to_seconds
from service.formats.documents.plan import PlanDocument

__all__ = [
    "CriticalPath",
    "EstimateAnswer",
    "EstimateTerms",
    "LowerBoundOut",
    "MicrobatchCount",
    "PathStep",
    "PathTransferShare",
    "Verdict",
    "estimate_terms",
]

Unset = msgspec.UnsetType

# A path has about two steps a microbatch; what is cut off is still in the shares.
MAX_PATH_STEPS = 2_000


class LowerBoundOut(msgspec.Struct, kw_only=True, frozen=True):
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
        bool,
        Meta(
            description=(
                "True only for a bound of another mode: the plan is then not feasible in the "
                "predicted time on these links."
            )
        ),
    ]


class PathStep(msgspec.Struct, kw_only=True, frozen=True):
    """One operation of the critical path, after the transfer it waited for (0 when none)."""

    kind: str
    stage: Annotated[int, Meta(ge=0)]
    microbatch: Annotated[int, Meta(ge=0)]
    transfer_seconds: Annotated[float, Meta(ge=0)]
    start_seconds: Annotated[float, Meta(ge=0)]
    end_seconds: Annotated[float, Meta(ge=0)]


class PathTransferShare(msgspec.Struct, kw_only=True, frozen=True):
    """The part of the critical path spent in the transfers of one boundary and direction."""

    source_stage: Annotated[int, Meta(ge=0)]
    target_stage: Annotated[int, Meta(ge=0)]
    direction: Annotated[str, Meta(description="forward or backward")]
    seconds: Annotated[float, Meta(ge=0)]


class CriticalPath(msgspec.Struct, kw_only=True, frozen=True):
    """A chain of operations and transfers that sets the makespan; the shares add up to it."""

    stage_seconds: Annotated[list[float], Meta(description="By stage.")]
    kind_seconds: Annotated[dict[str, float], Meta(description="By kind of operation.")]
    transfer_seconds: list[PathTransferShare]
    step_count: Annotated[int, Meta(ge=1)]
    steps: Annotated[list[PathStep], Meta(description="From time 0; the first 2000.")]


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
        Meta(description="below_lower_bound, below_prediction or not_below_prediction"),
    ]
    detail: str


class EstimateTerms(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """All terms of one plan, from one simulated timeline."""

    digest: Annotated[str, Meta(description="Identity of this estimate, and its ETag.")]
    plan: Annotated[
        PlanDocument, Meta(description="The plan as priced: patched, references pinned.")
    ]
    iteration_seconds: Annotated[
        float,
        Meta(
            ge=0,
            description="Prediction: the makespan of the simulated schedule; where the pipeline is "
            "never drained, its microbatches times the pace of the steady state.",
        ),
    ]
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
    cadence: Cadence
    bubble: Bubble
    boundary_transfers: BoundaryTransfers
    live_activations: LiveActivations
    critical_path: CriticalPath
    slack: Slack
    sensitivity: Sensitivity
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
        iteration_seconds=exact_seconds(estimate.iteration),
        samples_per_second=msgspec.UNSET if samples is None else samples,
        tokens_per_second=msgspec.UNSET if tokens is None else tokens,
        verdict=msgspec.UNSET
        if asserted_iteration_seconds is None
        else _verdict(asserted_iteration_seconds, estimate),
        lower_bounds=[_bound(bound, estimate.iteration) for bound in estimate.lower_bounds],
        cadence=cadence_terms(simulated, estimate.cadence),
        bubble=bubble_terms(estimate.bubble),
        boundary_transfers=boundary_transfers_terms(simulated, estimate.transfers),
        live_activations=live_activations_terms(timeline, estimate.live),
        critical_path=_critical_path(timeline, estimate.critical_path),
        slack=slack_terms(estimate.slack),
        sensitivity=sensitivity_terms(timeline, estimate.sensitivity),
        weight_versions=msgspec.UNSET
        if estimate.weight_versions is None
        else weight_versions_terms(estimate.weight_versions),
        other_microbatch_counts=msgspec.UNSET
        if counts is None
        else [_microbatch_count(count) for count in counts],
    )


def _bound(bound: IterationBound, iteration: Fraction) -> LowerBoundOut:
    return LowerBoundOut(
        name=bound.name,
        seconds=to_seconds(bound.picoseconds),
        mode=bound.mode,
        routing=bound.routing,
        witness=bound.witness,
        assumes=list(bound.assumes),
        above_prediction=bound.picoseconds > iteration,
    )


def _verdict(asserted: float, estimate: Estimate) -> Verdict:
    predicted = exact_seconds(estimate.iteration)
    highest = max(estimate.lower_bounds, key=lambda bound: bound.picoseconds)
    bound_seconds = to_seconds(highest.picoseconds)
    if asserted < bound_seconds:
        verdict = "below_lower_bound"
        detail = (
            f"{asserted!r} s is below the lower bound {highest.name} of {bound_seconds!r} s: not "
            "possible under what that bound assumes"
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


def _critical_path(timeline: Timeline, path: CorePath) -> CriticalPath:
    edges = timeline.program.stage_edges
    return CriticalPath(
        stage_seconds=[to_seconds(share) for share in path.by_stage],
        kind_seconds={kind.name.lower(): to_seconds(share) for kind, share in path.by_kind.items()},
        transfer_seconds=[
            PathTransferShare(
                source_stage=edges[edge].source,
                target_stage=edges[edge].target,
                direction="backward" if gradient else "forward",
                seconds=to_seconds(share),
            )
            for (edge, gradient), share in sorted(path.by_transfer.items())
        ],
        step_count=len(path.operations),
        steps=[
            PathStep(
                kind=step.kind.name.lower(),
                stage=step.stage,
                microbatch=step.microbatch,
                transfer_seconds=0.0 if step.after is None else to_seconds(step.after.latency),
                start_seconds=to_seconds(step.start),
                end_seconds=to_seconds(step.end),
            )
            for step in path.operations[:MAX_PATH_STEPS]
        ],
    )


def _microbatch_count(effect: MicrobatchEffect) -> MicrobatchCount:
    return MicrobatchCount(
        microbatches=effect.microbatches,
        makespan_seconds=to_seconds(effect.makespan),
        seconds_per_microbatch=exact_seconds(effect.per_microbatch),
        idle_fraction=effect.idle_fraction,
    )
