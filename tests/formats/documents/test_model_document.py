"""The model document: every field arrives, and its faults point into it."""

import json

import msgspec
import pytest

from service.core.errors import FaultCode
from service.core.models.dtypes import DType
from service.core.models.graph import (
    Buffer,
    Expectation,
    Layer,
    Parameter,
    RecordedSize,
    Symbol,
    Tensor,
)
from service.formats.documents.model import ModelDocument, to_core
from tests.core.refusals import refusals

MODEL = {
    "description": "two layers",
    "layers": [
        {
            "name": "embedding",
            "kind": "embedding",
            "description": "tokens to vectors",
            "parameters": [
                {"name": "table", "count": 800, "dtype": "bf16", "tied_group": "vocabulary"}
            ],
            "buffers": [{"name": "seen", "count": 1, "dtype": "int64"}],
        },
        {"name": "head", "kind": "linear"},
    ],
    "tensors": [
        {"name": "tokens", "consumers": ["embedding"], "shape": ["microbatch"], "dtype": "int32"},
        {
            "name": "hidden",
            "producer": "embedding",
            "consumers": ["head"],
            "shape": ["sequence", "microbatch", 8],
            "dtype": "bf16",
            "requires_gradient": True,
            "gradient_dtype": "fp32",
        },
        {
            "name": "logits",
            "producer": "head",
            "consumers": [],
            "bytes": 100,
            "microbatch_size": 2,
            "sequence_length": 16,
        },
    ],
}


def read(document: object) -> ModelDocument:
    return msgspec.json.decode(json.dumps(document), type=ModelDocument)


def test_everything_arrives() -> None:
    model = to_core(read(MODEL))
    assert model.layers == (
        Layer(
            "embedding",
            "embedding",
            (Parameter("table", 800, DType.BF16, "vocabulary"),),
            (Buffer("seen", 1, DType.INT64),),
        ),
        Layer("head", "linear"),
    )
    assert model.tensors == (
        Tensor("tokens", None, ("embedding",), (Symbol.MICROBATCH,), dtype=DType.INT32),
        Tensor(
            "hidden",
            "embedding",
            ("head",),
            (Symbol.SEQUENCE, Symbol.MICROBATCH, 8),
            dtype=DType.BF16,
            requires_gradient=True,
            gradient_dtype=DType.FP32,
        ),
        Tensor("logits", "head", (), recorded=RecordedSize(100, 2, 16)),
    )


def test_faults_of_document_and_graph_come_together() -> None:
    document = {
        "layers": [{"name": "a", "kind": "x"}, {"name": "a", "kind": "x"}],
        "tensors": [
            {"name": "t", "producer": "a", "consumers": [], "bytes": 1},
            {
                "name": "u",
                "producer": "a",
                "consumers": ["ghost"],
                "shape": [1],
                "dtype": "fp32",
                "microbatch_size": 2,
                "sequence_length": 2,
            },
            {"name": "v", "producer": "a", "consumers": []},
        ],
    }
    assert refusals(lambda: to_core(read(document))) == [
        (FaultCode.MISSING_FIELD, ("tensors", 0, "microbatch_size")),
        (FaultCode.EXCLUSIVE_FIELDS, ("tensors", 1, "microbatch_size")),
        (FaultCode.EXCLUSIVE_FIELDS, ("tensors", 1, "sequence_length")),
        (FaultCode.DUPLICATE_NAME, ("layers", 1, "name")),
        (FaultCode.UNKNOWN_NAME, ("tensors", 1, "consumers", 0)),
        (FaultCode.MISSING_FIELD, ("tensors", 2)),
    ]


def test_recorded_bytes_without_their_shape_are_refused() -> None:
    document = {
        "layers": [{"name": "a", "kind": "x"}],
        "tensors": [{"name": "t", "producer": "a", "consumers": [], "bytes": 1}],
    }
    assert refusals(lambda: to_core(read(document))) == [
        (FaultCode.MISSING_FIELD, ("tensors", 0, "microbatch_size"))
    ]


@pytest.mark.parametrize(
    "document",
    [
        {"layers": [], "tensors": []},
        {"layers": [{"name": "a", "kind": "x"}]},
        {"layers": [{"name": "a*", "kind": "x"}], "tensors": []},
        {"layers": [{"name": "a\n", "kind": "x"}], "tensors": []},
        {"layers": [{"name": "", "kind": "x"}], "tensors": []},
        {"layers": [{"name": "a", "kind": "x", "cost": 1}], "tensors": []},
        {"layers": [{"name": "a", "kind": "x", "description": "\0"}], "tensors": []},
        {
            "layers": [{"name": "a", "kind": "x"}],
            "tensors": [{"name": "t", "consumers": [], "shape": ["batch"], "dtype": "fp32"}],
        },
        {
            "layers": [{"name": "a", "kind": "x"}],
            "tensors": [{"name": "t", "consumers": [], "shape": [0], "dtype": "fp32"}],
        },
        {
            "layers": [{"name": "a", "kind": "x"}],
            "tensors": [{"name": "t", "consumers": [], "shape": [1], "dtype": "float"}],
        },
    ],
)
def test_what_the_schema_refuses(document: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        read(document)


def test_what_consumers_expect_stands_at_their_places() -> None:
    hidden = {
        **MODEL["tensors"][1],  # type: ignore[dict-item]
        "consumers": ["norm", "head"],
        "expected": [
            {"consumer": "head", "shape": ["sequence", 1, 8], "dtype": "fp32", "layout": "rows"}
        ],
    }
    layers = [*MODEL["layers"], {"name": "norm", "kind": "norm"}]
    model = to_core(read({**MODEL, "layers": layers, "tensors": [hidden]}))
    expected = Expectation((Symbol.SEQUENCE, 1, 8), DType.FP32, "rows")
    assert model.tensors[0].expected == (None, expected)
    hidden["expected"] = [{"consumer": name} for name in ("head", "nobody", "head")]
    found = refusals(lambda: to_core(read({**MODEL, "layers": layers, "tensors": [hidden]})))
    assert found == [
        (FaultCode.UNKNOWN_NAME, ("tensors", 0, "expected", 1, "consumer")),
        (FaultCode.DUPLICATE_NAME, ("tensors", 0, "expected", 2, "consumer")),
    ]
