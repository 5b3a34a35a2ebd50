"""Wire types of the bubble: where the time of the ranks goes."""

from typing import Annotated

import msgspec
from msgspec import Meta

from service.api.schemas.answers import answer_type
from service.core.schedules.bubble import REPLAY_SEQUENCE
from service.core.schedules.bubble import Bubble as CoreBubble
from service.core.schedules.closed_forms import Metric
from service.core.schedules.ideal import ClosedFormFailure, IdealUtilisation
from service.core.units import exact_seconds, to_seconds

__all__ = ["Bubble", "BubbleAnswer", "BubbleRank", "ClosedForm", "ClosedFormFails", "bubble_terms"]


class BubbleRank(msgspec.Struct, kw_only=True, frozen=True):
    """One pipeline rank. All seconds but the utilisation add up to the makespan."""

    rank: Annotated[int, Meta(ge=0, description="Pipeline rank.")]
    utilisation_fraction: Annotated[float, Meta(ge=0, le=1)]
    busy_seconds: Annotated[float, Meta(ge=0)]
    send_seconds: Annotated[
        float, Meta(ge=0, description="Held by what it sends, in `blocking` mode.")
    ]
    fill_seconds: Annotated[float, Meta(ge=0, description="Before the first operation.")]
    drain_seconds: Annotated[float, Meta(ge=0, description="After the last operation.")]
    dependency_wait_seconds: Annotated[float, Meta(ge=0)]
    transfer_wait_seconds: Annotated[float, Meta(ge=0)]
    contention_wait_seconds: Annotated[
        float,
        Meta(
            ge=0,
            description="For links, in `link` mode: before operations, and within those that "
            "exchange with experts, which are busy for what they take alone.",
        ),
    ]


class ClosedForm(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A published formula that holds for this plan, beside the simulation."""

    formula: Annotated[str, Meta(description="Of the makespan or of the span.")]
    makespan_seconds: Annotated[
        float | msgspec.UnsetType,
        Meta(description="By the formula; absent when it gives the span."),
    ] = msgspec.UNSET
    span_seconds: Annotated[
        float | msgspec.UnsetType,
        Meta(description="By the formula; absent when it gives the makespan."),
    ] = msgspec.UNSET
    utilisation_fraction: Annotated[float, Meta(ge=0, le=1)]
    holds_for: Annotated[str, Meta(description="The conditions, all met by this plan.")]


class ClosedFormFails(msgspec.Struct, kw_only=True, frozen=True):
    """A published formula of the schedule that is not exact for this plan; the simulation is."""

    formula: str
    holds_for: Annotated[str, Meta(description="The conditions.")]
    reason: Annotated[str, Meta(description="The first that this plan does not meet.")]


class Bubble(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Idle time of one iteration. The four terms add up to makespan minus ideal; signed."""

    makespan_seconds: Annotated[float, Meta(ge=0, description="From time 0 to the last end.")]
    span_seconds: Annotated[
        float, Meta(ge=0, description="Longest time from a rank's first start to its last end.")
    ]
    ideal_seconds: Annotated[
        float, Meta(ge=0, description="Microbatches x mean work of a rank: no idle time at all.")
    ]
    idle_fraction: Annotated[float, Meta(ge=0, le=1, description="1 - busy / (makespan x ranks)")]
    span_idle_fraction: Annotated[float, Meta(ge=0, le=1, description="1 - busy / (span x ranks)")]
    overhead_ratio: Annotated[float, Meta(description="(makespan - ideal) / ideal")]
    ideal_utilisation: Annotated[
        ClosedForm | msgspec.UnsetType,
        Meta(description="Absent when no published formula of the schedule holds."),
    ] = msgspec.UNSET
    closed_form_fails: Annotated[
        ClosedFormFails | msgspec.UnsetType,
        Meta(description="Why the published formula does not hold; absent without one."),
    ] = msgspec.UNSET
    structural_seconds: Annotated[
        float, Meta(description="Fill and drain of the order itself, stages equal, transfers free.")
    ]
    imbalance_seconds: Annotated[float, Meta(description="Added by unequal stages.")]
    transfer_seconds: Annotated[float, Meta(description="Added by transfers.")]
    contention_seconds: Annotated[
        float, Meta(description="Added by queues on links, in `link` mode.")
    ]
    split_sequence: Annotated[
        list[str],
        Meta(description="The order of the replays; another order splits differently."),
    ]
    ranks: list[BubbleRank]


BubbleAnswer = answer_type("BubbleAnswer", Bubble)


def bubble_terms(bubble: CoreBubble) -> Bubble:
    """The wire form of a plan's bubble."""
    return Bubble(
        makespan_seconds=to_seconds(bubble.makespan),
        span_seconds=to_seconds(bubble.span),
        ideal_seconds=exact_seconds(bubble.ideal),
        idle_fraction=bubble.idle_fraction,
        span_idle_fraction=bubble.span_idle_fraction,
        overhead_ratio=bubble.overhead_ratio,
        ideal_utilisation=_closed_form(bubble.ideal_utilisation),
        closed_form_fails=_closed_form_fails(bubble.closed_form_fails),
        structural_seconds=exact_seconds(bubble.excess.structural),
        imbalance_seconds=exact_seconds(bubble.excess.imbalance),
        transfer_seconds=exact_seconds(bubble.excess.transfer),
        contention_seconds=exact_seconds(bubble.excess.contention),
        split_sequence=list(REPLAY_SEQUENCE),
        ranks=[
            BubbleRank(
                rank=rank.rank,
                utilisation_fraction=rank.utilisation,
                busy_seconds=to_seconds(rank.busy),
                send_seconds=to_seconds(rank.send),
                fill_seconds=to_seconds(rank.fill),
                drain_seconds=to_seconds(rank.drain),
                dependency_wait_seconds=to_seconds(rank.dependency_wait),
                transfer_wait_seconds=to_seconds(rank.transfer_wait),
                contention_wait_seconds=to_seconds(rank.contention_wait),
            )
            for rank in bubble.ranks
        ],
    )


def _closed_form(ideal: IdealUtilisation | None) -> ClosedForm | msgspec.UnsetType:
    if ideal is None:
        return msgspec.UNSET
    seconds = to_seconds(ideal.picoseconds)
    return ClosedForm(
        formula=ideal.formula,
        makespan_seconds=seconds if ideal.metric is Metric.MAKESPAN else msgspec.UNSET,
        span_seconds=seconds if ideal.metric is Metric.SPAN else msgspec.UNSET,
        utilisation_fraction=ideal.utilisation,
        holds_for=ideal.conditions,
    )


def _closed_form_fails(failure: ClosedFormFailure | None) -> ClosedFormFails | msgspec.UnsetType:
    if failure is None:
        return msgspec.UNSET
    return ClosedFormFails(
        formula=failure.formula, holds_for=failure.conditions, reason=failure.reason
    )
