"""Which activations are alive on each rank: a property of the order alone, not of any duration.

An activation of one microbatch on one stage lives from the start of its F to the end of its B (of
its W when the backward is split). Without a backward it is gone at the end of F.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.schedules.program import OpKind, Program
from service.core.schedules.timeline import Timeline

__all__ = ["NOT_REPRESENTED", "LiveActivations", "live_activations", "series_times"]

Int64Array = npt.NDArray[np.int64]

NOT_REPRESENTED = (
    "buffers of values received early or not yet sent",
    "the working memory inside an operation, recomputed activations included",
)
_MAX_BYTES = 2**62


@dataclass(frozen=True, slots=True, eq=False)
class LiveActivations:
    """The live activations of one rank along its order.

    The series has one entry for each change: `series_operation` (operation id), `series_at_end`
    (False: at its start, True: at its end) and `series_count` (alive from then on).
    `peak_operation` is the operation at whose start `peak_activations` is reached first, and
    `alive` what is alive then, as (stage, microbatch) by microbatch. Bytes are absent unless every
    stage's were given; their peak may stand at another operation.
    """

    rank: int
    peak_activations: int
    peak_operation: int
    alive: tuple[tuple[int, int], ...]
    series_operation: Int64Array
    series_at_end: npt.NDArray[np.bool_]
    series_count: Int64Array
    peak_bytes: int | None
    peak_bytes_operation: int | None


def live_activations(
    program: Program, activation_bytes: Sequence[int] | None = None
) -> tuple[LiveActivations, ...]:
    """Count live activations on every rank, in time linear in the operations.

    `activation_bytes` has one entry a stage: what one microbatch keeps there between its forward
    and its backward. Raises `InvalidInput` on another length, a negative size, or a sum of bytes
    beyond int64.
    """
    sizes = None if activation_bytes is None else _sizes(program, activation_bytes)
    changes = _changes(program)
    # Each rank frees all that it makes, so one running sum over all ranks starts each at zero.
    counts = np.cumsum(changes)
    amounts = None if sizes is None else np.cumsum(changes * np.repeat(sizes[program.stage], 2))
    return tuple(_on_rank(program, rank, changes, counts, amounts) for rank in range(program.ranks))


def series_times(timeline: Timeline, live: LiveActivations) -> Int64Array:
    """(entries of the series,) when each change happens, in picoseconds."""
    operation = live.series_operation
    return np.where(live.series_at_end, timeline.run.end[operation], timeline.run.start[operation])


def _sizes(program: Program, activation_bytes: Sequence[int]) -> Int64Array:
    path = ("costs", "stages")
    if len(activation_bytes) != program.stages:
        detail = f"activation bytes are one a stage: {program.stages}; got {len(activation_bytes)}"
        raise InvalidInput([Fault(FaultCode.WRONG_LENGTH, path, detail)])
    largest = max(activation_bytes)
    if min(activation_bytes) < 0 or largest * program.microbatches * program.stages > _MAX_BYTES:
        detail = f"activation bytes are not negative, and at most {_MAX_BYTES} together"
        raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, path, detail)])
    return np.array(activation_bytes, dtype=np.int64)


def _changes(program: Program) -> Int64Array:
    """(2 x operations,) by how much each operation changes the count, at its start and its end."""
    forward = program.kind == OpKind.FORWARD
    frees = (program.kind == OpKind.BACKWARD) | (program.kind == OpKind.BACKWARD_WEIGHT)
    changes = np.zeros((program.operations, 2), dtype=np.int64)
    changes[forward, 0] = 1
    changes[frees if frees.any() else forward, 1] = -1
    return changes.reshape(-1)


def _on_rank(
    program: Program,
    rank: int,
    changes: Int64Array,
    counts: Int64Array,
    amounts: Int64Array | None,
) -> LiveActivations:
    first, stop = program.rank_offsets[rank : rank + 2].tolist()
    moments = slice(2 * first, 2 * stop)
    at_peak = 2 * first + int(counts[moments].argmax())
    entries = 2 * first + np.flatnonzero(changes[moments])
    at_most = None if amounts is None else 2 * first + int(amounts[moments].argmax())
    return LiveActivations(
        rank=rank,
        peak_activations=int(counts[at_peak]),
        peak_operation=at_peak // 2,
        alive=_alive(program, changes, 2 * first, at_peak),
        series_operation=entries // 2,
        series_at_end=entries % 2 == 1,
        series_count=counts[entries],
        peak_bytes=None if amounts is None or at_most is None else int(amounts[at_most]),
        peak_bytes_operation=None if at_most is None else at_most // 2,
    )


def _alive(
    program: Program, changes: Int64Array, first: int, last: int
) -> tuple[tuple[int, int], ...]:
    """What has been made and not freed on a rank after the moments first .. last."""
    moments = np.arange(first, last + 1)
    made = moments[changes[moments] > 0] // 2
    freed = moments[changes[moments] < 0] // 2
    keys = [
        program.microbatch[i].astype(np.int64) * program.stages + program.stage[i]
        for i in (made, freed)
    ]
    alive = np.setdiff1d(keys[0], keys[1])
    return tuple((int(key % program.stages), int(key // program.stages)) for key in alive)
