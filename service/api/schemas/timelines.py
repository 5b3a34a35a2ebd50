"""Wire types of a timeline: its operations as columns."""

from typing import Annotated

import msgspec
from msgspec import Meta

from service.api.schemas.link_use import TimelineLink, link_terms
from service.core.errors import Fault, FaultCode, InvalidInput, some_of
from service.core.estimates.simulation import SimulatedPlan
from service.core.schedules.program import OpKind
from service.core.schedules.selection import Selection
from service.core.schedules.slack import measure_slack
from service.core.schedules.stage_times import operation_kinds
from service.core.schedules.timeline import Timeline
from service.core.units import PICOSECONDS_PER_SECOND, all_to_seconds, to_seconds

__all__ = [
    "MAX_TIMELINE_OPERATIONS",
    "TimelineAnswer",
    "check_selection",
    "timeline_answer",
    "timeline_selection",
]

# Some ten megabytes of JSON or CSV; filters show the rest.
MAX_TIMELINE_OPERATIONS = 200_000


class TimelineAnswer(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The selected operations as columns of equal length, rank after rank, each in its order."""

    digest: Annotated[str, Meta(description="Of the estimate.")]
    schedule: str
    ranks: Annotated[int, Meta(ge=1, description="Pipeline ranks of the whole timeline.")]
    microbatches: Annotated[int, Meta(ge=1)]
    operations: Annotated[int, Meta(ge=1, description="Of the whole timeline.")]
    makespan_seconds: Annotated[float, Meta(ge=0)]
    rank: list[int]
    kind: Annotated[
        list[str],
        Meta(
            description="forward, backward, backward_input, backward_weight, recompute, or "
            "forward_backward for a fused pair"
        ),
    ]
    stage: Annotated[list[int], Meta(description="Of a fused pair that of its forward.")]
    microbatch: Annotated[list[int], Meta(description="Of a fused pair that of its forward.")]
    backward_stage: Annotated[
        list[int] | msgspec.UnsetType,
        Meta(description="Of the backwards of fused pairs; absent when the order has none."),
    ] = msgspec.UNSET
    backward_microbatch: Annotated[
        list[int] | msgspec.UnsetType, Meta(description="As backward_stage.")
    ] = msgspec.UNSET
    start_seconds: list[float]
    end_seconds: list[float]
    slack_seconds: Annotated[
        list[float],
        Meta(description="How much later each alone may end without a later makespan."),
    ]
    exchange_wait_seconds: Annotated[
        list[float] | msgspec.UnsetType,
        Meta(
            description="In `link` mode, how much longer each took than alone, because what it "
            "exchanges with experts waited for links; absent where none exchanges anything."
        ),
    ] = msgspec.UNSET
    waited_for: Annotated[
        list[str],
        Meta(
            description=(
                "What the start waited for: an operation of another rank by stage, kind and "
                "microbatch (2B7, a pair 0F3&7B1), `rank` for the rank's operation before it, "
                "`start` for time 0."
            )
        ),
    ]
    links: Annotated[
        list[TimelineLink] | msgspec.UnsetType,
        Meta(
            description="The links that carry any message of the selected microbatches from or to "
            "the selected ranks in the selected time, in `link` mode."
        ),
    ] = msgspec.UNSET


def timeline_selection(
    ranks: str | None,
    first_microbatch: int | None,
    last_microbatch: int | None,
    start_seconds: float | None,
    end_seconds: float | None,
) -> Selection:
    """The part of a timeline that query parameters ask for."""
    return Selection(
        ranks=None if ranks is None else frozenset(int(rank) for rank in ranks.split(",")),
        first_microbatch=first_microbatch,
        last_microbatch=last_microbatch,
        start=None if start_seconds is None else round(start_seconds * PICOSECONDS_PER_SECOND),
        end=None if end_seconds is None else round(end_seconds * PICOSECONDS_PER_SECOND),
    )


def check_selection(timeline: Timeline, selection: Selection) -> None:
    """Refuse ranks that the plan has not, and more than `MAX_TIMELINE_OPERATIONS` operations."""
    ranks = timeline.program.ranks
    unknown = sorted(rank for rank in selection.ranks or () if rank >= ranks)
    if unknown:
        has = f"pipeline ranks 0 to {ranks - 1}" if ranks > 1 else "pipeline rank 0 only"
        detail = f"the plan has {has}; got {some_of(unknown)}"
        raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, ("ranks",), detail)])
    count = len(selection.operations(timeline))
    if count > MAX_TIMELINE_OPERATIONS:
        detail = (
            f"one answer holds {MAX_TIMELINE_OPERATIONS} operations; {count} are selected: "
            "choose ranks, microbatches or a time window"
        )
        raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, (), detail)])


def timeline_answer(digest: str, simulated: SimulatedPlan, selection: Selection) -> TimelineAnswer:
    """The wire form of the selected part of a plan's timeline."""
    timeline = simulated.timeline
    program, run = timeline.program, timeline.run
    chosen = selection.operations(timeline)
    pairs = OpKind.FORWARD_BACKWARD in operation_kinds(program)
    slack = measure_slack(timeline).operations[chosen]
    return TimelineAnswer(
        digest=digest,
        schedule=program.schedule,
        ranks=program.ranks,
        microbatches=program.microbatches,
        operations=program.operations,
        makespan_seconds=to_seconds(timeline.makespan),
        rank=program.rank[chosen].tolist(),
        kind=[OpKind(kind).name.lower() for kind in program.kind[chosen].tolist()],
        stage=program.stage[chosen].tolist(),
        microbatch=program.microbatch[chosen].tolist(),
        backward_stage=program.backward_stage[chosen].tolist() if pairs else msgspec.UNSET,
        backward_microbatch=program.backward_microbatch[chosen].tolist()
        if pairs
        else msgspec.UNSET,
        start_seconds=all_to_seconds(run.start[chosen]),
        end_seconds=all_to_seconds(run.end[chosen]),
        slack_seconds=all_to_seconds(slack),
        exchange_wait_seconds=all_to_seconds(timeline.exchange_waits[chosen])
        if timeline.links is not None and timeline.links.own
        else msgspec.UNSET,
        waited_for=[timeline.waited_for(operation) for operation in chosen.tolist()],
        links=link_terms(simulated, selection) if simulated.links else msgspec.UNSET,
    )
