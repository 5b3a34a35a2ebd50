"""Times per stage and per edge, and how they reach the operations of a `Program`."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.schedules.program import OpKind, Program

__all__ = [
    "StageTimes",
    "edge_latencies",
    "operation_durations",
    "operation_kinds",
    "stage_work",
]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class StageTimes:
    """Picoseconds of one microbatch on each stage: (..., stages) int64, leading axes are runs.

    `backward` is the whole backward; its halves are None where nobody knows them.
    `forward_backward` is the forward of a stage fused with the backward of the stage it is paired
    with, None where that is the sum of both.
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
        forward: Sequence[int],
        backward: Sequence[int] | None = None,
        recompute: Sequence[int] | None = None,
        *,
        backward_halves: tuple[Sequence[int], Sequence[int]] | None = None,
        forward_backward: Sequence[int] | None = None,
    ) -> "StageTimes":
        """From whole picoseconds; what is left out is zero on every stage.

        With `backward_halves`, those of the inputs and of the weights, the backward is their sum.
        """
        zero = [0] * len(forward)
        halves = None
        if backward_halves is not None:
            halves = np.array(backward_halves, dtype=np.int64)
        whole = np.array(zero if backward is None else backward, dtype=np.int64)
        return cls(
            np.array(forward, dtype=np.int64),
            whole if halves is None else halves.sum(axis=0),
            np.array(zero if recompute is None else recompute, dtype=np.int64),
            None if halves is None else halves[0],
            None if halves is None else halves[1],
            None if forward_backward is None else np.array(forward_backward, dtype=np.int64),
        )

    def of_kind(self, kind: OpKind) -> Int64Array:
        """(..., stages) the times of one kind of operation.

        Raises `InvalidInput` for a kind of which they are not known.
        """
        found = {
            OpKind.FORWARD: self.forward,
            OpKind.BACKWARD: self.backward,
            OpKind.BACKWARD_INPUT: self.backward_input,
            OpKind.BACKWARD_WEIGHT: self.backward_weight,
            OpKind.RECOMPUTE: self.recompute,
            OpKind.FORWARD_BACKWARD: self.forward_backward,
        }[kind]
        if found is None:
            detail = f"stage times have no {kind.letter}: give the two halves of each backward"
            raise InvalidInput([Fault(FaultCode.MISSING_FIELD, ("costs", "stages"), detail)])
        return found


def operation_kinds(program: Program) -> tuple[OpKind, ...]:
    """The kinds that the program runs, in the order of their numbers."""
    counts = np.bincount(program.kind, minlength=len(OpKind))
    return tuple(kind for kind in OpKind if counts[kind])


def stage_work(program: Program, times: StageTimes) -> Int64Array:
    """(..., stages) picoseconds of all that is run for one microbatch on each stage.

    A fused pair counts as its two halves, each at its own time.
    """
    kinds = operation_kinds(program)
    work = times.forward
    if set(kinds) - {OpKind.FORWARD, OpKind.RECOMPUTE}:
        work = work + times.backward
    if OpKind.RECOMPUTE in kinds:
        work = work + times.recompute
    return work


def operation_durations(program: Program, times: StageTimes) -> Int64Array:
    """(..., operations) the duration of each operation in picoseconds.

    Raises `InvalidInput` when the times are not one per stage, or lack a kind that is run.
    """
    for field in fields(times):
        name, given = field.name, getattr(times, field.name)
        if given is not None and given.shape[-1] != program.stages:
            detail = f"{name} times are one a stage: {program.stages}; got {given.shape[-1]}"
            raise InvalidInput([Fault(FaultCode.WRONG_LENGTH, ("costs", "stages"), detail)])
    table = np.zeros((*times.forward.shape[:-1], len(OpKind), program.stages), dtype=np.int64)
    kinds = operation_kinds(program)
    sums_pairs = OpKind.FORWARD_BACKWARD in kinds and times.forward_backward is None
    for kind in kinds:
        if kind is OpKind.FORWARD_BACKWARD and sums_pairs:
            table[..., kind, :] = times.forward
        else:
            table[..., kind, :] = times.of_kind(kind)
    gathered: Int64Array = table[..., program.kind, program.stage]
    if sums_pairs:
        pair = np.flatnonzero(program.kind == OpKind.FORWARD_BACKWARD)
        gathered[..., pair] += times.backward[..., program.backward_stage[pair]]
    return gathered


def edge_latencies(program: Program, forward: Int64Array, backward: Int64Array) -> Int64Array:
    """(..., inputs) the latency of each cross-rank input in picoseconds.

    `forward` and `backward` are (..., edges), one entry for each of `program.stage_edges`: the time
    of the activation from source to target, and of the gradient from target to source.
    Raises `InvalidInput` when they have another length.
    """
    edges = len(program.stage_edges)
    for name, latencies in (("forward", forward), ("backward", backward)):
        if latencies.shape[-1] != edges:
            detail = f"{name} transfer times are one an edge: {edges}; got {latencies.shape[-1]}"
            raise InvalidInput([Fault(FaultCode.WRONG_LENGTH, ("costs", "stages"), detail)])
    table = np.stack(np.broadcast_arrays(forward, backward), axis=-2)
    gathered: Int64Array = table[..., program.input_gradient.astype(np.intp), program.input_edges]
    return gathered
