"""Both ends of a cut speak of the same tensor, or the partition is refused."""

from dataclasses import replace

import pytest

from service.core.errors import FaultCode
from service.core.models.agreement import MAX_TOLD, disagreements
from service.core.models.cuts import SkipRouting, cut_model
from service.core.models.dtypes import DType
from service.core.models.graph import (
    Expectation,
    Layer,
    Model,
    RecordedSize,
    Symbol,
    Tensor,
    build_model,
)
from service.core.models.sizes import BatchShape
from tests.core.refusals import refusal_text, refusals

HIDDEN = Tensor(
    "hidden",
    "a",
    ("b", "c"),
    shape=(Symbol.SEQUENCE, Symbol.MICROBATCH, 8),
    dtype=DType.BF16,
    layout="row_major",
    gradient_dtype=DType.FP32,
)
BATCH = BatchShape(2, sequence_length=16)


def model_of(*tensors: Tensor) -> Model:
    return build_model([Layer(name, "block") for name in "abc"], tensors)


def expecting(*expected: Expectation | None) -> Model:
    return model_of(replace(HIDDEN, expected=expected))


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        (Expectation(dtype=DType.FP32), "dtype fp32 and not bf16"),
        (Expectation(layout="column_major"), "layout 'column_major' and not 'row_major'"),
        (
            Expectation(shape=(Symbol.MICROBATCH, Symbol.SEQUENCE, 8)),
            "[microbatch, sequence, 8] and not [sequence, microbatch, 8], so [2, 16, 8] and not",
        ),
        (Expectation(shape=(32, 8)), "so [32, 8] and not [16, 2, 8]"),
    ],
)
def test_what_a_consumer_behind_a_cut_expects_otherwise_is_told(
    expected: Expectation, words: str
) -> None:
    model = expecting(None, expected)
    (fault,) = disagreements(model, (0, 0, 1), [BATCH])
    assert (fault.code, fault.path) == (FaultCode.INCONSISTENT, ("partition",))
    assert words in fault.detail
    for name in ("'hidden'", "'a' on stage 0", "'c' on stage 1"):
        assert name in fault.detail
    assert disagreements(model, (0, 0, 0), [BATCH]) == []  # it converts by itself
    assert disagreements(model, (0, 1, 0), [BATCH]) == []  # the other consumer says nothing


def test_numbers_and_symbols_agree_at_the_shape_of_the_plan() -> None:
    model = expecting(Expectation((16, 2, 8), DType.BF16, "row_major"), None)
    stages = (0, 1, 1)
    assert disagreements(model, stages, [BATCH]) == []
    (fault,) = disagreements(model, stages, [BATCH, BatchShape(2, sequence_length=32)])
    assert "so [16, 2, 8] and not [32, 2, 8]" in fault.detail
    # Numbers may fit one length, never two.
    lengths = [BATCH, *(BatchShape(2, sequence_length=length) for length in (16, 32, 64))]
    assert len(disagreements(model, stages, lengths)) == 1
    # Without a length nobody knows, and the missing length is a fault by itself.
    assert disagreements(model, stages, [BatchShape(2)]) == []


def test_what_the_producer_leaves_open_agrees() -> None:
    recorded = Tensor(
        "hidden",
        "a",
        ("b",),
        recorded=RecordedSize(8, 2),
        expected=(Expectation((4,), DType.FP16, "row_major"),),
    )
    assert disagreements(model_of(recorded), (0, 1, 1), [BATCH]) == []


def test_a_cut_tells_disagreements_and_sizes_together() -> None:
    model = model_of(
        replace(HIDDEN, expected=(Expectation(dtype=DType.FP32), None)),
        Tensor("other", "b", ("c",), recorded=RecordedSize(8, 7)),
    )
    found = refusals(lambda: cut_model(model, (0, 1, 2), [BATCH]))
    assert found == [
        (FaultCode.INCONSISTENT, ("partition",)),
        (FaultCode.INCONSISTENT, ("workload", "microbatch_size")),
    ]


def test_many_disagreements_are_counted() -> None:
    wrong = (Expectation(dtype=DType.FP32), None)
    count = MAX_TOLD + 3
    model = model_of(*(replace(HIDDEN, name=f"t{i}", expected=wrong) for i in range(count)))
    found = disagreements(model, (0, 1, 1), [BATCH])
    assert len(found) == MAX_TOLD + 1
    text = refusal_text(lambda: cut_model(model, (0, 1, 1), [BATCH]))
    assert "3 more tensors are expected otherwise" in text


@pytest.mark.parametrize("routing", SkipRouting)
def test_a_cut_says_what_both_ends_agree_on(routing: SkipRouting) -> None:
    """Half of 16 tokens and of that a quarter on each tensor rank: two of them."""
    batch = replace(BATCH, context=2, tensor=4, sequence_parallel=True)
    crossing = {
        (cut.source, cut.target): [
            (t.name, t.producer, t.consumers, t.consumed_stages, t.shape) for t in cut.tensors
        ]
        for cut in cut_model(model_of(HIDDEN), (0, 1, 3), [batch], routing)
    }
    shape = (2, 2, 8)
    if routing is SkipRouting.DIRECT:
        assert crossing == {
            (0, 1): [("hidden", "a", ("b",), (1,), shape)],
            (0, 3): [("hidden", "a", ("c",), (3,), shape)],
        }
    else:
        assert crossing == {
            (0, 1): [("hidden", "a", ("b",), (1, 3), shape)],
            (1, 2): [("hidden", "a", (), (3,), shape)],
            (2, 3): [("hidden", "a", ("c",), (3,), shape)],
        }


def test_sizes_that_differ_have_no_one_shape() -> None:
    batches = [BATCH, BatchShape(2, sequence_length=32)]
    (cut,) = cut_model(model_of(HIDDEN), (0, 1, 1), batches)
    assert cut.tensors[0].shape is None
    assert cut.tensors[0].forward_bytes == (16 * 2 * 8 * 2, 32 * 2 * 8 * 2)
