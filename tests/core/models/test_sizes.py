"""Bytes of a tensor on one rank, by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.errors import Fault, FaultCode, Path
from service.core.models.dtypes import DType
from service.core.models.graph import RecordedSize, Symbol, Tensor
from service.core.models.sizes import BatchShape, TensorBytes, tensor_bytes

HIDDEN = Tensor("hidden", "a", ("b",), (Symbol.SEQUENCE, Symbol.MICROBATCH, 8), dtype=DType.BF16)


@pytest.mark.parametrize(
    ("batch", "elements"),
    [
        (BatchShape(2, 16), 16 * 2 * 8),
        (BatchShape(2, 16, context=4), 4 * 2 * 8),
        # Without sequence parallelism each tensor-parallel rank sends the whole tensor.
        (BatchShape(2, 16, tensor=2), 16 * 2 * 8),
        (BatchShape(2, 16, tensor=2, sequence_parallel=True), 8 * 2 * 8),
        (BatchShape(2, 16, context=4, tensor=2, sequence_parallel=True), 2 * 2 * 8),
    ],
)
def test_a_sequence_is_split_over_context_and_sequence_parallel_ranks(
    batch: BatchShape, elements: int
) -> None:
    assert tensor_bytes(HIDDEN, batch) == TensorBytes(2 * elements, 2 * elements)


def test_what_has_no_sequence_is_never_split() -> None:
    scalars = Tensor("loss", "a", ("b",), (Symbol.MICROBATCH,), dtype=DType.FP32)
    batch = BatchShape(3, 16, context=4, tensor=2, sequence_parallel=True)
    assert tensor_bytes(scalars, batch) == TensorBytes(12, 12)


def test_splitting_cuts_one_of_two_sequence_dimensions() -> None:
    scores = Tensor("scores", "a", ("b",), (Symbol.SEQUENCE, Symbol.SEQUENCE), dtype=DType.FP16)
    assert tensor_bytes(scores, BatchShape(1, 16, context=4)) == TensorBytes(128, 128)


def test_gradients_have_their_own_type_or_none() -> None:
    shape = (Symbol.MICROBATCH, 10)
    wide = Tensor("x", "a", ("b",), shape, dtype=DType.BF16, gradient_dtype=DType.FP32)
    ids = Tensor("ids", "a", ("b",), shape, dtype=DType.INT64)
    assert tensor_bytes(wide, BatchShape(1)) == TensorBytes(20, 40)
    assert tensor_bytes(ids, BatchShape(1)) == TensorBytes(80, 0)


def test_recorded_bytes_hold_at_their_shape() -> None:
    recorded = Tensor("x", "a", ("b",), recorded=RecordedSize(100, 4, 128))
    assert tensor_bytes(recorded, BatchShape(4, 128)) == TensorBytes(100, 100)
    typed = Tensor(
        "x",
        "a",
        ("b",),
        recorded=RecordedSize(100, 4),
        dtype=DType.FP16,
        gradient_dtype=DType.FP32,
    )
    assert tensor_bytes(typed, BatchShape(4, 128)) == TensorBytes(100, 200)


@pytest.mark.parametrize(
    ("batch", "code", "path"),
    [
        (BatchShape(8, 128), FaultCode.INCONSISTENT, ("workload", "microbatch_size")),
        (BatchShape(4, 256), FaultCode.INCONSISTENT, ("workload", "sequence_length")),
        (BatchShape(4, 128, context=2), FaultCode.INCONSISTENT, ("parallelism", "context")),
        (
            BatchShape(4, 128, tensor=2, sequence_parallel=True),
            FaultCode.INCONSISTENT,
            ("parallelism", "sequence_parallel"),
        ),
    ],
)
def test_recorded_bytes_are_not_scaled_or_split(
    batch: BatchShape, code: FaultCode, path: Path
) -> None:
    size = tensor_bytes(Tensor("x", "a", ("b",), recorded=RecordedSize(100, 4, 128)), batch)
    assert isinstance(size, Fault)
    assert (size.code, size.path) == (code, path)


@pytest.mark.parametrize(
    ("batch", "code", "path"),
    [
        (BatchShape(1), FaultCode.MISSING_FIELD, ("workload", "sequence_length")),
        (BatchShape(1, 16, context=3), FaultCode.INDIVISIBLE, ("parallelism", "context")),
        (
            BatchShape(1, 16, context=2, tensor=3, sequence_parallel=True),
            FaultCode.INDIVISIBLE,
            ("parallelism", "tensor"),
        ),
    ],
)
def test_a_sequence_is_known_and_divisible(batch: BatchShape, code: FaultCode, path: Path) -> None:
    size = tensor_bytes(HIDDEN, batch)
    assert isinstance(size, Fault)
    assert (size.code, size.path) == (code, path)


@given(
    context=st.integers(1, 8),
    tensor=st.integers(1, 8),
    share=st.integers(1, 64),
    microbatch=st.integers(1, 64),
)
def test_the_shares_of_all_ranks_are_the_whole(
    context: int, tensor: int, share: int, microbatch: int
) -> None:
    length = context * tensor * share
    whole = tensor_bytes(HIDDEN, BatchShape(microbatch, length))
    part = tensor_bytes(HIDDEN, BatchShape(microbatch, length, context, tensor, True))
    assert isinstance(whole, TensorBytes)
    assert isinstance(part, TensorBytes)
    assert part.forward * context * tensor == whole.forward
