"""Wire types of the links of a timeline: who held which of them, and when."""

from itertools import groupby
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.estimates.simulation import SimulatedPlan
from service.core.schedules.link_use import count_intervals, intervals_of, link_busy
from service.core.schedules.selection import Selection
from service.core.schedules.stage_times import input_microbatches
from service.core.units import to_seconds

__all__ = ["MAX_INTERVALS", "LinkInterval", "TimelineLink", "link_terms"]

# Some twenty megabytes of JSON.
MAX_INTERVALS = 200_000


class LinkInterval(msgspec.Struct, kw_only=True, frozen=True):
    """The message of one boundary and microbatch, of all its rank pairs, on one link."""

    source_stage: Annotated[int, Meta(ge=0)]
    target_stage: Annotated[int, Meta(ge=0)]
    direction: Annotated[str, Meta(description="forward or backward")]
    microbatch: Annotated[int, Meta(ge=0)]
    start_seconds: Annotated[float, Meta(ge=0)]
    end_seconds: Annotated[float, Meta(ge=0)]


class TimelineLink(msgspec.Struct, kw_only=True, frozen=True):
    """One direction of a physical link over the iteration, or all links that share a capacity."""

    link: Annotated[
        str,
        Meta(
            description="source->target; source<->target where both directions share one capacity."
            " source and target are then those of the first use."
        ),
    ]
    source: str
    target: str
    kind: Annotated[str, Meta(description="nvlink, pcie, host_bridge, socket, network, fabric")]
    busy_seconds: Annotated[float, Meta(ge=0, description="Over the whole iteration.")]
    utilisation_fraction: Annotated[
        float, Meta(ge=0, le=1, description="busy_seconds / makespan_seconds")
    ]
    intervals: Annotated[list[LinkInterval], Meta(description="Those selected, in sequence.")]


def link_terms(simulated: SimulatedPlan, selection: Selection) -> list[TimelineLink]:
    """The wire form of the selected part of the links' occupancy.

    Raises `InvalidInput` for more than `MAX_INTERVALS`.
    """
    timeline = simulated.timeline
    program = timeline.program
    wanted = selection.messages(timeline)
    count = count_intervals(timeline, wanted)
    if count > MAX_INTERVALS:
        detail = (
            f"one answer holds {MAX_INTERVALS} intervals on links; {count} are selected: choose "
            "ranks, microbatches or a time window"
        )
        raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, (), detail)])
    found = intervals_of(timeline, wanted)
    start, end = selection.window(timeline)
    shown = np.flatnonzero((found.end > start) & (found.start < end))
    shown = shown[np.argsort(found.link[shown], kind="stable")]
    busy, microbatches = link_busy(timeline), input_microbatches(program)

    def interval(row: int) -> LinkInterval:
        number = int(found.input[row])
        edge = program.stage_edges[program.input_edges[number]]
        return LinkInterval(
            source_stage=edge.source,
            target_stage=edge.target,
            direction="backward" if program.input_gradient[number] else "forward",
            microbatch=int(microbatches[number]),
            start_seconds=to_seconds(int(found.start[row])),
            end_seconds=to_seconds(int(found.end[row])),
        )

    links = []
    for number, rows in groupby(shown.tolist(), lambda row: int(found.link[row])):
        link = simulated.links[number]
        links.append(
            TimelineLink(
                link=link.resource,
                source=link.source,
                target=link.target,
                kind=link.kind.value,
                busy_seconds=to_seconds(int(busy[number])),
                utilisation_fraction=int(busy[number]) / timeline.makespan,
                intervals=[interval(row) for row in rows],
            )
        )
    return links
