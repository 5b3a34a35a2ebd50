"""Wire types of an iteration: what follows the schedule on each rank, and how it is known."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated

import msgspec
from msgspec import Meta

from service.api.schemas.ranges import known_seconds
from service.core.estimates.iteration import Iteration, PartReduction, RankIteration
from service.core.estimates.optimizer_step import OptimizerStep
from service.core.estimates.reduction.parts import PartKind
from service.core.estimates.reduction.pricing import PricedPart, Step
from service.core.estimates.reduction.sharing import Span
from service.core.plans.gradient_reduction import ReductionAlgorithm, ReductionOverlap, TimeOrigin
from service.core.plans.tied import TiedCopies
from service.core.units import to_seconds
from service.formats.documents.fields import or_unset

__all__ = [
    "CollectiveOut",
    "CopiesExchanged",
    "GradientReductionOut",
    "IterationTerms",
    "OptimizerStepOut",
    "RankTerms",
    "iteration_terms",
    "rank_terms",
]

Unset = msgspec.UnsetType
Seconds = Annotated[float, Meta(ge=0)]


class RankTerms(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """When one pipeline rank is done: its last operation and what follows it, in this order."""

    rank: Annotated[int, Meta(ge=0)]
    last_operation_seconds: Annotated[
        Seconds, Meta(description="When it has run its last operation, from the start.")
    ]
    reduction_start_seconds: Annotated[
        Seconds | Unset, Meta(description="Of its first reduction; absent without any.")
    ] = msgspec.UNSET
    reduction_end_seconds: Annotated[
        Seconds | Unset, Meta(description="Of its last reduction; absent without any.")
    ] = msgspec.UNSET
    exposed_reduction_seconds: Annotated[
        Seconds | Unset,
        Meta(description="What of it comes after the last operation; absent without any."),
    ] = msgspec.UNSET
    optimizer_step_seconds: Annotated[
        Seconds | Unset, Meta(description="Absent where unknown.")
    ] = msgspec.UNSET
    gather_start_seconds: Annotated[
        Seconds | Unset, Meta(description="Of its first all-gather of weights; absent without any.")
    ] = msgspec.UNSET
    gather_end_seconds: Seconds | Unset = msgspec.UNSET
    exposed_gather_seconds: Annotated[
        Seconds | Unset, Meta(description="What of it comes after the step; absent without any.")
    ] = msgspec.UNSET
    end_seconds: Annotated[
        Seconds,
        Meta(description="The sum of the last operation, of what is exposed, and of the step."),
    ]


class CollectiveOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One collective among all groups of a stage at once."""

    message_bytes: Annotated[
        int | Unset,
        Meta(
            description="What each rank holds before a reduction, or after an all-gather; absent "
            "where the plan gives the time."
        ),
    ] = msgspec.UNSET
    lower_bound_seconds: Annotated[
        Seconds | Unset,
        Meta(
            description="By any algorithm over any route at nominal bandwidth, unless a switch "
            "adds up; absent where the plan gives the time."
        ),
    ] = msgspec.UNSET
    lower_bound_binding: Annotated[
        str | Unset, Meta(description="What that rests on: a port, a cut or a partition.")
    ] = msgspec.UNSET
    alone_seconds: Annotated[
        Seconds, Meta(description="Prediction where nothing else is on its links.")
    ]
    bottleneck: Annotated[
        str | Unset, Meta(description="The link that is taken up longest; absent without any.")
    ] = msgspec.UNSET
    latency_seconds: Annotated[
        Seconds | Unset, Meta(description="Of that, paid once for each bucket.")
    ] = msgspec.UNSET
    start_seconds: Annotated[
        Seconds | Unset,
        Meta(description="On the timeline; absent where the pipeline is never drained."),
    ] = msgspec.UNSET
    end_seconds: Seconds | Unset = msgspec.UNSET


class GradientReductionOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The reduction of the gradients of one kind of weights of a stage."""

    stage: Annotated[int, Meta(ge=0)]
    pipeline_ranks: list[int]
    weights: Annotated[
        PartKind | Unset,
        Meta(
            description="dense weights, or those of experts, which have replicas of their own; "
            "absent where the plan gives the time."
        ),
    ] = msgspec.UNSET
    groups: Annotated[
        list[list[int]], Meta(description="The ranks that hold the same weights, group by group.")
    ]
    elements: Annotated[
        int | Unset, Meta(description="Weights that a rank holds; absent where time is given.")
    ] = msgspec.UNSET
    algorithm: Annotated[
        ReductionAlgorithm | Unset, Meta(description="Absent where the plan gives the time.")
    ] = msgspec.UNSET
    buckets: Annotated[
        int, Meta(ge=1, description="In so many parts, each when its gradients are ready.")
    ]
    origin: TimeOrigin
    reduction: CollectiveOut
    gather: Annotated[
        CollectiveOut | Unset,
        Meta(description="The all-gather of weights after the step; absent without any."),
    ] = msgspec.UNSET


class CopiesExchanged(msgspec.Struct, kw_only=True, frozen=True):
    """The exchange of the gradients of tied weights that several stages hold."""

    weights: list[str]
    pipeline_ranks: list[int]
    start_seconds: Seconds
    end_seconds: Seconds


class OptimizerStepOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The optimizer's step of one pipeline rank."""

    rank: Annotated[int, Meta(ge=0)]
    moved_bytes: Annotated[
        int | Unset, Meta(description="Read and written; absent where the plan gives the time.")
    ] = msgspec.UNSET
    lower_bound_seconds: Seconds
    seconds: Annotated[Seconds, Meta(description="Prediction.")]
    origin: TimeOrigin


class IterationTerms(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The iteration from the first operation to the last step, rank by rank."""

    schedule_seconds: Annotated[
        Seconds | Unset,
        Meta(
            description="Of it, the schedule alone: the makespan, or where the pipeline is never "
            "drained the microbatches times the steady pace, absent where there is none. Critical "
            "path, slack, sensitivities and other numbers of microbatches are of this."
        ),
    ] = msgspec.UNSET
    seconds: Annotated[
        Seconds | Unset, Meta(description="Prediction of all of it; as iteration_seconds.")
    ] = msgspec.UNSET
    last_rank: Annotated[
        int | Unset, Meta(description="The pipeline rank that is done last; the first of equals.")
    ] = msgspec.UNSET
    overlap: Annotated[
        ReductionOverlap | Unset,
        Meta(description="When reductions begin; absent where there is none."),
    ] = msgspec.UNSET
    ranks: Annotated[
        list[RankTerms], Meta(description="Empty where the pipeline is never drained.")
    ]
    gradient_reductions: Annotated[
        list[GradientReductionOut],
        Meta(
            description="Empty where no ranks hold the same weights, and where nothing can be said."
        ),
    ]
    tied_copies: Annotated[
        list[CopiesExchanged],
        Meta(
            description="When the gradients of each set of tied copies are added up, of those of "
            "known time; they count as a part of the reductions of their ranks."
        ),
    ]
    optimizer_steps: Annotated[
        list[OptimizerStepOut], Meta(description="Of each pipeline rank; empty where unknown.")
    ]


def iteration_terms(
    iteration: Iteration, schedule: Fraction | None, copies: Sequence[TiedCopies]
) -> IterationTerms:
    """The wire form of an iteration whose schedule alone takes so many picoseconds.

    `copies` are the tied copies of its plan.
    """
    return IterationTerms(
        schedule_seconds=known_seconds(schedule),
        seconds=known_seconds(iteration.picoseconds),
        last_rank=or_unset(iteration.last_rank),
        overlap=iteration.planned.reduction.overlap if iteration.reductions else msgspec.UNSET,
        ranks=[rank_terms(one) for one in iteration.ranks],
        gradient_reductions=[_reduction(one) for one in iteration.reductions],
        tied_copies=[
            CopiesExchanged(
                weights=list(one.weights),
                pipeline_ranks=list(one.pipeline_ranks),
                start_seconds=to_seconds(span.start),
                end_seconds=to_seconds(span.end),
            )
            for one, span in zip(copies, iteration.exchanges, strict=True)
            if span is not None
        ],
        optimizer_steps=[_step(one) for one in iteration.steps or ()],
    )


def rank_terms(one: RankIteration) -> RankTerms:
    """The wire form of one rank."""
    return RankTerms(
        rank=one.rank,
        last_operation_seconds=to_seconds(one.last_operation),
        reduction_start_seconds=_start(one.reduction),
        reduction_end_seconds=_end(one.reduction),
        exposed_reduction_seconds=msgspec.UNSET
        if one.reduction is None
        else to_seconds(one.exposed_reduction),
        optimizer_step_seconds=msgspec.UNSET if one.step is None else to_seconds(one.step),
        gather_start_seconds=_start(one.gather),
        gather_end_seconds=_end(one.gather),
        exposed_gather_seconds=msgspec.UNSET
        if one.gather is None
        else to_seconds(one.exposed_gather),
        end_seconds=to_seconds(one.end),
    )


def _start(span: Span | None) -> float | Unset:
    return msgspec.UNSET if span is None else to_seconds(span.start)


def _end(span: Span | None) -> float | Unset:
    return msgspec.UNSET if span is None else to_seconds(span.end)


def _reduction(one: PartReduction) -> GradientReductionOut:
    planned, part = one.planned, one.planned.part
    priced = planned.priced
    return GradientReductionOut(
        stage=part.held.stage,
        pipeline_ranks=list(part.pipeline_ranks),
        weights=msgspec.UNSET if priced is None else part.held.kind,
        groups=[list(group) for group in part.groups],
        elements=msgspec.UNSET if priced is None else part.held.elements,
        algorithm=msgspec.UNSET if priced is None else priced.algorithm,
        buckets=one.buckets,
        origin=planned.origin,
        reduction=CollectiveOut(
            alone_seconds=to_seconds(planned.given_picoseconds or 0),
            start_seconds=_start(one.span),
            end_seconds=_end(one.span),
        )
        if priced is None
        else _collective(priced, Step.REDUCTION, one.span),
        gather=msgspec.UNSET
        if priced is None or Step.GATHER not in priced.steps
        else _collective(priced, Step.GATHER, one.gather),
    )


def _collective(priced: PricedPart, step: Step, span: Span | None) -> CollectiveOut:
    bound = priced.bounds[priced.steps.index(step)]
    link = priced.traffic.binding
    return CollectiveOut(
        message_bytes=priced.message_bytes(step),
        lower_bound_seconds=to_seconds(bound.picoseconds),
        lower_bound_binding=bound.binding or msgspec.UNSET,
        alone_seconds=to_seconds(priced.alone_picoseconds(step)),
        bottleneck=msgspec.UNSET if link is None else link.resource,
        latency_seconds=priced.traffic.latency_seconds,
        start_seconds=_start(span),
        end_seconds=_end(span),
    )


def _step(one: OptimizerStep) -> OptimizerStepOut:
    return OptimizerStepOut(
        rank=one.rank,
        moved_bytes=or_unset(one.bytes),
        lower_bound_seconds=to_seconds(one.bound_picoseconds),
        seconds=to_seconds(one.picoseconds),
        origin=one.origin,
    )
