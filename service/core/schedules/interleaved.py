"""Interleaved 1F1B: several stages a rank, so that fill and drain pass in smaller steps.

Microbatches go in groups: a group passes all chunks of a rank before the next one starts. The
schedule is Megatron's ("Efficient Large-Scale Language Model Training on GPU Clusters", 2021).
"""

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode
from service.core.schedules.orders import RankOrder, in_turns
from service.core.schedules.shape import Shape

__all__ = ["check_groups", "chunk_sequence", "group_of", "interleaved_orders"]

Int32Array = npt.NDArray[np.int32]

# How many legal group sizes a refusal names.
_NAMED_SIZES = 4


def group_of(shape: Shape) -> int:
    """The group size that was asked for, or M / max(1, M // P): P where P divides M."""
    if shape.group_size is not None:
        return shape.group_size
    return shape.microbatches // max(1, shape.microbatches // shape.ranks)


def check_groups(shape: Shape) -> list[Fault]:
    """Refuse groups that would stall the ranks, and name those that would not.

    A group is all of M, or at least P and at most M, and then a shorter last group is none at all
    or at least P (Megatron's rule). By default M // P groups of equal size must be possible.
    """
    microbatches, ranks, group = shape.microbatches, shape.ranks, shape.group_size
    if group is not None:
        if _is_legal(group, shape):
            return []
        detail = (
            f"microbatches go in groups of at least {ranks} (the ranks), a shorter last group "
            f"included, or all in one; {_legal_sizes(shape)} would do for {microbatches}, "
            f"{group} does not"
        )
        return [Fault(FaultCode.ILLEGAL_SCHEDULE, ("schedule", "group_size"), detail)]
    rounds = max(1, microbatches // ranks)
    if microbatches % rounds == 0:
        return []
    below, above = microbatches - microbatches % ranks, microbatches + -microbatches % ranks
    detail = (
        f"{microbatches} microbatches on {ranks} ranks do not make {rounds} equal groups: use a "
        f"multiple of the ranks ({below} or {above}), or group_size {_legal_sizes(shape)}"
    )
    return [Fault(FaultCode.ILLEGAL_SCHEDULE, ("workload", "microbatches"), detail)]


def _is_legal(group: int, shape: Shape) -> bool:
    if group == shape.microbatches:
        return True
    if not shape.ranks <= group <= shape.microbatches:
        return False
    last = shape.microbatches % group
    return last == 0 or last >= shape.ranks


def _legal_sizes(shape: Shape) -> str:
    near = range(shape.ranks, min(shape.microbatches, shape.ranks + 64))
    sizes = [size for size in near if _is_legal(size, shape)][: _NAMED_SIZES - 1]
    return " or ".join(str(size) for size in (*sizes, shape.microbatches))


def chunk_sequence(shape: Shape, group: int) -> tuple[Int32Array, Int32Array]:
    """(M v,) the chunk and the microbatch of every forward of a rank, in order.

    Group by group; in a group chunk by chunk; in a chunk microbatch by microbatch. Backwards take
    the chunks from the last to the first.
    """
    chunks = shape.chunks_per_rank
    whole = shape.microbatches // group * group
    sequence = [
        _grouped(whole // group, group, chunks, 0),
        _grouped(1, shape.microbatches - whole, chunks, whole),
    ]
    return (
        np.concatenate([chunk for chunk, _ in sequence]),
        np.concatenate([microbatch for _, microbatch in sequence]),
    )


def _grouped(groups: int, size: int, chunks: int, first: int) -> tuple[Int32Array, Int32Array]:
    microbatch = first + np.arange(groups * size, dtype=np.int32).reshape(groups, 1, size)
    chunk = np.arange(chunks, dtype=np.int32).reshape(1, chunks, 1)
    everywhere = (groups, chunks, size)
    return (
        np.broadcast_to(chunk, everywhere).reshape(-1),
        np.broadcast_to(microbatch, everywhere).reshape(-1),
    )


def interleaved_orders(shape: Shape) -> list[RankOrder]:
    """Warm-up forwards, pairs of one forward and one backward, the remaining backwards.

    The warm-up is min(M v, 2 (P-1-rank) + (v-1) g) forwards, also for v = 1, which therefore is
    not 1F1B.
    """
    group = group_of(shape)
    chunk, microbatch = chunk_sequence(shape, group)
    last = shape.chunks_per_rank - 1
    forward, backward = chunk * shape.ranks, (last - chunk) * shape.ranks
    return [
        in_turns(
            (rank + forward, microbatch),
            (rank + backward, microbatch),
            min(len(chunk), 2 * (shape.ranks - 1 - rank) + last * group),
        )
        for rank in range(shape.ranks)
    ]
