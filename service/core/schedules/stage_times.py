"""Times per stage and per edge, and how they reach the operations of a `Program`."""

from collections.abc import Sequence
from dataclasses import dataclass

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
    """Picoseconds of one microbatch on each stage: (..., stages) int64, leading axes are runs."""

    forward: Int64Array
    backward: Int64Array
    recompute: Int64Array

    @classmethod
    def of(
        cls,
        forward: Sequence[int],
        backward: Sequence[int] | None = None,
        recompute: Sequence[int] | None = None,
    ) -> "StageTimes":
        """From whole picoseconds; what is left out is zero on every stage."""
        zero = [0] * len(forward)
        return cls(
            np.array(forward, dtype=np.int64),
            np.array(zero if backward is None else backward, dtype=np.int64),
            np.array(zero if recompute is None else recompute, dtype=np.int64),
        )

    def of_kind(self, kind: OpKind) -> Int64Array:
        """(..., stages) the times of one kind of operation."""
        match kind:
            case OpKind.FORWARD:
                return self.forward
            case OpKind.BACKWARD:
                return self.backward
            case OpKind.RECOMPUTE:
                return self.recompute
        detail = f"stage times have no {kind.letter} (a backward split in two)"
        raise InvalidInput([Fault(FaultCode.NOT_SUPPORTED, ("costs",), detail)])


def operation_kinds(program: Program) -> tuple[OpKind, ...]:
    """The kinds that the program runs, in the order of their numbers."""
    counts = np.bincount(program.kind, minlength=len(OpKind))
    return tuple(kind for kind in OpKind if counts[kind])


def stage_work(program: Program, times: StageTimes) -> Int64Array:
    """(..., stages) picoseconds of all that is run for one microbatch on each stage."""
    work = np.zeros_like(times.forward)
    for kind in operation_kinds(program):
        work = work + times.of_kind(kind)
    return work


def operation_durations(program: Program, times: StageTimes) -> Int64Array:
    """(..., operations) the duration of each operation in picoseconds.

    Raises `InvalidInput` when the times are not one per stage, or lack a kind that is run.
    """
    for name in ("forward", "backward", "recompute"):
        length = getattr(times, name).shape[-1]
        if length != program.stages:
            detail = f"{name} times are one a stage: {program.stages}; got {length}"
            raise InvalidInput([Fault(FaultCode.WRONG_LENGTH, ("costs", "stages"), detail)])
    table = np.zeros((*times.forward.shape[:-1], len(OpKind), program.stages), dtype=np.int64)
    for kind in operation_kinds(program):
        table[..., kind, :] = times.of_kind(kind)
    gathered: Int64Array = table[..., program.kind, program.stage]
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
    is_forward = program.kind[program.inputs] == OpKind.FORWARD
    table = np.stack(np.broadcast_arrays(backward, forward), axis=-2)
    gathered: Int64Array = table[..., is_forward.astype(np.intp), program.input_edges]
    return gathered
