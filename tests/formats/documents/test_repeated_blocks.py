"""Blocks written once: the graph they stand for, by hand and against one written out."""

import json
from typing import Any

import msgspec
import pytest

from service.core.errors import FaultCode
from service.core.models import repeats
from service.core.models.graph import Model
from service.formats.documents.canonical import canonical_bytes
from service.formats.documents.model import ModelDocument, to_core
from service.resources import example_document
from tests.core.refusals import refusal_text, refusals

HIDDEN = {"shape": ["sequence", "microbatch", 8], "dtype": "bf16"}


def read(document: object) -> ModelDocument:
    return msgspec.json.decode(json.dumps(document), type=ModelDocument)


def model_of(document: object) -> Model:
    return to_core(read(document))


def links(model: Model) -> dict[str, tuple[str | None, tuple[str, ...]]]:
    return {tensor.name: (tensor.producer, tensor.consumers) for tensor in model.tensors}


def weight(name: str, count: int = 4, **more: str) -> dict[str, Any]:
    return {"name": name, "count": count, "dtype": "bf16", **more}


CHAIN: dict[str, Any] = {
    "layers": [
        {"name": "embedding", "kind": "embedding"},
        {"name": "block", "kind": "block", "repeat": 3, "parameters": [weight("w")]},
        {"name": "head", "kind": "linear"},
    ],
    "tensors": [
        {"name": "embedded", "producer": "embedding", "consumers": ["block"], **HIDDEN},
        {"name": "hidden", "producer": "block", "consumers": ["block", "head"], **HIDDEN},
    ],
}


def test_a_chain_of_blocks_by_hand() -> None:
    model = model_of(CHAIN)
    assert [layer.name for layer in model.layers] == [
        "embedding",
        "block.0",
        "block.1",
        "block.2",
        "head",
    ]
    assert [layer.parameters[0].name for layer in model.layers[1:4]] == [
        "block.0.w",
        "block.1.w",
        "block.2.w",
    ]
    assert links(model) == {
        "embedded": ("embedding", ("block.0",)),
        "hidden.0": ("block.0", ("block.1",)),
        "hidden.1": ("block.1", ("block.2",)),
        "hidden.2": ("block.2", ("head",)),
    }
    assert model.parameter_count == 12


def test_a_block_of_several_layers_by_hand() -> None:
    """The attention's output and the block's input (a residual) both go to the MLP."""
    document = {
        "layers": [
            {"name": "embedding", "kind": "embedding"},
            {
                "name": "block",
                "kind": "block",
                "repeat": 2,
                "layers": [
                    {"name": "attention", "kind": "attention", "parameters": [weight("w", 5)]},
                    {"name": "mlp", "kind": "mlp", "buffers": [weight("seen")]},
                ],
            },
            {"name": "head", "kind": "linear"},
        ],
        "tensors": [
            {
                "name": "embedded",
                "producer": "embedding",
                "consumers": ["block.attention", "block.mlp"],
                **HIDDEN,
            },
            {
                "name": "attended",
                "producer": "block.attention",
                "consumers": ["block.mlp"],
                **HIDDEN,
            },
            {
                "name": "hidden",
                "producer": "block.mlp",
                "consumers": ["block.attention", "block.mlp", "head"],
                **HIDDEN,
            },
            {"name": "statistics", "producer": "block.mlp", "consumers": [], **HIDDEN},
            {"name": "last", "producer": "block.mlp", "consumers": ["head"], **HIDDEN},
            {"name": "skip", "producer": "block.0.mlp", "consumers": ["head"], **HIDDEN},
        ],
    }
    model = model_of(document)
    names = ["block.0.attention", "block.0.mlp", "block.1.attention", "block.1.mlp"]
    assert [layer.name for layer in model.layers] == ["embedding", *names, "head"]
    assert [layer.kind for layer in model.layers[1:3]] == ["attention", "mlp"]
    assert [buffer.name for buffer in model.layers[2].buffers] == ["seen"]
    assert links(model) == {
        "embedded": ("embedding", ("block.0.attention", "block.0.mlp")),
        "attended.0": ("block.0.attention", ("block.0.mlp",)),
        "attended.1": ("block.1.attention", ("block.1.mlp",)),
        "hidden.0": ("block.0.mlp", ("block.1.attention", "block.1.mlp")),
        "hidden.1": ("block.1.mlp", ("head",)),
        "statistics.0": ("block.0.mlp", ()),
        "statistics.1": ("block.1.mlp", ()),
        "last.1": ("block.1.mlp", ("head",)),
        "skip": ("block.0.mlp", ("head",)),
    }


def test_a_block_may_follow_a_block() -> None:
    document = {
        "layers": [
            {"name": "encoder", "kind": "block", "repeat": 2},
            {"name": "decoder", "kind": "block", "repeat": 2},
        ],
        "tensors": [
            {"name": "e", "producer": "encoder", "consumers": ["encoder", "decoder"], **HIDDEN},
            {"name": "d", "producer": "decoder", "consumers": ["decoder"], **HIDDEN},
        ],
    }
    assert links(model_of(document)) == {
        "e.0": ("encoder.0", ("encoder.1",)),
        "e.1": ("encoder.1", ("decoder.0",)),
        "d.0": ("decoder.0", ("decoder.1",)),
        "d.1": ("decoder.1", ()),
    }


def test_a_tied_group_is_one_weight_in_all_repetitions() -> None:
    shared = {**CHAIN["layers"][1], "parameters": [weight("w", 7, tied_group="shared")]}
    model = model_of({**CHAIN, "layers": [CHAIN["layers"][0], shared, CHAIN["layers"][2]]})
    assert model.parameter_count == 7
    assert [weight.layers for weight in model.weights] == [(1, 2, 3)]


def test_a_model_written_once_is_the_one_that_is_written_out() -> None:
    """The example of 24 blocks, by the same rules."""
    example = example_document("models", "gpt-24-blocks")
    layers = {layer["name"]: layer for layer in example["layers"]}
    block = {
        **layers["block.0"],
        "name": "block",
        "repeat": 24,
        "parameters": [
            {**each, "name": each["name"].removeprefix("block.0.")}
            for each in layers["block.0"]["parameters"]
        ],
    }
    outside = [layer for layer in example["layers"] if not layer["name"].startswith("block.")]
    tensors = {tensor["name"]: tensor for tensor in example["tensors"]}
    repeated = {
        **tensors["block.0.output"],
        "name": "output",
        "producer": "block",
        "consumers": ["block", "head"],
    }
    others = [
        {**tensor, "consumers": [n.replace("block.0", "block") for n in tensor["consumers"]]}
        for name, tensor in tensors.items()
        if not name.startswith("block.")
    ]
    short = {"layers": [outside[0], block, *outside[1:]], "tensors": [*others, repeated]}
    written, long = model_of(short), model_of(example)
    assert written.layers == long.layers
    assert written.parameter_count == long.parameter_count == 5_251_670_016
    renamed = {
        (tensor.name.replace("output.", "block.") + ".output", *links(written)[tensor.name])
        if tensor.name.startswith("output.")
        else (tensor.name, *links(written)[tensor.name])
        for tensor in written.tensors
    }
    assert renamed == {(name, *ends) for name, ends in links(long).items()}


def test_the_bytes_of_a_document_without_repeats_are_as_before() -> None:
    example = example_document("models", "gpt-24-blocks")
    assert msgspec.json.decode(canonical_bytes(read(example))) == example


def with_block(**changes: Any) -> dict[str, Any]:
    block = {**CHAIN["layers"][1], **changes}
    return {**CHAIN, "layers": [CHAIN["layers"][0], block, CHAIN["layers"][2]]}


NAME = "n" * 125
MEMBER = {"name": "mlp", "kind": "mlp"}


@pytest.mark.parametrize(
    ("document", "faults"),
    [
        (
            {**with_block(layers=[MEMBER]), "tensors": []},
            [(FaultCode.EXCLUSIVE_FIELDS, ("layers", 1, "parameters"))],
        ),
        (
            {"layers": [{"name": "a", "kind": "x", "layers": [MEMBER]}], "tensors": []},
            [(FaultCode.MISSING_FIELD, ("layers", 0, "repeat"))],
        ),
        (with_block(repeat=20_000), [(FaultCode.WORK_BUDGET, ("layers",))]),
        (
            with_block(parameters=[weight("w"), weight("w")]),
            [(FaultCode.DUPLICATE_NAME, ("layers", 1, "parameters", 1, "name"))],
        ),
        (with_block(name="head"), [(FaultCode.DUPLICATE_NAME, ("layers", 1, "name"))]),
        (
            {**with_block(name=NAME + "n"), "tensors": []},
            [
                (FaultCode.OUT_OF_RANGE, ("layers", 1, "name")),
                (FaultCode.OUT_OF_RANGE, ("layers", 1, "parameters", 0, "name")),
            ],
        ),
        (
            {
                "layers": [
                    *CHAIN["layers"],
                    {"name": "block.1", "kind": "linear"},
                ],
                "tensors": [],
            },
            [(FaultCode.DUPLICATE_NAME, ("layers", 3, "name"))],
        ),
        (
            {
                "layers": [{"name": "a", "kind": "x", "repeat": 2, "layers": [MEMBER, MEMBER]}],
                "tensors": [],
            },
            [(FaultCode.DUPLICATE_NAME, ("layers", 0, "layers", n, "name")) for n in (0, 1)],
        ),
        (
            {
                **CHAIN,
                "tensors": [
                    {"name": "a", "producer": "block", "consumers": ["block", "ghost"], **HIDDEN},
                    {"name": "b", "producer": "block", "consumers": ["embedding"], **HIDDEN},
                    {"name": NAME, "producer": "head", "consumers": ["block"], **HIDDEN},
                ],
            },
            [
                (FaultCode.UNKNOWN_NAME, ("tensors", 0, "consumers", 1)),
                (FaultCode.INCONSISTENT, ("tensors", 1, "consumers", 0)),
                (FaultCode.INCONSISTENT, ("tensors", 2, "consumers", 0)),
            ],
        ),
        (
            {
                **CHAIN,
                "tensors": [{"name": "a", "producer": "block", "consumers": ["block"]}],
            },
            [(FaultCode.MISSING_FIELD, ("tensors", 0))],
        ),
    ],
)
def test_faults_point_at_what_was_written(document: object, faults: object) -> None:
    assert refusals(lambda: model_of(document)) == faults


def test_a_long_name_of_a_tensor_is_told() -> None:
    long = {"name": NAME + "n", "producer": "block", "consumers": ["block"], **HIDDEN}
    document = {**CHAIN, "tensors": [long]}
    assert refusals(lambda: model_of(document)) == [
        (FaultCode.OUT_OF_RANGE, ("tensors", 0, "name"))
    ]
    assert "128 characters; at most 127" in refusal_text(lambda: model_of(document))


def test_what_a_few_lines_stand_for_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "MAX_WRITTEN", 5)
    weights = with_block(parameters=[weight("v"), weight("w")])
    assert refusals(lambda: model_of(weights)) == [(FaultCode.WORK_BUDGET, ("layers",))]
    wide = {**CHAIN, "tensors": [{**CHAIN["tensors"][1], "consumers": ["block"]}] * 2}
    assert refusals(lambda: model_of(wide)) == [(FaultCode.WORK_BUDGET, ("tensors",))]
    many = {
        "layers": [{"name": "block", "kind": "block", "repeat": 20_000}],
        "tensors": [
            {"name": f"t{n}", "producer": "block", "consumers": [], **HIDDEN} for n in range(5)
        ],
    }
    assert refusals(lambda: model_of(many)) == [(FaultCode.WORK_BUDGET, ("tensors",))]


def test_layout_arrives() -> None:
    tensor = {**CHAIN["tensors"][0], "layout": "row_major"}
    model = model_of({**CHAIN, "tensors": [tensor]})
    assert [tensor.layout for tensor in model.tensors] == ["row_major"]
    assert model_of(CHAIN).tensors[0].layout is None


def test_what_a_block_expects_each_repetition_expects() -> None:
    hidden = {
        **CHAIN["tensors"][1],
        "expected": [
            {"consumer": "block", "layout": "rows"},
            {"consumer": "head", "layout": "columns"},
        ],
    }
    model = model_of({**CHAIN, "tensors": [CHAIN["tensors"][0], hidden]})
    said = {
        tensor.name: [None if each is None else each.layout for each in tensor.expected]
        for tensor in model.tensors
    }
    assert said == {
        "embedded": [],
        "hidden.0": ["rows"],
        "hidden.1": ["rows"],
        "hidden.2": ["columns"],
    }
