"""The chain of operations and transfers that sets the makespan."""

from collections.abc import Mapping
from dataclasses import dataclass

from service.core.schedules.program import OpKind
from service.core.schedules.timeline import Timeline

__all__ = ["CriticalPath", "PathOperation", "PathTransfer", "find_critical_path"]


@dataclass(frozen=True, slots=True)
class PathTransfer:
    """A transfer on the path; `edge` is an index into the program's stage edges."""

    edge: int
    gradient: bool  # it goes back along the edge
    latency: int  # ps


@dataclass(frozen=True, slots=True)
class PathOperation:
    """An operation on the path, and the transfer that it waited for, if any.

    A fused pair stands there with the stage and microbatch of its forward.
    """

    operation: int
    stage: int
    kind: OpKind
    microbatch: int
    start: int  # ps
    end: int  # ps
    after: PathTransfer | None


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """From time 0 to the makespan without a gap; picoseconds that sum to the makespan exactly.

    `by_transfer` is keyed by (edge index, gradient or not).
    """

    operations: tuple[PathOperation, ...]
    by_stage: tuple[int, ...]
    by_kind: Mapping[OpKind, int]
    by_transfer: Mapping[tuple[int, bool], int]

    @property
    def transfer(self) -> int:
        """All transfers on the path, ps."""
        return sum(self.by_transfer.values())


def find_critical_path(timeline: Timeline) -> CriticalPath:
    """Follow, from the operation that ends last, what each operation waited for.

    Of several that end last the lowest rank's is taken. Other chains of the same length may exist.
    """
    program, run = timeline.program, timeline.run
    operation = int(run.end.argmax())
    backwards: list[PathOperation] = []
    while True:
        binding = int(run.binding[operation])
        transfer = _transfer(timeline, binding) if binding >= 0 else None
        backwards.append(
            PathOperation(
                operation=operation,
                stage=int(program.stage[operation]),
                kind=OpKind(program.kind[operation]),
                microbatch=int(program.microbatch[operation]),
                start=int(run.start[operation]),
                end=int(run.end[operation]),
                after=transfer,
            )
        )
        if binding >= 0:
            operation = int(program.inputs[binding])
        elif operation > program.rank_offsets[program.rank[operation]]:
            operation -= 1
        else:
            break
    path = tuple(reversed(backwards))

    by_stage = [0] * program.stages
    by_kind: dict[OpKind, int] = {}
    by_transfer: dict[tuple[int, bool], int] = {}
    for step in path:
        by_stage[step.stage] += step.end - step.start
        by_kind[step.kind] = by_kind.get(step.kind, 0) + step.end - step.start
        if step.after is not None:
            key = (step.after.edge, step.after.gradient)
            by_transfer[key] = by_transfer.get(key, 0) + step.after.latency
    return CriticalPath(path, tuple(by_stage), by_kind, by_transfer)


def _transfer(timeline: Timeline, binding: int) -> PathTransfer:
    return PathTransfer(
        edge=int(timeline.program.input_edges[binding]),
        gradient=bool(timeline.program.input_gradient[binding]),
        latency=int(timeline.latencies[binding]),
    )
