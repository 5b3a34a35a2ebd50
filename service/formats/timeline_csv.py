"""A timeline as comma-separated values, one row an operation."""

from service.core.schedules.program import OpKind, Program
from service.core.schedules.selection import EVERYTHING, Selection
from service.core.schedules.timeline import Timeline
from service.core.schedules.waits import operation_waits
from service.formats.time_units import exact_seconds

__all__ = ["timeline_csv"]

_HEADER = (
    "rank,kind,stage,microbatch,start_seconds,end_seconds,binding,"
    "backward_stage,backward_microbatch,"
    "dependency_wait_seconds,contention_wait_seconds,transfer_wait_seconds,"
    "exchange_wait_seconds"
)


def timeline_csv(timeline: Timeline, selection: Selection = EVERYTHING) -> str:
    """The selected operations, rank after rank, each rank in its order; lines end in a newline.

    `kind` is the name of an `OpKind`. `binding` says what the start waited for: an operation of
    another rank by its stage, kind and microbatch (`2B7`, a fused pair `0F3&7B1`), `rank` for the
    rank's operation before it, `start` for time 0. Seconds are exact decimals. A fused pair has the
    stage and microbatch of its forward, and in the columns after these, empty for others, those of
    its backward. The next three say what the rank did before: for how long it waited for a value to
    be made, for links to be free, and for it to arrive; before a rank's first operation, which is
    fill, they are zero. The last one is how much longer the operation took than alone, because what
    it exchanged itself waited for links.
    """
    program, run = timeline.program, timeline.run
    waits, late = operation_waits(timeline), timeline.exchange_waits
    lines = [_HEADER]
    for operation in selection.operations(timeline).tolist():
        columns = (
            str(program.rank[operation]),
            OpKind(program.kind[operation]).name.lower(),
            str(program.stage[operation]),
            str(program.microbatch[operation]),
            exact_seconds(int(run.start[operation])),
            exact_seconds(int(run.end[operation])),
            timeline.waited_for(operation),
            *_backward_of_pair(program, operation),
            exact_seconds(int(waits.dependency[operation])),
            exact_seconds(int(waits.contention[operation])),
            exact_seconds(int(waits.transfer[operation])),
            exact_seconds(int(late[operation])),
        )
        lines.append(",".join(columns))
    return "\n".join(lines) + "\n"


def _backward_of_pair(program: Program, operation: int) -> tuple[str, str]:
    if program.kind[operation] != OpKind.FORWARD_BACKWARD:
        return "", ""
    return (
        str(program.backward_stage[operation]),
        str(program.backward_microbatch[operation]),
    )
