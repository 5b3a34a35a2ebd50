"""Times per stage and per edge, and how they reach the operations of a `Program`.

Arrays of times end in an axis of microbatches. It has one entry where all microbatches take the
same, and else one for each microbatch of the program.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.schedules.program import OpKind, Program, kept_with_program

__all__ = [
    "TIMES_OF_KIND",
    "RunGroups",
    "StageSequence",
    "StageTimes",
    "at_microbatches",
    "by_stage",
    "check_shape",
    "check_stage_times",
    "edge_latencies",
    "input_microbatches",
    "input_ways",
    "operation_durations",
    "operation_groups",
    "operation_kinds",
    "pick",
    "run_groups",
    "stage_work",
    "take_places",
]

Int64Array = npt.NDArray[np.int64]
IntArray = npt.NDArray[np.integer]
StageSequence = Sequence[int] | Sequence[Sequence[int]]
Scalar = TypeVar("Scalar", bound=np.generic)


def by_stage(numbers: StageSequence | Int64Array) -> Int64Array:
    """(stages, microbatches or 1) int64 of a number a stage, or for each stage one a microbatch."""
    given = np.array(numbers, dtype=np.int64)
    return given[:, np.newaxis] if given.ndim == 1 else given


def at_microbatches(times: npt.NDArray[Scalar], microbatches: IntArray) -> npt.NDArray[Scalar]:
    """(..., n or 1) of times (..., microbatches or 1) those of n microbatches."""
    return times if times.shape[-1] == 1 else times[..., microbatches]


@dataclass(frozen=True, slots=True, eq=False)
class StageTimes:
    """Picoseconds of one microbatch on each stage, int64; leading axes are runs.

    Each is (..., stages, microbatches), the last axis of length 1 where microbatches are alike.
    `backward` is the whole backward; its halves are None where nobody knows them.
    `forward_backward` is the forward of a stage fused with the backward of the stage it is paired
    with, by the microbatch of the forward; None where that is the sum of both.
    """

    forward: Int64Array
    backward: Int64Array
    recompute: Int64Array
    backward_input: Int64Array | None = None
    backward_weight: Int64Array | None = None
    forward_backward: Int64Array | None = None

    @classmethod
    def of(
        cls,
        forward: StageSequence,
        backward: StageSequence | None = None,
        recompute: StageSequence | None = None,
        *,
        backward_halves: tuple[StageSequence, StageSequence] | None = None,
        forward_backward: StageSequence | None = None,
    ) -> "StageTimes":
        """From whole picoseconds: a number a stage, or for each stage a number a microbatch.

        What is left out is zero on every stage. With `backward_halves`, those of the inputs and of
        the weights, the backward is their sum.
        """
        zero = np.zeros((len(forward), 1), dtype=np.int64)
        halves = None if backward_halves is None else tuple(map(by_stage, backward_halves))
        whole = zero if backward is None else by_stage(backward)
        return cls(
            by_stage(forward),
            whole if halves is None else halves[0] + halves[1],
            zero if recompute is None else by_stage(recompute),
            None if halves is None else halves[0],
            None if halves is None else halves[1],
            None if forward_backward is None else by_stage(forward_backward),
        )

    @property
    def widths(self) -> frozenset[int]:
        """The lengths of the axes of microbatches; {1} where all microbatches are alike."""
        return frozenset(times.shape[-1] for times in self.given.values())

    @property
    def given(self) -> dict[str, Int64Array]:
        """The times that are known, by the name of their field."""
        every = ((name, getattr(self, name)) for name in _FIELDS)
        return {name: times for name, times in every if times is not None}

    def at_microbatches(self, microbatches: IntArray) -> "StageTimes":
        """The times of these microbatches, in their order."""
        found = {name: at_microbatches(times, microbatches) for name, times in self.given.items()}
        return replace(self, **found)

    def of_kind(self, kind: OpKind) -> Int64Array:
        """(..., stages, microbatches or 1) the times of one kind of operation.

        Raises `InvalidInput` for a kind of which they are not known.
        """
        found: Int64Array | None = getattr(self, TIMES_OF_KIND[kind])
        if found is None:
            detail = f"stage times have no {kind.letter}: give the two halves of each backward"
            raise InvalidInput([Fault(FaultCode.MISSING_FIELD, ("costs", "stages"), detail)])
        return found


_FIELDS = tuple(field.name for field in fields(StageTimes))
# The field of `StageTimes` that each kind of operation takes its times from.
TIMES_OF_KIND = {kind: kind.name.lower() for kind in OpKind}


@kept_with_program
def operation_kinds(program: Program) -> tuple[OpKind, ...]:
    """The kinds that the program runs, in the order of their numbers."""
    counts = np.bincount(program.kind, minlength=len(OpKind))
    return tuple(kind for kind in OpKind if counts[kind])


@kept_with_program
def operation_groups(program: Program) -> Int64Array:
    """(operations,) stage x kinds + kind: all operations of one kind on one stage are a group."""
    return program.stage.astype(np.int64) * len(OpKind) + program.kind


@dataclass(frozen=True, slots=True, eq=False)
class RunGroups:
    """The groups of which operations are run: where each stands, its stage and its kind."""

    index: Int64Array
    stages: tuple[int, ...]
    kinds: tuple[OpKind, ...]


@kept_with_program
def run_groups(program: Program) -> RunGroups:
    """Those of a program, stage after stage, kinds in the order of their numbers."""
    index = np.flatnonzero(np.bincount(operation_groups(program)))
    stages, kinds = np.divmod(index, len(OpKind))
    return RunGroups(index, tuple(stages.tolist()), tuple(map(OpKind, kinds.tolist())))


@kept_with_program
def input_ways(program: Program) -> Int64Array:
    """(inputs,) 2 x edge, and one more for what goes back over it."""
    return 2 * program.input_edges.astype(np.int64) + program.input_gradient


def stage_work(program: Program, times: StageTimes) -> Int64Array:
    """(..., stages, microbatches or 1) picoseconds of all that is run for each microbatch.

    A fused pair counts as its two halves, each at its own time.
    """
    kinds = operation_kinds(program)
    work = times.forward
    if set(kinds) - {OpKind.FORWARD, OpKind.RECOMPUTE}:
        work = work + times.backward
    if OpKind.RECOMPUTE in kinds:
        work = work + times.recompute
    return work


def pick(table: npt.NDArray[Scalar], row: IntArray, microbatch: IntArray) -> npt.NDArray[Scalar]:
    """(..., n) of a table (..., rows, microbatches or 1) what stands at n rows and microbatches."""
    if table.shape[-1] == 1:
        return table[..., row, 0]
    return table[..., row, microbatch]


def operation_durations(program: Program, times: StageTimes) -> Int64Array:
    """(..., operations) the duration of each operation in picoseconds.

    Raises `InvalidInput` when the times are not one per stage, neither one for all microbatches nor
    one for each, or lack a kind that is run.
    """
    check_stage_times(program, times)
    width = max(times.widths)
    leading = times.forward.shape[:-2]
    table = np.zeros((*leading, program.stages, len(OpKind), width), dtype=np.int64)
    kinds = operation_kinds(program)
    sums_pairs = OpKind.FORWARD_BACKWARD in kinds and times.forward_backward is None
    for kind in kinds:
        if kind is OpKind.FORWARD_BACKWARD and sums_pairs:
            table[..., kind, :] = times.forward
        else:
            table[..., kind, :] = times.of_kind(kind)
    gathered = take_places(table, operation_groups(program), program.microbatch)
    if sums_pairs:
        pair = np.flatnonzero(program.kind == OpKind.FORWARD_BACKWARD)
        gathered[..., pair] += pick(
            times.backward, program.backward_stage[pair], program.backward_microbatch[pair]
        )
    return gathered


def edge_latencies(program: Program, forward: Int64Array, backward: Int64Array) -> Int64Array:
    """(..., inputs) the latency of each cross-rank input in picoseconds.

    `forward` and `backward` are (..., edges, microbatches or 1), a row for each of
    `program.stage_edges`: the time of the activation from source to target, and of the gradient
    from target to source. Raises `InvalidInput` when they have another length.
    """
    edges = len(program.stage_edges)
    for name, latencies in (("forward", forward), ("backward", backward)):
        check_shape(f"{name} transfer times", latencies, edges, "an edge", program)
    table = np.stack(np.broadcast_arrays(forward, backward), axis=-2)
    alike = table.shape[-1] == 1
    return take_places(table, input_ways(program), None if alike else input_microbatches(program))


def take_places(table: Int64Array, place: Int64Array, microbatch: IntArray | None) -> Int64Array:
    """(..., n) of a table (..., rows, columns, microbatches or 1) what stands at n places.

    A place is row x columns + column. One index into a flat table is the quickest way there is.
    """
    *leading, rows, columns, width = table.shape
    flat = table.reshape(*leading, rows * columns * width)
    if width > 1:
        place = place * width + microbatch
    return flat.take(place, axis=-1)


def input_microbatches(program: Program) -> IntArray:
    """(inputs,) the microbatch whose value each cross-rank input brings."""
    return np.where(
        program.input_gradient,
        program.backward_microbatch[program.inputs],
        program.microbatch[program.inputs],
    )


def check_stage_times(program: Program, times: StageTimes) -> None:
    """Raise `InvalidInput` unless they are one per stage, of all microbatches or each of them."""
    for name, of_stage in times.given.items():
        check_shape(f"{name} times", of_stage, program.stages, "a stage", program)


def check_shape(name: str, times: IntArray, rows: int, row: str, program: Program) -> None:
    """Raise `InvalidInput` unless there is a row for each, of all microbatches or each of them."""
    path = ("costs", "stages")
    if times.shape[-2] != rows:
        detail = f"{name} are one {row}: {rows}; got {times.shape[-2]}"
        raise InvalidInput([Fault(FaultCode.WRONG_LENGTH, path, detail)])
    if times.shape[-1] not in (1, program.microbatches):
        detail = (
            f"{name} are one for all microbatches or one for each of {program.microbatches}; got "
            f"{times.shape[-1]}"
        )
        raise InvalidInput([Fault(FaultCode.WRONG_LENGTH, path, detail)])
