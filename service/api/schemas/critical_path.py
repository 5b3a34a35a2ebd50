"""Wire types of the critical path: what the makespan is made of."""

from typing import Annotated

import msgspec
from msgspec import Meta

from service.core.estimates.simulation import SimulatedPlan
from service.core.schedules.critical_path import CriticalPath as CorePath
from service.core.schedules.critical_path import PathOperation, PathQueue
from service.core.schedules.program import Program
from service.core.units import to_seconds

__all__ = [
    "CriticalPath",
    "PathQueueShare",
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
    queued_behind: Annotated[
        list[QueuedBehind],
        Meta(
            description="In `link` mode, what the link served before that transfer, in sequence; "
            "the path comes from the sender of the first of them."
        ),
    ] = msgspec.field(default_factory=list)


class PathQueueShare(msgspec.Struct, kw_only=True, frozen=True):
    """The part of the critical path in which messages ahead held one link."""

    link: str
    seconds: Annotated[float, Meta(ge=0)]


class PathTransferShare(msgspec.Struct, kw_only=True, frozen=True):
    """The part of the critical path spent in the transfers of one boundary and direction."""

    source_stage: Annotated[int, Meta(ge=0)]
    target_stage: Annotated[int, Meta(ge=0)]
    direction: Annotated[str, Meta(description="forward or backward")]
    seconds: Annotated[float, Meta(ge=0)]


class CriticalPath(msgspec.Struct, kw_only=True, frozen=True):
    """A chain of operations and transfers that sets the makespan.

    The seconds by stage, those of transfers and those of queues add up to it.
    """

    stage_seconds: Annotated[list[float], Meta(description="By stage.")]
    kind_seconds: Annotated[dict[str, float], Meta(description="By kind of operation.")]
    transfer_seconds: list[PathTransferShare]
    queue_seconds: Annotated[
        list[PathQueueShare], Meta(description="By link; empty but in `link` mode.")
    ]
    step_count: Annotated[int, Meta(ge=1)]
    steps: Annotated[list[PathStep], Meta(description="From time 0; the first 2000.")]


def critical_path_terms(simulated: SimulatedPlan, path: CorePath) -> CriticalPath:
    """The wire form of a critical path."""
    program = simulated.timeline.program
    edges = program.stage_edges
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
        queue_seconds=[
            PathQueueShare(link=simulated.links[link].resource, seconds=to_seconds(share))
            for link, share in sorted(path.by_queue.items())
        ],
        step_count=len(path.operations),
        steps=[_step(simulated, step) for step in path.operations[:MAX_PATH_STEPS]],
    )


def _step(simulated: SimulatedPlan, step: PathOperation) -> PathStep:
    return PathStep(
        kind=step.kind.name.lower(),
        stage=step.stage,
        microbatch=step.microbatch,
        transfer_seconds=0.0 if step.after is None else to_seconds(step.after.latency),
        start_seconds=to_seconds(step.start),
        end_seconds=to_seconds(step.end),
        queued_behind=[]
        if step.after is None
        else [_queued(simulated, simulated.timeline.program, queue) for queue in step.after.ahead],
    )


def _queued(simulated: SimulatedPlan, program: Program, queue: PathQueue) -> QueuedBehind:
    edge, producer = program.stage_edges[queue.edge], program.inputs[queue.input]
    of_backward = program.backward_microbatch if queue.gradient else program.microbatch
    return QueuedBehind(
        link=simulated.links[queue.link].resource,
        source_stage=edge.source,
        target_stage=edge.target,
        direction="backward" if queue.gradient else "forward",
        microbatch=int(of_backward[producer]),
        start_seconds=to_seconds(queue.start),
        end_seconds=to_seconds(queue.end),
    )
