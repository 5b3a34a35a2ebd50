"""Wire types of the critical path: what the makespan is made of."""

from operator import itemgetter
from typing import Annotated

import msgspec
from msgspec import Meta

from service.core.amounts import largest
from service.core.estimates.simulation import SimulatedPlan
from service.core.plans.plan import Boundary
from service.core.schedules.critical_path import CriticalPath as CorePath
from service.core.schedules.critical_path import PathOperation, PathQueue
from service.core.schedules.program_links import carried
from service.core.schedules.transfers import TransferMode
from service.core.units import to_seconds

__all__ = [
    "CriticalPath",
    "PathLinkShare",
    "PathStep",
    "PathTransferShare",
    "QueuedBehind",
    "critical_path_terms",
]

# A path has about two steps a microbatch; what is cut off is still in the shares.
MAX_PATH_STEPS = 2_000


class QueuedBehind(msgspec.Struct, kw_only=True, frozen=True):
    """A message that held a link for which a message of the path waited."""

    link: str
    source_stage: Annotated[int, Meta(ge=0)]
    target_stage: Annotated[int, Meta(ge=0)]
    direction: Annotated[str, Meta(description="forward or backward")]
    microbatch: Annotated[int, Meta(ge=0)]
    start_seconds: Annotated[float, Meta(ge=0)]
    end_seconds: Annotated[float, Meta(ge=0)]


class PathStep(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One operation of the critical path, after the transfer it waited for (0 when none).

    In `blocking` mode that may be its own rank's last send.
    """

    kind: str
    stage: Annotated[int, Meta(ge=0)]
    microbatch: Annotated[int, Meta(ge=0)]
    transfer_seconds: Annotated[float, Meta(ge=0)]
    start_seconds: Annotated[float, Meta(ge=0)]
    end_seconds: Annotated[float, Meta(ge=0)]
    link: Annotated[
        str | msgspec.UnsetType,
        Meta(
            description="In `link` mode, the slowest link of that transfer: the last to be done "
            "with it. Absent where it occupies none."
        ),
    ] = msgspec.UNSET
    queued_behind: Annotated[
        list[QueuedBehind],
        Meta(
            description="In `link` mode, what the link served before that transfer, in sequence; "
            "the path comes from the sender of the first of them."
        ),
    ] = msgspec.field(default_factory=list)
    exchange_link: Annotated[
        str | msgspec.UnsetType,
        Meta(
            description="The link for which it waited with what it exchanges with experts, so that "
            "it took longer than alone; absent where it did not."
        ),
    ] = msgspec.UNSET
    exchange_wait_seconds: Annotated[
        Annotated[float, Meta(ge=0)] | msgspec.UnsetType,
        Meta(description="How much longer; counted as queued on that link."),
    ] = msgspec.UNSET


class PathLinkShare(msgspec.Struct, kw_only=True, frozen=True):
    """What one directed link does to the critical path; links of a shared capacity are one."""

    link: str
    occupied_seconds: Annotated[
        float,
        Meta(ge=0, description="By transfers of the path of which it is the slowest link."),
    ]
    queued_seconds: Annotated[
        float, Meta(ge=0, description="By others, which it served before these.")
    ]


class PathTransferShare(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The part of the critical path spent in the transfers of one boundary and direction."""

    source_stage: Annotated[int, Meta(ge=0)]
    target_stage: Annotated[int, Meta(ge=0)]
    direction: Annotated[str, Meta(description="forward or backward")]
    seconds: Annotated[float, Meta(ge=0)]
    bottleneck_link: Annotated[
        str | msgspec.UnsetType,
        Meta(
            description="The link of least nominal bandwidth on the physical path of the slowest "
            "rank pair, where transfers occupy no link and such a path is known."
        ),
    ] = msgspec.UNSET


class CriticalPath(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A chain of operations and transfers that sets the makespan.

    The seconds by stage, those of transfers and those queued on links add up to it. What links are
    occupied and what is off links add up to those of transfers.
    """

    stage_seconds: Annotated[list[float], Meta(description="By stage.")]
    kind_seconds: Annotated[dict[str, float], Meta(description="By kind of operation.")]
    transfer_seconds: list[PathTransferShare]
    link_seconds: Annotated[
        list[PathLinkShare] | msgspec.UnsetType,
        Meta(
            description="By link, in `link` mode; in the other modes links are not represented, "
            "and `bottleneck_link` names what a transfer's path is limited by."
        ),
    ] = msgspec.UNSET
    off_link_seconds: Annotated[
        Annotated[float, Meta(ge=0)] | msgspec.UnsetType,
        Meta(
            description="In `link` mode, the part of transfers in which no link is occupied: the "
            "latency of paths, and transfers whose time the plan states.",
        ),
    ] = msgspec.UNSET
    step_count: Annotated[int, Meta(ge=1)]
    steps: Annotated[list[PathStep], Meta(description="From time 0; the first 2000.")]


def critical_path_terms(simulated: SimulatedPlan, path: CorePath) -> CriticalPath:
    """The wire form of a critical path."""
    program = simulated.timeline.program
    edges = program.stage_edges
    on_links = simulated.timeline.mode is TransferMode.LINK
    return CriticalPath(
        stage_seconds=[to_seconds(share) for share in path.by_stage],
        kind_seconds={kind.name.lower(): to_seconds(share) for kind, share in path.by_kind.items()},
        transfer_seconds=[
            PathTransferShare(
                source_stage=edges[edge].source,
                target_stage=edges[edge].target,
                direction="backward" if gradient else "forward",
                seconds=to_seconds(share),
                bottleneck_link=msgspec.UNSET
                if on_links
                else _bottleneck(simulated.resolved.boundaries[edge], gradient=gradient),
            )
            for (edge, gradient), share in sorted(path.by_transfer.items())
        ],
        link_seconds=[
            PathLinkShare(
                link=simulated.links[link].resource,
                occupied_seconds=to_seconds(share.occupied),
                queued_seconds=to_seconds(share.queued),
            )
            for link, share in sorted(path.by_link.items())
        ]
        if on_links
        else msgspec.UNSET,
        off_link_seconds=to_seconds(path.off_links) if on_links else msgspec.UNSET,
        step_count=len(path.operations),
        steps=[_step(simulated, step) for step in path.operations[:MAX_PATH_STEPS]],
    )


def _bottleneck(boundary: Boundary, *, gradient: bool) -> str | msgspec.UnsetType:
    """Of the pair that takes longest, the first of equals; of sizes that differ the largest."""
    ways = [
        (pair.backward_path, pair.backward_picoseconds)
        if gradient
        else (pair.forward_path, pair.forward_picoseconds)
        for pair in boundary.pairs
    ]
    known = [(path, largest(time)) for path, time in ways if path is not None and time is not None]
    if not known:
        return msgspec.UNSET
    path, _ = max(known, key=itemgetter(1))
    return msgspec.UNSET if path.bottleneck is None else path.bottleneck.name


def _step(simulated: SimulatedPlan, step: PathOperation) -> PathStep:
    after, exchange = step.after, step.exchange
    return PathStep(
        kind=step.kind.name.lower(),
        stage=step.stage,
        microbatch=step.microbatch,
        transfer_seconds=0.0 if after is None else to_seconds(after.latency),
        start_seconds=to_seconds(step.start),
        end_seconds=to_seconds(step.end),
        link=msgspec.UNSET
        if after is None or after.link is None
        else simulated.links[after.link].resource,
        queued_behind=[] if after is None else [_queued(simulated, queue) for queue in after.ahead],
        exchange_link=msgspec.UNSET
        if exchange is None
        else simulated.links[exchange.link].resource,
        exchange_wait_seconds=msgspec.UNSET if exchange is None else to_seconds(exchange.waited),
    )


def _queued(simulated: SimulatedPlan, queue: PathQueue) -> QueuedBehind:
    program = simulated.timeline.program
    what = carried(program, queue.input)
    source, target = what.ends
    return QueuedBehind(
        link=simulated.links[queue.link].resource,
        source_stage=source,
        target_stage=target,
        direction="backward" if what.backward else "forward",
        microbatch=what.microbatch,
        start_seconds=to_seconds(queue.start),
        end_seconds=to_seconds(queue.end),
    )
