"""Which activations are alive on each rank: a property of the order alone, not of any duration.

An activation of one microbatch on one stage lives from the start of its F to the end of its B (of
its W when the backward is split, or of its I where that frees all of it). Without a backward it is
gone at the end of F. Where a stage recomputes, what lives so long is what it keeps to compute from,
and the rest is alive anew from the start of its R to the same end.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.schedules.program import OpKind, Program, kept_with_program
from service.core.schedules.stage_times import (
    StageSequence,
    by_stage,
    operation_groups,
    operation_kinds,
    pick,
    take_places,
)
from service.core.schedules.timeline import Timeline

__all__ = [
    "ActivationDeltas",
    "LiveActivations",
    "byte_series",
    "live_activations",
    "series_times",
]

Int64Array = npt.NDArray[np.int64]

# Integers that JSON carries exactly.
_MAX_BYTES = 2**53 - 1

# So that no running sum leaves int64.
_MAX_SUM = 2**62


@dataclass(frozen=True, slots=True, eq=False)
class LiveActivations:
    """The live activations of one rank along its order.

    The series has one entry for each change: `series_operation` (operation id), `series_at_end`
    (False: at its start, True: at its end) and `series_count` (alive from then on).
    `peak_operation` is the operation at whose start `peak_activations` is reached first, and
    `alive` what is alive then, as (stage, microbatch) by microbatch. Bytes are absent unless every
    stage's were given; their peak is reached first at the start of `peak_bytes_operation`, which
    may be another operation. `series_recomputed` has how many of them are alive anew, and
    `peak_recomputed` the most at once; both are None where no stage recomputes.
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
    peak_recomputed: int | None = None
    series_recomputed: Int64Array | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ActivationDeltas:
    """By how many bytes one microbatch changes what a stage keeps, signed.

    Each is (stages, microbatches) int64, or (stages, 1) where microbatches are alike. The four sum
    to zero for each; a whole backward changes it by the two of its halves together. What is added
    counts from the start of the operation, what is freed to its end. `recompute` is what a
    recomputation adds, zero on a stage that has none. `passed_on` is what is alive during the
    forward alone and during the backward (the input half of it) alone, as a stage holds what it
    relays for others.
    """

    forward: Int64Array
    backward_input: Int64Array
    backward_weight: Int64Array
    recompute: Int64Array
    passed_on: tuple[Int64Array, Int64Array] | None = None

    @classmethod
    def of(
        cls,
        forward: StageSequence,
        backward_input: StageSequence,
        backward_weight: StageSequence,
        recompute: StageSequence | None = None,
    ) -> "ActivationDeltas":
        """From numbers: one a stage, or for each stage one a microbatch; none is recomputed."""
        again = [0] * len(forward) if recompute is None else recompute
        return cls(
            by_stage(forward), by_stage(backward_input), by_stage(backward_weight), by_stage(again)
        )

    @classmethod
    def kept_to_the_end(cls, activation_bytes: StageSequence | Int64Array) -> "ActivationDeltas":
        """All of it is made by the forward and freed by the last backward operation."""
        sizes = by_stage(activation_bytes)
        zero = np.zeros_like(sizes)
        return cls(sizes, zero, -sizes, zero)


def live_activations(
    program: Program,
    activations: StageSequence | ActivationDeltas | None = None,
    *,
    recomputing: frozenset[int] | None = None,
) -> tuple[LiveActivations, ...]:
    """Count live activations on every rank, in time linear in the operations.

    `activations` is what one microbatch keeps on each stage between its forward and its backward,
    in bytes (a number a stage, or for each stage a number a microbatch), or what each of its
    operations changes of that. `recomputing` are the stages whose recomputations make anything
    alive anew: all, unless some have one in the program that does nothing. Raises `InvalidInput` on
    another length, a negative size, deltas that don't sum to zero or of a recomputation that is not
    run, and a peak beyond 2**53 - 1 bytes.
    """
    if activations is None or isinstance(activations, ActivationDeltas):
        deltas = activations
    else:
        deltas = ActivationDeltas.kept_to_the_end(activations)
    table = None if deltas is None else _table(program, deltas)
    counts = _count_live(program, table, recomputing)
    amounts = None
    if table is not None and deltas is not None:
        amounts = np.cumsum(_weighed(program, table) + _passed_on(program, deltas))
    most = 0 if amounts is None else int(amounts.max())
    if most > _MAX_BYTES:
        detail = (
            f"the live activations of a rank reach {most} bytes; at most {_MAX_BYTES} are counted: "
            "give smaller activation_bytes or fewer microbatches"
        )
        raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, ("costs", "stages"), detail)])
    return counts if amounts is None else _with_bytes(program, counts, amounts)


def byte_series(program: Program, deltas: ActivationDeltas) -> Int64Array:
    """(2 x operations,) bytes alive on an operation's rank from its start on, and from its end on.

    Raises `InvalidInput` as `live_activations` does, but for peaks of any size.
    """
    return np.cumsum(_weighed(program, _table(program, deltas)) + _passed_on(program, deltas))


def series_times(timeline: Timeline, live: LiveActivations) -> Int64Array:
    """(entries of the series,) when each change happens, in picoseconds."""
    operation = live.series_operation
    return np.where(live.series_at_end, timeline.run.end[operation], timeline.run.start[operation])


def _table(program: Program, deltas: ActivationDeltas) -> Int64Array:
    """(kinds, stages, microbatches or 1) bytes that an operation adds or frees; pairs: F and B."""
    path = ("costs", "stages")
    columns = (deltas.forward, deltas.backward_input, deltas.backward_weight, deltas.recompute)
    for column in (*columns, *(deltas.passed_on or ())):
        rows, width = column.shape
        if rows != program.stages or width not in (1, program.microbatches):
            detail = (
                f"activation bytes are one a stage: {program.stages}; and one for all microbatches "
                f"or one for each of {program.microbatches}; got {rows} x {width}"
            )
            raise InvalidInput([Fault(FaultCode.WRONG_LENGTH, path, detail)])
    passed_on = deltas.passed_on or ()
    largest = max(int(abs(column).max(initial=0)) for column in (*columns, *passed_on))
    never_below_0 = (deltas.forward, deltas.recompute, *passed_on)
    least = min(int(column.min(initial=0)) for column in never_below_0)
    if least < 0 or largest > _MAX_BYTES:
        detail = f"activation bytes lie between 0 and {_MAX_BYTES}"
        raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, path, detail)])
    if largest * program.microbatches * program.stages > _MAX_SUM:
        detail = f"activation bytes of all microbatches and stages pass {_MAX_SUM} together"
        raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, path, detail)])
    forward, of_input, of_weight, again = np.broadcast_arrays(*columns)
    left = forward + of_input + of_weight + again
    faults = [
        Fault(
            FaultCode.INCONSISTENT,
            (*path, stage),
            f"deltas sum to 0; these to {left[stage][left[stage] != 0][0]}",
        )
        for stage in np.flatnonzero(left.any(axis=1)).tolist()
    ]
    kinds = operation_kinds(program)
    if OpKind.RECOMPUTE not in kinds and kinds != (OpKind.FORWARD,):
        faults += [
            Fault(FaultCode.INCONSISTENT, (*path, stage), "nothing is recomputed: it adds no bytes")
            for stage in np.flatnonzero(again.any(axis=1)).tolist()
        ]
    if faults:
        raise InvalidInput(faults)
    table = np.zeros((len(OpKind), *forward.shape), dtype=np.int64)
    table[OpKind.FORWARD] = forward
    table[OpKind.BACKWARD_INPUT] = of_input
    table[OpKind.BACKWARD_WEIGHT] = of_weight
    table[OpKind.BACKWARD] = of_input + of_weight
    table[OpKind.RECOMPUTE] = again
    return table


def _count_live(
    program: Program, table: Int64Array | None, recomputing: frozenset[int] | None
) -> tuple[LiveActivations, ...]:
    """Counts alone, which mostly follow from the order: sizes only say what I frees already."""
    if table is None:
        return _counts_of_order(program, False, recomputing)
    # Gone with I where W has nothing left to free.
    early = (table[OpKind.BACKWARD_WEIGHT] == 0) & (table[OpKind.BACKWARD_INPUT] != 0)
    if early.all() or not early.any():
        return _counts_of_order(program, bool(early.all()), recomputing)
    return _counts(program, pick(early, program.stage, program.microbatch), recomputing)


@kept_with_program
def _counts_of_order(
    program: Program, half_frees: bool, recomputing: frozenset[int] | None, /
) -> tuple[LiveActivations, ...]:
    return _counts(program, np.full(program.operations, half_frees), recomputing)


def _counts(
    program: Program, half_frees: npt.NDArray[np.bool_], recomputing: frozenset[int] | None
) -> tuple[LiveActivations, ...]:
    changes = _counted(program, half_frees)
    again = _counted_anew(program, changes, recomputing)
    # Each rank frees all that it makes, so one running sum over all ranks starts each at zero.
    counts = np.cumsum(changes)
    anew = None if again is None else np.cumsum(again)
    any_change = changes if again is None else changes | again
    return tuple(
        _on_rank(program, rank, any_change, changes, counts, anew) for rank in range(program.ranks)
    )


def _counted_anew(
    program: Program, changes: Int64Array, recomputing: frozenset[int] | None
) -> Int64Array | None:
    """(2 x operations,) the same of what is alive anew; None where no stage recomputes.

    It goes with what its microbatch has kept on the stage.
    """
    again = program.kind == OpKind.RECOMPUTE
    frees = changes[1::2] < 0
    if recomputing is not None:
        stages = np.zeros(program.stages, dtype=np.bool_)
        stages[list(recomputing)] = True
        again &= stages[program.stage]
        frees &= stages[program.backward_stage]
    if not again.any():
        return None
    anew = np.zeros((program.operations, 2), dtype=np.int64)
    anew[again, 0] = 1
    anew[frees, 1] = -1
    return anew.reshape(-1)


def _counted(program: Program, half_frees: npt.NDArray[np.bool_]) -> Int64Array:
    """(2 x operations,) by how much each operation changes the count, at its start and its end.

    `half_frees` is (operations,) whether I frees what W does elsewhere.
    """
    kind = program.kind
    pair = kind == OpKind.FORWARD_BACKWARD
    forward = (kind == OpKind.FORWARD) | pair
    frees = (kind == OpKind.BACKWARD) | pair
    half, weight = kind == OpKind.BACKWARD_INPUT, kind == OpKind.BACKWARD_WEIGHT
    frees |= np.where(half_frees, half, weight)
    changes = np.zeros((program.operations, 2), dtype=np.int64)
    changes[forward, 0] = 1
    changes[frees if frees.any() else forward, 1] = -1
    return changes.reshape(-1)


def _weighed(program: Program, table: Int64Array) -> Int64Array:
    """(2 x operations,) the same in bytes: additions at the start, what is freed at the end."""
    # By stage and kind, as operations are grouped; a pair begins as its forward does.
    of_group = table.swapaxes(0, 1).copy()
    of_group[:, OpKind.FORWARD_BACKWARD] = table[OpKind.FORWARD]
    changes = np.empty((program.operations, 2), dtype=np.int64)
    groups = operation_groups(program)
    for column, part in enumerate((np.maximum(of_group, 0), np.minimum(of_group, 0))):
        changes[:, column] = take_places(part, groups, program.microbatch)
    pair = np.flatnonzero(program.kind == OpKind.FORWARD_BACKWARD)
    changes[pair, 1] += pick(
        table[OpKind.BACKWARD], program.backward_stage[pair], program.backward_microbatch[pair]
    )
    if operation_kinds(program) == (OpKind.FORWARD,):
        changes[:, 1] = -changes[:, 0]
    return changes.reshape(-1)


def _passed_on(program: Program, deltas: ActivationDeltas) -> Int64Array | int:
    """(2 x operations,) what comes with the start of each operation and goes with its end."""
    if deltas.passed_on is None:
        return 0
    forward, backward = deltas.passed_on
    held = np.zeros(program.operations, dtype=np.int64)
    kind = program.kind
    pair = kind == OpKind.FORWARD_BACKWARD
    ahead = np.flatnonzero((kind == OpKind.FORWARD) | pair)
    held[ahead] += pick(forward, program.stage[ahead], program.microbatch[ahead])
    back = np.flatnonzero((kind == OpKind.BACKWARD) | (kind == OpKind.BACKWARD_INPUT) | pair)
    held[back] += pick(backward, program.backward_stage[back], program.backward_microbatch[back])
    return np.stack((held, -held), axis=1).reshape(-1)


def _on_rank(
    program: Program,
    rank: int,
    any_change: Int64Array,
    changes: Int64Array,
    counts: Int64Array,
    anew: Int64Array | None,
) -> LiveActivations:
    first, stop = program.rank_offsets[rank : rank + 2].tolist()
    moments = slice(2 * first, 2 * stop)
    at_peak = 2 * first + int(counts[moments].argmax())
    entries = 2 * first + np.flatnonzero(any_change[moments])
    return LiveActivations(
        rank=rank,
        peak_activations=int(counts[at_peak]),
        peak_operation=at_peak // 2,
        alive=_alive(program, changes, 2 * first, at_peak),
        series_operation=entries // 2,
        series_at_end=entries % 2 == 1,
        series_count=counts[entries],
        peak_bytes=None,
        peak_bytes_operation=None,
        peak_recomputed=None if anew is None else int(anew[moments].max()),
        series_recomputed=None if anew is None else anew[entries],
    )


def _with_bytes(
    program: Program, counts: Sequence[LiveActivations], amounts: Int64Array
) -> tuple[LiveActivations, ...]:
    """And the peaks of a running sum of bytes."""
    offsets = (2 * program.rank_offsets).tolist()
    peaks = [
        first + int(amounts[first:stop].argmax()) for first, stop in itertools.pairwise(offsets)
    ]
    return tuple(
        replace(live, peak_bytes=int(amounts[peak]), peak_bytes_operation=peak // 2)
        for live, peak in zip(counts, peaks, strict=True)
    )


def _alive(
    program: Program, changes: Int64Array, first: int, last: int
) -> tuple[tuple[int, int], ...]:
    """What has been made and not freed on a rank after the moments first .. last."""
    moments = np.arange(first, last + 1)
    made = moments[changes[moments] > 0] // 2
    freed = moments[changes[moments] < 0] // 2

    def keys(stage: npt.NDArray[np.int32], microbatch: npt.NDArray[np.int32]) -> Int64Array:
        return microbatch.astype(np.int64) * program.stages + stage

    # Each activation is made once and freed once on a rank, so both sides have no doubles.
    alive = np.setdiff1d(
        keys(program.stage[made], program.microbatch[made]),
        keys(program.backward_stage[freed], program.backward_microbatch[freed]),
        assume_unique=True,
    )
    return tuple((key % program.stages, key // program.stages) for key in np.sort(alive).tolist())
