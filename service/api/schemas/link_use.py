"""Wire types of the links of a timeline: who held which of them, and when."""

from itertools import groupby
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.estimates.simulation import SimulatedPlan
from service.core.schedules.link_use import count_intervals, intervals_of, link_busy
from service.core.schedules.program import OpKind, Program
from service.core.schedules.program_links import Carried, carried
from service.core.schedules.selection import Selection
from service.core.units import to_seconds

__all__ = ["MAX_INTERVALS", "LinkInterval", "TimelineLink", "exchange_of", "link_terms"]

# Some twenty megabytes of JSON.
MAX_INTERVALS = 200_000


class LinkInterval(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The message of one boundary and microbatch, of all its rank pairs, on one link.

    Or what the experts of one stage exchange for a microbatch, of all its ranks: then both stages
    are that one, and `exchange_of` is there.
    """

    source_stage: Annotated[int, Meta(ge=0)]
    target_stage: Annotated[int, Meta(ge=0)]
    direction: Annotated[str, Meta(description="forward or backward")]
    microbatch: Annotated[int, Meta(ge=0)]
    start_seconds: Annotated[float, Meta(ge=0)]
    end_seconds: Annotated[float, Meta(ge=0)]
    exchange_of: Annotated[
        str | msgspec.UnsetType,
        Meta(description="The kind of operation that exchanges it with experts; else absent."),
    ] = msgspec.UNSET


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
    busy = link_busy(timeline)

    def interval(row: int) -> LinkInterval:
        what = carried(program, int(found.bundle[row]))
        source, target = what.ends
        return LinkInterval(
            source_stage=source,
            target_stage=target,
            direction="backward" if what.backward else "forward",
            microbatch=what.microbatch,
            start_seconds=to_seconds(int(found.start[row])),
            end_seconds=to_seconds(int(found.end[row])),
            exchange_of=exchange_of(program, what),
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


def exchange_of(program: Program, what: Carried) -> str | msgspec.UnsetType:
    """The kind of operation that exchanges a bundle itself; absent for a transfer."""
    if what.edge is not None:
        return msgspec.UNSET
    return OpKind(program.kind[what.operation]).name.lower()
