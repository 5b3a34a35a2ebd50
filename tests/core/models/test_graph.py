"""The layer graph: what is checked, and what it knows of shared weights."""

from service.core.errors import FaultCode
from service.core.models.dtypes import DType
from service.core.models.graph import (
    Buffer,
    Layer,
    Parameter,
    RecordedSize,
    Symbol,
    Tensor,
    build_model,
)
from tests.core.refusals import refusal_text, refusals

SIZE = RecordedSize(bytes=8, microbatch_size=1)


def layer(name: str, *parameters: Parameter, kind: str = "linear") -> Layer:
    return Layer(name=name, kind=kind, parameters=parameters)


def test_a_graph_is_indexed_by_execution_order() -> None:
    model = build_model(
        [layer("a"), layer("b"), layer("c")],
        [
            Tensor("tokens", None, ("a",), recorded=SIZE),
            Tensor("x", "a", ("b", "c"), recorded=SIZE),
            Tensor("y", "b", ("c",), recorded=SIZE),
        ],
    )
    assert model.positions == {"a": 0, "b": 1, "c": 2}
    assert model.producers == (None, 0, 1)
    assert model.consumers == ((0,), (1, 2), (2,))
    assert model.weights == ()


def test_every_fault_of_the_links_is_told_at_once() -> None:
    found = refusals(
        lambda: build_model(
            [layer("a"), layer("b"), layer("a")],
            [
                Tensor("x", "nobody", ("b",), recorded=SIZE),
                Tensor("x", "b", ("a", "b", "ghost"), recorded=SIZE),
                Tensor("y", "b", ("a", "a"), recorded=SIZE),
            ],
        )
    )
    assert found == [
        (FaultCode.DUPLICATE_NAME, ("layers", 2, "name")),
        (FaultCode.DUPLICATE_NAME, ("tensors", 1, "name")),
        (FaultCode.UNKNOWN_NAME, ("tensors", 0, "producer")),
        (FaultCode.INCONSISTENT, ("tensors", 1, "consumers", 1)),
        (FaultCode.UNKNOWN_NAME, ("tensors", 1, "consumers", 2)),
        (FaultCode.DUPLICATE_NAME, ("tensors", 2, "consumers", 1)),
    ]


def test_a_consumer_stands_after_its_producer() -> None:
    text = refusal_text(
        lambda: build_model(
            [layer("late"), layer("early")], [Tensor("x", "early", ("late",), recorded=SIZE)]
        )
    )
    assert "'late'" in text
    assert "'early'" in text


def test_a_size_is_a_shape_with_a_dtype_or_recorded_bytes() -> None:
    shape = (Symbol.MICROBATCH, 4)
    found = refusals(
        lambda: build_model(
            [layer("a"), layer("b")],
            [
                Tensor("none", "a", ("b",)),
                Tensor("both", "a", ("b",), shape=shape, recorded=SIZE),
                Tensor("untyped", "a", ("b",), shape=shape),
            ],
        )
    )
    assert found == [
        (FaultCode.MISSING_FIELD, ("tensors", 0)),
        (FaultCode.EXCLUSIVE_FIELDS, ("tensors", 1)),
        (FaultCode.MISSING_FIELD, ("tensors", 2, "dtype")),
    ]


def test_gradients_belong_to_floating_tensors_of_layers() -> None:
    shape = (Symbol.MICROBATCH,)
    found = refusals(
        lambda: build_model(
            [layer("a"), layer("b")],
            [
                Tensor("in", None, ("a",), shape, dtype=DType.FP32, requires_gradient=True),
                Tensor("ids", "a", ("b",), shape, dtype=DType.INT64, requires_gradient=True),
                Tensor(
                    "off",
                    "a",
                    ("b",),
                    shape,
                    dtype=DType.FP32,
                    requires_gradient=False,
                    gradient_dtype=DType.FP32,
                ),
                Tensor("odd", "a", ("b",), shape, dtype=DType.FP32, gradient_dtype=DType.INT8),
                Tensor("bare", "a", ("b",), recorded=SIZE, gradient_dtype=DType.FP32),
            ],
        )
    )
    assert found == [
        (FaultCode.INCONSISTENT, ("tensors", 0, "requires_gradient")),
        (FaultCode.INCONSISTENT, ("tensors", 1, "requires_gradient")),
        (FaultCode.INCONSISTENT, ("tensors", 2, "gradient_dtype")),
        (FaultCode.INCONSISTENT, ("tensors", 3, "gradient_dtype")),
        (FaultCode.MISSING_FIELD, ("tensors", 4, "dtype")),
    ]


def test_gradients_are_the_default_where_they_can_be() -> None:
    shape = (Symbol.MICROBATCH,)
    assert Tensor("x", "a", (), shape, dtype=DType.BF16).has_gradient
    assert Tensor("x", "a", (), recorded=SIZE).has_gradient
    assert not Tensor("x", "a", (), shape, dtype=DType.INT32).has_gradient
    assert not Tensor("x", None, (), shape, dtype=DType.BF16).has_gradient


def test_layers_that_name_one_weight_or_one_group_are_tied() -> None:
    table = Parameter("table", 100, DType.BF16, tied_group="embedding")
    head = Parameter("head", 100, DType.BF16, tied_group="embedding")
    shared = Parameter("shared", 7, DType.FP32)
    model = build_model(
        [layer("first", table), layer("x", shared), layer("y", shared), layer("last", head)], []
    )
    assert [(weight.label, weight.layers) for weight in model.weights] == [
        ("tied group 'embedding'", (0, 3)),
        ("parameter 'shared'", (1, 2)),
    ]
    assert model.parameter_count == 107


def test_tied_weights_are_equally_large() -> None:
    found = refusals(
        lambda: build_model(
            [
                layer("a", Parameter("w", 100, DType.BF16, tied_group="g")),
                layer("b", Parameter("v", 101, DType.BF16, tied_group="g")),
                layer("c", Parameter("w", 100, DType.FP32, tied_group="g")),
            ],
            [],
        )
    )
    assert (FaultCode.INCONSISTENT, ("layers", 1, "parameters", 0)) in found
    assert (FaultCode.INCONSISTENT, ("layers", 2, "parameters", 0)) in found


def test_names_are_unique_within_a_layer_and_inputs_hold_nothing() -> None:
    weight = Parameter("w", 1, DType.FP32)
    buffer = Buffer("mean", 1, DType.FP32)
    found = refusals(
        lambda: build_model(
            [
                Layer("a", "norm", (weight, weight), (buffer, buffer)),
                layer("in", Parameter("v", 1, DType.FP32), kind="input"),
            ],
            [],
        )
    )
    assert found == [
        (FaultCode.DUPLICATE_NAME, ("layers", 0, "parameters", 1, "name")),
        (FaultCode.DUPLICATE_NAME, ("layers", 0, "buffers", 1, "name")),
        (FaultCode.INCONSISTENT, ("layers", 1, "parameters")),
    ]


def test_a_model_has_a_layer() -> None:
    assert refusals(lambda: build_model([], [])) == [(FaultCode.TOO_FEW_LAYERS, ("layers",))]
