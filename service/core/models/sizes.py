"""How many bytes of a tensor one rank holds, and so sends, for one microbatch."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from service.core.errors import Fault, FaultCode, Path
from service.core.models.graph import Symbol, Tensor

__all__ = ["BatchShape", "TensorBytes", "rank_shape", "tensor_bytes", "whole_shape"]


@dataclass(frozen=True, slots=True)
class BatchShape:
    """One microbatch of one data-parallel replica, and the degrees its tensors are split over.

    `lengths_differ` says that other microbatches of the iteration have other sequence lengths.
    """

    microbatch_size: int
    sequence_length: int | None = None
    context: int = 1
    tensor: int = 1
    sequence_parallel: bool = False
    lengths_differ: bool = False


@dataclass(frozen=True, slots=True)
class TensorBytes:
    """Bytes of a tensor on one rank, and of its gradient (0 when it has none)."""

    forward: int
    backward: int


def tensor_bytes(tensor: Tensor, batch: BatchShape) -> TensorBytes | Fault:
    """Bytes of `tensor` that one rank holds for one microbatch, or why that is not known.

    A tensor with a `sequence` dimension is split over the context ranks, and under sequence
    parallelism over the tensor-parallel ranks too; without it each tensor-parallel rank holds
    (and sends) the whole of it. A tensor without a `sequence` dimension is never split. Recorded
    bytes hold at the recorded shape only: they are not scaled, and can't be split.

    Paths of faults point into a plan document.
    """
    if tensor.recorded is not None:
        return _recorded_bytes(tensor, batch)
    if tensor.shape is None or tensor.dtype is None:
        raise ValueError(f"tensor {tensor.name!r} was not checked by build_model")
    shape = rank_shape(tensor.name, tensor.shape, batch)
    if isinstance(shape, Fault):
        return shape
    elements = prod(shape)
    gradient = tensor.gradient_dtype or tensor.dtype
    return TensorBytes(
        forward=elements * tensor.dtype.bytes_per_element,
        backward=elements * gradient.bytes_per_element if tensor.has_gradient else 0,
    )


def rank_shape(
    name: str, shape: Sequence[int | Symbol], batch: BatchShape
) -> tuple[int, ...] | Fault:
    """Elements in each dimension of what one rank holds of the tensor `name`, or why unknown.

    Splitting cuts the first sequence dimension; a second one keeps its full length.
    """
    split: int | Fault | None = None
    sizes = []
    for size, whole in zip(shape, whole_shape(shape, batch), strict=True):
        if size is Symbol.SEQUENCE and split is None:
            split = _split_sequence(name, batch)
            if isinstance(split, Fault):
                return split
            sizes.append(split)
        elif whole is not None:
            sizes.append(whole)
    return tuple(sizes)


def whole_shape(shape: Sequence[int | Symbol], batch: BatchShape) -> tuple[int | None, ...]:
    """Elements in each dimension before ranks share them; None for a length that nobody gave."""
    given = {Symbol.MICROBATCH: batch.microbatch_size, Symbol.SEQUENCE: batch.sequence_length}
    return tuple(given[size] if isinstance(size, Symbol) else size for size in shape)


def _split_sequence(name: str, batch: BatchShape) -> int | Fault:
    if batch.sequence_length is None:
        detail = f"tensor {name!r} has a sequence dimension: give `sequence_length`"
        return Fault(FaultCode.MISSING_FIELD, ("workload", "sequence_length"), detail)
    length, rest = divmod(batch.sequence_length, batch.context)
    if rest:
        detail = (
            f"sequence_length {batch.sequence_length} must be a multiple of context {batch.context}"
        )
        return Fault(FaultCode.INDIVISIBLE, ("parallelism", "context"), detail)
    if not batch.sequence_parallel:
        return length
    share, rest = divmod(length, batch.tensor)
    if rest:
        detail = (
            f"sequence_length / context = {length} must be a multiple of tensor {batch.tensor} "
            "under sequence_parallel"
        )
        return Fault(FaultCode.INDIVISIBLE, ("parallelism", "tensor"), detail)
    return share


def _length_path(batch: BatchShape) -> Path:
    differ = batch.lengths_differ
    return ("workload", "microbatch_sequence_lengths" if differ else "sequence_length")


def _recorded_bytes(tensor: Tensor, batch: BatchShape) -> TensorBytes | Fault:
    recorded = tensor.recorded
    if recorded is None:
        raise ValueError(f"tensor {tensor.name!r} has no recorded size")
    if recorded.microbatch_size != batch.microbatch_size:
        detail = (
            f"the bytes of tensor {tensor.name!r} were recorded at microbatch_size "
            f"{recorded.microbatch_size} and are not scaled to {batch.microbatch_size}"
        )
        return Fault(FaultCode.INCONSISTENT, ("workload", "microbatch_size"), detail)
    if recorded.sequence_length not in (None, batch.sequence_length):
        detail = (
            f"the bytes of tensor {tensor.name!r} were recorded at sequence_length "
            f"{recorded.sequence_length}: plan with that length"
        )
        return Fault(FaultCode.INCONSISTENT, _length_path(batch), detail)
    if recorded.sequence_length is None and batch.lengths_differ:
        detail = (
            f"the bytes of tensor {tensor.name!r} were recorded without a sequence_length, so what "
            "they are at several is unknown: plan with one, or give its `shape`"
        )
        return Fault(FaultCode.INCONSISTENT, _length_path(batch), detail)
    if batch.context > 1:
        detail = (
            f"the bytes of tensor {tensor.name!r} were recorded without a shape and can't be split "
            "over context ranks: use context 1, or give its `shape`"
        )
        return Fault(FaultCode.INCONSISTENT, ("parallelism", "context"), detail)
    if batch.sequence_parallel and batch.tensor > 1:
        detail = (
            f"the bytes of tensor {tensor.name!r} were recorded without a shape and can't be split "
            "by sequence_parallel: leave it out, or give its `shape`"
        )
        return Fault(FaultCode.INCONSISTENT, ("parallelism", "sequence_parallel"), detail)
    backward = 0
    if tensor.has_gradient:
        backward = recorded.bytes
        if tensor.gradient_dtype is not None and tensor.dtype is not None:
            elements = recorded.bytes // tensor.dtype.bytes_per_element
            backward = elements * tensor.gradient_dtype.bytes_per_element
    return TensorBytes(forward=recorded.bytes, backward=backward)
