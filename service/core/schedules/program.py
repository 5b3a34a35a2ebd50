"""A schedule as arrays without durations: who runs what, in which order, waiting for whom."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from service.core.schedules.order_costs import OrderCosts

__all__ = [
    "OpKind",
    "PairMode",
    "Program",
    "RecomputeMode",
    "StageEdge",
    "kept_with_program",
    "operation_label",
]

Extra = ParamSpec("Extra")
T = TypeVar("T")

BoolArray = npt.NDArray[np.bool_]
Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Int8Array = npt.NDArray[np.int8]


class OpKind(IntEnum):
    """What one operation does.

    A backward is whole, or split in two: the first half gives the gradient of the inputs, the
    second that of the weights. A forward-and-backward is the forward of one microbatch fused with
    the whole backward of another: it starts when both have what they need and ends both at once.
    """

    FORWARD = 0
    BACKWARD = 1
    BACKWARD_INPUT = 2
    BACKWARD_WEIGHT = 3
    RECOMPUTE = 4
    FORWARD_BACKWARD = 5

    # A kind is a key of most of what is told by kind, and that of an enum is hashed by its name.
    __hash__ = int.__hash__

    @property
    def letter(self) -> str:
        """The name used in order tables: F, B, I, W, R; F&B for a fused pair."""
        return ("F", "B", "I", "W", "R", "F&B")[self]


class RecomputeMode(StrEnum):
    """Where the recomputation of a forward stands, as an operation of its own before a backward."""

    NONE = "none"
    AFTER_GRADIENT = "after_gradient"
    BEFORE_GRADIENT = "before_gradient"


class PairMode(StrEnum):
    """How a pair of one forward and one backward is run: one after the other, or as one."""

    SERIAL = "serial"
    FUSED = "fused"


@dataclass(frozen=True, slots=True, order=True)
class StageEdge:
    """Tensors go from stage `source` to the later stage `target`; gradients go back.

    In a program of several directions each direction has its own ranks, so its own edges. Without
    `gradient` none goes back, as behind layers that are not trained: no backward waits for any.
    """

    source: int
    target: int
    direction: int = 0
    gradient: bool = True


def operation_label(kind: OpKind, own: tuple[int, int], backward: tuple[int, int]) -> str:
    """`2B7` from a kind and (stage, microbatch); a pair names its forward and its backward."""
    if kind is not OpKind.FORWARD_BACKWARD:
        return f"{own[0]}{kind.letter}{own[1]}"
    return f"{own[0]}F{own[1]}&{backward[0]}B{backward[1]}"


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Program:
    """All operations of one iteration, rank after rank, each rank in execution order.

    Operation ids are 0..n-1; the operations of rank r are `rank_offsets[r]:rank_offsets[r+1]`, and
    each waits for the one before it on its rank. Besides, operation i waits for the operations
    `inputs[input_offsets[i]:input_offsets[i+1]]` (the values that cross ranks; what is on the
    same rank and earlier in its order is implied). All arrays are read-only.

    Microbatch m goes in direction m mod `directions`: with two, each stage lives on two ranks and
    serves every other microbatch on each. `group_size` is the group that was asked for, if any.
    """

    schedule: str
    ranks: int
    stages: int
    microbatches: int
    chunks_per_rank: int
    group_size: int | None
    pair_mode: PairMode
    recompute: RecomputeMode
    stage_edges: tuple[StageEdge, ...]
    stage_ranks: Int32Array  # (directions, stages)
    rank_offsets: Int64Array  # (ranks + 1,)
    rank: Int32Array  # (n,)
    kind: Int8Array  # (n,) of OpKind
    stage: Int32Array  # (n,) global stage
    microbatch: Int32Array  # (n,)
    # (n,) Of the backward of a fused pair, whose forward is (stage, microbatch). Elsewhere equal
    # to the two above; without any pair they are the same arrays.
    backward_stage: Int32Array
    backward_microbatch: Int32Array
    input_offsets: Int64Array  # (n + 1,)
    inputs: Int64Array  # (number of inputs,) operation ids
    input_edges: Int32Array  # (number of inputs,) index into stage_edges of the edge it crosses
    input_gradient: BoolArray  # (number of inputs,) whether it is a gradient, going back
    order: Int64Array  # (n,) a topological order of all operations
    memory_limit_activations: int | None = None  # what the orders were asked to keep within
    costs: OrderCosts | None = None  # what they were made for; None where they follow from counts

    @property
    def operations(self) -> int:
        """How many operations the iteration has."""
        return len(self.kind)

    @property
    def directions(self) -> int:
        """In how many directions microbatches go through the ranks: 1 or 2."""
        return len(self.stage_ranks)

    def label(self, operation: int) -> str:
        """Stage, kind, microbatch, as in order tables: `2B7`, and `0F3&3B1` for a pair."""
        return operation_label(
            OpKind(self.kind[operation]),
            (int(self.stage[operation]), int(self.microbatch[operation])),
            (int(self.backward_stage[operation]), int(self.backward_microbatch[operation])),
        )


def kept_with_program(
    find: Callable[Concatenate[Program, Extra], T],
) -> Callable[Concatenate[Program, Extra], T]:
    """A function whose results are kept for as long as the program they were found for.

    For what follows from an order alone, whatever its operations take: plans that share a program
    then share it too. Further arguments are positional and hashable; results are not changed.
    """
    kept: WeakKeyDictionary[Program, dict[tuple[object, ...], T]] = WeakKeyDictionary()

    @wraps(find)
    def found(program: Program, /, *args: Extra.args, **kwargs: Extra.kwargs) -> T:
        of_program = kept.get(program)
        if of_program is None:
            of_program = kept[program] = {}
        if args not in of_program:
            of_program[args] = find(program, *args, **kwargs)
        return of_program[args]

    return found
