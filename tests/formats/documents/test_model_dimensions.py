"""The dimensions of a layer in a model document: they arrive, return, and what can be wrong."""

import json
from typing import Any

import msgspec
import pytest

from service.core.errors import FaultCode, Path
from service.core.models.dimensions import Attention, Dimensions, Experts, LatentAttention, Mlp
from service.formats.documents.model import ModelDocument, to_core
from service.formats.documents.model_dimensions import DimensionsDocument, dimensions_document
from tests.core.refusals import refusals

LATENT = LatentAttention(
    heads=4, query_rank=0, key_value_rank=5, plain_size=3, rotary_size=2, value_size=7
)
PARTS = [
    Dimensions(hidden=16),
    Dimensions(hidden=16, embedding_vocabulary=100),
    Dimensions(hidden=16, head_vocabulary=100),
    Dimensions(
        hidden=16,
        attention=Attention(heads=6, key_value_heads=3, head_size=4),
        feed_forward=Mlp(width=40, gated=False),
    ),
    Dimensions(
        hidden=16,
        attention=LATENT,
        feed_forward=Experts(
            count=5,
            active=2,
            each=Mlp(width=12, gated=True),
            shared=Mlp(width=24, gated=True),
        ),
    ),
]


def model(dimensions: object, **more: Any) -> ModelDocument:
    layer = {"name": "block", "kind": "transformer_block", "dimensions": dimensions, **more}
    document = {"layers": [layer], "tensors": []}
    return msgspec.json.decode(json.dumps(document), type=ModelDocument)


@pytest.mark.parametrize("dimensions", PARTS)
def test_what_is_written_is_read_again(dimensions: Dimensions) -> None:
    written = msgspec.to_builtins(dimensions_document(dimensions))
    (layer,) = to_core(model(written)).layers
    assert layer.dimensions == dimensions
    assert msgspec.convert(written, type=DimensionsDocument) == dimensions_document(dimensions)


def test_heads_share_nothing_unless_said() -> None:
    attention = {"heads": 6, "head_size": 4}
    (layer,) = to_core(model({"hidden_size": 16, "attention": attention})).layers
    assert layer.dimensions is not None
    assert layer.dimensions.attention == Attention(heads=6, key_value_heads=6, head_size=4)


@pytest.mark.parametrize(
    ("changes", "code", "path"),
    [
        (
            {"attention": {"heads": 6, "key_value_heads": 4, "head_size": 4}},
            FaultCode.INDIVISIBLE,
            ("attention", "key_value_heads"),
        ),
        (
            {"experts": {"count": 2, "active": 3, "width": 8, "gated": True}},
            FaultCode.OUT_OF_RANGE,
            ("experts", "active"),
        ),
        (
            {
                "mlp": {"width": 8, "gated": True},
                "experts": {"count": 2, "active": 1, "width": 8, "gated": True},
            },
            FaultCode.EXCLUSIVE_FIELDS,
            ("experts",),
        ),
    ],
)
def test_faults_point_into_the_document(
    changes: dict[str, Any], code: FaultCode, path: Path
) -> None:
    dimensions = {"hidden_size": 16, **changes}
    here = ("layers", 0, "dimensions", *path)
    assert refusals(lambda: to_core(model(dimensions))) == [(code, here)]


def test_a_block_of_several_layers_has_them_in_its_layers() -> None:
    inside = {"name": "mlp", "kind": "mlp", "dimensions": {"hidden_size": 4}}
    document = model({"hidden_size": 4}, repeat=2, layers=[inside])
    assert refusals(lambda: to_core(document)) == [
        (FaultCode.EXCLUSIVE_FIELDS, ("layers", 0, "dimensions"))
    ]
